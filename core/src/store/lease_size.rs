//! Units taken ahead: how many, and for how long.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, excerpt};
use crate::rules::policy::Policy;
use crate::rules::quota::{Algorithm, Quota};
use crate::store::duration;

/// That a policy's keys may be leased: units of a busy key are taken from the store ahead, many at once, and spent in this
/// process without asking.
///
/// The store is debited first, so what all processes admit is never more than what the quota admits in any span of time, whatever
/// dies. What is leased and not spent cannot be spent elsewhere until it is given back: when its time is over, on
/// [`close`](crate::Limiter::close), and before anything but a check is asked of the key here. A process that is killed takes
/// what it has leased along, so at most the number of processes times twice [`units`](Self::units) is lost.
///
/// A lease grows with the rate of its key and shrinks as the quota runs low; the last units are asked for one by one. A unit
/// counts from when it was leased, and ends after [`max_age`](Self::max_age) at the latest. In a window it ends before that with
/// the window, or sub-window, in which it counts, and in a bucket that is refilled in steps with the next step; in any other
/// bucket the units of a lease end one by one, once what was spent here has been repaid and while the rest of the debt is. All
/// processes need the same `max_age` for that. A `sliding_log` counts each unit by itself, so that
/// nothing of it can be spent later: it cannot be leased, nor can a `leaky_bucket` or a quota with `count_denied`.
///
/// Units that another process gives back with a `refund` or a `reset` may be those that are leased here: they can be spent all the
/// same, so up to what is leased at that time is admitted on top of what was given back.
///
/// As text it is `auto`, the most units, or both: `100/500ms`.
///
/// ```
/// use std::time::Duration;
/// use polylimit::Lease;
///
/// assert_eq!("100/500ms".parse(), Lease::new(100, Duration::from_millis(500)));
/// assert_eq!("auto".parse(), Ok(Lease::auto()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `None`: as many as the quota suggests.
    units: Option<u64>,
    max_age: Duration,
}

impl Lease {
    /// The most units of one lease.
    pub const MAX_UNITS: u64 = 1_000_000;
    /// The longest time for which a unit is leased.
    pub const LONGEST: Duration = Duration::from_secs(60);
    /// The shortest.
    pub const SHORTEST: Duration = Duration::from_millis(10);

    /// At most a sixteenth of the quota's capacity, and a second.
    pub const fn auto() -> Self {
        Self { units: None, max_age: Duration::from_secs(1) }
    }

    /// At most so many units at a time, 1 to [`MAX_UNITS`](Self::MAX_UNITS), each for so long at most,
    /// [`SHORTEST`](Self::SHORTEST) to [`LONGEST`](Self::LONGEST).
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::ErrorKind::InvalidArgument) when one of them is out of range.
    pub fn new(units: u64, max_age: Duration) -> Result<Self, Error> {
        if !(1..=Self::MAX_UNITS).contains(&units) {
            return Err(Error::invalid_argument(format!(
                "a lease of {units} units: allowed are 1 to {}",
                Self::MAX_UNITS
            )));
        }
        if !(Self::SHORTEST..=Self::LONGEST).contains(&max_age) {
            return Err(Error::invalid_argument(format!(
                "a lease for {}: allowed are {} to {}",
                duration::write(max_age),
                duration::write(Self::SHORTEST),
                duration::write(Self::LONGEST)
            )));
        }
        Ok(Self { units: Some(units), max_age })
    }

    /// The most units of a lease; `None` where the quota suggests it.
    pub fn units(&self) -> Option<u64> {
        self.units
    }

    /// For how long a unit is leased at most.
    pub fn max_age(&self) -> Duration {
        self.max_age
    }

    /// The most units of a lease under a policy.
    pub(crate) fn most_units(&self, policy: &Policy) -> u64 {
        let capacity = policy.quotas().iter().map(Quota::capacity).min().unwrap_or(0);
        self.units.unwrap_or(capacity / 16).min(Self::MAX_UNITS)
    }

    /// Refuses policies whose units cannot be taken ahead.
    pub(crate) fn check(policy: &Policy) -> Result<(), Error> {
        let is_bad = |quota: &&Quota| {
            matches!(quota.algorithm(), Algorithm::LeakyBucket | Algorithm::SlidingLog)
                || quota.count_denied()
        };
        match policy.quotas().iter().find(is_bad) {
            Some(quota) => Err(Error::invalid_argument(format!(
                "policy {} cannot be leased: {quota} counts each request when it comes; leave out the lease, or \
                 leaky_bucket, sliding_log and count_denied (a sliding_window can be leased)",
                policy.name()
            ))),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.units {
            None => f.write_str("auto"),
            Some(units) => write!(f, "{units}/{}", duration::write(self.max_age)),
        }
    }
}

impl FromStr for Lease {
    type Err = Error;

    /// # Errors
    /// [`InvalidArgument`](crate::error::ErrorKind::InvalidArgument) when it is none, or out of range.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "auto" {
            return Ok(Self::auto());
        }
        let (units, max_age) = text.split_once('/').unwrap_or((text, "1s"));
        let digits = !units.is_empty() && units.bytes().all(|byte| byte.is_ascii_digit());
        let units = digits.then(|| units.parse().ok()).flatten();
        match (units, duration::read(max_age)) {
            (Some(units), Some(max_age)) => Self::new(units, max_age),
            _ => Err(Error::invalid_argument(format!(
                "lease {}: allowed are auto, a number of units, or units and a time such as 100/500ms",
                excerpt(text)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_is_written() {
        for text in ["auto", "1/10ms", "100/1s", "1000000/1m"] {
            assert_eq!(text.parse::<Lease>().map(|lease| lease.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("100".parse(), Lease::new(100, Duration::from_secs(1)));
    }

    #[test]
    fn another_text_is_refused() {
        for text in ["", "0", "1000001", "+1", "1/", "1/9ms", "1/61s", "1/2/3", "Auto", "1.5"] {
            let message = text.parse::<Lease>().unwrap_err().to_string();
            assert!(message.contains("allowed are"), "{text}: {message}");
        }
    }

    #[test]
    fn what_is_decided_when_it_comes_is_not_leased() {
        let check = |quotas| Lease::check(&Policy::parse("p", quotas).unwrap());
        assert_eq!(check("1/s; 1/m token_bucket; 1/h fixed_window"), Ok(()));
        for quotas in ["1/s leaky_bucket", "1/s; 2/m count_denied", "1/s; 1000/2s sliding_log"] {
            assert!(check(quotas).unwrap_err().message().contains("cannot be leased"));
        }
    }
}
