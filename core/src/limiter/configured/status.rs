//! The status of a limiter's configuration, as reported to operators.

use serde::Serialize;

use polylimit_document::source::publication::{PastChange, PastKind};

/// Which configuration is active, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigurationStatus {
    /// The source: `document` for one that the program gives, otherwise as the option `configuration` names it.
    pub source: Box<str>,
    /// Increases with each change: by the store of the configuration, or by the process where there is none. 0 before the first.
    pub version: u64,
    /// The version of the active document in the store, counted from 1: the one that
    /// [`PublishOptions`](crate::admin::PublishOptions) expects to replace. 0 where the document does not come from
    /// a store.
    pub document_version: u64,
    /// SHA-256 of the active document in canonical form, as hexadecimal digits; empty before the first.
    pub digest: Box<str>,
    /// When this version was applied, in microseconds since the Unix epoch, by this host's clock; 0 before the first.
    pub applied_at_us: u64,
    /// For how long the source has been unreachable, in microseconds; 0 when it is not.
    pub unreachable_for_us: u64,
    /// Why a newer configuration was not applied, or may be unknown.
    pub error: Option<Box<str>>,
}

/// One change of a configuration in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigurationChange {
    /// The version of the configuration after the change.
    pub version: u64,
    /// When, in milliseconds since the Unix epoch, by the server's clock.
    pub at_ms: u64,
    /// The author's name; empty when unknown.
    pub by: Box<str>,
    /// The reason; empty without one.
    pub why: Box<str>,
    /// The version of the document that was published, for [`Admin::rollback`](crate::admin::Admin::rollback); `None` for a change
    /// of entries.
    pub document_version: Option<u64>,
    /// The entries that were changed, each with its value in JSON, or `None` where it was deleted.
    pub entries: Vec<(Box<str>, Option<Box<str>>)>,
}

impl ConfigurationChange {
    pub(crate) fn of(change: PastChange) -> Self {
        let (document_version, entries) = match change.what {
            PastKind::Document { document_version, .. } => (Some(document_version), Vec::new()),
            PastKind::Entries(changes) => {
                (None, changes.into_iter().map(|change| (change.entry, change.value)).collect())
            }
        };
        let PastChange { version, at_ms, by, why, .. } = change;
        Self { version, at_ms, by, why, document_version, entries }
    }
}
