//! What all connections of a store have in common.

use std::time::{Duration, Instant};

use super::connect::Connector;
use super::counters::Counters;
use super::options::Settings;
use crate::backoff::{self, Backoff};
use crate::clock::ManualClock;
use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) connector: Connector,
    /// The clock that decides, if it is not the server's.
    pub(crate) manual: Option<ManualClock>,
    pub(crate) breaker_failures: u32,
    pub(crate) topology_refresh: Duration,
    /// Of what belongs to no single limiter.
    pub(crate) counters: Counters,
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
            connector: Connector::new(settings)?,
            manual,
            breaker_failures: settings.breaker_failures,
            topology_refresh: settings.topology_refresh,
            counters: Counters::default(),
            reconnect,
            max_connection_age: settings.max_connection_age,
        })
    }

    /// The same, in a process that was forked from the one that uses this.
    pub(crate) fn successor(&self) -> Self {
        Self {
            connector: self.connector.successor(),
            manual: self.manual.clone(),
            counters: Counters::default(),
            reconnect: self.reconnect.clone(),
            ..*self
        }
    }

    /// How long to wait after so many attempts to connect have failed in a row.
    pub(crate) fn pause_after(&self, failed: u32) -> Duration {
        self.reconnect.wait(failed.saturating_sub(1), None).unwrap_or_default()
    }

    /// When a connection made now is replaced by a new one: at a random time in the last quarter of its age, so that
    /// those of many processes are not replaced together.
    pub(crate) fn retires_at(&self, now: Instant) -> Option<Instant> {
        self.max_connection_age.map(|age| now + age / 4 * 3 + backoff::part_of(age / 4))
    }
}
