//! What a limiter has read of its configuration, before it is compiled.

use std::sync::Arc;

use crate::configuration::document::Document;
use crate::configuration::entry::Entries;
use crate::configuration_source::snapshot::{Changed, Snapshot};
use crate::error::Error;
use crate::limiter::configured::status::ConfigurationStatus;

/// What a limiter has parsed of its configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parsed {
    document: Option<Arc<Document>>,
    entries: Entries,
}

impl Parsed {
    /// The same with what has changed. Entries that are malformed have no effect, like those that do not fit the document.
    pub(crate) fn changed(&self, snapshot: &Snapshot, changed: Changed<'_>) -> Result<Self, Error> {
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

    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }
}

/// A document and entries that the program itself has given.
#[derive(Debug, Default)]
pub(crate) struct OwnConfiguration {
    pub(crate) snapshot: Snapshot,
    pub(crate) parsed: Parsed,
    pub(crate) applied_at_us: u64,
}

impl OwnConfiguration {
    pub(crate) fn status(&self) -> ConfigurationStatus {
        ConfigurationStatus {
            source: "document".into(),
            version: self.snapshot.version,
            document_version: 0,
            digest: self.parsed.document().map(|document| document.digest().into()).unwrap_or_default(),
            applied_at_us: self.applied_at_us,
            unreachable_for_us: 0,
            error: None,
        }
    }
}
