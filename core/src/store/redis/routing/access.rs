//! A limiter's access to the hub, which it shares with other limiters.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;

use crate::error::Error;
use crate::runtime::clock::Clock;
use crate::runtime::close_signal::closed;
use crate::store::redis::config::Settings;
use crate::store::redis::config::target::Credentials;
use crate::store::redis::pipeline::limits::Member;
use crate::store::redis::routing::hub::Hub;
use crate::store::stats::Stats;

pub(crate) struct Access {
    pub(crate) member: Arc<Member>,
    pub(crate) deadline: Duration,
    /// The time within which an operation sent now may still arrive at a server.
    pub(crate) may_arrive_for: Duration,
    pub(crate) clock: Clock,
    settings: ArcSwap<Settings>,
    /// `None` once the limiter is closed.
    hub: ArcSwapOption<Hub>,
    /// The hub's counts when the limiter joined it; locked while that changes.
    before: Mutex<Stats>,
}

impl Access {
    pub(crate) fn new(settings: Settings, clock: Clock) -> Result<Arc<Self>, Error> {
        let settings = Arc::new(settings);
        let hub = Hub::join(&settings, &clock)?;
        Ok(Self::of(settings, clock, Some(hub)))
    }

    /// The same, for a forked child.
    pub(crate) fn after_fork(&self) -> Arc<Self> {
        let settings = self.settings.load_full();
        let hub = self.hub.load_full().map(|hub| hub.after_fork(&settings));
        Self::of(settings, self.clock.clone(), hub)
    }

    fn of(settings: Arc<Settings>, clock: Clock, hub: Option<Arc<Hub>>) -> Arc<Self> {
        let most = usize::try_from(settings.max_in_flight).unwrap_or(usize::MAX);
        let before = hub.as_ref().map_or_else(Stats::default, |hub| hub.context.counters.read());
        Arc::new(Self {
            member: Member::new(most, settings.max_outstanding_bytes),
            deadline: settings.deadline,
            may_arrive_for: 2 * settings.deadline + settings.first_connect_max,
            clock,
            settings: ArcSwap::new(settings),
            hub: ArcSwapOption::new(hub),
            before: Mutex::new(before),
        })
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    pub(crate) fn hub(&self) -> Result<Arc<Hub>, Error> {
        self.hub.load_full().ok_or_else(closed)
    }

    /// Uses other credentials for this limiter's connections made from now on; other limiters keep theirs.
    pub(crate) fn set_credentials(&self, credentials: Credentials) -> Result<(), Error> {
        let mut before = self.before.lock();
        let (hub, settings) = (self.hub()?, self.settings());
        let mut renewed = Settings::clone(&settings);
        renewed.target.credentials = Some(credentials.clone());
        let renewed = Arc::new(renewed);
        let other = hub.renew(&settings, &renewed, credentials)?;
        self.settings.store(renewed);
        if !Arc::ptr_eq(&hub, &other) {
            self.settle(&hub, &before);
            *before = other.context.counters.read();
            self.hub.store(Some(other));
        }
        Ok(())
    }

    /// Answers the pending operations of this limiter, which is closed.
    pub(crate) fn end_waiting(&self) {
        self.member.close();
        if let Some(hub) = self.hub.load_full() {
            hub.runtimes.end_waiting(&self.member);
        }
    }

    /// Leaves the hub.
    pub(crate) fn leave(&self) {
        let mut before = self.before.lock();
        if let Some(hub) = self.hub.swap(None) {
            self.settle(&hub, &before);
            *before = Stats::default();
            hub.leave(&self.settings());
        }
    }

    /// The counts of this limiter.
    pub(crate) fn stats(&self) -> Stats {
        let before = self.before.lock();
        let mut stats = self.member.counters.read();
        if let Some(hub) = self.hub.load_full() {
            let since = hub.context.counters.read();
            stats.connections += since.connections - before.connections;
            stats.connections_lost += since.connections_lost - before.connections_lost;
            stats.breaker_opened += since.breaker_opened - before.breaker_opened;
        }
        stats
    }

    /// Saves what the hub counted since this limiter joined it.
    fn settle(&self, hub: &Hub, before: &Stats) {
        let (since, counters) = (hub.context.counters.read(), &self.member.counters);
        counters.connections.add(since.connections - before.connections);
        counters.connections_lost.add(since.connections_lost - before.connections_lost);
        counters.breaker_opened.add(since.breaker_opened - before.breaker_opened);
    }
}

/// Does not show settings: they contain secrets.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("member", &self.member).finish_non_exhaustive()
    }
}
