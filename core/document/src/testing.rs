//! Helpers for tests, fuzzing and benchmarks that read documents and entries, and match requests, without a limiter.

use std::borrow::Cow;
use std::sync::Arc;

use crate::compiled::Configuration;
use crate::document::Document;
use crate::entry::{Entries, Entry};
use crate::matcher::{AppliedPolicy, PolicyMatch};
use crate::path;
use crate::request::AttributeSource;
use crate::router_paths::RouterPaths;
use polylimit_rules::error::Error;

/// Line, column and message of a document that is refused.
pub type Refused = (usize, usize, String);

/// Reads and checks a document; returns its canonical JSON.
///
/// # Errors
/// Where the first mistake is, and what it is.
pub fn read_document(bytes: &[u8]) -> Result<String, Refused> {
    let document = Document::parse(bytes).map_err(|error| (error.line, error.column, error.message))?;
    Ok(document.canonical().to_owned())
}

/// Reads an entry and checks it against a document, which must be valid.
///
/// # Errors
/// Invalid argument: the entry cannot be read, or has no effect under the document.
pub fn read_entry(text: &str, value: &str, document: &[u8]) -> Result<(), Error> {
    let entry = Entry::parse(text, value)?;
    entry.check(&Document::parse(document)?)
}

/// A document with entries, compiled.
#[derive(Debug)]
pub struct CompiledConfiguration {
    configuration: Configuration,
}

impl CompiledConfiguration {
    /// Reads a document and entries, each as its text and its value in JSON.
    ///
    /// # Errors
    /// Invalid argument: the first mistake.
    pub fn new<'e>(
        document: &[u8],
        entries: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> Result<Self, Error> {
        let document = Arc::new(Document::parse(document)?);
        let mut read = Entries::default();
        for (text, value) in entries {
            read.set(text, value)?;
        }
        Ok(Self { configuration: Configuration::compile(document, &read) })
    }

    /// The policies that the rules apply to a request.
    ///
    /// # Errors
    /// Invalid argument: the attribute that gives a cost does not hold one.
    pub fn matching(&self, source: &dyn AttributeSource, now_us: u64) -> Result<Vec<PolicyMatch>, Error> {
        self.configuration.matching(source, now_us)
    }

    /// Everything that is determined about a request before a store is called: the verdict of the lists, its policies, the
    /// verdicts on their keys, and their effective quotas. Returns whether the lists deny it, and the sum of the indices of the
    /// quotas' sets; `None` if a cost is invalid.
    pub fn resolve(&self, source: &dyn AttributeSource, now_us: u64) -> Option<(bool, u32)> {
        let request = self.configuration.attributes(source);
        if let Some(verdict) = self.configuration.list_verdict(&request, now_us) {
            return Some((verdict.denies, 0));
        }
        let plan = self.configuration.plan(&request);
        let mut sum = 0;
        for applied in self.configuration.apply_rules(&request, now_us).ok()? {
            if let Some(verdict) = self.configuration.key_verdict(applied.policy, &applied.key, now_us) {
                return Some((verdict.denies, 0));
            }
            let AppliedPolicy { policy, ref key, ref calendar, .. } = applied;
            sum += self.configuration.effective(policy, key, plan, calendar.as_deref(), now_us).ok()?.set;
        }
        Some((false, sum))
    }
}

/// The normal form of a path, as rules compare it.
pub fn normalise_path(path: &[u8]) -> Cow<'_, [u8]> {
    path::normalise(path, RouterPaths::new())
}
