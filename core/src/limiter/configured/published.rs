//! The current contents of a configuration's sources: documents in a store, and entries.

use serde::Serialize;

use crate::limiter::configured::status::ConfigurationStatus;
use crate::limiter::{Admin, blocking};
use polylimit_document::source::publication::Author;
use polylimit_rules::error::Error;

/// A published document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PublishedDocument {
    /// Counts the documents that were published, from 1 up.
    pub document_version: u64,
    /// SHA-256 of the canonical JSON, as hexadecimal digits: the digest of a [status](ConfigurationStatus::digest).
    pub digest: Box<str>,
    /// Canonical JSON.
    pub document: Box<str>,
    /// As its author wrote it: TOML or JSON, with comments.
    pub text: Box<str>,
}

/// An entry in addition to the document: a list item, or the quotas of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigurationEntry {
    /// `deny ITEM`, `allow ITEM` or `override POLICY KEY`.
    pub entry: Box<str>,
    /// A JSON object that may have `until`, `by`, `why` and, for an override, `numbers`.
    pub value: Box<str>,
}

/// The entries of a configuration at its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigurationEntries {
    /// A version of the configuration that includes them; there may be a later one already.
    /// [`Admin::wait_for_version`] waits until they are active.
    pub version: u64,
    /// In the order of their texts, including those that do not fit the document and have no effect.
    pub entries: Vec<ConfigurationEntry>,
}

impl Admin<'_> {
    /// The document that is published in the store, or one of the last 32 by its version; `None` when there is
    /// none. The [status](Self::configuration) shows which one is active in this process.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the document does not come from a store;
    /// [`StoreUnavailable`](crate::ErrorKind::StoreUnavailable) when the store does not answer;
    /// [`StoreFailed`](crate::ErrorKind::StoreFailed) when the user lacks the right.
    pub async fn published_document(
        self,
        document_version: Option<u64>,
    ) -> Result<Option<PublishedDocument>, Error> {
        let found = self.limiter.published_store()?.published(document_version).await?;
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
    pub async fn configuration_entries(self) -> Result<ConfigurationEntries, Error> {
        let (version, entries) = self.limiter.source_entries().await?;
        let entry = |(entry, value)| ConfigurationEntry { entry, value };
        Ok(ConfigurationEntries { version, entries: entries.into_iter().map(entry).collect() })
    }

    /// Sets an entry, or deletes it when there is no value, and records author and reason in the log of the
    /// configuration, up to 256 and 1,024 bytes. A program's own entries have no log.
    ///
    /// # Errors
    /// As for [`set_entry`](Self::set_entry).
    pub async fn change_entry(
        self,
        entry: &str,
        value: Option<&str>,
        by: &str,
        why: &str,
    ) -> Result<ConfigurationStatus, Error> {
        if let Some(value) = value {
            self.limiter.check_entry(entry, value)?;
        }
        self.limiter.put_entry(entry, value, Author { by, why }).await
    }
}

impl blocking::Admin<'_> {
    /// See [`Admin::published_document`].
    ///
    /// # Errors
    /// See [`Admin::published_document`].
    pub fn published_document(
        self,
        document_version: Option<u64>,
    ) -> Result<Option<PublishedDocument>, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().published_document(document_version))?
    }

    /// See [`Admin::configuration_entries`].
    ///
    /// # Errors
    /// See [`Admin::configuration_entries`].
    pub fn configuration_entries(self) -> Result<ConfigurationEntries, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().configuration_entries())?
    }

    /// See [`Admin::change_entry`].
    ///
    /// # Errors
    /// See [`Admin::change_entry`].
    pub fn change_entry(
        self,
        entry: &str,
        value: Option<&str>,
        by: &str,
        why: &str,
    ) -> Result<ConfigurationStatus, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().change_entry(entry, value, by, why))?
    }
}
