//! The configuration of a limiter: the document and entries in force, prepared for its store, and how a newer one replaces
//! them. A decision by the configuration reads all of it from one snapshot, so that no change happens halfway.

pub(crate) mod apply;
pub(crate) mod candidate_counts;
pub(crate) mod in_force;
pub(crate) mod key_decision;
pub(crate) mod manage;
pub(crate) mod pool_charges;
pub(crate) mod request_decision;
pub(crate) mod status;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::configuration::compiled::Configuration;
use crate::configuration_source::ConfigurationSink;
use crate::configuration_source::followed::{FollowedConfiguration, SourceOptions};
use crate::error::Error;
use crate::limiter::Shared;
use crate::limiter::configured::apply::Sink;
use crate::limiter::configured::in_force::InForce;
use crate::limiter::configured::manage::OwnConfiguration;
use crate::limiter::configured::pool_charges::PoolCharges;
use crate::store::Store;
use crate::store::redis::configuration::ConfigurationStore;

/// The configuration of a limiter.
#[derive(Default)]
pub(crate) struct Configured {
    /// `None` until the first one is there.
    in_force: ArcSwapOption<InForce>,
    /// Held while a configuration replaces another.
    replacing: Mutex<()>,
    /// What the program itself has given.
    pub(crate) own: Mutex<Option<OwnConfiguration>>,
    /// The source that is followed, if there is one.
    followed: OnceLock<FollowedConfiguration>,
    /// Whether a forked child goes on following, or has begun to.
    goes_on: AtomicBool,
    /// The limiter whose configuration is followed, in the process that made it.
    root: OnceLock<Weak<Shared>>,
    pub(crate) pool_charges: PoolCharges,
}

impl Configured {
    /// The same configuration, for a forked child.
    pub(crate) fn after_fork(&self) -> Self {
        Self { in_force: ArcSwapOption::new(self.in_force.load_full()), ..Self::default() }
    }

    /// Ends following.
    pub(crate) fn close(&self) {
        if let Some(followed) = self.followed.get() {
            followed.close();
        }
    }

    pub(crate) fn followed(&self) -> Option<&FollowedConfiguration> {
        self.followed.get()
    }

    #[inline]
    pub(crate) fn in_force(&self) -> Option<Arc<InForce>> {
        self.in_force.load_full()
    }
}

impl fmt::Debug for Configured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configured")
            .field("is_followed", &self.followed.get().is_some())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Takes the document that the program gives, or follows a source, where there is one.
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
                let root = self.configured.root.get_or_init(|| Arc::downgrade(self));
                let sink: Arc<dyn ConfigurationSink> = Arc::new(Sink::new(root));
                let followed = FollowedConfiguration::start(source, self.configuration_store(), &sink)?;
                // Only this call sets it.
                let _ = self.configured.followed.set(followed);
                Ok(())
            }
        }
    }

    /// Goes on following what the limiter of the parent process has followed. This is in place of it in a forked child.
    pub(crate) fn go_on_following(&self, parent: &Self) {
        let (ours, theirs) = (&self.configured, &parent.configured);
        if ours.goes_on.load(Ordering::Relaxed) || ours.goes_on.swap(true, Ordering::Relaxed) {
            return;
        }
        if let (Some(followed), Some(root)) = (theirs.followed.get(), theirs.root.get())
            && self.registry.check_open().is_ok()
        {
            let _ = ours.root.set(Weak::clone(root));
            let sink: Arc<dyn ConfigurationSink> = Arc::new(Sink::new(root));
            let _ = ours.followed.set(followed.after_fork(self.configuration_store(), &sink));
        }
    }

    fn configuration_store(&self) -> Option<ConfigurationStore> {
        match &self.store {
            Store::Redis(store) => Some(store.configuration()),
            Store::Memory(_) | Store::Local(_) => None,
        }
    }

    /// Puts a configuration in force. Operations that have begun end under the one before.
    pub(crate) fn replace_configuration(&self, configuration: Configuration) -> Result<(), Error> {
        let _replacing = self.configured.replacing.lock();
        self.registry.check_open()?;
        let before = self.configured.in_force();
        let in_force = InForce::new(configuration, before.as_deref(), self)?;
        let ids: Vec<_> = in_force.ids().collect();
        self.configured.in_force.store(Some(Arc::new(in_force)));
        for id in ids {
            self.wait_queues.wake_all(id);
        }
        Ok(())
    }
}
