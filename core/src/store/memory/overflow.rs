//! What keys share that found no place: one state a policy.

use std::sync::Arc;

use super::entry::{Change, Entry, Registered};
use super::states::States;
use crate::algorithm::State;
use crate::transition::PolicyRules;

#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// One entry a policy, made when it is first needed; their keys are empty.
    entries: Vec<Entry>,
}

impl Overflow {
    /// Runs an operation on the states that all keys of the policy share here.
    pub(super) fn update<Answer>(
        &mut self,
        current: &Arc<Registered>,
        run: impl FnOnce(&PolicyRules, &mut [State]) -> (Change, Answer),
    ) -> Answer {
        let found = self.entries.iter().position(|entry| entry.id() == current.id);
        let at = found.unwrap_or_else(|| {
            self.entries.push(Entry::new(&[], States::fresh(&current.policy), current, 0));
            self.entries.len() - 1
        });
        self.entries[at].update(current, run)
    }
}
