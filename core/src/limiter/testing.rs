//! What a configuration would provide, for tests that have none: penalties, and numbers of keys.

use std::time::Duration;

use crate::error::Error;
use crate::limiter::blocking::Limiter;
use crate::limiter::call::{Answer, Call};
use crate::rules::penalty::Penalty;
use crate::rules::policy::Policy;
use crate::store::request::{Numbers, PolicyOptions, StoreRequest};
use crate::units::micros;

/// The policy with a penalty: so many denials within a time block the key for a time, at most for `max`, and the level is forgotten
/// after `forget`.
pub fn with_penalty(policy: Policy, denials: u16, times: [Duration; 4]) -> Policy {
    let [within_us, block_us, max_us, forget_us] = times.map(micros);
    policy.with_penalty(Some(Penalty { denials, within_us, block_us, max_us, forget_us }))
}

/// Numbers that decide about some keys of a policy.
#[derive(Clone, Debug)]
pub struct KeyNumbers(Numbers);

impl Limiter {
    /// Prepares numbers for the policy with their name, whose keys may also have the others.
    pub fn prepare_numbers(&self, numbers: &Policy, others: &[Policy]) -> Option<KeyNumbers> {
        let shared = self.asynchronous().shared();
        let id = shared.registry.find(Some(numbers.name()))?;
        Some(KeyNumbers(shared.store().prepare_numbers(id, numbers, others, PolicyOptions::default())))
    }

    /// Performs an operation on a key by its numbers; `None` for any other call.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn call_by(
        &self,
        call: &Call<'_>,
        KeyNumbers(numbers): &KeyNumbers,
    ) -> Option<Result<Answer, Error>> {
        let call = call.on_key()?;
        let shared = self.asynchronous().shared();
        let answer = shared.key_request(&call).and_then(|request| {
            shared.store().ask_blocking(StoreRequest { numbers: Some(numbers), ..request })
        });
        Some(answer.map(|answer| Answer::of(call.action, answer)))
    }
}
