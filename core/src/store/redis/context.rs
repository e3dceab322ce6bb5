//! What all connections of a store have in common.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connect::Connector;
use super::counters::Counters;
use super::options::Settings;
use super::outstanding::Outstanding;
use crate::backoff::{self, Backoff};
use crate::clock::Clock;
use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) connector: Connector,
    pub(crate) clock: Clock,
    pub(crate) deadline: Duration,
    pub(crate) breaker_failures: u32,
    pub(crate) topology_refresh: Duration,
    pub(crate) doctor_after: Option<Duration>,
    pub(crate) outstanding: Arc<Outstanding>,
    pub(crate) counters: Counters,
    reconnect: Backoff,
    max_connection_age: Option<Duration>,
}

impl Context {
    pub(crate) fn new(settings: &Settings, clock: Clock) -> Result<Self, Error> {
        let most = usize::try_from(settings.max_in_flight).unwrap_or(usize::MAX);
        let reconnect = Backoff::builder()
            .base(settings.reconnect_min)
            .cap(settings.reconnect_max)
            .max_wait(settings.reconnect_max)
            .max_retries(u32::MAX)
            .build()?;
        Ok(Self {
            connector: Connector::new(settings)?,
            clock,
            deadline: settings.deadline,
            breaker_failures: settings.breaker_failures,
            topology_refresh: settings.topology_refresh,
            doctor_after: settings.doctor_after,
            outstanding: Arc::new(Outstanding::new(most, settings.max_outstanding_bytes)),
            counters: Counters::default(),
            reconnect,
            max_connection_age: settings.max_connection_age,
        })
    }

    /// The same, in a process that was forked from the one that uses this.
    pub(crate) fn successor(&self) -> Self {
        Self {
            connector: self.connector.successor(),
            clock: self.clock.clone(),
            outstanding: Arc::new(self.outstanding.successor()),
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
