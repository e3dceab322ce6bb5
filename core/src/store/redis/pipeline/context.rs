//! State that all connections of a store share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::runtime::backoff::{self, Backoff};
use crate::runtime::clock::ManualClock;
use crate::runtime::monotonic;
use crate::store::redis::config::Settings;
use crate::store::redis::transport::connect::Connector;
use crate::store::redis::transport::sentinel_events::Switches;
use crate::store::stats::Counters;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) connector: Arc<Connector>,
    /// The clock that decides, if it is not the server's.
    pub(crate) manual: Option<ManualClock>,
    pub(crate) deadline: Duration,
    first_connect_max: Duration,
    /// Whether the last operation on a server failed.
    failing: AtomicBool,
    /// Whether one of the limiters examines the servers, or has done so.
    pub(crate) examined: AtomicBool,
    pub(crate) breaker_failures: u32,
    pub(crate) topology_refresh: Duration,
    /// Counts that belong to no single limiter.
    pub(crate) counters: Counters,
    pub(crate) switches: Arc<Switches>,
    reconnect: Backoff,
    max_connection_age: Option<Duration>,
}

impl Context {
    pub(crate) fn new(settings: &Settings, manual: Option<ManualClock>) -> Result<Self, Error> {
        let reconnect = Backoff::builder()
            .base(settings.reconnect_min)
            .cap(settings.reconnect_max)
            .max_wait(settings.reconnect_max)
            .max_retries(u32::MAX)
            .build()?;
        Ok(Self {
            connector: Arc::new(Connector::new(settings)?),
            manual,
            deadline: settings.deadline,
            first_connect_max: settings.first_connect_max,
            failing: AtomicBool::new(false),
            examined: AtomicBool::new(false),
            breaker_failures: settings.breaker_failures,
            topology_refresh: settings.topology_refresh,
            counters: Counters::default(),
            switches: Arc::default(),
            reconnect,
            max_connection_age: settings.max_connection_age,
        })
    }

    /// The same, for a forked child.
    pub(crate) fn after_fork(&self) -> Self {
        Self {
            connector: Arc::new(self.connector.after_fork()),
            manual: self.manual.clone(),
            failing: AtomicBool::new(false),
            examined: AtomicBool::new(false),
            counters: Counters::default(),
            switches: Arc::default(),
            reconnect: self.reconnect.clone(),
            ..*self
        }
    }

    /// Until when callers on a newly used runtime wait for its first connection: no extra time if the server is known
    /// to fail.
    pub(crate) fn first_connect_until(&self) -> Instant {
        let is_failing = self.failing.load(Ordering::Relaxed);
        monotonic::now() + if is_failing { Duration::ZERO } else { self.first_connect_max }
    }

    /// Records whether a server failed.
    #[inline]
    pub(crate) fn set_failing(&self, failing: bool) {
        // It rarely changes, and the cache line is shared.
        if self.failing.load(Ordering::Relaxed) != failing {
            self.failing.store(failing, Ordering::Relaxed);
        }
    }

    /// The pause after this many consecutive failed attempts to connect.
    pub(crate) fn pause_after(&self, failed: u32) -> Duration {
        self.reconnect.wait(failed.saturating_sub(1), None).unwrap_or_default()
    }

    /// When a connection made now is replaced: at a random time in the last quarter of its maximum age, so that
    /// connections of many processes are not replaced at the same time.
    pub(crate) fn retires_at(&self, now: Instant) -> Option<Instant> {
        self.max_connection_age.map(|age| now + age / 4 * 3 + backoff::part_of(age / 4))
    }
}
