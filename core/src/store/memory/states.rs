//! The states of one key: one for each quota of its policy, in the same order.

use crate::rules::algorithm::State;
use crate::rules::policy::Policy;

/// Most policies have one quota, whose state needs no heap allocation.
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

    #[inline]
    pub(crate) fn as_slice(&self) -> &[State] {
        match self {
            Self::One(state) => std::slice::from_ref(state),
            Self::Many(states) => states,
        }
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [State] {
        match self {
            Self::One(state) => std::slice::from_mut(state),
            Self::Many(states) => states,
        }
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
