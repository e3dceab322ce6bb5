//! The numbers that a quota had before, as far as a record names them.
//!
//! A record of a bucket or a stepped bucket names the limit that it was written under. When this process has changed
//! the numbers since, what had run out under the old ones at the time of the change cannot be told from what was never
//! used, so slower ones must not bring it back.

use crate::policy::Policy;
use crate::quota::Quota;
use crate::quota::tick::gcd;

/// A policy whose numbers were changed, and when, in microseconds since the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Superseded {
    pub(crate) policy: Policy,
    pub(crate) at_us: u64,
}

/// What matters of a quota's past numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PastNumbers {
    pub(crate) limit: u64,
    pub(crate) capacity: u64,
    /// Of a stepped bucket.
    pub(crate) interval_us: u64,
    pub(crate) tick_us: u64,
    /// Whether a microsecond repaid 1: then a record need not name a limit.
    pub(crate) repays_one: bool,
    pub(crate) superseded_at_us: u64,
}

/// Whether a microsecond repays 1 under a bucket's numbers.
pub(crate) fn repays_one(quota: &Quota) -> bool {
    quota.tick_us() == 1 && quota.limit() > 0 && quota.period_us().is_multiple_of(quota.limit())
}

/// The past numbers of a quota, oldest first.
pub(crate) fn past_of(quota: &Quota, superseded: &[Superseded]) -> Box<[PastNumbers]> {
    if !quota.algorithm().is_bucket() {
        return Box::default();
    }
    let numbers = superseded.iter().filter_map(|superseded| {
        let past = superseded.policy.quotas().iter().find(|past| past.identity() == quota.identity())?;
        Some(PastNumbers {
            limit: past.limit(),
            capacity: past.capacity(),
            interval_us: past.step_interval_us(),
            tick_us: past.tick_us(),
            repays_one: repays_one(past),
            superseded_at_us: superseded.at_us,
        })
    });
    numbers.collect()
}

/// How many units of debt a tick repays under a limit and a tick.
pub(super) fn rate(limit: u64, period_us: u64, tick_us: u64) -> u64 {
    limit / gcd(limit, period_us / tick_us)
}
