//! The connections, runtime and thread that the limiters of this process share that have the same settings.
//!
//! Two limiters of one store need no more connections than one: what waits together goes together. So there is a hub for each
//! URL with its options and credentials, made for the first limiter and closed with the last. What a limiter decides by stays
//! its own: policies, cached denials, leases, what is followed for outages, and counts.
//!
//! A limiter with a manual clock has a hub of its own, since the calls bring its time along. A forked process has others.

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

    /// The same for one limiter in a process that was forked from the one that uses this. Files that this one has read are not
    /// read again: that process may have no right to.
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

    /// The hub of these settings, for one more limiter, which [leaves](Self::leave) it later.
    pub(crate) fn join(settings: &Arc<Settings>, clock: &Clock) -> Result<Arc<Self>, Error> {
        match clock.manual() {
            Some(manual) => Self::new(settings, Some(manual.clone())),
            None => Hubs::here().join_or(settings, || Self::new(settings, None)),
        }
    }

    /// One limiter uses it no longer; with the last one it ends.
    pub(crate) fn leave(self: &Arc<Self>, settings: &Arc<Settings>) {
        if Hubs::here().leave(self, settings) {
            self.channel.close();
            self.context.switches.close();
            self.runtimes.close();
        }
    }

    /// Has one of its limiters use other settings, which differ in these credentials alone. The others keep theirs: so it goes
    /// to another hub, unless it has this one for itself.
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

/// A hub, and how many limiters use it.
type Used = (Arc<Hub>, usize);

/// The hubs of this process.
struct Hubs {
    generation: ProcessGeneration,
    /// By the settings of their limiters.
    shared: Mutex<HashMap<Arc<Settings>, Used, RandomState>>,
    /// Those of a process that was forked from this one: the lock may be held by a thread that is not there.
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

    /// The hub of these settings, made if there is none.
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

    /// Says whether it was the last limiter to use the hub.
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
            // It is one limiter's alone.
            _ => true,
        }
    }

    /// Knows a hub by other settings, if one limiter has it for itself and there is none for those.
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
