//! The parsed configuration of a limiter, before it is compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limiter::configured::status::ConfigurationStatus;
use polylimit_document::document::Document;
use polylimit_document::entry::Entries;
use polylimit_document::source::snapshot::{Changed, Snapshot};
use polylimit_rules::error::Error;

/// The document and the entries that a limiter has parsed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parsed {
    document: Option<Arc<Document>>,
    entries: Entries,
    /// Why entries cannot be read, by their texts.
    unreadable: BTreeMap<Box<str>, Error>,
}

impl Parsed {
    /// A copy with the changes applied. Entries that cannot be read, such as those of a later version, still deny what
    /// they were meant to deny, and have no other effect; those that do not fit the document have none.
    pub(crate) fn changed(&self, snapshot: &Snapshot, changed: Changed<'_>) -> Result<Self, Error> {
        let mut parsed = self.clone();
        match changed {
            Changed::Entries(entries) if parsed.document.is_some() => {
                for change in entries {
                    parsed.entries.remove(&change.entry);
                    parsed.unreadable.remove(&change.entry);
                    if let Some(value) = &change.value {
                        parsed.set(&change.entry, value);
                    }
                }
            }
            Changed::All | Changed::Entries(_) => {
                let text = snapshot.document.as_ref().ok_or_else(Error::no_configuration)?;
                let document = Document::parse(text.text.as_bytes());
                let document = document.map_err(|error| Error::invalid_argument(error.to_string()))?;
                if let Some(before) = &self.document {
                    document.refuse_lost_policies(before)?;
                }
                parsed.document = Some(Arc::new(document));
                (parsed.entries, parsed.unreadable) = (Entries::default(), BTreeMap::new());
                for (entry, value) in &snapshot.entries {
                    parsed.set(entry, value);
                }
            }
        }
        Ok(parsed)
    }

    fn set(&mut self, entry: &str, value: &str) {
        let Err(error) = self.entries.set(entry, value) else { return };
        if entry.starts_with("deny ") {
            // An item that cannot be read either is only reported.
            let _ = self.entries.set(entry, "{}");
        }
        self.unreadable.insert(entry.into(), error);
    }

    /// The error that reports entries that cannot be read to an operator. It contains no key.
    pub(crate) fn obstacle(&self) -> Option<Error> {
        let error = self.unreadable.values().next()?;
        let number = self.unreadable.len();
        let (are, them) = if number == 1 { ("entry", "it") } else { ("entries", "them") };
        Some(Error::invalid_argument(format!(
            "{number} {are} of the configuration cannot be read ({}): what such an entry denies is denied, and it has no other \
             effect; set or delete {them}",
            error.message()
        )))
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

#[cfg(test)]
mod tests {
    use super::*;
    use polylimit_document::source::snapshot::{DocumentText, EntryChange};

    const POLICIES: &str = "polylimit = 1\npolicies.api.quotas = '5/day'\n";

    fn snapshot(document: &str, entries: &[(&str, &str)]) -> Snapshot {
        Snapshot {
            document: Some(DocumentText { version: 1, text: document.into() }),
            entries: entries.iter().map(|(entry, value)| ((*entry).into(), (*value).into())).collect(),
            ..Snapshot::default()
        }
    }

    fn all(before: &Parsed, document: &str, entries: &[(&str, &str)]) -> Result<Parsed, Error> {
        before.changed(&snapshot(document, entries), Changed::All)
    }

    /// Such as an entry of a later version, while a fleet is upgraded.
    #[test]
    fn entry_that_cannot_be_read_denies_what_it_denies_and_is_reported() {
        let entries = [
            ("deny key api eve", "{nonsense"),
            ("allow key api bob", r#"{"new_field": 1}"#),
            ("block everything", "{}"),
        ];
        let parsed = all(&Parsed::default(), POLICIES, &entries).unwrap();
        let readable = [("deny key api eve", "{}")];
        assert_eq!(parsed.entries(), all(&Parsed::default(), POLICIES, &readable).unwrap().entries());
        let obstacle = parsed.obstacle().unwrap();
        assert!(
            obstacle.message().starts_with("3 entries of the configuration cannot be read ("),
            "{obstacle}"
        );
        assert!(!obstacle.message().contains("eve") && !obstacle.message().contains("bob"), "{obstacle}");
        // A repaired entry is no longer reported.
        let change = |entry: &str, value: Option<&str>| EntryChange {
            entry: entry.into(),
            value: value.map(Box::from),
        };
        let mended = [
            change("deny key api eve", Some("{}")),
            change("allow key api bob", None),
            change("block everything", None),
        ];
        let snapshot = snapshot(POLICIES, &readable);
        let parsed = parsed.changed(&snapshot, Changed::Entries(&mended)).unwrap();
        assert_eq!(parsed.obstacle(), None);
        let changes = [change("deny key api eve", Some("[]"))];
        let parsed = parsed.changed(&snapshot, Changed::Entries(&changes)).unwrap();
        assert!(parsed.obstacle().unwrap().message().starts_with("1 entry of"));
        assert_eq!(parsed.entries(), all(&Parsed::default(), POLICIES, &readable).unwrap().entries());
    }

    /// Such as a file that is read while it is being written, and ends after its first line.
    #[test]
    fn document_without_policies_replaces_none_that_has_some_unless_it_says_so() {
        let bare = all(&Parsed::default(), "polylimit = 1\n", &[]).unwrap();
        let parsed = all(&bare, POLICIES, &[]).unwrap();
        for text in ["polylimit = 1\n", r#"{"polylimit": 1}"#, "polylimit = 1\nenabled = true\n"] {
            let error = all(&parsed, text, &[]).unwrap_err();
            assert!(error.message().contains("it may be incomplete"), "{error}");
        }
        let said = [
            "polylimit = 1\n[policies]\n",
            r#"{"polylimit": 1, "policies": {}}"#,
            "polylimit = 1\nenabled = false\n",
        ];
        for text in said {
            assert!(all(&parsed, text, &[]).is_ok(), "{text}");
        }
    }
}
