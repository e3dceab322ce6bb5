//! How a limiter takes a document and entries: it parses what has changed, compiles everything, and puts it in force.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::configuration::compiled::Configuration;
use crate::configuration::document::Document;
use crate::configuration::entry::Entries;
use crate::configuration_source::ConfigurationSink;
use crate::configuration_source::snapshot::{Changed, Snapshot};
use crate::error::Error;
use crate::limiter::Shared;
use crate::runtime::close_signal::closed;

/// What a limiter has parsed of its configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parsed {
    document: Option<Arc<Document>>,
    entries: Entries,
}

impl Parsed {
    /// The same with what has changed. Entries that are malformed have no effect, like those that do not fit the document.
    fn changed(&self, snapshot: &Snapshot, changed: Changed<'_>) -> Result<Self, Error> {
        let mut parsed = self.clone();
        match changed {
            Changed::Entries(entries) if parsed.document.is_some() => {
                for change in entries {
                    parsed.entries.remove(&change.entry);
                    if let Some(value) = &change.value {
                        let _ = parsed.entries.set(&change.entry, value);
                    }
                }
            }
            Changed::All | Changed::Entries(_) => {
                let text = snapshot.document.as_ref().ok_or_else(Error::no_configuration)?;
                let document = Document::parse(text.text.as_bytes());
                let document = document.map_err(|error| Error::invalid_argument(error.to_string()))?;
                parsed.document = Some(Arc::new(document));
                parsed.entries = Entries::default();
                for (entry, value) in &snapshot.entries {
                    let _ = parsed.entries.set(entry, value);
                }
            }
        }
        Ok(parsed)
    }

    pub(crate) fn document(&self) -> Option<&Arc<Document>> {
        self.document.as_ref()
    }
}

/// Gives a limiter what its source has.
#[derive(Debug)]
pub(crate) struct Sink {
    shared: Weak<Shared>,
    parsed: Mutex<Parsed>,
}

impl Sink {
    pub(crate) fn new(shared: &Weak<Shared>) -> Self {
        Self { shared: Weak::clone(shared), parsed: Mutex::default() }
    }
}

impl ConfigurationSink for Sink {
    fn apply(&self, snapshot: &Snapshot, changed: Changed<'_>) -> Result<Box<str>, Error> {
        let shared = self.shared.upgrade().ok_or_else(closed)?;
        let mut parsed = self.parsed.lock();
        *parsed = shared.here().apply_configuration(&parsed, snapshot, changed)?;
        Ok(parsed.document().map(|document| document.digest().into()).unwrap_or_default())
    }
}

impl Shared {
    /// Puts a changed configuration in force; nothing changes when the document cannot be used.
    pub(crate) fn apply_configuration(
        &self,
        before: &Parsed,
        snapshot: &Snapshot,
        changed: Changed<'_>,
    ) -> Result<Parsed, Error> {
        let parsed = before.changed(snapshot, changed)?;
        if let Some(document) = &parsed.document {
            self.replace_configuration(Configuration::compile(Arc::clone(document), &parsed.entries))?;
        }
        Ok(parsed)
    }
}
