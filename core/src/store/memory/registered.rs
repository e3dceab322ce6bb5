//! A policy as the memory store registers it.

use crate::rules::algorithm::State;
use crate::rules::decision::Decision;
use crate::rules::history::{History, PastNumbers, past_of, ran_out};
use crate::rules::policy::Policy;
use crate::rules::quota::Quota;
use crate::rules::transition::{Applied, PolicyRules};
use crate::store::memory::states::States;
use crate::store::request::PolicyId;

/// A policy with its numbers between two changes.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) id: PolicyId,
    pub(crate) policy: Policy,
    pub(crate) rules: PolicyRules,
    history: History,
    /// The past numbers of each quota.
    past: Box<[Box<[PastNumbers]>]>,
}

impl Registered {
    pub(crate) fn new(id: PolicyId, policy: &Policy, history: History) -> Self {
        let past = policy.quotas().iter().map(|quota| past_of(quota, &history)).collect();
        Self { id, policy: policy.clone(), rules: PolicyRules::new(policy), history, past }
    }

    /// The history of these numbers once new numbers replace them.
    pub(crate) fn superseded_at(&self, now_us: u64) -> History {
        self.history.then(&self.policy, now_us)
    }

    /// Converts states that were written under other numbers to the current quotas: quotas with the same identity keep
    /// their states, others start unused. Usage that had expired before the change does not come back under slower
    /// numbers.
    pub(crate) fn states_of(&self, under: &Self, states: &States) -> States {
        let before = || under.policy.quotas().iter().zip(states.as_slice());
        let kept = |quota: &Quota, past: &[PastNumbers]| {
            let (written_under, state) =
                before().find(|(before, _)| before.identity() == quota.identity())?;
            (!ran_out(state, written_under.limit(), quota, past)).then(|| state.clone())
        };
        let quotas = self.policy.quotas().iter().zip(&self.past);
        quotas.map(|(quota, past)| kept(quota, past).unwrap_or_else(|| State::fresh(quota))).collect()
    }

    /// What a key that was never seen has left.
    pub(crate) fn unseen(&self, now_us: u64) -> Decision {
        self.view(&States::fresh(&self.policy), now_us)
    }

    /// The time until these states expire. A state under a limit of 0 does not change, so a non-empty one never
    /// expires.
    pub(crate) fn spent_after_us(&self, states: &States, now_us: u64) -> u64 {
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
