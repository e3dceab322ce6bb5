//! What a command asks about a key.

use std::borrow::Cow;
use std::sync::Arc;

use polylimit::Request;
use polylimit::raw::Call;

use crate::access::{Identity, Role};
use crate::app::App;
use crate::caller::Caller;
use crate::counters::Rejection;
use crate::endpoint::Protocol;
use crate::log::LogRecord;
use crate::resp::throttle;

/// An operation on a key.
pub(super) struct Asked<'a> {
    pub(super) operation: Operation,
    policy: Arc<str>,
    key: Cow<'a, [u8]>,
    cost: u64,
    pub(super) form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
}

/// How an answer is written.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Own,
    /// As redis-cell does, with the limit that it reports.
    Throttle(u64),
}

impl Operation {
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Some(match name.strip_prefix(b"POLYLIMIT.")? {
            b"CHECK" => Self::Check,
            b"PEEK" => Self::Peek,
            b"TAKE" => Self::Take,
            b"CHARGE" => Self::Charge,
            b"REFUND" => Self::Refund,
            b"RESET" => Self::Reset,
            _ => return None,
        })
    }

    pub(super) fn needs(self) -> Role {
        if self == Self::Reset { Role::Admin } else { Role::Check }
    }
}

impl<'a> Asked<'a> {
    pub(super) fn request(&self) -> Request<'_> {
        Request::new(&self.key).policy(&self.policy).cost(self.cost)
    }

    pub(super) fn call(&self) -> Call<'_> {
        let request = self.request();
        match self.operation {
            Operation::Check => Call::Check(request),
            Operation::Peek => Call::Peek(request),
            Operation::Take => Call::Take(request),
            Operation::Charge => Call::Charge(request),
            Operation::Refund => Call::Refund(request),
            Operation::Reset => Call::Reset(request),
        }
    }

    /// The same without what was read.
    pub(super) fn into_owned(self) -> Asked<'static> {
        let Self { operation, policy, key, cost, form } = self;
        Asked { operation, policy, key: Cow::Owned(key.into_owned()), cost, form }
    }

    /// Records a reset.
    pub(super) fn note(&self, app: &App, caller: &Caller) {
        if self.operation == Operation::Reset {
            let record = LogRecord::info("key_reset", "a key was reset").with("policy", &self.policy);
            let record = record.with("key", app.options.show_keys.of(&self.key));
            app.log(&record.with("by", caller.known_as().unwrap_or_default()).with("peer", caller.place()));
        }
    }

    /// `CL.THROTTLE`
    pub(super) fn of_throttle(
        app: &App,
        caller: Option<&Identity>,
        rest: &[&'a [u8]],
    ) -> Result<Self, String> {
        let command = throttle::read(rest)?;
        check_length(app, command.key)?;
        let policy = app.one_off.throttle(&app.limiter, command.throttle, caller);
        let policy = policy.map_err(|error| format!("Cell error: {error}"))?;
        let operation = match command.quantity {
            ..0 => Operation::Refund,
            0 => Operation::Peek,
            1.. => Operation::Check,
        };
        let (key, cost, form) =
            (Cow::Borrowed(command.key), command.quantity.unsigned_abs(), Form::Throttle(command.limit()));
        Ok(Self { operation, policy, key, cost, form })
    }

    /// `POLYLIMIT.<operation> policy key [cost]`
    pub(super) fn of_own(
        app: &App,
        caller: Option<&Identity>,
        operation: Operation,
        policy: &[u8],
        key: &'a [u8],
        cost: Option<&[u8]>,
    ) -> Result<Self, String> {
        check_length(app, key)?;
        check_length(app, policy)?;
        let policy =
            std::str::from_utf8(policy).map_err(|_| "INVALID_ARGUMENT the policy is not text in UTF-8")?;
        let one_off = app.one_off.resolve(&app.limiter, policy, caller);
        let one_off = one_off.map_err(|error| format!("INVALID_ARGUMENT {error}"))?;
        let policy = one_off.unwrap_or_else(|| policy.into());
        let cost = match cost.map(|cost| std::str::from_utf8(cost).ok().and_then(|cost| cost.parse().ok())) {
            None => 1,
            Some(Some(cost)) => cost,
            Some(None) => {
                return Err(format!(
                    "INVALID_ARGUMENT the cost cannot be read: allowed is 0 to {} units",
                    Request::MAX_COST
                ));
            }
        };
        Ok(Self { operation, policy, key: Cow::Borrowed(key), cost, form: Form::Own })
    }
}

fn check_length(app: &App, bytes: &[u8]) -> Result<(), String> {
    let most = app.options.limits.key;
    if bytes.len() <= most {
        return Ok(());
    }
    app.counters.rejected(Protocol::Resp, Rejection::TooLarge);
    Err(format!("INVALID_ARGUMENT a key or a policy has {} bytes: allowed are up to {most}", bytes.len()))
}
