//! The configuration of a limiter: the document and active entries, prepared for its store, and how a newer one
//! replaces them. A decision by the configuration reads all of it from one snapshot, so that it never sees half of a
//! change.

pub(crate) mod apply;
pub(crate) mod candidate_counts;
pub(crate) mod in_force;
pub(crate) mod key_decision;
pub(crate) mod key_steps;
pub(crate) mod lists;
pub(crate) mod manage;
mod parsed;
pub(crate) mod pool_charges;
mod pools;
pub(crate) mod published;
pub(crate) mod request_decision;
pub(crate) mod request_match;
pub(crate) mod status;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::limiter::configured::in_force::InForce;
use crate::limiter::configured::parsed::OwnConfiguration;
use crate::limiter::configured::pool_charges::PoolCharges;
use crate::store::custom::ConfigurationStore;
use polylimit_document::source::ConfigurationSink;
use polylimit_document::source::followed::FollowedConfiguration;
use polylimit_rules::error::Error;

type MakeSink = dyn Fn() -> Arc<dyn ConfigurationSink> + Send + Sync;

/// The configuration of a limiter.
#[derive(Default)]
pub(crate) struct Configured {
    /// `None` until the first one is active.
    pub(crate) in_force: ArcSwapOption<InForce>,
    /// Held while a configuration replaces another.
    pub(crate) replacing: Mutex<()>,
    /// The configuration that the program itself has given.
    pub(crate) own: ArcSwapOption<OwnConfiguration>,
    /// Held while the program changes its own configuration.
    pub(crate) changing_own: Mutex<()>,
    /// The store of the configuration, if it is not that of the states.
    pub(crate) store: OnceLock<Arc<dyn ConfigurationStore>>,
    /// The source that is followed, if any.
    pub(crate) followed: OnceLock<FollowedConfiguration>,
    /// Whether a forked child continues to follow the source, or has begun to.
    pub(crate) goes_on: AtomicBool,
    /// Creates the sink of a process: a forked child has its own.
    pub(crate) make_sink: OnceLock<Arc<MakeSink>>,
    pub(crate) pool_charges: PoolCharges,
    /// Why entries of the source cannot be read.
    pub(crate) unreadable: ArcSwapOption<Error>,
}

impl Configured {
    /// The same configuration, for a forked child.
    pub(crate) fn after_fork(&self) -> Self {
        let store = self.store.get().map(|store| store.after_fork());
        Self {
            store: store.map(OnceLock::from).unwrap_or_default(),
            in_force: ArcSwapOption::new(self.in_force.load_full()),
            own: ArcSwapOption::new(self.own.load_full()),
            ..Self::default()
        }
    }

    /// Stops following the source.
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
