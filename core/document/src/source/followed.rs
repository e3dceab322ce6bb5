//! A limiter's side of its configuration source.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::source::follower::{Follower, Followers, Key};
use crate::source::origin::Origin;
use crate::source::place::ConfigurationPlace;
use crate::source::snapshot::{Changed, Snapshot};
use crate::source::subscription::Subscription;
use crate::source::tasks;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_runtime::park;
use polylimit_runtime::sleep::at_most;

/// Receives the configuration, for one limiter.
pub trait ConfigurationSink: Send + Sync {
    /// Parses and compiles the changes, and decides by them from then on. Returns the digest of the document. It is called by
    /// one thread at a time, and must not close the limiter.
    ///
    /// # Errors
    /// The document cannot be used: what was read and what is allowed. Then nothing has changed. Entries that are invalid under
    /// the document are not an error: they have no effect.
    fn apply(&self, snapshot: &Snapshot, changed: Changed<'_>) -> Result<Box<str>, Error>;

    /// Reports a change of the obstacle to the newest configuration; `None` when there is none any more. Hooks of the program
    /// run in it, and may close the limiter.
    fn report(&self, obstacle: Option<&Error>);
}

/// The options of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceOptions {
    pub place: ConfigurationPlace,
    pub copy: Option<PathBuf>,
}

/// The status of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// The place, as the option names it.
    pub source: String,
    /// 0 before the first.
    pub version: u64,
    /// The version of the active document in the store; 0 if it does not come from the store.
    pub document_version: u64,
    /// SHA-256 of the active document, as hexadecimal digits.
    pub digest: Option<Box<str>>,
    /// When this version was applied, in microseconds since the Unix epoch, by this host's clock.
    pub applied_at_us: Option<u64>,
    /// Why a newer version was not applied, or may be unknown.
    pub error: Option<Error>,
    /// Since when the file has been missing or Redis has not answered, in microseconds since the Unix epoch.
    pub unreachable_since_us: Option<u64>,
    /// Whether the newest document that was read is active. A source that cannot be reached may have no newer one.
    pub is_newest: bool,
}

/// A configuration that is kept up to date until this is closed or dropped. It owns the sink, which therefore must not own it.
pub struct FollowedConfiguration {
    follower: Arc<Follower>,
    subscription: Arc<Subscription>,
    key: Key,
    is_closed: AtomicBool,
}

impl FollowedConfiguration {
    /// Applies the file, or the copy, to the sink and keeps it up to date. It does not wait for Redis: until there is a
    /// configuration, [`ready`](Self::ready) waits.
    ///
    /// # Errors
    /// The file cannot be read and no copy serves, or its document cannot be used; the place needs a store that keeps documents; no thread can
    /// be started.
    pub fn start(
        options: &SourceOptions,
        origin: Option<Arc<dyn Origin>>,
        sink: &Arc<dyn ConfigurationSink>,
    ) -> Result<Self, Error> {
        let SourceOptions { place, copy } = options.clone();
        let origin = origin.filter(|_| place.uses_store());
        if origin.is_none() && place.uses_store() {
            return Err(Error::invalid_argument(format!(
                "configuration is {}, and this store keeps no document: use file:PATH, or a store that keeps one, such as Redis",
                if place == ConfigurationPlace::Store { "store" } else { "store+file" }
            )));
        }
        if let Some(origin) = &origin {
            origin.note_followed();
        }
        let key = Key { place, copy, origin: origin.as_ref().map(|origin| origin.identity()) };
        let subscription = Subscription::new(sink, origin);
        let followed =
            Self { follower: Followers::join(&key), subscription, key, is_closed: AtomicBool::new(false) };
        followed.follower.begin(&followed.subscription, tasks::spawn)?;
        Ok(followed)
    }

    /// The same for a forked child, whose sink already has what the parent's had applied.
    #[must_use]
    pub fn after_fork(&self, origin: Option<Arc<dyn Origin>>, sink: &Arc<dyn ConfigurationSink>) -> Self {
        let origin = origin.filter(|_| self.key.place.uses_store());
        if let Some(origin) = &origin {
            origin.note_followed();
        }
        let key = Key { origin: origin.as_ref().map(|origin| origin.identity()), ..self.key.clone() };
        let subscription = self.subscription.after_fork(sink, origin);
        let followed =
            Self { follower: Followers::join(&key), subscription, key, is_closed: AtomicBool::new(false) };
        followed.follower.go_on(&followed.subscription, tasks::spawn);
        followed
    }

    pub fn status(&self) -> SourceStatus {
        let (applied, problems) = (self.subscription.applied(), self.follower.problems());
        SourceStatus {
            source: self.key.place.to_string(),
            version: applied.as_ref().map_or(0, |applied| applied.version),
            document_version: applied.as_ref().map_or(0, |applied| applied.document_version),
            digest: applied.as_ref().map(|applied| applied.digest.clone()),
            applied_at_us: applied.as_ref().map(|applied| applied.at_us),
            error: self.subscription.error(&problems),
            unreachable_since_us: self.follower.unreachable_since_us(),
            is_newest: self.subscription.refused().is_none() && problems.document().is_none(),
        }
    }

    /// Whether there is a configuration. Until then operations wait within their deadlines.
    #[cfg(feature = "testing")]
    pub fn is_ready(&self) -> bool {
        self.subscription.is_ready()
    }

    /// Waits until there is a configuration, at most this long.
    ///
    /// # Errors
    /// [`StoreUnavailable`](ErrorKind::StoreUnavailable), with the reason as far as it is known.
    pub async fn ready(&self, longest: Duration) -> Result<(), Error> {
        at_most(longest, self.subscription.wait_for(|_| true)).await.ok_or_else(|| self.unavailable())
    }

    /// [`ready`](Self::ready) for a blocking caller.
    pub fn ready_blocking(&self, longest: Duration) -> Result<(), Error> {
        let waiting = self.subscription.wait_for(|_| true);
        park::block_on_for(longest, waiting).ok_or_else(|| self.unavailable())
    }

    /// Waits until this version of the configuration, or a later one, is active.
    pub async fn wait_for_version(&self, version: u64) {
        self.subscription.wait_for(|decides| decides >= version).await;
    }

    /// Stops following: the sink receives nothing more, except for a change that is being applied. The last limiter of a
    /// follower waits for its thread to end. Closing again has no effect.
    pub fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            Followers::leave(&self.follower, &self.subscription);
        }
    }

    /// The error of an operation whose wait for a configuration was in vain.
    pub fn unavailable(&self) -> Error {
        let reason = match self.status().error {
            Some(error) => format!("there is no configuration yet: {error}"),
            None => "there is no configuration yet: the store has not answered".to_owned(),
        };
        Error::new(ErrorKind::StoreUnavailable, reason)
    }
}

impl Drop for FollowedConfiguration {
    fn drop(&mut self) {
        self.close();
    }
}
