//! A policy as the store knows it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::states::States;
use crate::algorithm::{Rules, State};
use crate::decision::Decision;
use crate::policy::Policy;
use crate::store::PolicyId;
use crate::transition::{Applied, PolicyRules};

/// A policy with the numbers that it had from one change to the next.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) id: PolicyId,
    pub(super) policy: Policy,
    pub(super) rules: PolicyRules,
    /// When other numbers took their place, in microseconds since the epoch; not yet: `u64::MAX`.
    superseded_at_us: AtomicU64,
}

impl Registered {
    pub(super) fn new(id: PolicyId, policy: &Policy) -> Self {
        Self {
            id,
            policy: policy.clone(),
            rules: PolicyRules::new(policy),
            superseded_at_us: AtomicU64::new(u64::MAX),
        }
    }

    /// Notes that other numbers take the place of these.
    pub(super) fn superseded(&self, now_us: u64) {
        self.superseded_at_us.store(now_us, Ordering::Relaxed);
    }

    /// The states that were written under these numbers, for the quotas of another policy of the same name: quotas
    /// that both have keep theirs, the others start unused. What had run out before these numbers were superseded is
    /// not brought back by slower ones.
    pub(super) fn moved(&self, states: &States, to: &Policy) -> States {
        let superseded_at_us = self.superseded_at_us.load(Ordering::Relaxed);
        let quotas = self.policy.quotas().iter().zip(&self.rules.quotas).zip(states.as_slice());
        let kept = |identity| {
            let ((_, numbers), state) =
                quotas.clone().find(|((quota, _), _)| quota.identity() == identity)?;
            // Another shard may learn of a change a moment later: then numbers that are still in force are moved back.
            let ran_out = superseded_at_us < u64::MAX
                && numbers.limit > 0
                && numbers.rules.reset_after_us(state, superseded_at_us) == 0;
            (!ran_out).then(|| state.clone())
        };
        let moved =
            to.quotas().iter().map(|quota| kept(quota.identity()).unwrap_or_else(|| State::fresh(quota)));
        moved.collect()
    }

    /// What is left to a key that was never seen.
    pub(super) fn unseen(&self, now_us: u64) -> Decision {
        self.view(&States::fresh(&self.policy), now_us)
    }

    /// How long until nothing of these states counts as used any more. A state under a limit of 0 stays as it is, so
    /// one that holds something does so for ever, as far as can be seen from here.
    pub(super) fn spent_after_us(&self, states: &States, now_us: u64) -> u64 {
        let mut quotas = self.rules.quotas.iter().zip(states.as_slice());
        if quotas.any(|(quota, state)| quota.limit == 0 && !state.holds_nothing()) {
            return u64::MAX;
        }
        self.view(states, now_us).reset_after_us()
    }

    fn view(&self, states: &States, now_us: u64) -> Decision {
        let nothing = Applied { allowed: true, spent: 0, written: false };
        self.rules.explain(states.as_slice(), now_us, 0, nothing, None)
    }
}
