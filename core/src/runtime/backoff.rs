//! How long the client of a limited service waits before it tries again.
//!
//! Exponential backoff with full jitter, as in "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): the wait
//! before retry n, counted from 0, is uniform from 0 to min(cap, base * 2^n). A wait that the server asks for is a lower
//! bound, and the jitter is added to it: otherwise all clients that were told the same time would come back at that time.

mod builder;

use crate::runtime::monotonic;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

pub use builder::BackoffBuilder;

/// When to try again, and when to give up.
///
/// ```
/// use std::time::Duration;
/// use polylimit::{Backoff, server_wait};
///
/// let backoff = Backoff::builder().base(Duration::from_millis(100)).max_retries(3).build()?;
/// // The response was `429 Too Many Requests` with `Retry-After: 2`.
/// let told = server_wait(Some(b"2"), [], 1_700_000_000_000_000);
/// let wait = backoff.wait(0, told).expect("the first of three retries, and two seconds are not too long");
/// assert!(wait >= Duration::from_secs(2) && wait <= Duration::from_millis(2100));
/// assert_eq!(backoff.wait(3, told), None);
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    base_ns: u64,
    cap_ns: u64,
    max_wait: Duration,
    max_retries: u32,
}

impl Backoff {
    /// The shortest base.
    pub const MIN_BASE: Duration = Duration::from_millis(1);

    /// The longest cap: a day.
    pub const MAX_CAP: Duration = Duration::from_hours(24);

    /// The longest wait that a server may be allowed to ask for: 366 days.
    pub const MAX_WAIT: Duration = Duration::from_hours(366 * 24);

    /// The default settings, to be changed.
    pub fn builder() -> BackoffBuilder {
        BackoffBuilder::default()
    }

    /// How long to wait before the next try, or `None` to give up.
    ///
    /// `retry` is how many retries were made before, 0 after the first failure. `server_wait` is what the
    /// last response asked for, as read by [`server_wait`](crate::server_wait). Gives up once `max_retries` retries were made,
    /// and when the server asks for more than `max_wait`.
    pub fn wait(&self, retry: u32, server_wait: Option<Duration>) -> Option<Duration> {
        self.wait_with(retry, server_wait, random())
    }

    /// [`wait`](Self::wait) with the randomness given: 64 bits, each value as likely as any other. The same
    /// arguments have the same answer.
    pub fn wait_with(&self, retry: u32, server_wait: Option<Duration>, random: u64) -> Option<Duration> {
        let server_wait = server_wait.unwrap_or_default();
        if retry >= self.max_retries || server_wait > self.max_wait {
            return None;
        }
        Some(server_wait + self.jitter(retry, random))
    }

    /// A duration from 0 to min(cap, base * 2^retry), both included; `random` of 2^64 selects it.
    fn jitter(&self, retry: u32, random: u64) -> Duration {
        let factor = 1_u64.checked_shl(retry).unwrap_or(u64::MAX);
        let ceiling_ns = self.base_ns.saturating_mul(factor).min(self.cap_ns);
        // The upper half of the product is floor((ceiling + 1) * random / 2^64).
        let (_, jitter_ns) = random.carrying_mul(ceiling_ns + 1, 0);
        Duration::from_nanos(jitter_ns)
    }
}

impl Default for Backoff {
    /// Base 100 ms, cap 20 s, at most 5 retries, and a server may ask for at most 5 minutes.
    fn default() -> Self {
        Self {
            base_ns: 100_000_000,
            cap_ns: 20_000_000_000,
            max_wait: Duration::from_mins(5),
            max_retries: 5,
        }
    }
}

/// A random duration, uniform from 0 to `whole`.
pub(crate) fn part_of(whole: Duration) -> Duration {
    let whole_ns = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX - 1);
    let (_, part_ns) = random().carrying_mul(whole_ns + 1, 0);
    Duration::from_nanos(part_ns)
}

/// 64 random bits. The keys of the standard library's hasher are random in each thread, but a forked child has its
/// parent's keys; the process id and the time make the children's numbers differ.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one((std::process::id(), monotonic::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn backoff() -> Backoff {
        Backoff::builder()
            .base(100 * MS)
            .cap(1000 * MS)
            .max_retries(1000)
            .max_wait(60_000 * MS)
            .build()
            .unwrap()
    }

    #[test]
    fn the_wait_is_uniform_up_to_a_doubling_and_capped_ceiling() {
        for (retry, ceiling_ms) in
            [(0, 100), (1, 200), (2, 400), (3, 800), (4, 1000), (63, 1000), (999, 1000)]
        {
            let ceiling = ceiling_ms * MS;
            for (random, expected) in [(0, Duration::ZERO), (1 << 63, ceiling / 2), (u64::MAX, ceiling)] {
                assert_eq!(backoff().wait_with(retry, None, random), Some(expected), "retry {retry}");
            }
        }
    }

    #[test]
    fn the_server_is_never_asked_earlier_than_it_said() {
        let backoff = backoff();
        for step in 0..1000 {
            let told = (step * 7) * MS;
            let random = u64::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let wait = backoff.wait_with(step % 8, Some(told), random).unwrap();
            assert!(wait >= told && wait <= told + 1000 * MS, "{told:?} {wait:?}");
            assert_eq!(Some(wait), backoff.wait_with(step % 8, None, random).map(|jitter| told + jitter));
        }
    }

    #[test]
    fn it_gives_up_in_the_end() {
        let backoff = backoff();
        assert!(backoff.wait_with(999, None, 1).is_some());
        assert_eq!(backoff.wait_with(1000, None, 1), None);
        assert_eq!(backoff.wait_with(u32::MAX, None, 1), None);
        assert!(backoff.wait_with(0, Some(60_000 * MS), 1).is_some());
        assert_eq!(backoff.wait_with(0, Some(60_001 * MS), 1), None);
        assert_eq!(backoff.wait_with(0, Some(Duration::MAX), 1), None);
        assert_eq!(Backoff::builder().max_retries(0).build().unwrap().wait(0, None), None);
    }

    #[test]
    fn random_waits_differ_and_fill_the_range() {
        let waits: Vec<_> = (0..400).map(|_| backoff().wait(4, None).unwrap()).collect();
        for quarter in 0..4 {
            let range = quarter * 250 * MS..(quarter + 1) * 250 * MS;
            // Of 400 draws 100 are expected; fewer than 40 have a chance below 10^-12.
            assert!(waits.iter().filter(|wait| range.contains(*wait)).count() >= 40, "{range:?}");
        }
    }
}
