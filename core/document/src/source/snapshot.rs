//! A configuration as its sources provide it: texts that are not yet checked.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A document and its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Incremented with each change: by the store, or by the process that watches a file. 0 before the first.
    pub version: u64,
    /// The id of the last record of the store's log that is included; empty when there is none.
    pub last: Box<str>,
    pub document: Option<DocumentText>,
    pub entries: Entries,
}

/// JSON by the text of the entry, such as `deny client 192.0.2.0/24`.
pub type Entries = BTreeMap<Box<str>, Box<str>>;

/// A document as text, TOML or JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentText {
    /// Which document of the store it is, from 1 up; 0 for a file.
    pub version: u64,
    pub text: Arc<str>,
}

/// A change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChange {
    pub entry: Box<str>,
    /// JSON; `None` removes the entry.
    pub value: Option<Box<str>>,
}

/// The difference from the previous snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed<'a> {
    /// The document, all entries, or both.
    All,
    /// These entries, in this order; duplicates are allowed.
    Entries(&'a [EntryChange]),
}

impl Snapshot {
    /// The maximum size of a document, in bytes.
    pub(crate) const MAX_DOCUMENT: usize = 1 << 20;

    pub const MAX_ENTRIES: usize = 100_000;

    pub fn change_entries(&mut self, changes: &[EntryChange]) {
        for EntryChange { entry, value } in changes {
            match value {
                Some(value) => drop(self.entries.insert(entry.clone(), value.clone())),
                None => drop(self.entries.remove(entry)),
            }
        }
    }
}

/// How far the store's changes are applied.
#[derive(Debug)]
pub struct Known {
    pub version: u64,
    pub last: Box<str>,
    pub document_version: u64,
}

/// The store's changes since the snapshot.
#[derive(Debug)]
pub struct StoreChange<'a> {
    pub version: u64,
    pub last: Box<str>,
    pub document: Option<DocumentText>,
    pub entries: EntriesChange<'a>,
}

#[derive(Debug)]
pub enum EntriesChange<'a> {
    /// All entries, in place of those of the snapshot.
    All(Entries),
    Some(&'a [EntryChange]),
}
