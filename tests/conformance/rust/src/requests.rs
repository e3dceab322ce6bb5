//! Cases of requests over several policies, format 5; see ../../README.md.

use std::collections::BTreeMap;

use polylimit::clock::ManualClock;
use polylimit::storage::Outage;
use polylimit::{Error, Limiter, Request};
use serde::Deserialize;

use crate::cases::{QuotaNumbers, Wait, policy_of, wait};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    policies: BTreeMap<String, Vec<QuotaNumbers>>,
    ops: Vec<Operation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operation {
    at_us: u64,
    pub(crate) op: Kind,
    #[serde(default)]
    pub(crate) charges: Vec<Charge>,
    pub(crate) policy: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) cost: Option<u64>,
    pub(crate) id: Option<String>,
    pub(crate) ttl_us: Option<u64>,
    expect: Answer,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    CheckAll,
    PeekAll,
    ReserveAll,
    Check,
    Peek,
    Charge,
    Refund,
    Reset,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Charge {
    pub(crate) policy: String,
    pub(crate) key: String,
    pub(crate) cost: u64,
}

/// What an operation answers, or is expected to; which fields there are depends on the operation.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    pub(crate) allowed: Option<bool>,
    pub(crate) remaining: Option<u64>,
    #[serde(default, deserialize_with = "wait")]
    pub(crate) retry_after_us: Option<Wait>,
    pub(crate) reset_after_us: Option<u64>,
    pub(crate) decisions: Option<Vec<Answer>>,
}

/// Runs a case through a face that `connect` makes of its limiter: it answers each operation, whose keys begin with `prefix`.
pub(crate) fn run_case<F: FnMut(&Operation) -> Result<Answer, String>>(
    case: &Case,
    prefix: &str,
    store: &str,
    connect: impl FnOnce(&Limiter) -> Result<F, String>,
) -> Result<(), String> {
    let refused = |error: Error| format!("refused: {error}");
    let clock = ManualClock::new(0).map_err(refused)?;
    let mut builder =
        Limiter::builder().store(if store == "memory" { "memory:" } else { store }).clock(clock.clone());
    for (name, quotas) in &case.policies {
        builder = builder.policy(policy_of(name, quotas).map_err(refused)?);
        // What the store does not answer must not look as if it did.
        if store.starts_with("redis") {
            builder = builder.outage(name, Outage::Deny);
        }
    }
    let limiter = builder.build().map_err(refused)?;
    // The face of a server closes the limiter when it is dropped.
    let mut face = connect(&limiter)?;
    let difference = differs(case, &clock, &mut face);
    // A manual clock's keys do not expire.
    for operation in &case.ops {
        let of_charges = operation.charges.iter().map(|charge| (&charge.policy, &charge.key));
        let own = operation.policy.iter().zip(&operation.key);
        for (policy, key) in of_charges.chain(own) {
            let key = format!("{prefix} {key}");
            limiter.blocking().reset(Request::new(&key).policy(policy)).map_err(refused)?;
        }
    }
    difference
}

fn differs(
    case: &Case,
    clock: &ManualClock,
    mut answer: impl FnMut(&Operation) -> Result<Answer, String>,
) -> Result<(), String> {
    for (at, operation) in case.ops.iter().enumerate() {
        clock.set(operation.at_us).map_err(|error| format!("operation {at}, refused: {error}"))?;
        let mut got = answer(operation).map_err(|error| format!("operation {at}, refused: {error}"))?;
        let expected = &operation.expect;
        if expected.retry_after_us.is_none() {
            got.retry_after_us = None;
        }
        if got != *expected {
            return Err(format!(
                "operation {at}, {:?} at {} us\n  expected {expected:?}\n  got      {got:?}",
                operation.op, operation.at_us
            ));
        }
    }
    Ok(())
}

impl Answer {
    /// What a request gets whose charges get these answers.
    pub(crate) fn of_charges(decisions: Vec<Self>) -> Self {
        let waits = decisions.iter().map(|decision| match decision.retry_after_us {
            Some(Wait::Microseconds(wait_us)) => Some(wait_us),
            _ => None,
        });
        let longest = waits.reduce(|longest, wait| Some(longest?.max(wait?))).flatten();
        Self {
            allowed: Some(decisions.iter().all(|decision| decision.allowed == Some(true))),
            retry_after_us: Some(longest.into()),
            decisions: Some(decisions),
            ..Self::default()
        }
    }
}
