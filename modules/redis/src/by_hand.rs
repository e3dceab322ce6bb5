//! The commands that people type and other clients send: one check each, by the server's clock.
//!
//! ```text
//! POLYLIMIT.CHECK quotas key [cost]
//! CL.THROTTLE key max_burst count_per_period period [quantity]
//! ```
//!
//! Unlike a call of polylimit's clients they refuse a value that is none of ours: the key may belong to something else.

use polylimit_rules::codec::Unreadable;
use polylimit_rules::decision::Decision;
use polylimit_rules::general::KeyOperation;
use polylimit_rules::quota::Quota;
use polylimit_rules::transition::Operation;

use crate::keyspace::{Effect, Found, Keyspace};
use crate::policies::{Policies, Prepared};
use crate::refusal::Refusal;

/// The longest period of `CL.THROTTLE`, in seconds: that of quotas, 366 days.
const MAX_PERIOD_S: u64 = 366 * 86_400;

/// Decides `POLYLIMIT.CHECK quotas key [cost]`, of which the key is the only one of the command. The reply is whether the request is admitted
/// (1 or 0), the lowest limit's units that remain, and the milliseconds until the request would be admitted (-1 if it is, or never will be),
/// until nothing counts any more, and for which an admitted request has to wait its turn.
///
/// # Errors
/// When an argument or the value of the key is not as it has to be. Then nothing is changed.
pub fn check(
    policies: &mut Policies,
    quotas: &[u8],
    cost: Option<&[u8]>,
    now_us: u64,
    keys: &mut impl Keyspace,
) -> Result<[i64; 5], Refusal> {
    if quotas.contains(&b'\n') {
        return Err(Refusal::of("the quotas have several lines: allowed is one, such as \"10/s; 1000/h\""));
    }
    let policy = policies.named(quotas)?;
    if policy.policy.is_only_reserved() {
        return Err(Refusal::of(
            "concurrent requests are not checked but reserved, which takes a client of polylimit",
        ));
    }
    let policy =
        if policy.lacks_windows() { policies.named(&policy.with_windows(quotas, now_us))? } else { policy };
    if policy.keys_of_entry() > 1 {
        return Err(Refusal::of(
            "a sliding log has a key of its own, so that it takes a client of polylimit",
        ));
    }
    let cost = match cost {
        None => 1,
        Some(text) => number("the cost", text, 0, Quota::MAX_UNITS)?,
    };
    let decision = decide(&policy, cost, now_us, keys)?;
    Ok([
        decision.allowed().into(),
        signed(decision.remaining()),
        decision.retry_after_us().filter(|_| !decision.allowed()).map_or(-1, |us| signed(us.div_ceil(1_000))),
        signed(decision.reset_after_us().div_ceil(1_000)),
        signed(decision.delay_us().div_ceil(1_000)),
    ])
}

/// Decides `CL.THROTTLE key max_burst count_per_period period [quantity]` as redis-cell does: a token bucket of `max_burst + 1` units. The reply is
/// whether the request is limited (0 or 1), the limit, what remains, and the seconds until it would be admitted (-1 if it is, or never
/// will be) and until nothing counts any more.
///
/// # Errors
/// When an argument or the value of the key is not as it has to be. Then nothing is changed.
pub fn throttle(
    policies: &mut Policies,
    [max_burst, count, period]: [&[u8]; 3],
    quantity: Option<&[u8]>,
    now_us: u64,
    keys: &mut impl Keyspace,
) -> Result<[i64; 5], Refusal> {
    let burst = number("max_burst", max_burst, 0, Quota::MAX_UNITS - 1)? + 1;
    let count = number("count_per_period", count, 1, Quota::MAX_UNITS)?;
    let period = number("period", period, 1, MAX_PERIOD_S)?;
    let cost = match quantity {
        None => 1,
        Some(text) => number("quantity", text, 0, Quota::MAX_UNITS)?,
    };
    let policy = policies.named(format!("{count}/{period}s token_bucket burst={burst}").as_bytes())?;
    let decision = decide(&policy, cost, now_us, keys)?;
    Ok([
        (!decision.allowed()).into(),
        signed(burst),
        signed(decision.remaining()),
        decision
            .retry_after_us()
            .filter(|_| !decision.allowed())
            .map_or(-1, |us| signed(us.div_ceil(1_000_000))),
        signed(decision.reset_after_us().div_ceil(1_000_000)),
    ])
}

/// Checks the command's only key.
fn decide(policy: &Prepared, cost: u64, now_us: u64, keys: &mut impl Keyspace) -> Result<Decision, Refusal> {
    let request = KeyOperation { now_us, operation: Operation::Check, cost, headroom: 0, hold: None };
    let mut decided = Err(Refusal::wrong_type());
    keys.update(0, &mut |found| {
        let value = match found {
            Found::Nothing => None,
            Found::String(value) => Some(value),
            Found::Foreign => return Effect::default(),
        };
        let (transition, decision) = policy.decide(value, request);
        if let Some(unreadable) = transition.unreadable {
            let cause = match unreadable {
                Unreadable::Malformed => {
                    "the value of the key is none of polylimit's: delete it, or take another key"
                }
                Unreadable::Newer => {
                    "a newer version of polylimit has written the value of the key: load its module"
                }
            };
            decided = Err(Refusal::of(cause));
            return Effect::default();
        }
        decided = Ok(decision);
        transition.effect
    });
    decided
}

/// Reads a number.
fn number(name: &str, text: &[u8], least: u64, most: u64) -> Result<u64, Refusal> {
    let read = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
    read.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
        let text = String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned();
        Refusal::of(format!("{name} is {text:?}: allowed are {least} to {most}"))
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
