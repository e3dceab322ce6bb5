//! The store from which limiters take document and entries: Redis, or one outside this crate.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::source::looking::Looks;
use crate::source::publication::{Author, PastChange, PastDocument, Published};
use crate::source::snapshot::{Entries, EntryChange, Known, StoreChange};
use polylimit_rules::error::Error;

/// An operation in progress.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Reads, follows and changes the document and the entries in a store.
pub trait Origin: fmt::Debug + Send + Sync {
    fn identity(&self) -> Arc<dyn Identity>;

    /// Records that a limiter takes its configuration from here.
    fn note_followed(&self) {}

    /// Reports changes until the store fails, or nothing receives them any more. `failed` is the number of failures in a row before.
    fn follow<'a>(&'a self, changes: &'a Weak<dyn Changes>, failed: u32) -> Pending<'a, Ended>;

    /// Publishes a document, given as canonical JSON and as its author wrote it, if the published document has the expected version; 0 if
    /// there is none.
    ///
    /// # Errors
    /// A document or an author that is too long; a document that has lost policies of the published one; the store does not answer, in
    /// which case the document may have been published; the store refuses.
    fn publish<'a>(
        &'a self,
        document: &'a str,
        text: &'a str,
        expected_version: u64,
        author: Author<'a>,
    ) -> Pending<'a, Result<Published, Error>>;

    /// Publishes one of the last 32 documents again, as a new version.
    ///
    /// # Errors
    /// The document is no longer stored; as [`publish`](Self::publish).
    fn rollback<'a>(
        &'a self,
        document_version: u64,
        author: Author<'a>,
    ) -> Pending<'a, Result<Published, Error>>;

    /// Sets and removes up to 100 entries, all or none, and returns the resulting version of the configuration.
    ///
    /// # Errors
    /// No changes or too many, an entry or an author that is too long; more than 100,000 entries; the store does not answer, in which case
    /// the entries may have changed; the store refuses.
    fn change_entries<'a>(
        &'a self,
        changes: &'a [EntryChange],
        author: Author<'a>,
    ) -> Pending<'a, Result<u64, Error>>;

    /// The published document, or one of the last 32 by its version, with its version.
    ///
    /// # Errors
    /// The store does not answer, or refuses.
    fn published(
        &self,
        document_version: Option<u64>,
    ) -> Pending<'_, Result<Option<(u64, PastDocument)>, Error>>;

    /// All current entries, and a version that contains them.
    ///
    /// # Errors
    /// The store does not answer, or refuses; there are too many entries.
    fn entries(&self) -> Pending<'_, Result<(u64, Entries), Error>>;

    /// The version of the published document; 0 if there is none.
    ///
    /// # Errors
    /// The store does not answer, or refuses.
    fn document_version(&self) -> Pending<'_, Result<u64, Error>>;

    /// The last changes, newest first, as far back as the store has them.
    ///
    /// # Errors
    /// The store does not answer, or refuses.
    fn history(&self, most: usize) -> Pending<'_, Result<Vec<PastChange>, Error>>;
}

/// Receives the changes of an origin.
pub trait Changes: Send + Sync {
    /// How far the store's changes are applied; `None` before anything of the store is known.
    fn known(&self) -> Option<Known>;

    /// Whether the document, too, comes from the store.
    fn wants_document(&self) -> bool;

    /// The looks in progress at the store.
    fn looks(&self) -> &Arc<Looks>;

    /// Applies the store's changes.
    fn take_change(&self, change: StoreChange<'_>);

    /// The store has answered, and everything that it has is applied.
    fn reached(&self);

    /// The store did not answer, or refused; the configuration stays.
    fn missed(&self, error: &Error, is_unreachable: bool);
}

/// Identifies limiters with the same origin, which share a follower.
pub trait Identity: Any + Send + Sync {
    /// Distinguishes the copies of several origins.
    fn name(&self) -> String;

    fn is_same(&self, other: &dyn Identity) -> bool;
}

/// Why following has ended.
pub struct Ended {
    /// Whether everything in the store was known at some time since it began.
    pub has_read: bool,
    /// The failure that limiters report; `None` if another limiter's store may answer at once.
    pub failure: Option<OriginFailure>,
    /// How long to wait before the next attempt.
    pub pause: Duration,
}

/// Why the configuration could not be read.
pub struct OriginFailure {
    pub error: Error,
    /// Whether the store did not answer, as opposed to refusing.
    pub is_unreachable: bool,
}
