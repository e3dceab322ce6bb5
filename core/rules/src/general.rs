//! The general transition and its explanation: of a key that has more than the states of its quotas, or is asked for more than
//! they say.
//!
//! It decides about keys with reservations, remembered commits or a record of blocks, under policies with concurrency or a penalty, and for requests
//! with headroom. All others take the shorter paths of [`transition`](crate::transition) and
//! [`explanation`](crate::explanation), which give the same answers.

mod decide;
mod explain;
pub(crate) mod inspect;
mod sums;

use smallvec::SmallVec;

use crate::algorithm::State;
use crate::decision::{Decision, Degradation};
use crate::penalty::BlockRecord;
use crate::reservation::list::{Hold, Reservations};
use crate::transition::{Operation, PolicyRules};

/// An operation on a key, with its arguments and its time.
#[derive(Clone, Copy, Debug)]
pub struct KeyOperation<'a> {
    pub now_us: u64,
    pub operation: Operation,
    pub cost: u64,
    /// The part of each quota's capacity that a check, a peek or a reserve leaves for others, in percent.
    pub headroom: u8,
    /// The reservation, for operations on one, or the time of a block.
    pub hold: Option<&'a Hold>,
}

impl KeyOperation<'_> {
    /// A peek at what this operation asks for.
    fn as_peek(self) -> Self {
        Self { operation: Operation::Peek, hold: None, ..self }
    }
}

/// The states of one key, as a store holds them: one for each quota of its policy, in the same order, and after them its
/// reservations, its remembered commits and its record of blocks, if it has any.
pub trait KeyStates {
    fn as_slice(&self) -> &[State];

    fn as_mut_slice(&mut self) -> &mut [State];

    fn push(&mut self, state: State);

    /// Removes what holds nothing after the states of this many quotas.
    fn drop_empty_after(&mut self, quotas: usize);
}

impl<A: smallvec::Array<Item = State>> KeyStates for SmallVec<A> {
    fn as_slice(&self) -> &[State] {
        self
    }

    fn as_mut_slice(&mut self) -> &mut [State] {
        self
    }

    fn push(&mut self, state: State) {
        self.push(state);
    }

    fn drop_empty_after(&mut self, quotas: usize) {
        while let Some(at) = (quotas..self.len()).find(|at| self[*at].holds_nothing()) {
            self.remove(at);
        }
    }
}

/// A key's states, cut into those of its quotas, its reservations and its record of blocks.
struct KeyParts<'a> {
    quotas: &'a [State],
    reservations: Option<&'a Reservations>,
    record: Option<&'a BlockRecord>,
}

impl<'a> KeyParts<'a> {
    fn of(states: &'a [State], quotas: usize) -> Self {
        let (quotas, rest) = states.split_at(quotas.min(states.len()));
        let mut parts = Self { quotas, reservations: None, record: None };
        for state in rest {
            match state {
                State::Reservations(reservations) => parts.reservations = Some(reservations),
                // Only a reserve and a commit ask for them.
                State::Commits(_) => {}
                State::Block(record) => parts.record = Some(record),
                _ => debug_assert!(false, "a state of a quota after the last quota"),
            }
        }
        parts
    }
}

/// The same, to be changed. What the key does not have is empty, and is added to its states when it is not empty any more.
struct KeyPartsMut<'a> {
    quotas: &'a mut [State],
    reservations: &'a mut Reservations,
    /// The commits that are remembered.
    commits: &'a mut Reservations,
    record: &'a mut BlockRecord,
}

impl KeyPartsMut<'_> {
    /// Whether the request reserves again with an id that was committed and is remembered: its units were charged, so it asks for a
    /// slot only.
    fn repeats(&self, request: KeyOperation<'_>, hold: &Hold, in_groups: bool) -> bool {
        let KeyOperation { now_us, operation, .. } = request;
        operation == Operation::Reserve
            && self.commits.find(&hold.id, in_groups, now_us).is_some()
            && self.reservations.find(&hold.id, in_groups, now_us).is_none()
    }
}

/// What a key may get that it does not have.
#[derive(Default)]
struct Added {
    reservations: Reservations,
    commits: Reservations,
    record: BlockRecord,
}

impl Added {
    /// Cuts the states of a key.
    fn parts<'a>(&'a mut self, states: &'a mut [State], quotas: usize) -> KeyPartsMut<'a> {
        let (quotas, rest) = states.split_at_mut(quotas.min(states.len()));
        let Self { reservations, commits, record } = self;
        let mut parts = KeyPartsMut { quotas, reservations, commits, record };
        for state in rest {
            match state {
                State::Reservations(reservations) => parts.reservations = reservations,
                State::Commits(commits) => parts.commits = commits,
                State::Block(record) => parts.record = record,
                _ => debug_assert!(false, "a state of a quota after the last quota"),
            }
        }
        parts
    }

    /// Adds what the key has got.
    fn add_to(self, states: &mut impl KeyStates) {
        if !self.reservations.0.is_empty() {
            states.push(State::Reservations(Box::new(self.reservations)));
        }
        if !self.commits.0.is_empty() {
            states.push(State::Commits(Box::new(self.commits)));
        }
        if self.record != BlockRecord::default() {
            states.push(State::Block(Box::new(self.record)));
        }
    }
}

/// A check or a reserve that is one of several operations of a request, which are admitted together or not at all.
impl PolicyRules {
    /// Whether the operation would be admitted. Changes nothing.
    pub fn would_admit(&self, states: &mut (impl KeyStates + Clone), operation: KeyOperation<'_>) -> bool {
        match operation.operation {
            Operation::Check => self.decide(states, operation.as_peek(), None).0.allowed,
            _ => self.decide(&mut states.clone(), operation, None).0.allowed,
        }
    }

    /// The decision on an operation that would be admitted, in a request that is denied: that of a peek. A reserve with the id of a commit
    /// needs no units, so it is peeked without them; one that repeats a reserve needs no slot either, so its own decision is returned.
    /// Changes nothing.
    pub fn view_admitted(
        &self,
        states: &mut (impl KeyStates + Clone),
        operation: KeyOperation<'_>,
        degraded: Option<Degradation>,
    ) -> Decision {
        let (peeked, _) = self.decide(states, operation.as_peek(), degraded);
        if peeked.allowed || operation.hold.is_none() {
            return peeked;
        }
        let (slot, _) = self.decide(states, KeyOperation { cost: 0, ..operation }.as_peek(), degraded);
        if slot.allowed { slot } else { self.decide(&mut states.clone(), operation, degraded).0 }
    }
}

/// The part of a capacity or of slots that a headroom keeps: rounded up.
pub fn kept(capacity: u64, headroom: u8) -> u64 {
    // Capacities are at most 2 * 10^12.
    (capacity * u64::from(headroom)).div_ceil(100)
}

#[cfg(test)]
mod tests;
