//! One limiter of those that a follower feeds: what it has applied, and what keeps it from applying more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::source::ConfigurationSink;
use crate::source::origin::Origin;
use crate::source::problems::Problems;
use crate::source::snapshot::{Changed, Snapshot};
use polylimit_rules::error::Error;
use polylimit_runtime::clock::Clock;

pub(crate) struct Subscription {
    sink: Arc<dyn ConfigurationSink>,
    /// The store of the limiter, for a configuration that comes from it.
    pub(crate) origin: Option<Arc<dyn Origin>>,
    applied: ArcSwapOption<Applied>,
    /// Why the newest document was not applied.
    refused: ArcSwapOption<Error>,
    /// The obstacle that was reported last.
    reported: Mutex<Option<Error>>,
    /// Whether the sink has applied anything since it subscribed. A forked child starts with what its parent has applied.
    has_begun: AtomicBool,
    /// The active version; `None` while document or entries are missing.
    decides: watch::Sender<Option<u64>>,
}

/// The configuration that a limiter has applied.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) version: u64,
    pub(crate) document_version: u64,
    pub(crate) digest: Box<str>,
    /// Microseconds since the Unix epoch, by this host's clock.
    pub(crate) at_us: u64,
    /// Whether document and entries were known.
    is_complete: bool,
}

impl Subscription {
    pub(crate) fn new(sink: &Arc<dyn ConfigurationSink>, origin: Option<Arc<dyn Origin>>) -> Arc<Self> {
        Self::of(sink, origin, None, None)
    }

    /// The subscription of a forked child, whose sink has what the parent's had applied.
    pub(crate) fn after_fork(
        &self,
        sink: &Arc<dyn ConfigurationSink>,
        origin: Option<Arc<dyn Origin>>,
    ) -> Arc<Self> {
        let applied = self.applied.load_full();
        // The parent's channel may be locked by a thread that does not exist here.
        let decides = applied.as_ref().filter(|applied| applied.is_complete).map(|applied| applied.version);
        Self::of(sink, origin, applied, decides)
    }

    fn of(
        sink: &Arc<dyn ConfigurationSink>,
        origin: Option<Arc<dyn Origin>>,
        applied: Option<Arc<Applied>>,
        decides: Option<u64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            sink: Arc::clone(sink),
            origin,
            applied: ArcSwapOption::new(applied),
            refused: ArcSwapOption::empty(),
            reported: Mutex::default(),
            has_begun: AtomicBool::new(false),
            decides: watch::Sender::new(decides),
        })
    }

    /// Applies a snapshot; `false` when its document is refused, and then nothing has changed. `is_complete` says whether
    /// document and entries are known.
    pub(crate) fn apply(&self, snapshot: &Snapshot, changed: Changed<'_>, is_complete: bool) -> bool {
        let changed = if self.has_begun.load(Ordering::Relaxed) { changed } else { Changed::All };
        match self.sink.apply(snapshot, changed) {
            Ok(digest) => {
                let at_us = Clock::system().now_us();
                let version = snapshot.version;
                let document_version = snapshot.document.as_ref().map_or(0, |document| document.version);
                let applied = Applied { version, document_version, digest, at_us, is_complete };
                self.applied.store(Some(Arc::new(applied)));
                self.has_begun.store(true, Ordering::Relaxed);
                if is_complete {
                    self.decides.send_replace(Some(snapshot.version));
                }
                true
            }
            Err(error) => {
                self.refused.store(Some(Arc::new(error)));
                false
            }
        }
    }

    /// Records that the newest document is applied.
    pub(crate) fn has_newest_document(&self) {
        self.refused.store(None);
    }

    pub(crate) fn applied(&self) -> Option<Arc<Applied>> {
        self.applied.load_full()
    }

    pub(crate) fn refused(&self) -> Option<Arc<Error>> {
        self.refused.load_full()
    }

    /// Why a newer configuration was not applied, or may be unknown.
    pub(crate) fn error(&self, problems: &Problems) -> Option<Error> {
        let source = self
            .refused()
            .map(|error| Error::clone(&error))
            .or_else(|| [&problems.file, &problems.store].into_iter().flatten().next().cloned());
        // A damaged copy explains why there are no limits while the store is unavailable: neither error hides the other.
        match (source, &problems.copy) {
            (Some(source), Some(copy)) => {
                Some(Error::new(source.kind(), format!("{}; {}", source.message(), copy.message())))
            }
            (source, copy) => source.or_else(|| copy.clone()),
        }
    }

    /// Reports to the limiter what keeps it from the newest configuration, once for each reason, and once when nothing does any
    /// more. An unreachable store is not reported here, because decisions without it are.
    pub(crate) fn report(&self, problems: &Problems) {
        let obstacle =
            problems.document().cloned().or_else(|| self.refused().map(|error| Error::clone(&error)));
        let mut reported = self.reported.lock();
        if *reported == obstacle {
            return;
        }
        reported.clone_from(&obstacle);
        drop(reported);
        self.sink.report(obstacle.as_ref());
    }

    /// Whether there is a configuration, with document and entries.
    #[cfg(feature = "testing")]
    pub(crate) fn is_ready(&self) -> bool {
        self.decides.borrow().is_some()
    }

    /// Waits until a version that satisfies the predicate is active.
    pub(crate) async fn wait_for(&self, is_awaited: impl Fn(u64) -> bool) {
        let mut decides = self.decides.subscribe();
        if decides.wait_for(|version| version.is_some_and(&is_awaited)).await.is_err() {
            // The sender lives as long as this.
            std::future::pending::<()>().await;
        }
    }
}
