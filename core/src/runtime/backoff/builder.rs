//! Builds a backoff and checks its settings.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::runtime::backoff::Backoff;

/// The settings of a [`Backoff`] before they are checked; made by [`Backoff::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes a backoff only when `build` is called"]
pub struct BackoffBuilder {
    base: Duration,
    cap: Duration,
    max_wait: Duration,
    max_retries: u32,
}

impl Default for BackoffBuilder {
    fn default() -> Self {
        let Backoff { base_ns, cap_ns, max_wait, max_retries } = Backoff::default();
        Self { base: Duration::from_nanos(base_ns), cap: Duration::from_nanos(cap_ns), max_wait, max_retries }
    }
}

impl BackoffBuilder {
    /// The longest wait before the first retry, from 1 ms to the cap; 100 ms by default. It doubles with each retry.
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Where the doubling ends, from the base to a day; 20 s by default.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// The longest wait that a server may ask for, 0 to 366 days; 5 minutes by default. The jitter, at most the cap, is
    /// added to it.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }

    /// How many retries may follow the first try; 5 by default, 0 for none.
    pub fn max_retries(mut self, max_retries: u32) -> Self {
        self.max_retries = max_retries;
        self
    }

    /// Checks every setting and makes the backoff.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with the setting, what it was and what is
    /// allowed.
    pub fn build(self) -> Result<Backoff, Error> {
        let Self { base, cap, max_wait, max_retries } = self;
        if cap > Backoff::MAX_CAP {
            return Err(refuse("cap", cap, "the base to 24 hours"));
        }
        if base < Backoff::MIN_BASE || base > cap {
            return Err(refuse("base", base, format_args!("1 ms to the cap, which is {cap:?}")));
        }
        if max_wait > Backoff::MAX_WAIT {
            return Err(refuse("max_wait", max_wait, "0 to 366 days"));
        }
        Ok(Backoff { base_ns: whole_ns(base), cap_ns: whole_ns(cap), max_wait, max_retries })
    }
}

/// A day is less than 2^47 ns.
fn whole_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn refuse(setting: &str, read: Duration, allowed: impl fmt::Display) -> Error {
    Error::invalid_argument(format!("{setting} is {read:?}; allowed are {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
