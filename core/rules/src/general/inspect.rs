//! What the states of a key say, quota by quota: for lists of keys and explanations, not for decisions.

use super::{KeyOperation, KeyParts};
use crate::algorithm::{QuotaRules, Rules, State};
use crate::codec::States;
use crate::decision::{Cause, Decision, QuotaUsage};
use crate::penalty::BlockRecord;
use crate::quota::tick::SATURATION;
use crate::reservation::list::{Held, Reservations};
use crate::transition::{Operation, PolicyRules, QuotaNumbers};

/// What the states of a key say about a request at some time.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub quotas: Vec<QuotaInspection>,
    pub allowed: bool,
    pub cause: Option<Cause>,
    /// How long until the request would be admitted; `None`: never.
    pub retry_after_us: Option<u64>,
    /// What is set aside.
    pub held: Held,
    /// How long until the last reservation ends.
    pub reservations_end_after_us: u64,
    pub blocked_for_us: u64,
    /// The record of blocks, brought to the present; empty for a key that has none.
    pub record: BlockRecord,
    /// How long until the key is as if it had never been seen; `None`: it stays.
    pub expires_after_us: Option<u64>,
}

/// What one quota says.
#[derive(Clone, Copy, Debug)]
pub struct QuotaInspection {
    pub usage: QuotaUsage,
    /// Units that count now, also those beyond the capacity; reservations for concurrency.
    pub used: u64,
    /// Whether this quota alone admits the request.
    pub admits: bool,
    /// How long until this quota alone admits it; `None`: never.
    pub retry_after_us: Option<u64>,
}

impl PolicyRules {
    /// Looks at the states of a key as a peek does.
    pub fn inspect(&self, states: &[State], now_us: u64, cost: u64, headroom: u8) -> Inspection {
        let peek = KeyOperation { now_us, operation: Operation::Peek, cost, headroom, hold: None };
        // A peek changes nothing, but it takes states that it could change.
        let (decision, _) = self.decide(&mut States::from(states), peek, None);
        let parts = KeyParts::of(states, self.quotas.len());
        let none = Reservations::default();
        let reservations = parts.reservations.unwrap_or(&none);
        let mut record = parts.record.copied().unwrap_or_default();
        record.bring(now_us, self.penalty.as_ref());
        let held = reservations.held(now_us);
        let each = self.quotas.iter().zip(parts.quotas).zip(decision.quotas());
        let quotas = each.map(|((quota, state), usage)| {
            let retry_after_us = self.quota_retry_after_us(quota, state, reservations, peek);
            let used = match &quota.rules {
                rules if rules.counts_slots() => held.alive,
                QuotaRules::GroupedBucket(bucket) => match state {
                    State::Grouped(state) => bucket.used(state, now_us),
                    _ => 0,
                },
                _ => (SATURATION * quota.capacity).saturating_sub(quota.rules.room(state, now_us)),
            };
            QuotaInspection { usage: *usage, used, admits: retry_after_us == Some(0), retry_after_us }
        });
        Inspection {
            quotas: quotas.collect(),
            allowed: decision.allowed(),
            cause: decision.cause(),
            retry_after_us: decision.retry_after_us(),
            held,
            reservations_end_after_us: reservations.reset_after_us(now_us),
            blocked_for_us: record.blocked_for_us(now_us),
            record,
            expires_after_us: Some(self.expiry(states, now_us).after_us)
                .filter(|after_us| *after_us < u64::MAX),
        }
    }

    /// How long until one quota admits a request in addition to what is set aside by then; `None`: never.
    fn quota_retry_after_us(
        &self,
        quota: &QuotaNumbers,
        state: &State,
        reservations: &Reservations,
        request: KeyOperation<'_>,
    ) -> Option<u64> {
        let KeyOperation { now_us, headroom, .. } = request;
        let steps = reservations.walk(now_us);
        if quota.rules.counts_slots() {
            if let Some(after_us) = quota.grouped_slot_after_us(state, request, reservations) {
                return Some(after_us).filter(|after_us| *after_us != Decision::NEVER);
            }
            let slots = self.most_reservations(headroom);
            return steps.iter().find(|step| step.alive < slots).map(|step| step.from_us - now_us);
        }
        Some(quota.fits_after_us(state, request, reservations, &steps))
            .filter(|after_us| *after_us != Decision::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use crate::algorithm::State;
    use crate::codec::States;
    use crate::general::KeyOperation;
    use crate::policy::Policy;
    use crate::transition::{Operation, PolicyRules};

    const NOW_US: u64 = 1_800_000_000_000_000;

    #[test]
    fn each_quota_says_when_the_cost_fits() {
        let quotas = "100/minute token_bucket; 5/hour fixed_window; 20/s sliding_log; 10/m leaky_bucket; 8/m";
        let policy = Policy::parse("p", quotas).unwrap();
        let rules = PolicyRules::new(&policy);
        let mut states: States = policy.quotas().iter().map(State::fresh).collect();
        let charge =
            KeyOperation { now_us: NOW_US, operation: Operation::Charge, cost: 4, headroom: 0, hold: None };
        let _ = rules.decide(&mut states, charge, None);
        let seen = rules.inspect(&states, NOW_US, 3, 0);
        assert!(!seen.allowed);
        assert_eq!(seen.quotas.iter().map(|quota| quota.used).collect::<Vec<_>>(), [4; 5]);
        let admits: Vec<_> = seen.quotas.iter().map(|quota| quota.admits).collect();
        assert_eq!(admits, [true, false, true, true, true]);
        assert_eq!(seen.quotas[1].retry_after_us, Some(3_600_000_000));
        assert_eq!(seen.retry_after_us, Some(3_600_000_000));
        // Beyond what a quota can ever admit.
        let seen = rules.inspect(&states, NOW_US, 9, 0);
        let never: Vec<_> = seen.quotas.iter().map(|quota| quota.retry_after_us.is_none()).collect();
        assert_eq!((never, seen.retry_after_us), (vec![false, true, false, false, true], None));
        // Units that are left for others count as wanted.
        assert!(!rules.inspect(&states, NOW_US, 1, 40).quotas[1].admits);
    }

    #[test]
    fn units_beyond_the_capacity_count_as_used() {
        for quota in
            ["10/m token_bucket", "10/m", "10/m fixed_window", "10/m sliding_log", "10/m token_bucket step=5"]
        {
            let policy = Policy::parse("p", quota).unwrap();
            let rules = PolicyRules::new(&policy);
            let mut states: States = policy.quotas().iter().map(State::fresh).collect();
            let charge = KeyOperation {
                now_us: NOW_US,
                operation: Operation::Charge,
                cost: 25,
                headroom: 0,
                hold: None,
            };
            let _ = rules.decide(&mut states, charge, None);
            let seen = rules.inspect(&states, NOW_US, 1, 0);
            assert_eq!((seen.quotas[0].used, seen.quotas[0].usage.remaining), (25, 0), "{quota}");
            assert!(seen.expires_after_us.is_some_and(|after_us| after_us > 0));
        }
    }
}
