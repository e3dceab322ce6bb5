//! An entry of the memory store, and the policy under which its states were written.

use std::sync::Arc;

use smallvec::SmallVec;

use polylimit_rules::algorithm::State;
use polylimit_rules::decision::Decision;
use polylimit_rules::explanation::Expiry;
use polylimit_rules::general::KeyStates;
use polylimit_rules::history::{History, PastNumbers, has_run_out, past_of, ran_out};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Quota;
use polylimit_rules::transition::PolicyRules;
use polylimit_store::charge::PolicyId;

/// The states of one key: one for each quota of its policy, in the same order, and after them its reservations and its record of
/// blocks, if it has any. Most policies have one quota, whose state needs no heap allocation.
#[derive(Clone, Debug)]
pub(crate) enum States {
    One(State),
    Many(Box<[State]>),
}

impl States {
    /// The states of a key that was never seen.
    #[inline]
    pub(crate) fn fresh(policy: &Policy) -> Self {
        policy.quotas().iter().map(State::fresh).collect()
    }
}

impl KeyStates for States {
    #[inline]
    fn as_slice(&self) -> &[State] {
        match self {
            Self::One(state) => std::slice::from_ref(state),
            Self::Many(states) => states,
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [State] {
        match self {
            Self::One(state) => std::slice::from_mut(state),
            Self::Many(states) => states,
        }
    }

    fn push(&mut self, state: State) {
        *self = self.taken().chain([state]).collect();
    }

    /// A key whose reservations have ended costs no more than any other.
    fn drop_empty_after(&mut self, quotas: usize) {
        let rest = self.as_slice().get(quotas..).unwrap_or_default();
        if rest.iter().any(State::holds_nothing) {
            let kept = |(at, state): &(usize, State)| *at < quotas || !state.holds_nothing();
            *self = self.taken().enumerate().filter(kept).map(|(_, state)| state).collect();
        }
    }
}

impl States {
    fn taken(&mut self) -> impl Iterator<Item = State> + use<> {
        std::mem::replace(self, Self::Many(Box::default())).into_iter()
    }
}

impl IntoIterator for States {
    type Item = State;
    type IntoIter = std::iter::Chain<std::option::IntoIter<State>, std::vec::IntoIter<State>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Self::One(state) => (Some(state), Box::default()),
            Self::Many(states) => (None, states),
        };
        one.into_iter().chain(many.into_vec())
    }
}

impl FromIterator<State> for States {
    #[inline]
    fn from_iter<I: IntoIterator<Item = State>>(states: I) -> Self {
        let mut states = states.into_iter();
        match (states.next(), states.next()) {
            (Some(only), None) => Self::One(only),
            (first, second) => Self::Many(first.into_iter().chain(second).chain(states).collect()),
        }
    }
}

/// A policy with its quotas between two changes.
#[derive(Debug)]
pub(crate) struct RegisteredPolicy {
    pub(crate) id: PolicyId,
    pub(crate) policy: Policy,
    pub(crate) rules: PolicyRules,
    history: History,
    /// The past numbers of each quota.
    past: Box<[Box<[PastNumbers]>]>,
    /// Whether these are the quotas of some keys only: states that were written under others then count as changed just now.
    is_of_keys: bool,
}

impl RegisteredPolicy {
    pub(crate) fn new(id: PolicyId, policy: &Policy, history: History) -> Self {
        let past = policy.quotas().iter().map(|quota| past_of(quota, &history)).collect();
        let rules = PolicyRules::new(policy);
        Self { id, policy: policy.clone(), rules, history, past, is_of_keys: false }
    }

    /// The effective quotas of some keys of a policy.
    pub(crate) fn of_keys(id: PolicyId, policy: &Policy) -> Self {
        Self { is_of_keys: true, ..Self::new(id, policy, History::default()) }
    }

    /// The history of these quotas once new ones replace them.
    pub(crate) fn superseded_at(&self, now_us: u64) -> History {
        self.history.then(&self.policy, now_us)
    }

    /// Converts states that were written under other quotas to the current ones: quotas with the same identity keep their states, others
    /// start unused. Usage that had expired before the change does not come back under slower quotas.
    pub(crate) fn states_of(&self, under: &Self, states: &States, now_us: u64) -> States {
        let before = || under.policy.quotas().iter().zip(states.as_slice());
        let kept = |quota: &Quota, past: &[PastNumbers]| {
            let (written_under, state) =
                before().find(|(before, _)| before.identity() == quota.identity())?;
            let ran_out = if self.is_of_keys {
                has_run_out(state, written_under.limit(), quota, now_us)
            } else {
                ran_out(state, written_under.limit(), quota, past)
            };
            (!ran_out).then(|| state.clone())
        };
        let quotas = self.policy.quotas().iter().zip(&self.past);
        let quotas = quotas.map(|(quota, past)| kept(quota, past).unwrap_or_else(|| State::fresh(quota)));
        // Reservations and blocks survive a change of quotas.
        let beside = states.as_slice().get(under.policy.quotas().len()..).unwrap_or_default();
        quotas.chain(beside.iter().cloned()).collect()
    }

    /// The decision on a key that was never seen.
    pub(crate) fn unseen(&self, now_us: u64) -> Decision {
        self.rules.view(States::fresh(&self.policy).as_slice(), now_us)
    }
}

/// The states of one key under one policy, and the quotas under which they were written. An entry fills one cache line, so that a lookup
/// among millions of keys causes as few cache misses as possible.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Entry {
    /// Keys of up to 16 bytes are stored inline.
    pub(crate) key: SmallVec<[u8; 16]>,
    pub(crate) states: States,
    /// The policy with its quotas when the states were last written, by which the states are interpreted.
    pub(crate) under: Arc<RegisteredPolicy>,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Whether two keys are equal. Most keys have 4 to 32 bytes; for those, two overlapping halves are compared in
/// registers, in a third of the time of a call to compare memory.
#[inline]
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        4..=7 => a.first_chunk::<4>() == b.first_chunk::<4>() && a.last_chunk::<4>() == b.last_chunk::<4>(),
        8..=16 => a.first_chunk::<8>() == b.first_chunk::<8>() && a.last_chunk::<8>() == b.last_chunk::<8>(),
        17..=32 => {
            a.first_chunk::<16>() == b.first_chunk::<16>() && a.last_chunk::<16>() == b.last_chunk::<16>()
        }
        _ => a == b,
    }
}

impl Entry {
    pub(crate) fn new(key: &[u8], states: States, under: &Arc<RegisteredPolicy>) -> Self {
        Self { key: SmallVec::from_slice(key), states, under: Arc::clone(under) }
    }

    /// Whether the entry belongs to this key under this policy, whatever the quotas.
    #[inline]
    pub(crate) fn is(&self, current: &Arc<RegisteredPolicy>, key: &[u8]) -> bool {
        same_bytes(&self.key, key) && (Arc::ptr_eq(&self.under, current) || self.under.id == current.id)
    }

    /// The time from `now_us` until the states expire and the entry may be dropped.
    pub(crate) fn expiry(&self, current: &Arc<RegisteredPolicy>, now_us: u64) -> Expiry {
        if self.under.is_of_keys {
            return self.under.rules.expiry(self.states.as_slice(), now_us);
        }
        if Arc::ptr_eq(&self.under, current) {
            return current.rules.expiry(self.states.as_slice(), now_us);
        }
        // Under the new quotas the usage may count for longer.
        let states = current.states_of(&self.under, &self.states, now_us);
        current.rules.expiry(states.as_slice(), now_us)
    }
}
