//! The two Rust faces of a limiter.

use polylimit::{Decision, Error, Limiter, Request, Usage};
use tokio::runtime::Runtime;

use crate::cases::{Answer, Kind};

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
        kind: Kind,
        cost: Option<u64>,
    ) -> Result<Answer, Error> {
        let request = Request::new(key).cost(cost.unwrap_or(1));
        match self {
            Self::Blocking => {
                let limiter = limiter.blocking();
                Ok(match kind {
                    Kind::Check => decision(&limiter.check(request)?),
                    Kind::Peek => decision(&limiter.peek(request)?),
                    Kind::Take => taken(&limiter.take(request)?),
                    Kind::Charge => usage(&limiter.charge(request)?),
                    Kind::Refund => usage(&limiter.refund(request)?),
                    Kind::Reset => usage(&limiter.reset(request)?),
                    Kind::Change => Answer::default(),
                })
            }
            Self::Asynchronous(runtime) => runtime.block_on(async {
                Ok(match kind {
                    Kind::Check => decision(&limiter.check(request).await?),
                    Kind::Peek => decision(&limiter.peek(request).await?),
                    Kind::Take => taken(&limiter.take(request).await?),
                    Kind::Charge => usage(&limiter.charge(request).await?),
                    Kind::Refund => usage(&limiter.refund(request).await?),
                    Kind::Reset => usage(&limiter.reset(request).await?),
                    Kind::Change => Answer::default(),
                })
            }),
        }
    }
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
