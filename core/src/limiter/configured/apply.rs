//! How a limiter applies a document and entries: it parses what has changed, compiles everything, and activates it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::limiter::configured::in_force::InForce;
use crate::limiter::configured::parsed::Parsed;
use crate::limiter::operations::Shared;
use polylimit_document::compiled::Configuration;
use polylimit_document::source::ConfigurationSink;
use polylimit_document::source::custom::CustomOrigin;
use polylimit_document::source::followed::{FollowedConfiguration, SourceOptions};
use polylimit_document::source::origin::Origin;
use polylimit_document::source::snapshot::{Changed, Snapshot};
use polylimit_rules::error::Error;
use polylimit_runtime::close_signal::closed;

/// Applies the state of a source to a limiter.
#[derive(Debug)]
pub(crate) struct Sink {
    shared: Weak<Shared>,
    parsed: Mutex<Parsed>,
}

impl Sink {
    pub(crate) fn new(shared: &Weak<Shared>) -> Self {
        Self { shared: Weak::clone(shared), parsed: Mutex::default() }
    }
}

impl ConfigurationSink for Sink {
    fn apply(&self, snapshot: &Snapshot, changed: Changed<'_>) -> Result<Box<str>, Error> {
        let shared = self.shared.upgrade().ok_or_else(closed)?;
        let mut parsed = self.parsed.lock();
        let shared = shared.here();
        *parsed = shared.apply_configuration(&parsed, snapshot, changed)?;
        shared.note_unreadable(parsed.obstacle().as_ref());
        Ok(parsed.document().map(|document| document.digest().into()).unwrap_or_default())
    }

    fn report(&self, obstacle: Option<&Error>) {
        if let Some(shared) = self.shared.upgrade() {
            let shared = shared.here();
            shared.watch.report_configuration(obstacle, shared.configured.in_force().is_some());
        }
    }
}

impl Shared {
    /// Applies the document that the program gives, or follows a source, if there is one.
    pub(crate) fn start_configuration(
        self: &Arc<Self>,
        document: Option<&str>,
        source: Option<&SourceOptions>,
    ) -> Result<(), Error> {
        match (document, source) {
            (None, None) => Ok(()),
            (Some(_), Some(_)) => Err(Error::invalid_argument(
                "document and configuration are both given: the limits come from one of them",
            )),
            (Some(document), None) => {
                self.registry.await_configuration();
                self.set_own_document(document).map(drop)
            }
            (None, Some(source)) => {
                self.registry.await_configuration();
                let root = Arc::downgrade(self);
                let make_sink = move || -> Arc<dyn ConfigurationSink> { Arc::new(Sink::new(&root)) };
                let followed = FollowedConfiguration::start(source, self.origin(), &make_sink())?;
                let _ = self.configured.make_sink.set(Arc::new(make_sink));
                // Only this call sets it.
                let _ = self.configured.followed.set(followed);
                Ok(())
            }
        }
    }

    /// Continues to follow the source that `parent` followed, the limiter of the parent process that this one replaces
    /// in a forked child.
    pub(crate) fn go_on_following(&self, parent: &Self) {
        let (ours, theirs) = (&self.configured, &parent.configured);
        if ours.goes_on.load(Ordering::Relaxed) || ours.goes_on.swap(true, Ordering::Relaxed) {
            return;
        }
        if let (Some(followed), Some(make_sink)) = (theirs.followed.get(), theirs.make_sink.get())
            && self.registry.check_open().is_ok()
        {
            let _ = ours.make_sink.set(Arc::clone(make_sink));
            let _ = ours.followed.set(followed.after_fork(self.origin(), &make_sink()));
        }
    }

    /// The store that has document and entries, if the place of the configuration is a store.
    pub(crate) fn origin(&self) -> Option<Arc<dyn Origin>> {
        match self.configured.store.get() {
            Some(store) => Some(Arc::new(CustomOrigin::new(Arc::clone(store)))),
            None => self.store.origin(),
        }
    }

    /// Records that entries cannot be read, or that all can be read again.
    fn note_unreadable(&self, obstacle: Option<&Error>) {
        let before = self.configured.unreadable.swap(obstacle.cloned().map(Arc::new));
        if before.as_deref() != obstacle {
            self.watch.report_configuration(obstacle, self.configured.in_force().is_some());
        }
    }

    /// Activates a configuration. Operations in progress complete under the previous one.
    pub(crate) fn replace_configuration(&self, configuration: Configuration) -> Result<(), Error> {
        let _replacing = self.configured.replacing.lock();
        self.registry.check_open()?;
        let before = self.configured.in_force();
        let in_force = InForce::new(configuration, before.as_deref(), &self.registry, &self.store)?;
        let ids: Vec<_> = in_force.ids().collect();
        self.configured.in_force.store(Some(Arc::new(in_force)));
        for id in ids {
            self.wait_queues.wake_all(id);
        }
        Ok(())
    }

    /// Activates a changed configuration; nothing changes when the document cannot be used.
    pub(crate) fn apply_configuration(
        &self,
        before: &Parsed,
        snapshot: &Snapshot,
        changed: Changed<'_>,
    ) -> Result<Parsed, Error> {
        let parsed = before.changed(snapshot, changed)?;
        if let Some(document) = parsed.document() {
            self.replace_configuration(Configuration::compile(Arc::clone(document), parsed.entries()))?;
        }
        Ok(parsed)
    }
}
