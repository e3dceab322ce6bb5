//! The explanation: what a transition left, in words that a caller can use. Once, for every store.

use crate::algorithm::{Rules, State};
use crate::decision::{Decision, Degradation, QuotaUsage, QuotaUsages, Source, Usage};
use crate::transition::{Applied, PolicyRules};

impl PolicyRules {
    /// The decision that the states explain, from after the transition.
    #[inline]
    pub(crate) fn decision(
        &self,
        states: &[State],
        now_us: u64,
        cost: u64,
        applied: Applied,
        degraded: Option<Degradation>,
    ) -> Decision {
        let usage = self.usage(states, now_us, Applied { spent: 0, ..applied }, degraded);
        let (mut retry_after_us, mut delay_us) = (Some(0), 0);
        if cost > 0 {
            for ((quota, state), view) in self.quotas.iter().zip(states).zip(&usage.quotas) {
                if applied.allowed {
                    delay_us = delay_us.max(quota.rules.delay_us(state, now_us, applied.spent));
                } else if cost > quota.capacity {
                    retry_after_us = None;
                } else if cost > view.remaining {
                    let wait_us = quota.rules.retry_after_us(state, now_us, cost);
                    retry_after_us = retry_after_us.map(|longest| longest.max(wait_us));
                }
            }
        }
        Decision { allowed: applied.allowed, retry_after_us, delay_us, usage }
    }

    /// The usage that the states explain, from after the transition.
    #[inline]
    pub(crate) fn usage(
        &self,
        states: &[State],
        now_us: u64,
        applied: Applied,
        degraded: Option<Degradation>,
    ) -> Usage {
        let views = self.quotas.iter().zip(states).map(|(quota, state)| QuotaUsage {
            limit: quota.limit,
            remaining: quota.rules.remaining(state, now_us),
            reset_after_us: quota.rules.reset_after_us(state, now_us),
        });
        let quotas: QuotaUsages = views.collect();
        Usage {
            remaining: quotas.iter().map(|view| view.remaining).min().unwrap_or(0),
            reset_after_us: quotas.iter().map(|view| view.reset_after_us).max().unwrap_or(0),
            taken: applied.spent,
            source: Source::Store,
            degraded,
            quotas,
        }
    }
}
