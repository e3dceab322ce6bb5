//! A policy as the store knows it.

use super::states::States;
use crate::decision::Usage;
use crate::policy::Policy;
use crate::store::PolicyId;
use crate::transition::{Applied, PolicyRules};

/// A policy with the numbers that it had from one change to the next.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) id: PolicyId,
    pub(super) policy: Policy,
    pub(super) rules: PolicyRules,
    /// Whether a limit is 0: then that quota's state stays as it is, and what it holds cannot be seen from here.
    pub(super) has_limit_of_nothing: bool,
}

impl Registered {
    pub(super) fn new(id: PolicyId, policy: &Policy) -> Self {
        Self {
            id,
            policy: policy.clone(),
            rules: PolicyRules::new(policy),
            has_limit_of_nothing: policy.quotas().iter().any(|quota| quota.limit() == 0),
        }
    }

    /// Whether the states of both stand in the same order, so that those of one can be read as those of the other.
    pub(super) fn lays_out_as(&self, other: &Self) -> bool {
        let identities = self.policy.quotas().iter().map(crate::Quota::identity);
        identities.eq(other.policy.quotas().iter().map(crate::Quota::identity))
    }

    /// The usage of a key that was never seen.
    pub(super) fn unseen(&self, now_us: u64) -> Usage {
        self.usage(&States::fresh(&self.policy), now_us)
    }

    /// How long until nothing of these states counts as used any more.
    pub(super) fn reset_after_us(&self, states: &States, now_us: u64) -> u64 {
        self.usage(states, now_us).reset_after_us()
    }

    fn usage(&self, states: &States, now_us: u64) -> Usage {
        let nothing = Applied { allowed: true, spent: 0, written: false };
        self.rules.explain(states.as_slice(), now_us, 0, nothing, None).into_usage(0)
    }
}
