//! Cases of requests over several policies, format 5; see ../../README.md.

use std::collections::BTreeMap;
use std::time::Duration;

use polylimit::{
    Decision, Error, Limiter, ManualClock, Outage, Request, ReservationId, ReserveOptions, Usage,
};
use serde::Deserialize;
use tokio::runtime::Runtime;

use crate::cases::{QuotaNumbers, Wait, policy_of, wait};
use crate::url;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    policies: BTreeMap<String, Vec<QuotaNumbers>>,
    ops: Vec<Operation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operation {
    at_us: u64,
    op: Kind,
    #[serde(default)]
    charges: Vec<Charge>,
    policy: Option<String>,
    key: Option<String>,
    cost: Option<u64>,
    id: Option<String>,
    ttl_us: Option<u64>,
    expect: Answer,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
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
struct Charge {
    policy: String,
    key: String,
    cost: u64,
}

/// What an operation answers, or is expected to; which fields there are depends on the operation.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Answer {
    allowed: Option<bool>,
    remaining: Option<u64>,
    #[serde(default, deserialize_with = "wait")]
    retry_after_us: Option<Wait>,
    reset_after_us: Option<u64>,
    decisions: Option<Vec<Answer>>,
}

/// Runs a case; `runtime` for the asynchronous face.
pub(crate) fn run_case(
    case: &Case,
    prefix: &str,
    store: &str,
    runtime: Option<&Runtime>,
) -> Result<(), String> {
    let refused = |error: Error| format!("refused: {error}");
    let clock = ManualClock::new(0).map_err(refused)?;
    let mut builder = Limiter::builder().store(url(store)).clock(clock.clone());
    for (name, quotas) in &case.policies {
        builder = builder.policy(policy_of(name, quotas).map_err(refused)?);
        // What the store does not answer must not look as if it did.
        if store.starts_with("redis") {
            builder = builder.outage(name, Outage::Deny);
        }
    }
    let limiter = builder.build().map_err(refused)?;
    let difference = differs(case, prefix, &limiter, &clock, runtime);
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
    prefix: &str,
    limiter: &Limiter,
    clock: &ManualClock,
    runtime: Option<&Runtime>,
) -> Result<(), String> {
    for (at, operation) in case.ops.iter().enumerate() {
        let refused = |error: Error| format!("operation {at}, refused: {error}");
        clock.set(operation.at_us).map_err(refused)?;
        let mut got = answer(operation, prefix, limiter, runtime).map_err(refused)?;
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

fn answer(
    operation: &Operation,
    prefix: &str,
    limiter: &Limiter,
    runtime: Option<&Runtime>,
) -> Result<Answer, Error> {
    let keys: Vec<_> = operation.charges.iter().map(|charge| format!("{prefix} {}", charge.key)).collect();
    let charges: Vec<_> = operation
        .charges
        .iter()
        .zip(&keys)
        .map(|(charge, key)| Request::new(key).policy(&charge.policy).cost(charge.cost))
        .collect();
    let key = format!("{prefix} {}", operation.key.as_deref().unwrap_or_default());
    let request = Request::new(&key).cost(operation.cost.unwrap_or(1));
    let request = request.policy(operation.policy.as_deref().unwrap_or_default());
    let id = ReservationId::new(operation.id.as_deref().unwrap_or("none"))?;
    let ttl = Duration::from_micros(operation.ttl_us.unwrap_or(1_000));
    let terms = ReserveOptions::default().id(id).ttl(ttl).terms()?;
    let blocking = limiter.blocking();
    let decisions = match (operation.op, runtime) {
        (Kind::CheckAll, None) => blocking.check_together(&charges)?,
        (Kind::PeekAll, None) => blocking.peek_together(&charges)?,
        (Kind::ReserveAll, None) => blocking.reserve_together(&charges, &terms)?,
        (Kind::CheckAll, Some(runtime)) => runtime.block_on(limiter.check_together(&charges))?,
        (Kind::PeekAll, Some(runtime)) => runtime.block_on(limiter.peek_together(&charges))?,
        (Kind::ReserveAll, Some(runtime)) => runtime.block_on(limiter.reserve_together(&charges, &terms))?,
        (Kind::Check, _) => return Ok(of_decision(&blocking.check(request)?)),
        (Kind::Peek, _) => return Ok(of_decision(&blocking.peek(request)?)),
        (Kind::Charge, _) => return Ok(of_usage(&blocking.charge(request)?)),
        (Kind::Refund, _) => return Ok(of_usage(&blocking.refund(request)?)),
        (Kind::Reset, _) => return Ok(of_usage(&blocking.reset(request)?)),
    };
    Ok(of_request(&decisions))
}

fn of_usage(usage: &Usage) -> Answer {
    Answer {
        remaining: Some(usage.remaining()),
        reset_after_us: Some(usage.reset_after_us()),
        ..Answer::default()
    }
}

fn of_decision(decision: &Decision) -> Answer {
    Answer {
        allowed: Some(decision.allowed()),
        remaining: Some(decision.remaining()),
        retry_after_us: Some(decision.retry_after_us().into()),
        reset_after_us: Some(decision.reset_after_us()),
        decisions: None,
    }
}

fn of_request(decisions: &[Decision]) -> Answer {
    let waits = decisions.iter().map(Decision::retry_after_us);
    let longest = waits.reduce(|longest, wait| Some(longest?.max(wait?))).flatten();
    Answer {
        allowed: Some(decisions.iter().all(Decision::allowed)),
        retry_after_us: Some(longest.into()),
        decisions: Some(decisions.iter().map(of_decision).collect()),
        ..Answer::default()
    }
}
