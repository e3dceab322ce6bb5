//! The two Rust faces of a limiter.

use std::time::Duration;

use polylimit::decision::Usage;
use polylimit::reservation::{Reservation, ReservationId, ReserveOptions};
use polylimit::{Decision, Error, Limiter, Request};
use tokio::runtime::Runtime;

use crate::cases::{Answer, Kind, Operation};

pub(crate) enum Face {
    Blocking,
    Asynchronous(Runtime),
}

impl Face {
    pub(crate) fn asynchronous() -> std::io::Result<Self> {
        tokio::runtime::Builder::new_current_thread().enable_all().build().map(Self::Asynchronous)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Blocking => "rust",
            Self::Asynchronous(_) => "rust (async)",
        }
    }

    /// Runs an operation on the one key of a case.
    pub(crate) fn answer(
        &self,
        limiter: &Limiter,
        key: &str,
        operation: &Operation,
    ) -> Result<Answer, Error> {
        let cost = operation.cost.unwrap_or(1);
        let request = Request::new(key).cost(cost);
        let id = ReservationId::new(operation.id.as_deref().unwrap_or("none"))?;
        let ttl = Duration::from_micros(operation.ttl_us.unwrap_or(0));
        let remember = Duration::from_micros(operation.remember_us.unwrap_or(0));
        let options = ReserveOptions::default().id(id).ttl(ttl).max_age(Duration::ZERO).remember(remember);
        match self {
            Self::Blocking => {
                let limiter = limiter.blocking();
                Ok(match operation.op {
                    Kind::Check => decision(&limiter.check(request)?),
                    Kind::Peek => decision(&limiter.peek(request)?),
                    Kind::Take => taken(&limiter.take(request)?),
                    Kind::Charge => usage(&limiter.charge(request)?),
                    Kind::Refund => usage(&limiter.refund(request)?),
                    Kind::Reset => usage(&limiter.reset(request)?),
                    Kind::Reserve => reserved(limiter.reserve(request, options)?),
                    Kind::Commit => found(&limiter.commit(key, id, Some(cost))?),
                    Kind::Cancel => found(&limiter.cancel(key, id)?),
                    Kind::Renew => found(&limiter.renew(key, id, ttl)?),
                    Kind::Change => Answer::default(),
                })
            }
            Self::Asynchronous(runtime) => runtime.block_on(async {
                Ok(match operation.op {
                    Kind::Check => decision(&limiter.check(request).await?),
                    Kind::Peek => decision(&limiter.peek(request).await?),
                    Kind::Take => taken(&limiter.take(request).await?),
                    Kind::Charge => usage(&limiter.charge(request).await?),
                    Kind::Refund => usage(&limiter.refund(request).await?),
                    Kind::Reset => usage(&limiter.reset(request).await?),
                    Kind::Reserve => reserved(limiter.reserve(request, options).await?),
                    Kind::Commit => found(&limiter.commit(key, id, Some(cost)).await?),
                    Kind::Cancel => found(&limiter.cancel(key, id).await?),
                    Kind::Renew => found(&limiter.renew(key, id, ttl).await?),
                    Kind::Change => Answer::default(),
                })
            }),
        }
    }
}

/// The decision of a reservation that stays as the case leaves it.
fn reserved(reservation: Reservation) -> Answer {
    let answer = decision(reservation.decision());
    reservation.detach();
    answer
}

fn decision(decision: &Decision) -> Answer {
    if decision.source().is_outage() {
        return Answer::default();
    }
    Answer {
        allowed: Some(decision.allowed()),
        remaining: Some(decision.remaining()),
        retry_after_us: Some(decision.retry_after_us().into()),
        reset_after_us: Some(decision.reset_after_us()),
        delay_us: Some(decision.delay_us()),
        over: Some(decision.over()),
        taken: None,
        found: None,
        repeated: None,
    }
}

fn usage(usage: &Usage) -> Answer {
    if usage.source().is_outage() {
        return Answer::default();
    }
    Answer {
        remaining: Some(usage.remaining()),
        reset_after_us: Some(usage.reset_after_us()),
        ..Answer::default()
    }
}

fn taken(taken: &Usage) -> Answer {
    Answer { taken: Some(taken.taken()), ..usage(taken) }
}

fn found(found: &Usage) -> Answer {
    Answer { found: Some(found.found()), repeated: Some(found.repeated()), ..usage(found) }
}
