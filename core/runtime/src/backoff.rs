//! How long the client of a limited service waits before it tries again.
//!
//! Exponential backoff with full jitter, as in "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): the wait
//! before retry n, counted from 0, is uniform from 0 to min(cap, base * 2^n). A wait that the server asks for is a lower
//! bound, and the jitter is added to it: otherwise all clients that were asked for the same wait would come back together.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::fork;
use crate::monotonic;
#[cfg(feature = "testing")]
use crate::simulation;
use polylimit_rules::error::Error;

/// When to try again, and when to give up.
///
/// ```
/// use std::time::Duration;
/// use polylimit::http::{Backoff, server_wait};
///
/// let backoff = Backoff::builder().base(Duration::from_millis(100)).max_retries(3).build()?;
/// // The response was `429 Too Many Requests` with `Retry-After: 2`.
/// let asked = server_wait([("retry-after", "2")], 1_700_000_000_000_000);
/// let wait = backoff.wait(0, asked).expect("the first of three retries, and two seconds are not too long");
/// assert!(wait >= Duration::from_secs(2) && wait <= Duration::from_millis(2100));
/// assert_eq!(backoff.wait(3, asked), None);
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
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
        BackoffBuilder(Self::default())
    }

    /// How long to wait before the next try, or `None` to give up.
    ///
    /// `retry` is how many retries were made before, 0 after the first failure. `server_wait` is what the
    /// last response asked for, as read by `server_wait`. Gives up once `max_retries` retries were made,
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
        let factor = 1_u32.checked_shl(retry).unwrap_or(u32::MAX);
        let ceiling = self.base.saturating_mul(factor).min(self.cap);
        Some(server_wait + select(ceiling, random))
    }

    /// The longest wait before the first retry.
    pub fn base(&self) -> Duration {
        self.base
    }

    /// Where the doubling of the base ends.
    pub fn cap(&self) -> Duration {
        self.cap
    }

    /// The longest wait that a server may ask for.
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// How many retries may follow the first try.
    pub fn max_retries(&self) -> u32 {
        self.max_retries
    }
}

impl Default for Backoff {
    /// Base 100 ms, cap 20 s, at most 5 retries, and a server may ask for at most 5 minutes.
    fn default() -> Self {
        Self {
            base: Duration::from_millis(100),
            cap: Duration::from_secs(20),
            max_wait: Duration::from_mins(5),
            max_retries: 5,
        }
    }
}

/// The settings of a [`Backoff`] before they are checked; made by [`Backoff::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes a backoff only when `build` is called"]
pub struct BackoffBuilder(Backoff);

impl BackoffBuilder {
    /// The longest wait before the first retry, from 1 ms to the cap; 100 ms by default. It doubles with each retry.
    pub fn base(mut self, base: Duration) -> Self {
        self.0.base = base;
        self
    }

    /// Where the doubling ends, from the base to a day; 20 s by default.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.0.cap = cap;
        self
    }

    /// The longest wait that a server may ask for, 0 to 366 days; 5 minutes by default. The jitter, at most the cap, is
    /// added to it.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.0.max_wait = max_wait;
        self
    }

    /// How many retries may follow the first try; 5 by default, 0 for none.
    pub fn max_retries(mut self, max_retries: u32) -> Self {
        self.0.max_retries = max_retries;
        self
    }

    /// Checks every setting and makes the backoff.
    ///
    /// # Errors
    /// `InvalidArgument` with the setting, what it was and what is
    /// allowed.
    pub fn build(self) -> Result<Backoff, Error> {
        let Backoff { base, cap, max_wait, .. } = self.0;
        if cap > Backoff::MAX_CAP {
            return Err(refuse("cap", cap, "the base to 24 hours"));
        }
        if base < Backoff::MIN_BASE || base > cap {
            return Err(refuse("base", base, format_args!("1 ms to the cap, which is {cap:?}")));
        }
        if max_wait > Backoff::MAX_WAIT {
            return Err(refuse("max_wait", max_wait, "0 to 366 days"));
        }
        Ok(self.0)
    }
}

fn refuse(setting: &str, read: Duration, allowed: impl fmt::Display) -> Error {
    Error::invalid_argument(format!("{setting} is {read:?}; allowed are {allowed}"))
}

/// A random duration, uniform from 0 to `whole`.
pub fn part_of(whole: Duration) -> Duration {
    select(whole, random())
}

/// The duration from 0 to `whole`, both included, that a number of 64 bits selects.
fn select(whole: Duration, random: u64) -> Duration {
    let whole_ns = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX - 1);
    // The upper half of the product is floor((whole + 1) * random / 2^64).
    let (_, part_ns) = random.carrying_mul(whole_ns + 1, 0);
    Duration::from_nanos(part_ns)
}

/// 64 random bits. The keys of the standard library's hasher are random in each thread, but a forked child has its
/// parent's keys; the process id and the time make the children's numbers differ.
pub fn random() -> u64 {
    #[cfg(feature = "testing")]
    if let Some(random) = simulation::random() {
        return random;
    }
    RandomState::new().hash_one((fork::process_id(), monotonic::now()))
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
            let asked = (step * 7) * MS;
            let random = u64::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let wait = backoff.wait_with(step % 8, Some(asked), random).unwrap();
            assert!(wait >= asked && wait <= asked + 1000 * MS, "{asked:?} {wait:?}");
            assert_eq!(Some(wait), backoff.wait_with(step % 8, None, random).map(|jitter| asked + jitter));
        }
    }

    #[test]
    fn backoff_gives_up_after_max_retries_or_a_long_server_wait() {
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

    #[test]
    fn settings_out_of_range_are_refused() {
        let (ms, day) = (Duration::from_millis(1), Duration::from_hours(24));
        let builder = Backoff::builder;
        for (builder, message) in [
            (builder().base(Duration::ZERO), "base is 0ns; allowed are 1 ms to the cap, which is 20s"),
            (builder().base(day), "base is 86400s; allowed are 1 ms to the cap, which is 20s"),
            (builder().cap(day + ms), "cap is 86400.001s; allowed are the base to 24 hours"),
            (builder().max_wait(367 * day), "max_wait is 31708800s; allowed are 0 to 366 days"),
        ] {
            assert_eq!(builder.build().unwrap_err().message(), message);
        }
        let edges = builder().base(ms).cap(day).max_wait(366 * day).max_retries(u32::MAX).build().unwrap();
        assert_eq!(edges.wait_with(u32::MAX - 1, Some(366 * day), u64::MAX), Some(367 * day));
        assert_eq!(builder().build().unwrap(), Backoff::default());
    }
}
