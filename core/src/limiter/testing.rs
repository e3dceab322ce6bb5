//! What a configuration would provide, for tests that have none: penalties, and effective quotas of keys.

use std::time::Duration;

use crate::limiter::blocking::Limiter;
use crate::limiter::call::{Answer, Call};
use polylimit_rules::error::Error;
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::units::micros;
use polylimit_store::charge::{Charge, PolicyOptions, PreparedQuotas, Wait, at_once, only};

/// The policy with a penalty: this many denials within a time block the key for a time, at most for `max`, and the
/// level is forgotten after `forget`.
pub fn with_penalty(policy: Policy, denials: u16, times: [Duration; 4]) -> Policy {
    let [within_us, block_us, max_us, forget_us] = times.map(micros);
    policy.with_penalty(Some(Penalty { denials, within_us, block_us, max_us, forget_us }))
}

/// Quotas that decide for some keys of a policy.
#[derive(Clone, Debug)]
pub struct KeyQuotas(PreparedQuotas);

impl Limiter {
    /// Prepares quotas for the policy with their name, whose keys may also have the others.
    pub fn prepare_quotas(&self, effective: &Policy, others: &[Policy]) -> Option<KeyQuotas> {
        let shared = self.asynchronous().shared();
        let id = shared.registry.find(Some(effective.name()))?;
        Some(KeyQuotas(shared.store().prepare_quotas(id, effective, others, PolicyOptions::default())))
    }

    /// Performs an operation on a key by these quotas; `None` for any other call.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn call_by(
        &self,
        call: &Call<'_>,
        KeyQuotas(effective): &KeyQuotas,
    ) -> Option<Result<Answer, Error>> {
        let call = call.on_key()?;
        let shared = self.asynchronous().shared();
        let answer = shared.key_request(&call).and_then(|charge| {
            let charges = [Charge { effective: Some(effective), ..charge }];
            only(at_once(shared.store().start(&charges, Wait::Block))?)
        });
        Some(answer.map(|answer| Answer::of(call.action, answer)))
    }
}
