//! The hub: connections, runtime and thread that limiters of this process with the same settings share.
//!
//! Limiters of one store need no more connections than a single limiter: their operations share batches. So there is
//! one hub for each combination of URL, options and credentials, created by its first limiter and closed with its last.
//! Everything else belongs to each limiter: policies, cached denials, leases, fallback states and counts.
//!
//! A limiter with a manual clock has its own hub, since its calls carry its time. A forked child has its own hubs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::error::Error;
use crate::runtime::clock::{Clock, ManualClock};
use crate::runtime::fork::ProcessGeneration;
use crate::store::redis::config::Settings;
use crate::store::redis::config::target::Credentials;
use crate::store::redis::pipeline::context::Context;
use crate::store::redis::routing::invalidation_channel::Channel;
use crate::store::redis::routing::runtimes::Runtimes;

#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) context: Arc<Context>,
    pub(crate) runtimes: Runtimes,
    pub(crate) channel: Arc<Channel>,
}

impl Hub {
    fn new(settings: &Settings, manual: Option<ManualClock>) -> Result<Arc<Self>, Error> {
        Ok(Self::of(settings, Context::new(settings, manual)?))
    }

    fn of(settings: &Settings, context: Context) -> Arc<Self> {
        let context = Arc::new(context);
        let endpoints = &settings.target.endpoints;
        let runtimes = Runtimes::new(endpoints.clone(), Arc::clone(&context));
        let channel = Channel::new(settings, Arc::clone(&context));
        Arc::new(Self { context, runtimes, channel })
    }

    /// A hub for one limiter in a forked child. Files that the parent has read are not read again: the child may lack
    /// the permission.
    pub(crate) fn after_fork(&self, settings: &Arc<Settings>) -> Arc<Self> {
        let made = || Self::of(settings, self.context.after_fork());
        if self.context.manual.is_some() {
            return made();
        }
        let joined = Hubs::here().join_or(settings, || Ok::<_, Infallible>(made()));
        match joined {
            Ok(hub) => hub,
            Err(never) => match never {},
        }
    }

    /// Joins the hub of these settings for one more limiter, which [leaves](Self::leave) it later.
    pub(crate) fn join(settings: &Arc<Settings>, clock: &Clock) -> Result<Arc<Self>, Error> {
        match clock.manual() {
            Some(manual) => Self::new(settings, Some(manual.clone())),
            None => Hubs::here().join_or(settings, || Self::new(settings, None)),
        }
    }

    /// Leaves the hub for one limiter; the last one closes it.
    pub(crate) fn leave(self: &Arc<Self>, settings: &Arc<Settings>) {
        if Hubs::here().leave(self, settings) {
            self.channel.close();
            self.context.switches.close();
            self.runtimes.close();
        }
    }

    /// Moves one limiter to other settings, which differ only in these credentials. Other limiters keep theirs: so the
    /// limiter moves to another hub, unless it is the only limiter of this one.
    pub(crate) fn renew(
        self: &Arc<Self>,
        settings: &Arc<Settings>,
        renewed: &Arc<Settings>,
        credentials: Credentials,
    ) -> Result<Arc<Self>, Error> {
        let hubs = Hubs::here();
        if hubs.rename(self, settings, renewed) {
            self.context.connector.set_credentials(credentials);
            return Ok(Arc::clone(self));
        }
        let other = hubs.join_or(renewed, || Self::new(renewed, None))?;
        self.leave(settings);
        Ok(other)
    }
}

/// A hub, and the number of its limiters.
type Used = (Arc<Hub>, usize);

/// The hubs of this process.
struct Hubs {
    generation: ProcessGeneration,
    /// Hubs by the settings of their limiters.
    shared: Mutex<HashMap<Arc<Settings>, Used, RandomState>>,
    /// The hubs of a forked child: the parent's lock may be held by a thread that does not exist in the child.
    after_fork: OnceLock<Box<Self>>,
}

impl Hubs {
    fn new() -> Self {
        Self { generation: ProcessGeneration::here(), shared: Mutex::default(), after_fork: OnceLock::new() }
    }

    fn here() -> &'static Self {
        static HUBS: OnceLock<Hubs> = OnceLock::new();
        let mut hubs = HUBS.get_or_init(Self::new);
        while !hubs.generation.is_here() {
            hubs = hubs.after_fork.get_or_init(|| Box::new(Self::new()));
        }
        hubs
    }

    /// Joins the hub of these settings; creates it if there is none.
    fn join_or<E>(
        &self,
        settings: &Arc<Settings>,
        made: impl FnOnce() -> Result<Arc<Hub>, E>,
    ) -> Result<Arc<Hub>, E> {
        let mut shared = self.shared.lock();
        if let Some((hub, users)) = shared.get_mut(settings) {
            *users += 1;
            return Ok(Arc::clone(hub));
        }
        let hub = made()?;
        shared.insert(Arc::clone(settings), (Arc::clone(&hub), 1));
        Ok(hub)
    }

    /// Returns whether the last limiter left the hub.
    fn leave(&self, hub: &Arc<Hub>, settings: &Arc<Settings>) -> bool {
        let mut shared = self.shared.lock();
        match shared.get_mut(settings) {
            Some((known, users)) if Arc::ptr_eq(known, hub) => {
                *users -= 1;
                let is_last = *users == 0;
                if is_last {
                    shared.remove(settings);
                }
                is_last
            }
            // The hub belongs to a single limiter.
            _ => true,
        }
    }

    /// Changes the settings of a hub with a single limiter, if no other hub has the new settings.
    fn rename(&self, hub: &Arc<Hub>, settings: &Arc<Settings>, renamed: &Arc<Settings>) -> bool {
        let mut shared = self.shared.lock();
        match shared.get(settings) {
            Some((known, users)) if Arc::ptr_eq(known, hub) => {
                let is_alone = *users == 1 && !shared.contains_key(renamed);
                if is_alone && let Some(entry) = shared.remove(settings) {
                    shared.insert(Arc::clone(renamed), entry);
                }
                is_alone || settings == renamed
            }
            _ => true,
        }
    }
}
