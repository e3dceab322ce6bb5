//! What the sources of a configuration have now: documents in Redis, and entries.

use serde::Serialize;

use crate::configuration_source::publication::Author;
use crate::error::Error;
use crate::limiter::configured::status::ConfigurationStatus;
use crate::limiter::{Limiter, blocking};

/// A document in Redis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PublishedDocument {
    /// Counts the documents that were published, from 1 up.
    pub document_version: u64,
    /// SHA-256 of the canonical JSON, as hexadecimal digits: the digest of a [status](ConfigurationStatus::digest).
    pub digest: Box<str>,
    /// Canonical JSON.
    pub document: Box<str>,
    /// As its author has written it: TOML or JSON, with comments.
    pub text: Box<str>,
}

/// An entry beside the document: a list item, or the numbers of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigurationEntry {
    /// `deny ITEM`, `allow ITEM` or `override POLICY KEY`.
    pub entry: Box<str>,
    /// A JSON object that may have `until`, `by`, `why` and, for an override, `numbers`.
    pub value: Box<str>,
}

/// The entries of a configuration where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigurationEntries {
    /// The version of the configuration that has them; a later one may be there already. [`Limiter::wait_for_version`] waits until
    /// they are in force.
    pub version: u64,
    /// In the order of their texts, also those that do not fit the document and have no effect.
    pub entries: Vec<ConfigurationEntry>,
}

impl Limiter {
    /// The document that is published in the Redis store, or one of the last 32 by its version; `None` when there is none.
    /// Which one is in force here, the [status](Self::configuration) tells.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the document does not come from Redis;
    /// [`StoreUnavailable`](crate::ErrorKind::StoreUnavailable) when Redis does not answer;
    /// [`StoreFailed`](crate::ErrorKind::StoreFailed) when the user lacks the right.
    pub async fn published_document(
        &self,
        document_version: Option<u64>,
    ) -> Result<Option<PublishedDocument>, Error> {
        let found = self.published_store()?.published(document_version).await?;
        Ok(found.map(|(document_version, found)| PublishedDocument {
            document_version,
            digest: found.digest.into(),
            document: found.document.into(),
            text: found.text.into(),
        }))
    }

    /// All entries of the configuration.
    ///
    /// # Errors
    /// As for [`published_document`](Self::published_document); [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the
    /// source has no entries.
    pub async fn configuration_entries(&self) -> Result<ConfigurationEntries, Error> {
        let (version, entries) = self.source_entries().await?;
        let entry = |(entry, value)| ConfigurationEntry { entry, value };
        Ok(ConfigurationEntries { version, entries: entries.into_iter().map(entry).collect() })
    }

    /// Sets an entry, or deletes it when there is no value, and notes author and reason in the log of the configuration, up to
    /// 256 and 1,024 bytes. A program's own entries have no log.
    ///
    /// # Errors
    /// As for [`set_entry`](Self::set_entry).
    pub async fn change_entry(
        &self,
        entry: &str,
        value: Option<&str>,
        by: &str,
        why: &str,
    ) -> Result<ConfigurationStatus, Error> {
        if let Some(value) = value {
            self.check_entry(entry, value)?;
        }
        self.put_entry(entry, value, Author { by, why }).await
    }
}

impl blocking::Limiter {
    /// See [`Limiter::published_document`].
    ///
    /// # Errors
    /// See [`Limiter::published_document`].
    pub fn published_document(
        &self,
        document_version: Option<u64>,
    ) -> Result<Option<PublishedDocument>, Error> {
        self.block_on(self.asynchronous().published_document(document_version))?
    }

    /// See [`Limiter::configuration_entries`].
    ///
    /// # Errors
    /// See [`Limiter::configuration_entries`].
    pub fn configuration_entries(&self) -> Result<ConfigurationEntries, Error> {
        self.block_on(self.asynchronous().configuration_entries())?
    }

    /// See [`Limiter::change_entry`].
    ///
    /// # Errors
    /// See [`Limiter::change_entry`].
    pub fn change_entry(
        &self,
        entry: &str,
        value: Option<&str>,
        by: &str,
        why: &str,
    ) -> Result<ConfigurationStatus, Error> {
        self.block_on(self.asynchronous().change_entry(entry, value, by, why))?
    }
}
