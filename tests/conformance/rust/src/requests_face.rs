//! The Rust faces of requests over several policies.

use std::time::Duration;

use polylimit::decision::Usage;
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::{Decision, Error, Limiter, Request};
use tokio::runtime::Runtime;

use crate::requests::{Answer, Kind, Operation};

/// Runs an operation, whose keys begin with `prefix`; `runtime` for the asynchronous face.
pub(crate) fn answer(
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
    Ok(Answer::of_charges(decisions.iter().map(of_decision).collect()))
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
