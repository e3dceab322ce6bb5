//! The size and the lifetime of leases.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::duration;
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};

/// Allows leases for the keys of a policy: the process takes units of a busy key from the store ahead of time, many at
/// once, and spends them without a round trip.
///
/// The store is debited first, so all processes together never admit more than the quota admits in any span of time,
/// even if a process is killed. Leased units that are not spent cannot be spent elsewhere until they are given
/// back: when the lease expires, on `close`, and before this limiter performs any operation
/// but a check on the key. A process that is killed loses the units it has leased: at most twice [`units`](Self::units)
/// for each process.
///
/// A lease grows with the request rate of its key and shrinks as the quota runs low; the last units are requested one
/// by one. A unit counts from the time when it was leased, and expires after [`max_age`](Self::max_age) at the latest.
/// It can expire earlier: in a window, with the window or sub-window in which it counts; in a bucket that is refilled
/// in steps, with the next step. In any other bucket the units of a lease expire gradually: once the units that this
/// process spent have been repaid, the lease shrinks with the rest of the debt. All processes need the same `max_age`
/// for that. A `sliding_log` counts each unit at its own time, so its units cannot be spent later: it cannot be leased,
/// nor can a `leaky_bucket` or a quota with `count_denied`.
///
/// Another process may refund or reset units that this process has leased. They can still be spent, so up to the number
/// of units leased at that time is admitted on top of the refund.
///
/// The text form is `auto`, the maximum number of units, or both the number and the age: `100/500ms`.
///
/// ```
/// use std::time::Duration;
/// use polylimit::redis::Lease;
///
/// assert_eq!("100/500ms".parse(), Lease::new(100, Duration::from_millis(500)));
/// assert_eq!("auto".parse(), Ok(Lease::auto()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `None`: derived from the quota.
    units: Option<u64>,
    max_age: Duration,
}

impl Lease {
    /// The largest allowed number of units of one lease.
    pub const MAX_UNITS: u64 = 1_000_000;
    /// The longest allowed lifetime of a leased unit.
    pub const LONGEST: Duration = Duration::from_secs(60);
    /// The shortest allowed lifetime of a leased unit.
    pub const SHORTEST: Duration = Duration::from_millis(10);

    /// At most a sixteenth of the quota's capacity, for at most one second.
    pub const fn auto() -> Self {
        Self { units: None, max_age: Duration::from_secs(1) }
    }

    /// At most `units` units at a time, 1 to [`MAX_UNITS`](Self::MAX_UNITS), each for at most `max_age`,
    /// [`SHORTEST`](Self::SHORTEST) to [`LONGEST`](Self::LONGEST).
    ///
    /// # Errors
    /// [`InvalidArgument`](polylimit_rules::error::ErrorKind::InvalidArgument) when one of them is out of range.
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

    /// The maximum number of units of a lease; `None` if it is derived from the quota.
    pub fn units(&self) -> Option<u64> {
        self.units
    }

    /// The maximum lifetime of a leased unit.
    pub fn max_age(&self) -> Duration {
        self.max_age
    }

    /// The maximum number of units of a lease under a policy.
    #[doc(hidden)]
    pub fn most_units(&self, policy: &Policy) -> u64 {
        let capacity = policy.quotas().iter().map(Quota::capacity).min().unwrap_or(0);
        self.units.unwrap_or(capacity / 16).min(Self::MAX_UNITS)
    }

    /// Rejects policies whose units cannot be leased.
    #[doc(hidden)]
    pub fn check(policy: &Policy) -> Result<(), Error> {
        let is_bad = |quota: &&Quota| {
            let algorithm = quota.algorithm();
            matches!(algorithm, Algorithm::LeakyBucket | Algorithm::SlidingLog | Algorithm::Concurrency)
                || quota.count_denied()
        };
        match policy.quotas().iter().find(is_bad) {
            Some(quota) => Err(Error::invalid_argument(format!(
                "policy {} cannot be leased: {quota} counts each request when it arrives; leave out the lease, or \
                 leaky_bucket, sliding_log, concurrent and count_denied (a sliding_window can be leased)",
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
    /// [`InvalidArgument`](polylimit_rules::error::ErrorKind::InvalidArgument) when the text has another form or a value is out
    /// of range.
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
    fn policies_that_cannot_be_leased_are_refused() {
        let check = |quotas| Lease::check(&Policy::parse("p", quotas).unwrap());
        assert_eq!(check("1/s; 1/m token_bucket; 1/h fixed_window"), Ok(()));
        for quotas in
            ["1/s leaky_bucket", "1/s; 2/m count_denied", "1/s; 1000/2s sliding_log", "1/s; 2 concurrent"]
        {
            assert!(check(quotas).unwrap_err().message().contains("cannot be leased"));
        }
    }
}
