//! The circuit breaker of a server.
//!
//! Consecutive failures open it; while it is open, decisions are refused at once and cost almost nothing. After a
//! pause, which grows every time, one decision is sent as a probe. Its success closes the breaker.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use polylimit_rules::decision::Degradation;
use polylimit_runtime::monotonic;

/// The breaker's first pause; each failed probe doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(800);
/// This many successes in a row reset the pause, so that the breaker does not flap.
const TRUSTED_AFTER: u32 = 32;

const CLOSED: u8 = 0;
const OPEN: u8 = 1;

#[derive(Debug)]
pub(crate) struct CircuitBreaker {
    /// Read at every decision.
    state: AtomicU8,
    /// This many failures in a row open it.
    tolerated: u32,
    record: Mutex<Record>,
}

#[derive(Debug)]
struct Record {
    failures: u32,
    successes: u32,
    /// How often it has opened since the pause was last reset.
    opened: u32,
    reason: Degradation,
    /// When the next probe may be sent.
    retry_at: Instant,
}

/// Whether a decision may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Open,
    /// The decision is the probe.
    Probe,
    Refused(Degradation),
}

impl CircuitBreaker {
    pub(crate) fn new(tolerated: u32) -> Self {
        let record = Record {
            failures: 0,
            successes: 0,
            opened: 0,
            reason: Degradation::Unreachable,
            retry_at: monotonic::now(),
        };
        Self { state: AtomicU8::new(CLOSED), tolerated, record: Mutex::new(record) }
    }

    /// Whether it is closed: the server works, as far as is known.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CLOSED
    }

    pub(crate) fn admit(&self) -> Admission {
        if self.is_closed() {
            return Admission::Open;
        }
        let mut record = self.record.lock();
        let now = monotonic::now();
        if now < record.retry_at {
            return Admission::Refused(record.reason);
        }
        // If the probe never ends, the next one is allowed after this time.
        record.retry_at = now + record.pause();
        Admission::Probe
    }

    /// Records an answer of the store.
    pub(crate) fn succeeded(&self) {
        // Almost free in normal operation: the lock is not contended, since one task records answers.
        let mut record = self.record.lock();
        record.failures = 0;
        record.successes = record.successes.saturating_add(1);
        if record.successes >= TRUSTED_AFTER {
            record.opened = 0;
        }
        self.state.store(CLOSED, Ordering::Relaxed);
    }

    /// Records a failure; returns whether it opened the breaker.
    pub(crate) fn failed(&self, reason: Degradation) -> bool {
        let mut record = self.record.lock();
        record.failures = record.failures.saturating_add(1);
        record.successes = 0;
        record.reason = reason;
        if record.failures < self.tolerated {
            return false;
        }
        record.opened = record.opened.saturating_add(1);
        record.retry_at = monotonic::now() + record.pause();
        self.state.swap(OPEN, Ordering::Relaxed) == CLOSED
    }

    /// The reason of the failures since the last success; `Unreachable` if there was none.
    pub(crate) fn reason(&self) -> Degradation {
        let record = self.record.lock();
        if record.failures > 0 { record.reason } else { Degradation::Unreachable }
    }

    /// A new connection was made: the next decision may be a probe.
    pub(crate) fn reconnected(&self) {
        let mut record = self.record.lock();
        record.retry_at = monotonic::now();
    }
}

impl Record {
    /// A random part of the current pause, at least half of it, so that many processes do not retry at the same time.
    fn pause(&self) -> Duration {
        let longest = FIRST_PAUSE.saturating_mul(1 << self.opened.min(10)).min(MAX_PAUSE);
        longest / 2 + polylimit_runtime::backoff::part_of(longest / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_open_it_and_a_success_closes_it() {
        let breaker = CircuitBreaker::new(3);
        assert!(!breaker.failed(Degradation::Timeout));
        breaker.succeeded();
        for opens in [false, false, true, false] {
            assert_eq!(breaker.failed(Degradation::Loading), opens);
        }
        assert_eq!(breaker.admit(), Admission::Refused(Degradation::Loading));
        breaker.reconnected();
        assert_eq!(breaker.admit(), Admission::Probe);
        assert_eq!(breaker.admit(), Admission::Refused(Degradation::Loading));
        breaker.succeeded();
        assert_eq!(breaker.admit(), Admission::Open);
    }

    #[test]
    fn each_time_it_opens_it_stays_open_longer() {
        let breaker = CircuitBreaker::new(1);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            breaker.failed(Degradation::Timeout);
            let record = breaker.record.lock();
            pauses.push(record.retry_at - Instant::now());
        }
        assert!(pauses[0] <= 2 * FIRST_PAUSE && pauses[7] >= MAX_PAUSE / 3, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= MAX_PAUSE));
    }
}
