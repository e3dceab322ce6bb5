//! What JavaScript asks, as it stands in the arrays.

use napi_derive::napi;

use crate::answer::{Field, Fields};

/// The places of what an operation is asked, in an array of whole numbers: reading those takes less time than making
/// whole numbers of others.
#[napi]
#[derive(Clone, Copy)]
pub enum Question {
    /// An `Operation`.
    Operation,
    /// How many bytes of the short key's place are the key; -1 when the key is an argument.
    KeyLength,
    /// The place of the policy's text; -1 for none, and -2 when it is an argument, which then gets a place.
    Policy,
    /// Whether there is a cost.
    HasCost,
    /// Whether the response is about the outcomes that were added; otherwise it is about the decision in the array.
    OutcomesAdded,
}

/// How long that array is.
pub(crate) const LENGTH: usize = Question::OutcomesAdded as usize + 1;

/// What an operation is asked, beside what is an argument.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// An [`Operation`](crate::operation::Operation).
    pub(crate) operation: i32,
    /// How many bytes of the short key's place are the key.
    pub(crate) short_key: Option<usize>,
    pub(crate) policy: AskedPolicy,
    pub(crate) cost: Option<f64>,
}

/// Which policy is meant.
#[derive(Clone, Copy)]
pub(crate) enum AskedPolicy {
    /// As in the core.
    None,
    /// One that has a place.
    Place(usize),
    /// The text in the arguments.
    Argument,
}

/// No policy is named.
const NO_POLICY: i32 = -1;
/// A policy that has no place yet.
const NO_PLACE: i32 = -2;

impl Fields {
    #[inline]
    pub(crate) fn asked(&self) -> Asked {
        let policy = self.question(Question::Policy);
        Asked {
            operation: self.question(Question::Operation),
            short_key: usize::try_from(self.question(Question::KeyLength)).ok(),
            policy: match usize::try_from(policy) {
                Ok(place) => AskedPolicy::Place(place),
                Err(_) if policy == NO_POLICY => AskedPolicy::None,
                Err(_) => AskedPolicy::Argument,
            },
            cost: (self.question(Question::HasCost) != 0).then(|| self.get(Field::Cost as usize)),
        }
    }

    /// The place that the policy in the arguments has from now on.
    pub(crate) fn set_policy_place(&self, place: Option<usize>) {
        let place = place.and_then(|place| i32::try_from(place).ok());
        self.set_question(Question::Policy, place.unwrap_or(NO_PLACE));
    }
}
