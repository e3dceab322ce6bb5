//! The explanation of a policy: turns the states after a transition into a decision, for every store.

use crate::rules::algorithm::{Explanation, Outcome, QuotaRules, Rules, State};
use crate::rules::decision::{Decision, Degradation, QuotaUsage, Several, Source};
use crate::rules::transition::{Applied, Operation, PolicyRules, QuotaNumbers};

impl PolicyRules {
    /// Checks a key of a policy whose only quota is a token bucket, as [`decide`](Self::decide) would, and also returns
    /// whether it wrote the state. It is short enough to be inlined into its caller, with every number in a register.
    /// `None` for every other policy or request.
    #[expect(clippy::inline_always, reason = "its answer would go through memory")]
    #[inline(always)]
    pub(crate) fn check_bucket(
        &self,
        states: &mut [State],
        now_us: u64,
        cost: u64,
    ) -> Option<(Decision, bool)> {
        let ([quota], [State::TokenBucket(state)]) = (&*self.quotas, states) else { return None };
        let QuotaRules::TokenBucket(bucket) = &quota.rules else { return None };
        if !(1..=quota.capacity).contains(&cost) || quota.count_denied {
            return None;
        }
        if let Some(explanation) = bucket.admit(state, now_us, cost) {
            return Some((decision(quota.usage(explanation), None, explanation.wait_us, true, None), true));
        }
        let (written, explanation) = bucket.deny(state, now_us, cost);
        Some((decision(quota.usage(explanation), None, explanation.wait_us, false, None), written))
    }

    /// Applies an operation to the states of one key, which are in the order of the quotas, and explains the result.
    #[inline]
    pub(crate) fn decide(
        &self,
        states: &mut [State],
        now_us: u64,
        operation: Operation,
        cost: u64,
        degraded: Option<Degradation>,
    ) -> (Decision, Applied) {
        // A check of a single quota is by far the most frequent.
        if let ([quota], [state], Operation::Check) = (&*self.quotas, &mut *states, operation)
            && (1..=quota.capacity).contains(&cost)
            && !quota.count_denied
        {
            if let Some(explanation) = quota.rules.admit(state, now_us, cost) {
                let applied = Applied { allowed: true, spent: cost, written: true };
                return (
                    decision(quota.usage(explanation), None, explanation.wait_us, true, degraded),
                    applied,
                );
            }
            let (written, explanation) = quota.rules.deny(state, now_us, cost);
            let applied = Applied { allowed: false, spent: 0, written };
            return (decision(quota.usage(explanation), None, explanation.wait_us, false, degraded), applied);
        }
        if self.slots.is_some() || states.len() > self.quotas.len() {
            return self.decide_with_reservations(states, now_us, operation, cost, None, degraded);
        }
        let applied = self.apply(states, now_us, operation, cost);
        (self.explain(states, now_us, cost, applied, degraded).by_fields(), applied)
    }

    /// The decision that follows from the states after the transition.
    pub(crate) fn explain(
        &self,
        states: &[State],
        now_us: u64,
        cost: u64,
        applied: Applied,
        degraded: Option<Degradation>,
    ) -> Decision {
        match (&*self.quotas, states) {
            ([quota], [state]) => {
                let (usage, wait_us) = quota.explain(state, now_us, cost, applied);
                decision(usage, None, self.wait_us(wait_us, cost, applied), applied.allowed, degraded)
            }
            _ => self.explain_several(states, now_us, cost, applied, degraded),
        }
    }

    /// What the states of a key leave at some time.
    pub(crate) fn view(&self, states: &[State], now_us: u64) -> Decision {
        if self.slots.is_some() || states.len() > self.quotas.len() {
            return self.view_with_reservations(states, now_us);
        }
        let nothing = Applied { allowed: true, spent: 0, written: false };
        self.explain(states, now_us, 0, nothing, None).by_fields()
    }

    /// How long until the states of a key expire. A state under a limit of 0 does not change, so a non-empty one never
    /// expires.
    pub(crate) fn expires_after_us(&self, states: &[State], now_us: u64) -> u64 {
        let mut quotas = self.quotas.iter().zip(states);
        if quotas.any(|(quota, state)| quota.limit == 0 && !state.holds_nothing()) {
            return u64::MAX;
        }
        self.view(states, now_us).reset_after_us()
    }

    #[inline(never)]
    fn explain_several(
        &self,
        states: &[State],
        now_us: u64,
        cost: u64,
        applied: Applied,
        degraded: Option<Degradation>,
    ) -> Decision {
        let mut longest_wait_us = 0;
        let each = self.quotas.iter().zip(states).map(|(quota, state)| {
            let (usage, wait_us) = quota.explain(state, now_us, cost, applied);
            longest_wait_us = longest_wait_us.max(wait_us);
            usage
        });
        let (total, several) = Several::of(each);
        let wait_us = self.wait_us(longest_wait_us, cost, applied);
        decision(total, several, wait_us, applied.allowed, degraded)
    }

    /// The longest wait over the quotas; [`Decision::NEVER`] for a denied cost that can never be admitted.
    fn wait_us(&self, longest_us: u64, cost: u64, applied: Applied) -> u64 {
        if !applied.allowed && self.never_admits(cost) { Decision::NEVER } else { longest_us }
    }
}

#[inline]
fn decision(
    total: QuotaUsage,
    several: Option<Box<Several>>,
    wait_us: u64,
    allowed: bool,
    degraded: Option<Degradation>,
) -> Decision {
    Decision { total, several, wait_us, allowed, source: Source::Store, degraded }
}

impl QuotaNumbers {
    /// This quota's usage, and how long an admitted request waits for its turn or a denied one until it fits.
    fn explain(&self, state: &State, now_us: u64, cost: u64, applied: Applied) -> (QuotaUsage, u64) {
        let outcome = match applied {
            Applied { allowed: true, spent, .. } if cost > 0 => Outcome::Admitted { spent },
            Applied { allowed: false, .. } if cost <= self.capacity => Outcome::Denied { cost },
            _ => Outcome::Adjusted,
        };
        let explanation = self.rules.explain(state, now_us, outcome);
        (self.usage(explanation), explanation.wait_us)
    }

    #[inline]
    fn usage(&self, explanation: Explanation) -> QuotaUsage {
        let Explanation { remaining, reset_after_us, .. } = explanation;
        let over = self.excess.saturating_sub(remaining);
        QuotaUsage { limit: self.limit, remaining, reset_after_us, over }
    }
}
