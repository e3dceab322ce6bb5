//! The meters of a request, and what they read from its response.

use std::sync::Arc;

use crate::meter::json::MAX_PATHS;
use crate::meter::lines::{Documents, Format};
use crate::meter::units::{VALUE, decimal, rounded_up};
use crate::meter::{Meter, Source, Tokens};
use polylimit_rules::error::Error;

/// The objects with the usage that a language model reports, the more complete ones first: in a whole response and at the end of a stream
/// of OpenAI's Chat Completions and of Anthropic's Messages; at the end of a stream of OpenAI's Responses; at the start of a stream of
/// Anthropic's Messages, which has only the input.
const OBJECTS: [&str; 3] = ["usage", "response.usage", "message.usage"];
const AT_START: usize = 2;

/// The fields of such an object: <https://platform.openai.com/docs/api-reference>, <https://docs.anthropic.com/en/api/messages>.
#[derive(Clone, Copy)]
enum Field {
    Prompt,
    Input,
    Completion,
    Output,
    Total,
    PromptCached,
    InputCached,
    CacheRead,
    CacheCreation,
}

const FIELDS: [(Field, &str); 9] = [
    (Field::Prompt, "prompt_tokens"),
    (Field::Input, "input_tokens"),
    (Field::Completion, "completion_tokens"),
    (Field::Output, "output_tokens"),
    (Field::Total, "total_tokens"),
    (Field::PromptCached, "prompt_tokens_details.cached_tokens"),
    (Field::InputCached, "input_tokens_details.cached_tokens"),
    (Field::CacheRead, "cache_read_input_tokens"),
    (Field::CacheCreation, "cache_creation_input_tokens"),
];

/// The meters of the policies of a request, by position, and the places that they need.
#[derive(Clone, Debug)]
pub struct Meters {
    each: Box<[Option<Arc<Meter>>]>,
    headers: Box<[Box<str>]>,
    /// First those of usage, if a meter needs them.
    paths: Box<[Box<[Box<str>]>]>,
    needs_usage: bool,
    /// Whether the only meter is that of every policy.
    is_for_all: bool,
}

impl Meters {
    /// The meters of policies, by position; `None` for a policy without one.
    ///
    /// # Errors
    /// [`InvalidArgument`](polylimit_rules::error::ErrorKind::InvalidArgument) when they refer to more than 128 different places of JSON, with the 27 of
    /// usage.
    pub fn new(each: impl IntoIterator<Item = Option<Arc<Meter>>>) -> Result<Self, Error> {
        let each: Box<[_]> = each.into_iter().collect();
        let sources = each.iter().flatten().flat_map(|meter| &meter.terms).map(|term| &term.source);
        let (mut headers, mut paths) = (Vec::new(), Vec::new());
        let needs_usage = sources.clone().any(|source| matches!(source, Source::Usage(_)));
        if needs_usage {
            let names =
                OBJECTS.iter().flat_map(|object| FIELDS.iter().map(move |(_, field)| (object, field)));
            paths.extend(
                names.map(|(object, field)| {
                    object.split('.').chain(field.split('.')).map(Into::into).collect()
                }),
            );
        }
        for source in sources {
            match source {
                Source::Header(name) if !headers.contains(name) => headers.push(name.clone()),
                Source::Json(path) if !paths.contains(path) => paths.push(path.clone()),
                _ => {}
            }
        }
        if paths.len() > MAX_PATHS {
            return Err(Error::invalid_argument(format!(
                "spent refers to {} places of JSON, with those of usage: allowed are up to {MAX_PATHS}",
                paths.len()
            )));
        }
        Ok(Self { each, headers: headers.into(), paths: paths.into(), needs_usage, is_for_all: false })
    }

    /// One meter for every policy.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn for_all(meter: Arc<Meter>) -> Result<Self, Error> {
        Ok(Self { is_for_all: true, ..Self::new([Some(meter)])? })
    }

    /// Whether the policy at this position has a meter.
    pub fn has(&self, at: usize) -> bool {
        self.at(at).is_some()
    }

    /// The number of policies that they are for, unless one is for every policy.
    #[expect(clippy::len_without_is_empty, reason = "a guard without policies has no meters")]
    pub fn len(&self) -> usize {
        self.each.len()
    }

    fn at(&self, at: usize) -> Option<&Arc<Meter>> {
        self.each.get(if self.is_for_all { 0 } else { at })?.as_ref()
    }

    /// Starts the reading of a response.
    pub fn reading(self: &Arc<Self>) -> MeterReading {
        let (headers, found) = (vec![None; self.headers.len()], vec![None; self.paths.len()]);
        MeterReading {
            meters: Arc::clone(self),
            headers: headers.into(),
            found: found.into(),
            documents: None,
        }
    }
}

/// What meters have read from a response so far. Its size does not depend on that of the response.
#[derive(Debug)]
pub struct MeterReading {
    meters: Arc<Meters>,
    /// The values of the fields, in units of 10^-12.
    headers: Box<[Option<i128>]>,
    /// The values at the places of JSON.
    found: Box<[Option<i128>]>,
    documents: Option<Documents>,
}

impl MeterReading {
    /// Whether the policy at this position has a meter.
    pub fn has(&self, at: usize) -> bool {
        self.meters.has(at)
    }

    /// Takes the fields of the response. Of several lines of a field, the last one with a number counts.
    pub fn head<'h>(&mut self, fields: impl IntoIterator<Item = (&'h str, &'h [u8])>) {
        let (mut format, mut is_encoded) = (None, false);
        for (name, value) in fields {
            if name.eq_ignore_ascii_case("content-type") {
                format = Format::of(value);
            } else if name.eq_ignore_ascii_case("content-encoding") {
                is_encoded = !value.trim_ascii().eq_ignore_ascii_case(b"identity");
            }
            for (known, read) in self.meters.headers.iter().zip(&mut self.headers) {
                if name.eq_ignore_ascii_case(known) {
                    *read = decimal(value.trim_ascii(), VALUE).or(*read);
                }
            }
        }
        let has_places = !self.meters.paths.is_empty() && !is_encoded;
        self.documents = format.filter(|_| has_places).map(Documents::new);
    }

    /// Whether the body has to be passed to [`body`](Self::body): a meter reads JSON, and the body is JSON without a content coding.
    pub fn needs_body(&self) -> bool {
        self.documents.is_some()
    }

    /// Takes the next piece of the body, of any size.
    pub fn body(&mut self, bytes: &[u8]) {
        if let Some(documents) = &mut self.documents {
            documents.push(bytes, &self.meters.paths, keep_in(&mut self.found));
        }
    }

    /// Takes the end of the body.
    pub fn end(&mut self) {
        if let Some(documents) = &mut self.documents {
            documents.end(&self.meters.paths, keep_in(&mut self.found));
        }
    }

    /// The units that the request has spent under the policy at this position; `None` without a meter, and when the response does not
    /// report a number that the meter needs.
    pub fn units(&self, at: usize) -> Option<u64> {
        let meter = self.meters.at(at)?;
        let mut sum = 0;
        for term in &meter.terms {
            sum += term.factor * self.value(&term.source)?;
        }
        rounded_up(sum)
    }

    fn value(&self, source: &Source) -> Option<i128> {
        match source {
            Source::Header(name) => {
                self.headers[self.meters.headers.iter().position(|known| known == name)?]
            }
            Source::Json(path) => self.found[self.meters.paths.iter().position(|known| known == path)?],
            Source::Usage(tokens) => self.tokens(*tokens),
        }
    }

    fn tokens(&self, tokens: Tokens) -> Option<i128> {
        match tokens {
            Tokens::Input => self.usage(Field::Prompt).or_else(|| {
                // Anthropic's number leaves out what is read from its cache and written to it.
                let cached = self.usage(Field::CacheRead).unwrap_or(0);
                Some(self.usage(Field::Input)? + cached + self.usage(Field::CacheCreation).unwrap_or(0))
            }),
            Tokens::Cached => {
                self.tokens(Tokens::Input)?;
                let known = [Field::PromptCached, Field::InputCached, Field::CacheRead];
                Some(known.into_iter().find_map(|field| self.usage(field)).unwrap_or(0))
            }
            Tokens::CacheWrite => {
                self.tokens(Tokens::Input)?;
                Some(self.usage(Field::CacheCreation).unwrap_or(0))
            }
            Tokens::Output => {
                self.usage(Field::Completion).or_else(|| self.usage(Field::Output)).or_else(|| {
                    // Embeddings have only a prompt and a total.
                    Some((self.usage(Field::Total)? - self.usage(Field::Prompt)?).max(0))
                })
            }
            Tokens::Total => Some(self.tokens(Tokens::Input)? + self.tokens(Tokens::Output)?),
        }
    }

    /// The value of a field of usage, in the most complete object that has it.
    fn usage(&self, field: Field) -> Option<i128> {
        if !self.meters.needs_usage {
            return None;
        }
        // The number of output tokens at the start of a stream is not that of the response.
        let is_input = matches!(field, Field::Input | Field::CacheRead | Field::CacheCreation);
        let objects = if is_input { OBJECTS.len() } else { AT_START };
        (0..objects).find_map(|object| self.found[object * FIELDS.len() + field as usize])
    }
}

/// Keeps the last number at each place.
fn keep_in(found: &mut [Option<i128>]) -> impl FnMut(usize, &[u8]) {
    |at, number| {
        if let Some(value) = decimal(number, VALUE) {
            found[at] = Some(value);
        }
    }
}
