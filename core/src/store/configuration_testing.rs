//! Follows and changes a configuration without a limiter, for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::redis::{RedisOptions, RedisStore};
use polylimit_document::source::followed::{ConfigurationSink, FollowedConfiguration, SourceOptions};
use polylimit_document::source::origin::Origin as _;
use polylimit_document::source::place::ConfigurationPlace;
use polylimit_document::source::publication::{Author, PastKind, Published};
use polylimit_document::source::snapshot::{Changed, EntryChange, Snapshot};
use polylimit_rules::error::Error;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::park;
use polylimit_store::finding::Finding;

/// A configuration that is followed. Its sink keeps the texts, and refuses documents that begin with `bad`.
pub struct Followed {
    // Dropped before the store.
    configuration: FollowedConfiguration,
    sink: Arc<Recorder>,
    store: Option<RedisStore>,
}

#[derive(Default)]
struct Recorder(Mutex<Recorded>);

#[derive(Clone, Default)]
struct Recorded {
    snapshot: Snapshot,
    applied: usize,
    reported: Vec<Option<String>>,
}

impl ConfigurationSink for Recorder {
    fn apply(&self, snapshot: &Snapshot, changed: Changed<'_>) -> Result<Box<str>, Error> {
        let text = snapshot.document.as_ref().map_or("", |document| &document.text);
        if text.starts_with("bad") {
            return Err(Error::invalid_argument("line 1, column 1: bad is read, anything else is allowed"));
        }
        let mut recorded = self.0.lock();
        match changed {
            Changed::All => recorded.snapshot = snapshot.clone(),
            Changed::Entries(some) => {
                recorded.snapshot.change_entries(some);
                (recorded.snapshot.version, recorded.snapshot.last) =
                    (snapshot.version, snapshot.last.clone());
                assert_eq!(recorded.snapshot, *snapshot, "the changes do not lead to the snapshot");
            }
        }
        recorded.applied += 1;
        Ok(text.chars().rev().collect::<String>().into())
    }

    fn report(&self, obstacle: Option<&Error>) {
        self.0.lock().reported.push(obstacle.map(ToString::to_string));
    }
}

/// The status of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of a limiter's configuration")]
pub struct Status {
    pub version: u64,
    pub digest: Option<String>,
    pub applied_at_us: Option<u64>,
    pub error: Option<String>,
    pub unreachable_since_us: Option<u64>,
}

/// A change of the past: version, by, why, and the document's version or the changed entries.
pub type Past = (u64, String, String, Result<u64, Vec<(String, Option<String>)>>);

impl Followed {
    /// What was reported to the sink, oldest first: an obstacle, or `None` once there is none.
    pub fn reported(&self) -> Vec<Option<String>> {
        self.sink.0.lock().reported.clone()
    }

    /// Starts to follow; without a URL, an in-process store.
    ///
    /// # Errors
    /// As building a limiter with these options.
    pub fn start(url: Option<&str>, place: &str, copy: Option<&Path>) -> Result<Self, Error> {
        let options = url.map(RedisOptions::parse).transpose()?;
        let made = |options: RedisOptions| RedisStore::new(&options, Clock::system(), 1_000);
        let store = options.map(made).transpose()?;
        let place = ConfigurationPlace::read(place).ok_or_else(|| Error::invalid_argument("no place"))?;
        let options = SourceOptions { place, copy: copy.map(PathBuf::from) };
        let sink = Arc::new(Recorder::default());
        let followed =
            FollowedConfiguration::start(&options, store.as_ref().map(RedisStore::origin), &as_sink(&sink))?;
        Ok(Self { configuration: followed, sink, store })
    }

    /// What a forked child follows.
    #[must_use]
    pub fn after_fork(&self) -> Self {
        let store = self.store.as_ref().map(RedisStore::after_fork);
        let sink = Arc::new(Recorder(Mutex::new(self.sink.0.lock().clone())));
        let followed = self.configuration.after_fork(store.as_ref().map(RedisStore::origin), &as_sink(&sink));
        Self { configuration: followed, sink, store }
    }

    /// The document that decides.
    pub fn document(&self) -> Option<String> {
        Some(self.sink.0.lock().snapshot.document.as_ref()?.text.to_string())
    }

    /// The entries that decide.
    pub fn entries(&self) -> Vec<(String, String)> {
        let recorded = self.sink.0.lock();
        recorded
            .snapshot
            .entries
            .iter()
            .map(|(entry, value)| (entry.to_string(), value.to_string()))
            .collect()
    }

    /// How often anything was applied.
    pub fn applied(&self) -> usize {
        self.sink.0.lock().applied
    }

    /// The status of the source.
    pub fn status(&self) -> Status {
        let status = self.configuration.status();
        Status {
            version: status.version,
            digest: status.digest.map(String::from),
            applied_at_us: status.applied_at_us,
            error: status.error.map(|error| error.message().to_owned()),
            unreachable_since_us: status.unreachable_since_us,
        }
    }

    /// Whether there is a configuration.
    pub fn is_ready(&self) -> bool {
        self.configuration.is_ready()
    }

    /// Waits until there is one.
    ///
    /// # Errors
    /// There is none in time.
    pub fn ready(&self, longest: Duration) -> Result<(), Error> {
        self.configuration.ready_blocking(longest)
    }

    /// Waits for a version, and returns whether it arrived in time.
    pub fn wait_for_version(&self, version: u64, longest: Duration) -> bool {
        park::block_on_for(longest, self.configuration.wait_for_version(version)).is_some()
    }

    /// Uses other credentials.
    ///
    /// # Errors
    /// The store is closed.
    pub fn set_credentials(&self, username: &str, password: &str) -> Result<(), Error> {
        self.store().set_credentials(Some(username), password)
    }

    /// Publishes a document. Returns its version, or the current version when it is not the expected one.
    ///
    /// # Errors
    /// As publishing by a limiter.
    pub fn publish(&self, document: &str, expected: u64) -> Result<Result<u64, u64>, Error> {
        let author = Author { by: "tests", why: "a change" };
        self.block_on(self.store().configuration().publish(document, document, expected, author))
            .map(published)
    }

    /// Publishes an earlier document again.
    ///
    /// # Errors
    /// As publishing by a limiter.
    pub fn rollback(&self, version: u64) -> Result<Result<u64, u64>, Error> {
        let author = Author { by: "tests", why: "it was better" };
        self.block_on(self.store().configuration().rollback(version, author)).map(published)
    }

    /// Changes entries, and returns the version of the configuration.
    ///
    /// # Errors
    /// As changing entries by a limiter.
    pub fn change(&self, changes: &[(&str, Option<&str>)]) -> Result<u64, Error> {
        let change = |(entry, value): &(&str, Option<&str>)| EntryChange {
            entry: (*entry).into(),
            value: value.map(Into::into),
        };
        let changes: Vec<_> = changes.iter().map(change).collect();
        let author = Author { by: "tests", why: "entries" };
        self.block_on(self.store().configuration().change_entries(&changes, author))
    }

    /// The last changes, the newest first.
    ///
    /// # Errors
    /// As the history of a limiter.
    pub fn history(&self, most: usize) -> Result<Vec<Past>, Error> {
        let history = self.block_on(self.store().configuration().history(most))?;
        let changes = |changes: Vec<EntryChange>| {
            changes.into_iter().map(|change| (change.entry.into(), change.value.map(Into::into))).collect()
        };
        let past = history.into_iter().map(|past| {
            let what = match past.what {
                PastKind::Document { document_version, .. } => Ok(document_version),
                PastKind::Entries(entries) => Err(changes(entries)),
            };
            (past.version, past.by.into(), past.why.into(), what)
        });
        Ok(past.collect())
    }

    /// The document and the number of entries in the store.
    ///
    /// # Errors
    /// As loading by a limiter.
    pub fn load(&self) -> Result<(Option<String>, usize), Error> {
        let snapshot = self.block_on(self.store().configuration().load())?;
        Ok((snapshot.document.map(|document| document.text.to_string()), snapshot.entries.len()))
    }

    /// What the doctor finds.
    ///
    /// # Errors
    /// As the doctor of a limiter.
    pub fn doctor(&self) -> Result<Vec<Finding>, Error> {
        self.block_on(self.store().examine())
    }

    fn store(&self) -> &RedisStore {
        self.store.as_ref().unwrap_or_else(|| unreachable!("a store in Redis is asked for"))
    }

    fn block_on<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.store().block_on(future)?
    }
}

fn as_sink(sink: &Arc<Recorder>) -> Arc<dyn ConfigurationSink> {
    Arc::clone(sink) as Arc<dyn ConfigurationSink>
}

fn published(published: Published) -> Result<u64, u64> {
    match published {
        Published::Done { document_version, .. } => Ok(document_version),
        Published::Conflict { document_version } => Err(document_version),
    }
}
