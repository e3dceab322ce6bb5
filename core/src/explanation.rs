//! The explanation: what a transition left, in words that a caller can use. Once, for every store.

use crate::algorithm::{Outcome, Rules, State};
use crate::decision::{Decision, Degradation, QuotaUsage, Several, Source};
use crate::transition::{Applied, PolicyRules, QuotaNumbers};

impl PolicyRules {
    /// The decision that the states explain, from after the transition.
    #[inline]
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
                self.decision(usage, None, wait_us, cost, applied.allowed, degraded)
            }
            _ => self.explain_several(states, now_us, cost, applied, degraded).by_fields(),
        }
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
        let each: Box<[QuotaUsage]> = each.collect();
        let total = QuotaUsage::of_all(&each);
        self.decision(
            total,
            Some(Box::new(Several { each })),
            longest_wait_us,
            cost,
            applied.allowed,
            degraded,
        )
    }

    #[inline]
    fn decision(
        &self,
        total: QuotaUsage,
        several: Option<Box<Several>>,
        wait_us: u64,
        cost: u64,
        allowed: bool,
        degraded: Option<Degradation>,
    ) -> Decision {
        let wait_us = if !allowed && self.never_admits(cost) { Decision::NEVER } else { wait_us };
        Decision { total, several, wait_us, allowed, source: Source::Store, degraded }
    }
}

impl QuotaNumbers {
    /// This quota's view, and how long an admitted request waits for its turn or a denied one until it fits.
    #[expect(
        clippy::inline_always,
        reason = "a call costs a quarter of a decision: its answer goes through memory"
    )]
    #[inline(always)]
    fn explain(&self, state: &State, now_us: u64, cost: u64, applied: Applied) -> (QuotaUsage, u64) {
        let outcome = match applied {
            Applied { allowed: true, spent, .. } if cost > 0 => Outcome::Admitted { spent },
            Applied { allowed: false, .. } if cost <= self.capacity => Outcome::Denied { cost },
            _ => Outcome::Adjusted,
        };
        let explanation = self.rules.explain(state, now_us, outcome);
        let usage = QuotaUsage {
            limit: self.limit,
            remaining: explanation.remaining,
            reset_after_us: explanation.reset_after_us,
        };
        (usage, explanation.wait_us)
    }
}
