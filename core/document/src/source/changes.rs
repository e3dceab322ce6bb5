//! Which changes of a configuration in a store are allowed, in every store.

use crate::document::Document;
use crate::source::snapshot::{EntryChange, Snapshot};
use polylimit_rules::error::Error;

/// The maximum number of changes in one call, and in one record of the log of Redis.
pub(crate) const MAX_CHANGES: usize = 100;
/// The maximum length of an entry and of its JSON, in bytes.
const MAX_ENTRY: usize = 65_536;
/// The maximum size of all changes of one call, in bytes: a follower of Redis reads the records of 100 calls at once.
const MAX_CHANGE_BYTES: usize = 512 << 10;

/// Refuses a document that is too long.
pub fn check_size(document: &str, text: &str) -> Result<(), Error> {
    let length = document.len().max(text.len());
    if length <= Snapshot::MAX_DOCUMENT {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "the document has {length} bytes: allowed are up to {}",
        Snapshot::MAX_DOCUMENT
    )))
}

/// Refuses a document that followers would refuse. If either document is of a later version, it cannot be read, and nothing is compared.
pub fn refuse_lost_policies(document: &str, there: &str) -> Result<(), Error> {
    match [document, there].map(|text| Document::parse(text.as_bytes())) {
        [Ok(document), Ok(there)] => document.refuse_lost_policies(&there),
        _ => Ok(()),
    }
}

/// Refuses no changes, too many of them, and entries of another form.
pub fn check_changes(changes: &[EntryChange]) -> Result<(), Error> {
    if changes.is_empty() || changes.len() > MAX_CHANGES {
        return Err(Error::invalid_argument(format!(
            "{} entries are changed at once: allowed are 1 to {MAX_CHANGES}",
            changes.len()
        )));
    }
    let mut bytes = 0;
    for EntryChange { entry, value } in changes {
        let value_length = value.as_ref().map_or(0, |value| value.len());
        let length = entry.len().max(value_length);
        bytes += entry.len() + value_length;
        if length > MAX_ENTRY {
            return Err(Error::invalid_argument(format!(
                "an entry or its value has {length} bytes: allowed are up to {MAX_ENTRY}"
            )));
        }
        if !entry.contains(' ') || value.as_ref().is_some_and(|value| value.is_empty()) {
            return Err(Error::invalid_argument(
                "an entry has an invalid form: allowed are `deny ITEM`, `allow ITEM` and `override POLICY KEY`, each with JSON",
            ));
        }
    }
    if bytes > MAX_CHANGE_BYTES {
        return Err(Error::invalid_argument(format!(
            "the changed entries have {bytes} bytes: allowed are up to {MAX_CHANGE_BYTES} at once"
        )));
    }
    Ok(())
}

/// The error for changes after which there would be this many entries.
pub fn too_many_entries(count: u64) -> Error {
    Error::invalid_argument(format!(
        "there would be {count} entries: allowed are up to {}",
        Snapshot::MAX_ENTRIES
    ))
}

/// The error for a document that is not stored any more.
pub fn unknown_document(document_version: u64) -> Error {
    Error::invalid_argument(format!(
        "document {document_version} does not exist: allowed is one of the last 32, which the history lists"
    ))
}
