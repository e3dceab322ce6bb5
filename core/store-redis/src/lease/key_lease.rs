//! The lease of one key: its grants, and the size of the next one.

use smallvec::SmallVec;

use crate::keys::channel::Channel;
use crate::lease::grant::{Ends, Grant, Idle, repays_unit_ns, span_us};
use crate::script::reply::ScriptDecision;
use polylimit_rules::decision::{Decision, QuotaUsage, Several, Source};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Quota;
use polylimit_store::charge::{Charge, PolicyId};

/// A lease that lasts for less than this is too small, and a lease that lasts for more than twice as long is too large.
const GOOD_TIME_US: u64 = 50_000;
/// The number of leases in a sub-window or step, at whose end the rest of the last lease cannot be refunded.
const LEASES_IN_SPAN: u64 = 8;
/// At most this part of the remaining units is taken, so that units are left for other processes.
const PART_OF_REMAINING: u64 = 16;

/// A key, with the id of its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseKey {
    pub(crate) id: PolicyId,
    pub(crate) key: Box<[u8]>,
    pub(crate) hash: u64,
}

impl LeaseKey {
    pub(crate) fn of(charge: Charge<'_>, hash: u64) -> Self {
        Self { id: charge.id, key: charge.key.into(), hash }
    }
}

#[derive(Debug)]
pub(crate) struct KeyLease {
    pub(crate) lease_key: LeaseKey,
    /// The channel on which other processes announce blocks.
    pub(crate) channel: Channel,
    /// The older grant.
    front: Grant,
    /// A newer grant, taken while the older one still had units.
    back: Grant,
    /// The size of the next grant.
    size: u64,
    most: u64,
    max_age_us: u64,
    /// How long a grant should last.
    good_time_us: u64,
    is_taking: bool,
    /// The number of resets of the key: units that were taken before a reset are void.
    resets: u64,
    granted_at_us: u64,
    used_at_us: u64,
    /// How long a bucket takes to repay a unit, and the idle time of the key.
    repays_unit_ns: u64,
    idle: Idle,
    /// When the last grant expires, and the longest lifetime of later ones.
    span: Option<(u64, u64)>,
    /// The usage of each quota at the last take.
    views: SmallVec<[QuotaUsage; 1]>,
}

/// The units to take now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Take {
    pub(crate) units: u64,
    resets: u64,
    idle_us: u64,
}

impl KeyLease {
    pub(crate) fn new(
        lease_key: LeaseKey,
        channel: Channel,
        most: u64,
        max_age_us: u64,
        quotas: &[Quota],
        now_us: u64,
    ) -> Self {
        Self {
            lease_key,
            channel,
            front: Grant::default(),
            back: Grant::default(),
            size: 1,
            most,
            max_age_us,
            good_time_us: GOOD_TIME_US,
            is_taking: false,
            resets: 0,
            granted_at_us: now_us,
            used_at_us: now_us,
            repays_unit_ns: repays_unit_ns(quotas),
            idle: Idle::since(now_us),
            span: None,
            views: SmallVec::new(),
        }
    }

    pub(crate) fn is_of(&self, charge: Charge<'_>) -> bool {
        self.lease_key.id == charge.id && *self.lease_key.key == *charge.key
    }

    pub(crate) fn units(&self) -> u64 {
        self.front.units() + self.back.units()
    }

    /// Whether it holds units or waits for some.
    pub(crate) fn has_or_takes(&self) -> bool {
        self.units() > 0 || self.is_taking
    }

    /// Whether a take is in flight.
    pub(crate) fn takes(&self) -> bool {
        self.is_taking
    }

    /// Pays for a check if it holds enough units; also returns the take to start, if one is due.
    pub(crate) fn spend(&mut self, cost: u64, now_us: u64) -> Option<(Decision, Option<Take>)> {
        self.used_at_us = now_us;
        self.update(now_us);
        self.advance();
        // Expired units are about to be refunded. The newer grant does not expire before the older one.
        if self.units() < cost || self.front.is_over(now_us, self.max_age_us) {
            return None;
        }
        let of_front = cost.min(self.front.units());
        self.front.spend(of_front);
        self.back.spend(cost - of_front);
        self.has_spent(cost, now_us);
        let is_low = self.units() <= self.size / 2 && self.back.units() == 0;
        let take = if is_low { self.begin_taking(now_us) } else { None };
        Some((self.decision(cost, now_us), take))
    }

    /// The newer grant takes the place of an older one without units, so that it is spent, expires and is refunded next.
    fn advance(&mut self) {
        if self.front.units() == 0 {
            self.front = std::mem::take(&mut self.back);
        }
    }

    fn update(&mut self, now_us: u64) {
        self.front.update(now_us, self.idle);
        self.back.update(now_us, self.idle);
    }

    /// Records that units of this lease or of the store were spent.
    pub(crate) fn has_spent(&mut self, units: u64, now_us: u64) {
        self.idle.ends(now_us, units.saturating_mul(self.repays_unit_ns));
    }

    /// Records that the store admitted a check that the lease could not pay for; `repaid_us` is when the bucket is full
    /// again. Returns the take to start, if one is due.
    pub(crate) fn missed(&mut self, cost: u64, remaining: u64, repaid_us: u64, now_us: u64) -> Option<Take> {
        self.update(now_us);
        self.has_spent(cost, now_us);
        self.front.is_repaid_at(repaid_us);
        self.back.is_repaid_at(repaid_us);
        let is_busy = now_us.saturating_sub(self.used_at_us) < self.max_age_us;
        self.used_at_us = now_us;
        // The last units are requested one by one.
        self.size = self.size.max(1).min(remaining / PART_OF_REMAINING);
        // There is no room for a third grant. With two, the check costs more than both of them, or the older one is
        // about to be refunded.
        if is_busy && self.back.units() == 0 { self.begin_taking(now_us) } else { None }
    }

    fn begin_taking(&mut self, now_us: u64) -> Option<Take> {
        if self.size == 0 || std::mem::replace(&mut self.is_taking, true) {
            return None;
        }
        Some(Take { units: self.units_to_take(now_us), resets: self.resets, idle_us: self.idle.at(now_us) })
    }

    /// The size of a grant, reduced to what will probably be spent before it expires.
    fn units_to_take(&self, now_us: u64) -> u64 {
        let Some((ends_us, span_us)) = self.span else { return self.size };
        let left_us = match ends_us.checked_sub(now_us) {
            Some(left_us) if left_us > 0 => left_us,
            _ => span_us - (now_us - ends_us) % span_us,
        };
        if left_us >= self.good_time_us {
            return self.size;
        }
        // The quotient is less than the number of microseconds in `good_time_us`.
        (self.size.saturating_mul(left_us) / self.good_time_us).max(1)
    }

    /// Adds units that were requested at `asked_us`. Returns how many of them are void.
    pub(crate) fn granted(
        &mut self,
        take: Take,
        replied: &ScriptDecision,
        policy: &Policy,
        asked_us: u64,
        now_us: u64,
    ) -> u64 {
        self.is_taking = false;
        if take.resets != self.resets {
            return replied.spent;
        }
        let lasted_us = asked_us.saturating_sub(self.granted_at_us);
        self.granted_at_us = asked_us;
        let span_us = policy.quotas().iter().filter_map(span_us).min();
        self.good_time_us = span_us.map_or(GOOD_TIME_US, |us| GOOD_TIME_US.min(us / LEASES_IN_SPAN).max(1));
        let size = if take.units < self.size {
            // The take was reduced for the time that was left, which says nothing about the next one.
            self.size
        } else if lasted_us < self.good_time_us {
            self.size.saturating_mul(2)
        } else if lasted_us > 2 * self.good_time_us {
            self.size.div_ceil(2)
        } else {
            self.size
        };
        let decision = &replied.decision;
        self.size = size.min(self.most).min(decision.remaining() / PART_OF_REMAINING);
        self.views = decision.quotas().into();
        let ends = Ends::of(policy.quotas(), replied, asked_us);
        self.span = span_us.map(|span_us| (ends.at_us, span_us));
        self.repays_unit_ns = repays_unit_ns(policy.quotas());
        self.update(now_us);
        self.front.is_repaid_at(ends.repaid_us);
        let mut held = Grant::new(replied.spent, asked_us, take.idle_us, ends);
        held.update(now_us, self.idle);
        if self.front.units() == 0 {
            self.front = held;
        } else {
            self.back = held;
        }
        0
    }

    /// No units could be taken.
    pub(crate) fn refused(&mut self) {
        self.is_taking = false;
    }

    /// Removes both grants.
    pub(crate) fn give_up(&mut self) -> SmallVec<[Grant; 2]> {
        let all = [std::mem::take(&mut self.front), std::mem::take(&mut self.back)];
        all.into_iter().filter(|held| held.units() > 0).collect()
    }

    /// The spent units were refunded, so the bucket no longer repays them.
    pub(crate) fn has_spent_nothing(&mut self, now_us: u64) {
        self.idle.begins(now_us);
    }

    /// The store resets the key. Returns how many units are void.
    pub(crate) fn reset(&mut self, now_us: u64) -> u64 {
        self.resets += 1;
        self.has_spent_nothing(now_us);
        self.give_up().iter().map(Grant::units).sum()
    }

    /// The key is blocked. Removes both grants, and voids the take in flight.
    pub(crate) fn block(&mut self) -> SmallVec<[Grant; 2]> {
        self.resets += 1;
        self.give_up()
    }

    /// The policy has new quotas, with another maximum size. Removes both grants, and voids the take in flight.
    pub(crate) fn renew(&mut self, most: u64) -> SmallVec<[Grant; 2]> {
        self.resets += 1;
        self.most = most;
        self.size = self.size.min(most);
        self.give_up()
    }

    /// Removes the older grant if it has expired.
    pub(crate) fn over(&mut self, now_us: u64) -> Option<Grant> {
        self.advance();
        if !self.front.is_over(now_us, self.max_age_us) {
            return None;
        }
        self.update(now_us);
        let over = std::mem::replace(&mut self.front, std::mem::take(&mut self.back));
        // The grant was too large.
        self.size = self.size.div_ceil(2);
        (over.units() > 0).then_some(over)
    }

    /// Whether the lease can be dropped.
    pub(crate) fn is_idle(&self, now_us: u64) -> bool {
        self.units() == 0 && !self.is_taking && now_us.saturating_sub(self.used_at_us) >= self.max_age_us
    }

    fn decision(&self, cost: u64, now_us: u64) -> Decision {
        let passed_us = now_us.saturating_sub(self.granted_at_us);
        let units = self.units();
        let view = |view: &QuotaUsage| QuotaUsage {
            limit: view.limit,
            remaining: view.remaining + units,
            reset_after_us: view.reset_after_us.saturating_sub(passed_us),
            over: view.over.saturating_sub(units),
        };
        let (total, several) = if let [only] = &*self.views {
            (view(only), None)
        } else {
            Several::of(self.views.iter().map(view))
        };
        let crossed = several.as_ref().map_or_else(|| total.crossed(cost), |several| several.crossed(cost));
        Decision {
            total,
            several,
            wait_us: 0,
            allowed: true,
            source: Source::Lease,
            degraded: None,
            cause: None,
            crossed,
            elastic: false,
            shadowed: false,
            repeated: false,
        }
    }
}

#[cfg(test)]
mod tests;
