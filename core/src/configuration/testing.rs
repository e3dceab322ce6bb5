//! Helpers for tests, fuzzing and benchmarks that read documents and entries without a limiter.

use crate::configuration::document::Document;
use crate::configuration::entry::Entry;
use crate::error::Error;

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

/// Reads an entry and checks it against a document, which has to be one.
///
/// # Errors
/// Invalid argument: the entry cannot be read, or has no effect under the document.
pub fn read_entry(text: &str, value: &str, document: &[u8]) -> Result<(), Error> {
    let entry = Entry::parse(text, value)?;
    entry.check(&Document::parse(document)?)
}
