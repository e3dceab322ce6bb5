//! Changes of a configuration in a store: their authors, their contents, and the history.

use crate::source::snapshot::EntryChange;
use polylimit_rules::error::Error;

/// The maximum length of an author's name and of a reason, in bytes.
const MAX_BY: usize = 256;
const MAX_WHY: usize = 1_024;

/// The result of publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    Done {
        version: u64,
        document_version: u64,
    },
    /// Another document was published meanwhile, or none yet: this is the current version.
    Conflict {
        document_version: u64,
    },
}

/// A change in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastChange {
    pub version: u64,
    /// When, in milliseconds since the Unix epoch, by the server's clock.
    pub at_ms: u64,
    pub by: Box<str>,
    pub why: Box<str>,
    pub what: PastKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PastKind {
    /// A document. The text is kept for the last 32.
    Document {
        document_version: u64,
        digest: Box<str>,
    },
    Entries(Vec<EntryChange>),
}

/// One of the last 32 documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastDocument {
    /// Canonical JSON.
    pub document: String,
    /// As written by its author, with comments.
    pub text: String,
    /// SHA-256 of the canonical JSON, as hexadecimal digits.
    pub digest: String,
}

/// The author of a change, and the reason.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a> {
    pub by: &'a str,
    pub why: &'a str,
}

impl Author<'_> {
    pub fn check(self) -> Result<(), Error> {
        for (name, text, most) in [("by", self.by, MAX_BY), ("why", self.why, MAX_WHY)] {
            if text.len() > most {
                return Err(Error::invalid_argument(format!(
                    "{name} has {} bytes: allowed are up to {most}",
                    text.len()
                )));
            }
        }
        Ok(())
    }
}
