//! The attributes of one request for a compiled configuration: each is looked up once, and only when it is needed.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

use smallvec::{SmallVec, smallvec};

use crate::Map;
use crate::attribute::Attribute;
use crate::client_address::address::parse_peer;
use crate::client_address::{ClientAddress, ClientAddressRules};
use crate::key_template::Key;
use crate::path::{PathPattern, Reading, Readings, readings};
use crate::request::{AttributeSource, Peer};
use crate::router_paths::RouterPaths;

/// How a compiled configuration refers to an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reference {
    Method,
    /// The path in the case in which it was sent.
    Path,
    /// The path in lower case, of a request behind a router that ignores case.
    FoldedPath,
    Client,
    /// The capture with this name from the path of the matching rule.
    Capture(Box<str>),
    /// A header or a provided attribute, by its index in the table.
    Indexed(usize),
}

/// The headers and provided attributes that a configuration refers to.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttributeTable {
    attributes: Vec<Attribute>,
    indices: Map<Attribute, usize>,
}

impl AttributeTable {
    /// The reference to an attribute, which is added if it is new.
    pub(crate) fn refer(&mut self, attribute: &Attribute) -> Reference {
        match attribute {
            Attribute::Method => Reference::Method,
            Attribute::Path => Reference::Path,
            Attribute::Client => Reference::Client,
            Attribute::Capture(name) => Reference::Capture(name.clone()),
            Attribute::Header(_) | Attribute::Provided(_) => {
                let index = self.indices.get(attribute).copied().unwrap_or_else(|| {
                    self.attributes.push(attribute.clone());
                    self.indices.insert(attribute.clone(), self.attributes.len() - 1);
                    self.attributes.len() - 1
                });
                Reference::Indexed(index)
            }
        }
    }
}

impl AttributeTable {
    /// The reference to an attribute, if the configuration refers to it.
    pub(crate) fn known(&self, attribute: &Attribute) -> Option<Reference> {
        Some(match attribute {
            Attribute::Method => Reference::Method,
            Attribute::Path => Reference::Path,
            Attribute::Client => Reference::Client,
            Attribute::Capture(name) => Reference::Capture(name.clone()),
            Attribute::Header(_) | Attribute::Provided(_) => {
                Reference::Indexed(*self.indices.get(attribute)?)
            }
        })
    }
}

/// The sender of a request.
#[derive(Clone, Copy)]
pub(crate) enum Client {
    Known(ClientAddress),
    /// The peer is text that is not an address.
    Unknown,
}

impl Client {
    /// The exact address, which is compared with networks.
    pub(crate) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Known(client) => Some(client.address()),
            Self::Unknown => None,
        }
    }
}

/// A value that is looked up on first use.
type Value<'a> = OnceCell<Option<Cow<'a, [u8]>>>;

/// The attributes of one request.
pub struct Attributes<'a> {
    source: &'a dyn AttributeSource,
    table: &'a AttributeTable,
    client_rules: &'a ClientAddressRules,
    router: RouterPaths,
    indexed: SmallVec<[Value<'a>; 8]>,
    readings: OnceCell<Option<Readings<'a>>>,
    client: OnceCell<Option<Client>>,
    client_key: OnceCell<Key>,
}

impl<'a> Attributes<'a> {
    #[inline]
    pub(crate) fn new(
        source: &'a dyn AttributeSource,
        table: &'a AttributeTable,
        client_rules: &'a ClientAddressRules,
        router: RouterPaths,
    ) -> Self {
        Self {
            source,
            table,
            client_rules,
            router,
            indexed: smallvec![OnceCell::new(); table.attributes.len()],
            readings: OnceCell::new(),
            client: OnceCell::new(),
            client_key: OnceCell::new(),
        }
    }

    /// The value of an attribute; never empty. Captures have no value here.
    pub(crate) fn value(&self, reference: &Reference) -> Option<&[u8]> {
        let value = match reference {
            Reference::Method => self.source.method(),
            Reference::Path => self.readings().first().map(Reading::sent),
            Reference::FoldedPath => self.folded_path(),
            Reference::Client => self.client_key(),
            Reference::Capture(_) => None,
            Reference::Indexed(index) => self.indexed(*index),
        };
        value.filter(|value| !value.is_empty())
    }

    /// As [`value`](Self::value), for a rule whose pattern matches this reading of the path.
    pub(crate) fn value_under<'v>(
        &'v self,
        reference: &Reference,
        matched: Option<(&PathPattern, &'v Reading<'_>)>,
    ) -> Option<&'v [u8]> {
        match reference {
            Reference::Capture(name) => {
                let (pattern, reading) = matched?;
                pattern.capture(name, reading.sent())
            }
            reference => self.value(reference),
        }
    }

    /// How the router reads paths.
    pub(crate) fn router(&self) -> RouterPaths {
        self.router
    }

    /// The ways to read the path, its normal form first; none without a path.
    pub(crate) fn readings(&self) -> &[Reading<'a>] {
        let readings =
            self.readings.get_or_init(|| self.source.path().map(|path| readings(path, self.router)));
        readings.as_deref().unwrap_or_default()
    }

    fn folded_path(&self) -> Option<&[u8]> {
        let reading = self.readings().first().filter(|_| self.router.ignores_case())?;
        Some(&reading.compared)
    }

    pub(crate) fn client(&self) -> Option<Client> {
        *self.client.get_or_init(|| {
            let peer = match self.source.peer()? {
                Peer::Address(address) => Some(address),
                Peer::Text(text) => parse_peer(text),
            };
            Some(peer.map_or(Client::Unknown, |peer| Client::Known(self.resolve(peer))))
        })
    }

    fn resolve(&self, peer: IpAddr) -> ClientAddress {
        let mut lines = SmallVec::<[&[u8]; 4]>::new();
        if let Some(header) = self.client_rules.header() {
            self.source.header(header.name(), &mut |line| lines.push(line));
        }
        self.client_rules.resolve(peer, lines)
    }

    fn client_key(&self) -> Option<&[u8]> {
        let client = self.client()?;
        Some(self.client_key.get_or_init(|| match client {
            Client::Known(client) => client.key_bytes(),
            Client::Unknown => Key::from_slice(ClientAddressRules::UNKNOWN.as_bytes()),
        }))
    }

    fn indexed(&self, index: usize) -> Option<&[u8]> {
        let cell = self.indexed.get(index)?;
        cell.get_or_init(|| match self.table.attributes.get(index)? {
            Attribute::Header(name) => self.header(name),
            Attribute::Provided(name) => self.source.attribute(name).map(Cow::Borrowed),
            _ => None,
        })
        .as_deref()
    }

    /// The lines of a header, joined by `, `.
    fn header(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let mut joined: Option<Cow<'a, [u8]>> = None;
        self.source.header(name, &mut |line| match &mut joined {
            None => joined = Some(Cow::Borrowed(line)),
            Some(lines) => {
                let lines = lines.to_mut();
                lines.extend_from_slice(b", ");
                lines.extend_from_slice(line);
            }
        });
        joined
    }
}
