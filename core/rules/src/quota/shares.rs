//! What each of the groups of a policy gets of a quota.

use crate::error::Error;
use crate::groups::{GroupTable, GroupTag};
use crate::quota::tick::{MAX_EXACT, SATURATION};
use crate::quota::{Algorithm, Quota};
use crate::reservation::list::MAX_RESERVATIONS;

/// The farthest place in the order: products with weights stay below 2^53.
pub(crate) const MAX_PLACE: u64 = 1 << 45;

/// What a quota gives to a group.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub tag: GroupTag,
    pub weight: u64,
    /// Debt that a tick repays of the group's own; 0 without a minimum.
    pub rate: u64,
    /// Units of the group's own; of a quota of concurrency, slots that are kept free for the group.
    pub burst: u64,
    /// Debt that a tick repays of the group's most; 0 without a maximum.
    pub top_rate: u64,
    /// The most units, or slots, of the group.
    pub top_burst: u64,
    /// Slots of the group's minimum; 0 in a bucket.
    pub minimum: u64,
}

/// The shares of a quota's groups.
#[doc(hidden)]
pub fn shares_of(quota: &Quota, table: &GroupTable) -> Box<[Share]> {
    let (limit, capacity) = (quota.limit(), quota.capacity());
    let is_bucket = quota.algorithm() != Algorithm::Concurrency;
    let each = table.groups().iter().zip(table.tags()).map(|(group, tag)| {
        let (minimum, maximum) = (u64::from(group.minimum), u64::from(group.maximum));
        let (weight, tag) = (u64::from(group.weight.max(1)), *tag);
        let rate = limit * minimum / 100;
        let top_rate = if maximum < 100 { limit * maximum / 100 } else { 0 };
        if is_bucket {
            let burst = if rate > 0 { (capacity * minimum / 200).max(1) } else { 0 };
            let top_burst = (capacity * maximum / 100).max(1);
            return Share { tag, weight, rate, burst, top_rate, top_burst, minimum: 0 };
        }
        let minimum = slots_of(quota) * minimum / 100;
        let top_burst = (slots_of(quota) * maximum / 100).max(1);
        Share { tag, weight, rate: 0, burst: minimum / 2, top_rate: 0, top_burst, minimum }
    });
    each.collect()
}

pub(crate) fn slots_of(quota: &Quota) -> u64 {
    quota.limit().min(MAX_RESERVATIONS as u64)
}

/// Refuses a quota that cannot be divided among these groups.
///
/// # Errors
/// Invalid argument: a minimum or a maximum of less than one unit, nothing that is left to lend, or weights with which the order could not
/// be counted exactly.
pub(crate) fn check(quota: &Quota, table: &GroupTable) -> Result<(), Error> {
    if quota.limit() == 0 {
        return Ok(());
    }
    let invalid = |message: String| Err(Error::invalid_argument(message));
    let shares = shares_of(quota, table);
    let is_bucket = quota.algorithm() != Algorithm::Concurrency;
    for (group, share) in table.groups().iter().zip(&shares) {
        let (minimum, most) =
            if is_bucket { (share.rate, share.top_rate) } else { (share.minimum, share.top_burst) };
        let lacks_maximum = is_bucket && group.maximum < 100 && most == 0;
        if group.minimum > 0 && minimum == 0 || lacks_maximum {
            let (setting, percent) =
                if lacks_maximum { ("maximum", group.maximum) } else { ("minimum", group.minimum) };
            return invalid(format!(
                "the {setting} of group {} is {percent}% of {quota}, which is less than one unit: use a larger part, or a larger limit",
                group.name
            ));
        }
    }
    let own: u64 = shares.iter().map(|share| share.burst).sum();
    if own >= quota.capacity() {
        return invalid(format!("{quota} is too small for the minimums of its groups: use a larger burst"));
    }
    let units = u128::from(if is_bucket { quota.capacity() } else { slots_of(quota) });
    if units * u128::from(table.scale()) > u128::from(MAX_PLACE) {
        return invalid(format!(
            "the weights of the groups have the common multiple {}, with which {quota} cannot be divided exactly: use smaller weights, or \
             such that divide each other",
            table.scale()
        ));
    }
    Ok(())
}

/// The tick of a bucket with groups, in which every debt is exact; `None` when there is none.
pub(crate) fn tick_of(quota: &Quota) -> Option<u64> {
    let product = |tick: u64| {
        // Twice as much as is ever in debt, so that what is repaid is exact wherever it matters.
        2 * u128::from(SATURATION) * u128::from(quota.capacity()) * u128::from(quota.period_us() / tick)
    };
    std::iter::successors(Some(1_u64), |tick| Some(tick * 10))
        .take_while(|tick| quota.period_us().is_multiple_of(*tick))
        .find(|tick| product(*tick) <= MAX_EXACT)
}
