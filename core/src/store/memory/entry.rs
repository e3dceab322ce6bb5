//! What is remembered of one key under one policy, and under which numbers it was written.

use std::sync::Arc;

use smallvec::SmallVec;

use super::states::States;
use crate::algorithm::State;
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
    /// Whether a limit is 0: then the quota's state stays as it is, and what it holds cannot be seen from here.
    has_limit_of_nothing: bool,
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

    /// The usage of a key that was never seen.
    pub(super) fn unseen(&self, now_us: u64) -> Usage {
        let nothing = Applied { allowed: true, spent: 0, written: false };
        self.rules.usage(States::fresh(&self.policy).as_slice(), now_us, nothing, None)
    }

    fn tells_states_apart_as(&self, other: &Self) -> bool {
        let identities = |registered: &Self| {
            registered.policy.quotas().iter().map(crate::quota::Quota::identity).collect::<SmallVec<[_; 4]>>()
        };
        identities(self) == identities(other)
    }
}

/// What an operation changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Whether the states were written.
    pub(super) written: bool,
    /// When nothing counts as used any more.
    pub(super) reset_at_us: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    /// Keys of up to 24 bytes are kept in place.
    pub(super) key: SmallVec<[u8; 24]>,
    states: States,
    /// The numbers under which the states were last written: they say what the states mean.
    under: Arc<Registered>,
    /// Before this time the states may not be dropped.
    pub(super) reset_at_us: u64,
}

impl Entry {
    pub(super) fn new(key: &[u8], states: States, under: &Arc<Registered>, reset_at_us: u64) -> Self {
        Self { key: SmallVec::from_slice(key), states, under: Arc::clone(under), reset_at_us }
    }

    /// Whether it is the entry of that key under that policy, with whatever numbers.
    #[inline]
    pub(super) fn is(&self, current: &Arc<Registered>, key: &[u8]) -> bool {
        self.key[..] == *key && (Arc::ptr_eq(&self.under, current) || self.under.id == current.id)
    }

    pub(super) fn id(&self) -> PolicyId {
        self.under.id
    }

    /// Runs an operation on the states, under the current numbers of the policy.
    #[inline]
    pub(super) fn update<Answer>(
        &mut self,
        current: &Arc<Registered>,
        run: impl FnOnce(&PolicyRules, &mut [State]) -> (Change, Answer),
    ) -> Answer {
        if Arc::ptr_eq(&self.under, current) {
            let (change, answer) = run(&current.rules, self.states.as_mut_slice());
            self.note(current, change);
            return answer;
        }
        self.update_under_other_numbers(current, run)
    }

    #[cold]
    fn update_under_other_numbers<Answer>(
        &mut self,
        current: &Arc<Registered>,
        run: impl FnOnce(&PolicyRules, &mut [State]) -> (Change, Answer),
    ) -> Answer {
        if self.under.tells_states_apart_as(current) {
            let (change, answer) = run(&current.rules, self.states.as_mut_slice());
            self.note(current, change);
            if change.written {
                self.under = Arc::clone(current);
            }
            return answer;
        }
        // An operation that writes nothing leaves the states as they were, so that the old numbers can come back.
        let mut moved = self.states.moved(&self.under.policy, &current.policy);
        let (change, answer) = run(&current.rules, moved.as_mut_slice());
        self.note(current, change);
        if change.written {
            self.states = moved;
            self.under = Arc::clone(current);
        }
        answer
    }

    #[inline]
    fn note(&mut self, current: &Registered, change: Change) {
        if change.written {
            let hidden_until_us = if current.has_limit_of_nothing { self.reset_at_us } else { 0 };
            self.reset_at_us = change.reset_at_us.max(hidden_until_us);
        }
    }

    /// Whether nothing counts as used any more, so that it may be dropped.
    pub(super) fn is_spent(&mut self, current: &Arc<Registered>, now_us: u64) -> bool {
        if self.reset_at_us > now_us {
            return false;
        }
        // Other numbers may make what was used count for longer.
        let nothing = Applied { allowed: true, spent: 0, written: false };
        let unchanged = Change { written: false, reset_at_us: 0 };
        let reset_after_us = self.update(current, |rules, states| {
            (unchanged, rules.usage(states, now_us, nothing, None).reset_after_us())
        });
        self.reset_at_us = now_us + reset_after_us;
        reset_after_us == 0
    }
}
