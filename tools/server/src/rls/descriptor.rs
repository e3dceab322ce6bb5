//! A descriptor of a request: what was sent, checked, as attributes by which the rules of the document find policies.

use polylimit::Request;
use polylimit::document::{AttributeSource, Peer};
use polylimit::raw::descriptor_attributes;
use tonic::Status;

use crate::app::App;
use crate::counters::{Interface, Rejection};
use crate::rls::messages::{RateLimitDescriptor, RateLimitOverride, Unit};

/// The most entries of a descriptor.
const MAX_ENTRIES: usize = 64;

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hits {
    /// Would one hit be admitted?
    Peek,
    Spend(u64),
    GiveBack(u64),
}

/// A descriptor: `docs/internals/envoy-ratelimit.md` lists its attributes.
pub(super) struct Descriptor<'a> {
    domain: &'a str,
    /// The keys of the entries, joined by commas.
    keys: String,
    entries: Vec<(String, &'a str)>,
    pub(super) hits: Hits,
    /// The limit in place of the document's, and the key under it.
    pub(super) limit: Option<OverridingLimit>,
}

/// A limit that the request brings along.
pub(super) struct OverridingLimit {
    /// Quotas as text.
    pub(super) quotas: String,
    /// The domain and the entries.
    pub(super) key: String,
}

impl<'a> Descriptor<'a> {
    /// Reads the descriptors of a request that adds this many hits to those that do not have their own number.
    pub(super) fn read_all(
        app: &App,
        domain: &'a str,
        descriptors: &'a [RateLimitDescriptor],
        hits: u64,
    ) -> Result<Vec<Self>, Status> {
        if domain.is_empty() {
            return Err(Status::invalid_argument("the domain is empty: name the one of Envoy's filter"));
        }
        let most = app.options.limits.requests;
        match descriptors.len() {
            0 => return Err(Status::invalid_argument("there is no descriptor: send at least one")),
            sent if sent > most => {
                return Err(too_large(
                    app,
                    &format!("there are {sent} descriptors: allowed are up to {most}"),
                ));
            }
            _ => {}
        }
        descriptors.iter().map(|sent| Self::read(app, domain, hits, sent)).collect()
    }

    fn read(app: &App, domain: &'a str, hits: u64, sent: &'a RateLimitDescriptor) -> Result<Self, Status> {
        let entries = &sent.entries;
        if entries.is_empty() {
            return Err(Status::invalid_argument("a descriptor has no entry: send at least one in each"));
        }
        if entries.len() > MAX_ENTRIES {
            let sent = entries.len();
            return Err(too_large(
                app,
                &format!("a descriptor has {sent} entries: allowed are up to {MAX_ENTRIES}"),
            ));
        }
        let bytes =
            domain.len() + entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum::<usize>();
        let most = app.options.limits.key;
        if bytes > most {
            return Err(too_large(
                app,
                &format!("a descriptor and the domain have {bytes} bytes: allowed are up to {most}"),
            ));
        }
        let keys: Vec<&str> = entries.iter().map(|entry| &*entry.key).collect();
        let names = descriptor_attributes(&keys);
        let limit = sent.limit.filter(|_| app.options.rls.overrides);
        let limit = limit.map(|limit| OverridingLimit::read(limit, domain, sent)).transpose()?;
        Ok(Self {
            domain,
            keys: keys.join(","),
            entries: names.into_iter().zip(entries.iter().map(|entry| &*entry.value)).collect(),
            hits: hits_of(sent, hits)?,
            limit,
        })
    }
}

fn too_large(app: &App, message: &str) -> Status {
    app.counters.rejected(Interface::Grpc, Rejection::TooLarge);
    Status::invalid_argument(message)
}

/// What a descriptor asks for: its own number of hits before that of the request.
fn hits_of(sent: &RateLimitDescriptor, of_request: u64) -> Result<Hits, Status> {
    let hits = sent.hits_addend.unwrap_or(of_request);
    if hits > Request::MAX_COST {
        return Err(Status::invalid_argument(format!(
            "hits_addend is {hits}: allowed is 0 to {}",
            Request::MAX_COST
        )));
    }
    Ok(match hits {
        0 => Hits::Peek,
        _ if sent.is_negative_hits => Hits::GiveBack(hits),
        _ => Hits::Spend(hits),
    })
}

impl OverridingLimit {
    fn read(limit: RateLimitOverride, domain: &str, sent: &RateLimitDescriptor) -> Result<Self, Status> {
        let period = match limit.unit() {
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "30d",
            Unit::Year => "365d",
            Unit::Unknown => {
                return Err(Status::invalid_argument(
                    "the limit of a descriptor has no unit: allowed are SECOND, MINUTE, HOUR, DAY, WEEK, MONTH and YEAR",
                ));
            }
        };
        let quotas = format!("{}/{period} fixed_window aligned", limit.requests_per_unit);
        let entries = sent.entries.iter().flat_map(|entry| [&entry.key, &entry.value]);
        let parts: Vec<String> =
            std::iter::once(domain).chain(entries.map(String::as_str)).map(escaped).collect();
        Ok(Self { quotas, key: parts.join("|") })
    }
}

/// A part of a key, in which no `|` stands.
fn escaped(part: &str) -> String {
    part.replace('%', "%25").replace('|', "%7C")
}

impl AttributeSource for Descriptor<'_> {
    fn method(&self) -> Option<&[u8]> {
        None
    }

    fn path(&self) -> Option<&[u8]> {
        None
    }

    fn peer(&self) -> Option<Peer<'_>> {
        None
    }

    fn header<'a>(&'a self, _name: &str, _line: &mut dyn FnMut(&'a [u8])) {}

    fn attribute(&self, name: &str) -> Option<&[u8]> {
        match name {
            "domain" => Some(self.domain.as_bytes()),
            "descriptor" => Some(self.keys.as_bytes()),
            _ => {
                let entry = self.entries.iter().find(|(entry, _)| entry == name);
                entry.map(|(_, value)| value.as_bytes())
            }
        }
    }
}
