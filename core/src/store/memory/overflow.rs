//! The shared states of keys for which the table has no room: one state per policy.

use std::sync::Arc;

use crate::store::memory::entry::Entry;
use crate::store::memory::registered::Registered;
use crate::store::memory::slot::Slot;
use crate::store::memory::states::States;

#[derive(Debug, Default)]
pub(crate) struct Overflow {
    /// One entry per policy, created on first use; the entries' keys are empty.
    entries: Vec<Entry>,
}

impl Overflow {
    /// The shared states of the policy.
    pub(crate) fn slot<'a>(&'a mut self, current: &'a Arc<Registered>) -> Slot<'a> {
        let found = self.entries.iter().position(|entry| entry.under.id == current.id);
        let at = found.unwrap_or_else(|| {
            self.entries.push(Entry::new(&[], States::fresh(&current.policy), current));
            self.entries.len() - 1
        });
        Slot::of_entry(&mut self.entries[at], current, None)
    }
}
