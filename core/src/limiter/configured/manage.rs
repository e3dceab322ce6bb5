//! The operations on a limiter's configuration: its status, its changes, and waiting for them.

use std::sync::Arc;
use std::time::Duration;

use crate::limiter::configured::candidate_counts::CandidateCounts;
use crate::limiter::configured::parsed::{OwnConfiguration, Parsed};
use crate::limiter::configured::status::{ConfigurationChange, ConfigurationStatus};
use crate::limiter::{Admin, Limiter, Shared, blocking};
use polylimit_document::document::Document;
use polylimit_document::entry::Entry;
use polylimit_document::source::origin::Origin;
use polylimit_document::source::place::ConfigurationPlace;
use polylimit_document::source::publication::{Author, Published};
use polylimit_document::source::snapshot::{Changed, DocumentText, Entries, EntryChange, Snapshot};
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_runtime::clock::Clock;
use polylimit_runtime::sleep::at_most;

/// How long a change waits for this process to notice it.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);

/// Options for publishing a document.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct PublishOptions<'a> {
    /// The version of the document that this one replaces; `None` replaces any version. If another version is the
    /// published one, nothing is published.
    pub expected_version: Option<u64>,
    /// The author's name, up to 256 bytes.
    pub by: &'a str,
    /// The reason, up to 1,024 bytes.
    pub why: &'a str,
}

impl<'a> PublishOptions<'a> {
    /// Replaces this version of the document only.
    #[must_use]
    pub fn expected_version(mut self, version: u64) -> Self {
        self.expected_version = Some(version);
        self
    }

    /// The author's name, up to 256 bytes.
    #[must_use]
    pub fn by(mut self, by: &'a str) -> Self {
        self.by = by;
        self
    }

    /// The reason, up to 1,024 bytes.
    #[must_use]
    pub fn why(mut self, why: &'a str) -> Self {
        self.why = why;
        self
    }
}

impl Admin<'_> {
    /// Which configuration is active; `None` for a limiter that has none.
    pub fn configuration(self) -> Option<ConfigurationStatus> {
        let configured = &self.limiter.shared().configured;
        if let Some(followed) = configured.followed() {
            let status = followed.status();
            let since_us = status.unreachable_since_us;
            return Some(ConfigurationStatus {
                source: status.source.into(),
                version: status.version,
                document_version: status.document_version,
                digest: status.digest.unwrap_or_default(),
                applied_at_us: status.applied_at_us.unwrap_or(0),
                unreachable_for_us: since_us
                    .map_or(0, |since_us| Clock::system().now_us().saturating_sub(since_us)),
                error: status
                    .error
                    .or_else(|| configured.unreadable.load().as_deref().cloned())
                    .map(|error| error.message().into()),
            });
        }
        configured.own.load_full().map(|own| own.status())
    }

    /// Replaces the document that the program has given, in TOML or JSON; its entries are kept.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when the document cannot be used: line, column, what was read
    /// and what is allowed. Then the previous one stays active. Also for a limiter with another source of
    /// configuration.
    pub fn set_document(self, text: &str) -> Result<ConfigurationStatus, Error> {
        let shared = self.limiter.shared();
        shared.registry.check_open()?;
        match shared.configured.followed() {
            Some(followed) => Err(not_own(&followed.status().source)),
            None => shared.set_own_document(text),
        }
    }

    /// Sets an entry: `deny ITEM`, `allow ITEM` or `override POLICY KEY`. Its value is a JSON object that may have
    /// `until`, `by`, `why` and, for an override, `numbers`.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when the entry or the value cannot be read, or does not fit the
    /// active document; when the source has no entries. [`StoreUnavailable`](ErrorKind::StoreUnavailable) when the
    /// store does not answer: the entry may have been set.
    pub async fn set_entry(self, entry: &str, value: &str) -> Result<ConfigurationStatus, Error> {
        let noted = self.limiter.check_entry(entry, value)?;
        let author = Author {
            by: noted.by.as_deref().unwrap_or_default(),
            why: noted.why.as_deref().unwrap_or_default(),
        };
        self.limiter.put_entry(entry, Some(value), author).await
    }

    /// Deletes an entry; deleting an unknown entry is not an error.
    ///
    /// # Errors
    /// As for [`set_entry`](Self::set_entry).
    pub async fn delete_entry(self, entry: &str) -> Result<ConfigurationStatus, Error> {
        self.limiter.put_entry(entry, None, Author { by: "", why: "" }).await
    }

    /// Waits until this version of the configuration or a later one is active, for at most the timeout.
    ///
    /// # Errors
    /// [`StoreUnavailable`](ErrorKind::StoreUnavailable) when the timeout passes first;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a limiter without a configuration.
    pub async fn wait_for_version(
        self,
        version: u64,
        timeout: Duration,
    ) -> Result<ConfigurationStatus, Error> {
        let status = || self.configuration().ok_or_else(Error::no_configuration);
        if status()?.version >= version {
            return status();
        }
        let shared = self.limiter.shared();
        if let Some(followed) = shared.configured.followed() {
            let waiting = at_most(timeout, followed.wait_for_version(version));
            let _ = shared.closing.unless_closed(async { Ok(waiting.await) }).await?;
        }
        let status = status()?;
        if status.version >= version {
            return Ok(status);
        }
        let (has, ms) = (status.version, timeout.as_millis());
        let reason = status.error.map(|error| format!(": {error}")).unwrap_or_default();
        let message = format!(
            "the configuration has version {has} after {ms} ms, and version {version} is awaited{reason}"
        );
        Err(Error::new(ErrorKind::StoreUnavailable, message))
    }

    /// How the candidate of a policy compares with the effective quotas; `None` for a policy without a candidate.
    pub fn candidate_counts(self, policy: &str) -> Option<CandidateCounts> {
        let in_force = self.limiter.in_force().ok()?;
        let index = in_force.configuration.policy_index(policy)?;
        in_force.document(index).candidate.as_ref()?;
        Some(in_force.policy(index).counters.counts())
    }

    /// Publishes a document, in TOML or JSON, to the store that this limiter's configuration comes from, and
    /// waits until it is active in this process. Every process that follows the store applies it within a second.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when the document cannot be used; when it has no policies
    /// although the published one has some, unless it has an empty table of policies or `enabled = false`; when the
    /// published version is not the expected one; when the document does not come from a store.
    /// [`StoreUnavailable`](ErrorKind::StoreUnavailable) when the store does not answer: the document may have been
    /// published.
    pub async fn publish(
        self,
        document: &str,
        options: PublishOptions<'_>,
    ) -> Result<ConfigurationStatus, Error> {
        let store = self.limiter.published_store()?;
        let parsed = Document::parse(document.as_bytes());
        let parsed = parsed.map_err(|error| Error::invalid_argument(error.to_string()))?;
        let author = Author { by: options.by, why: options.why };
        let mut expected = match options.expected_version {
            Some(expected) => expected,
            None => store.document_version().await?,
        };
        loop {
            match store.publish(parsed.canonical(), document, expected, author).await? {
                Published::Done { version, .. } => {
                    return self.wait_for_version(version, NOTICED_WITHIN).await;
                }
                Published::Conflict { document_version } if options.expected_version.is_none() => {
                    expected = document_version;
                }
                Published::Conflict { document_version } => return Err(conflict(document_version, expected)),
            }
        }
    }

    /// Publishes one of the last 32 documents again, by its version, as [`publish`](Self::publish) does.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when the document is no longer kept; otherwise as for
    /// [`publish`](Self::publish).
    pub async fn rollback(
        self,
        document_version: u64,
        options: PublishOptions<'_>,
    ) -> Result<ConfigurationStatus, Error> {
        let store = self.limiter.published_store()?;
        let author = Author { by: options.by, why: options.why };
        match store.rollback(document_version, author).await? {
            Published::Done { version, .. } => self.wait_for_version(version, NOTICED_WITHIN).await,
            Published::Conflict { document_version: there } => Err(Error::invalid_argument(format!(
                "another document was published in the meantime, version {there}: roll back again"
            ))),
        }
    }

    /// The last changes of the configuration in its store, at most `most`, newest first.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when the document does not come from a store;
    /// [`StoreUnavailable`](ErrorKind::StoreUnavailable) when the store does not answer.
    pub async fn configuration_history(self, most: usize) -> Result<Vec<ConfigurationChange>, Error> {
        let changes = self.limiter.published_store()?.history(most).await?;
        Ok(changes.into_iter().map(ConfigurationChange::of).collect())
    }
}

impl Limiter {
    /// The store of a configuration whose document is published.
    pub(crate) fn published_store(&self) -> Result<Arc<dyn Origin>, Error> {
        let shared = self.shared();
        shared.registry.check_open()?;
        let source = shared.configured.followed().ok_or_else(Error::no_configuration)?.status().source;
        if source == ConfigurationPlace::Store.to_string() {
            return self.origin(&source);
        }
        Err(Error::invalid_argument(format!(
            "the document comes from {source}: change it there; a document is published to the source store"
        )))
    }

    fn origin(&self, source: &str) -> Result<Arc<dyn Origin>, Error> {
        self.shared().origin().filter(|_| source.starts_with("store")).ok_or_else(|| {
            Error::invalid_argument(format!(
                "the configuration comes from {source}, which has no entries: the sources store and store+file:PATH have them"
            ))
        })
    }

    /// The texts of the entries at the source of the configuration, and a version that includes them.
    pub(crate) async fn source_entries(&self) -> Result<(u64, Entries), Error> {
        let shared = self.shared();
        shared.registry.check_open()?;
        if let Some(followed) = shared.configured.followed() {
            return self.origin(&followed.status().source)?.entries().await;
        }
        let own = shared.configured.own.load_full().ok_or_else(Error::no_configuration)?;
        Ok((own.snapshot.version, own.snapshot.entries.clone()))
    }

    /// Parses an entry and rejects one that does not fit the active document.
    pub(crate) fn check_entry(&self, entry: &str, value: &str) -> Result<Entry, Error> {
        let parsed = Entry::parse(entry, value)?;
        if let Ok(in_force) = self.in_force() {
            parsed.check(in_force.configuration.document())?;
        }
        Ok(parsed)
    }

    pub(crate) async fn put_entry(
        &self,
        entry: &str,
        value: Option<&str>,
        author: Author<'_>,
    ) -> Result<ConfigurationStatus, Error> {
        let shared = self.shared();
        shared.registry.check_open()?;
        let entry = Entry::canonical_text(entry).map_or_else(|| entry.into(), String::into_boxed_str);
        let changes = [EntryChange { entry, value: value.map(Into::into) }];
        if let Some(followed) = shared.configured.followed() {
            let store = self.origin(&followed.status().source)?;
            let version = store.change_entries(&changes, author).await?;
            return self.admin().wait_for_version(version, NOTICED_WITHIN).await;
        }
        let _changing = shared.configured.changing_own.lock();
        let own = shared.configured.own.load_full().ok_or_else(Error::no_configuration)?;
        let mut next = own.snapshot.clone();
        next.change_entries(&changes);
        shared.apply_own(&own.parsed, next, Changed::Entries(&changes))
    }
}

impl Shared {
    pub(crate) fn set_own_document(&self, text: &str) -> Result<ConfigurationStatus, Error> {
        self.registry.await_configuration();
        let _changing = self.configured.changing_own.lock();
        let own = self.configured.own.load_full().unwrap_or_default();
        let mut next = own.snapshot.clone();
        next.document = Some(DocumentText { version: next.version + 1, text: text.into() });
        self.apply_own(&own.parsed, next, Changed::All)
    }

    fn apply_own(
        &self,
        before: &Parsed,
        mut next: Snapshot,
        changed: Changed<'_>,
    ) -> Result<ConfigurationStatus, Error> {
        next.version += 1;
        let parsed = self.apply_configuration(before, &next, changed)?;
        let applied = OwnConfiguration { snapshot: next, parsed, applied_at_us: Clock::system().now_us() };
        let status = applied.status();
        self.configured.own.store(Some(Arc::new(applied)));
        Ok(status)
    }
}

impl blocking::Admin<'_> {
    /// See [`Admin::configuration`].
    pub fn configuration(self) -> Option<ConfigurationStatus> {
        self.limiter.asynchronous().admin().configuration()
    }

    /// See [`Admin::set_document`].
    ///
    /// # Errors
    /// See [`Admin::set_document`].
    pub fn set_document(self, text: &str) -> Result<ConfigurationStatus, Error> {
        self.limiter.asynchronous().admin().set_document(text)
    }

    /// See [`Admin::candidate_counts`].
    pub fn candidate_counts(self, policy: &str) -> Option<CandidateCounts> {
        self.limiter.asynchronous().admin().candidate_counts(policy)
    }

    /// See [`Admin::set_entry`].
    ///
    /// # Errors
    /// See [`Admin::set_entry`].
    pub fn set_entry(self, entry: &str, value: &str) -> Result<ConfigurationStatus, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().set_entry(entry, value))?
    }

    /// See [`Admin::delete_entry`].
    ///
    /// # Errors
    /// See [`Admin::delete_entry`].
    pub fn delete_entry(self, entry: &str) -> Result<ConfigurationStatus, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().delete_entry(entry))?
    }

    /// See [`Admin::publish`].
    ///
    /// # Errors
    /// See [`Admin::publish`].
    pub fn publish(self, document: &str, options: PublishOptions<'_>) -> Result<ConfigurationStatus, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().publish(document, options))?
    }

    /// See [`Admin::rollback`].
    ///
    /// # Errors
    /// See [`Admin::rollback`].
    pub fn rollback(
        self,
        document_version: u64,
        options: PublishOptions<'_>,
    ) -> Result<ConfigurationStatus, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().rollback(document_version, options))?
    }

    /// See [`Admin::configuration_history`].
    ///
    /// # Errors
    /// See [`Admin::configuration_history`].
    pub fn configuration_history(self, most: usize) -> Result<Vec<ConfigurationChange>, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().configuration_history(most))?
    }

    /// See [`Admin::wait_for_version`].
    ///
    /// # Errors
    /// See [`Admin::wait_for_version`].
    pub fn wait_for_version(self, version: u64, timeout: Duration) -> Result<ConfigurationStatus, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().wait_for_version(version, timeout))?
    }
}

fn conflict(there: u64, expected: u64) -> Error {
    Error::invalid_argument(format!(
        "the published document has version {there}, not {expected}: read it again, and publish over that version"
    ))
}

fn not_own(source: &str) -> Error {
    Error::invalid_argument(format!(
        "the configuration comes from {source}: change it there; set_document replaces a document that the program has given"
    ))
}
