//! An estimate of a server's time, from the times in its replies.
//!
//! A command carries its deadline in server time, so that a server that was stopped refuses commands that it reads too
//! late. A reply's time was read between sending and receiving, so `server - received` is never more than the offset
//! between the two clocks and `server - sent` never less. The greatest value of the former is kept: with it a deadline
//! is never set too late, and too early by no more than the time of the fastest reply. When a reply shows that the
//! offset lies outside the estimate, the server's clock was set, and the estimate starts anew.
//!
//! A server that refuses `TIME` in scripts decides by this estimate. Then its upper end counts, so that the server, which expires
//! keys by its own clock, expires none before they expire by the decisions' clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use polylimit_rules::units::MAX_US;
use polylimit_runtime::monotonic;

/// The maximum rate at which two clocks are assumed to drift apart: 500 ppm, the limit of NTP's corrections.
const DRIFT_DIVISOR: i64 = 2_000;

#[derive(Debug)]
pub(crate) struct ServerTime {
    base: Instant,
    /// Server time minus microseconds since `base`; unknown: `i64::MIN`.
    offset_us: AtomicI64,
    /// The round trip of the reply on which the estimate is based: the server's time may be later by as much.
    round_trip_us: AtomicI64,
    learnt_us: AtomicI64,
}

impl Default for ServerTime {
    fn default() -> Self {
        Self {
            base: monotonic::now(),
            offset_us: AtomicI64::new(i64::MIN),
            round_trip_us: AtomicI64::new(0),
            learnt_us: AtomicI64::new(0),
        }
    }
}

impl ServerTime {
    /// Updates the estimate from a reply, with the times when its command was sent and when it was received.
    pub(crate) fn learn(&self, server_us: u64, sent: Instant, received: Instant) {
        let server_us = i64::try_from(server_us.min(MAX_US)).unwrap_or(i64::MAX);
        let (sent_us, received_us) = (self.since_base(sent), self.since_base(received));
        let (least, most) = (server_us - received_us, server_us - sent_us);
        let believed = self.offset_us.load(Ordering::Relaxed);
        let drifted = (received_us - self.learnt_us.load(Ordering::Relaxed)).max(0) / DRIFT_DIVISOR;
        // An estimate above the possible maximum means drift, or that the server's clock was set back.
        if believed == i64::MIN || least >= believed.saturating_sub(drifted) || believed > most {
            self.offset_us.store(least, Ordering::Relaxed);
            self.round_trip_us.store(most - least, Ordering::Relaxed);
            self.learnt_us.store(received_us, Ordering::Relaxed);
        }
    }

    /// The latest that the server's time may be at that moment; `None` before the first reply.
    pub(crate) fn latest_at(&self, moment: Instant) -> Option<u64> {
        self.at(moment)?.checked_add_signed(self.round_trip_us.load(Ordering::Relaxed))
    }

    /// The server's time at that moment, in microseconds since the Unix epoch, or somewhat less; `None` before the first reply.
    pub(crate) fn at(&self, moment: Instant) -> Option<u64> {
        let offset = self.offset_us.load(Ordering::Relaxed);
        if offset == i64::MIN { None } else { u64::try_from(offset + self.since_base(moment)).ok() }
    }

    fn since_base(&self, moment: Instant) -> i64 {
        let us = |duration: std::time::Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        match moment.checked_duration_since(self.base) {
            Some(after) => us(after),
            None => -us(self.base - moment),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const NOW_US: u64 = 1_800_000_000_000_000;

    #[test]
    fn estimate_follows_the_fastest_reply() {
        let time = ServerTime::default();
        let base = time.base;
        assert_eq!(time.at(base), None);
        // The server's clock shows NOW_US at `base`; the reply takes 10 ms to arrive.
        time.learn(NOW_US, base, base + 10 * MS);
        assert_eq!((time.at(base), time.latest_at(base)), (Some(NOW_US - 10_000), Some(NOW_US)));
        time.learn(NOW_US + 20_000, base + 19 * MS, base + 21 * MS);
        assert_eq!(time.at(base), Some(NOW_US - 1_000));
        time.learn(NOW_US + 30_000, base + 29 * MS, base + 40 * MS);
        assert_eq!((time.at(base), time.latest_at(base)), (Some(NOW_US - 1_000), Some(NOW_US + 1_000)));
    }

    #[test]
    fn server_time_beyond_the_maximum_is_cut_to_it() {
        let time = ServerTime::default();
        let base = time.base;
        time.learn(u64::MAX, base, base + MS);
        assert_eq!(time.at(base + 2 * MS), Some(MAX_US + 1_000));
    }

    #[test]
    fn estimate_starts_anew_when_the_clock_was_set() {
        let time = ServerTime::default();
        let base = time.base;
        time.learn(NOW_US, base, base + MS);
        for set_us in [NOW_US + 3_600_000_000, NOW_US - 3_600_000_000] {
            time.learn(set_us, base + MS, base + 2 * MS);
            assert_eq!(time.at(base + 2 * MS), Some(set_us));
        }
    }
}
