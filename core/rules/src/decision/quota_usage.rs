//! What a decision says of each quota: its usage, and its verdict on the request.

use std::time::Duration;

use smallvec::SmallVec;

/// A wait that never ends; all other waits are below 2^63 microseconds.
pub(super) const NEVER_US: u64 = u64::MAX;

/// One quota's usage by a key, after the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The quota's limit, in units per period.
    pub limit: u64,
    /// Whole units that this quota would still admit now.
    pub remaining: u64,
    /// How long until nothing counts as used under this quota if nothing else arrives, in microseconds.
    pub reset_after_us: u64,
    /// Units of the quota's [`excess`](crate::Quota::excess) that are in use: above 0 once use is beyond the limit.
    pub over: u64,
}

impl QuotaUsage {
    /// The usage of no quota.
    pub(super) const NOTHING: Self = Self { limit: 0, remaining: 0, reset_after_us: 0, over: 0 };

    /// Whether these units were the first beyond the limit.
    #[inline]
    #[doc(hidden)]
    pub fn crossed(&self, units: u64) -> bool {
        // From 1 to the units, in one comparison.
        self.over.wrapping_sub(1) < units
    }

    /// The usage of two quotas together: the least of the limits and of the remaining units, the longest of the times, and the
    /// most units of an excess.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            limit: self.limit.min(other.limit),
            remaining: self.remaining.min(other.remaining),
            reset_after_us: self.reset_after_us.max(other.reset_after_us),
            over: self.over.max(other.over),
        }
    }
}

/// One quota's verdict on the request of a [`Decision`](crate::Decision). The quotas of a policy decide independently of each other: the request
/// is admitted when each of them admits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaVerdict {
    /// Whether this quota admits the request.
    pub allowed: bool,
    /// How long until this quota would admit the same request if no other request arrives, in microseconds: exactly then and
    /// not one microsecond earlier. 0 when it admits it; `None` means never: the cost exceeds what the quota can ever admit.
    pub retry_after_us: Option<u64>,
}

impl QuotaVerdict {
    /// [`retry_after_us`](Self::retry_after_us) as a duration.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_us.map(Duration::from_micros)
    }

    pub(super) fn of(wait_us: u64) -> Self {
        Self { allowed: wait_us == 0, retry_after_us: (wait_us != NEVER_US).then_some(wait_us) }
    }
}

/// How long each quota denies a request; 0 where it admits it.
pub type Waits = SmallVec<[u64; 4]>;

/// What is reported for each quota where there are several, or where the verdict of the only one does not follow from its decision: one
/// allocation for up to four of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Several {
    pub(super) each: SmallVec<[QuotaUsage; 4]>,
    /// Empty where every quota admits the request.
    pub(super) waits_us: Waits,
}

impl Several {
    /// The usage of all quotas together and, where there are several, of each.
    #[inline]
    pub fn of(each: impl Iterator<Item = QuotaUsage>) -> (QuotaUsage, Option<Box<Self>>) {
        let mut several = Box::<Self>::default();
        let total = each.inspect(|usage| several.each.push(*usage)).reduce(QuotaUsage::and);
        (total.unwrap_or(QuotaUsage::NOTHING), (several.each.len() > 1).then_some(several))
    }

    /// Each quota's usage, in the policy's order.
    pub fn usages(&self) -> &[QuotaUsage] {
        &self.each
    }

    /// Whether each quota denies the request, in the policy's order; nothing where all admit it.
    pub fn denying(&self) -> impl Iterator<Item = bool> {
        self.waits_us.iter().map(|wait_us| *wait_us > 0)
    }

    /// The same of several quotas of which at least one denies the request, with the longest of the waits.
    #[inline]
    pub(crate) fn of_denial(each: impl Iterator<Item = (QuotaUsage, u64)>) -> (QuotaUsage, Box<Self>, u64) {
        let mut several = Box::<Self>::default();
        let mut longest_us = 0;
        let usages = each.map(|(usage, wait_us)| {
            several.each.push(usage);
            several.waits_us.push(wait_us);
            longest_us = wait_us.max(longest_us);
            usage
        });
        let total = usages.reduce(QuotaUsage::and).unwrap_or(QuotaUsage::NOTHING);
        (total, several, longest_us)
    }

    /// Whether these units were the first beyond the limit of one of the quotas.
    pub fn crossed(&self, units: u64) -> bool {
        self.each.iter().any(|usage| usage.crossed(units))
    }
}
