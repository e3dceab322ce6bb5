//! What JavaScript asks, as it stands in the array.

use crate::answer::{Field, Fields};

/// What an operation is asked, beside what is an argument.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// An [`Operation`](crate::operation::Operation).
    pub(crate) operation: u32,
    /// How many bytes of the short key's place are the key.
    pub(crate) short_key: Option<usize>,
    pub(crate) policy: AskedPolicy,
    pub(crate) cost: Option<f64>,
    pub(crate) timeout_ms: f64,
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
const NO_POLICY: f64 = -1.0;

impl Fields {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "JavaScript writes small whole numbers there; whatever else it is becomes one"
    )]
    #[inline]
    pub(crate) fn asked(&self) -> Asked {
        let [key, policy] = [Field::KeyLength, Field::Policy].map(|field| self.get(field as usize));
        Asked {
            operation: self.get(Field::Operation as usize) as u32,
            short_key: (key >= 0.0).then_some(key as usize),
            policy: match policy {
                NO_POLICY => AskedPolicy::None,
                place if place >= 0.0 => AskedPolicy::Place(place as usize),
                _ => AskedPolicy::Argument,
            },
            cost: (self.get(Field::HasCost as usize) != 0.0).then(|| self.get(Field::Cost as usize)),
            timeout_ms: self.get(Field::TimeoutMs as usize),
        }
    }
}
