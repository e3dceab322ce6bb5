//! `CL.THROTTLE key max_burst count period [quantity]`, answered as the Redis module redis-cell 0.4 does.

use polylimit::Decision;
use polylimit::decision::Usage;

use crate::one_off::Throttle;
use crate::resp::reply::Replies;

const USAGE: &str =
    "Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";

/// A command that was read.
pub(crate) struct ThrottleCommand<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) throttle: Throttle,
    /// Units; below 0 they are given back.
    pub(crate) quantity: i64,
}

/// Reads what follows the name of the command.
pub(crate) fn read<'a>(rest: &[&'a [u8]]) -> Result<ThrottleCommand<'a>, String> {
    let (key, numbers) = match rest {
        [key, numbers @ ..] if numbers.len() == 3 || numbers.len() == 4 => (*key, numbers),
        _ => return Err(USAGE.to_owned()),
    };
    let mut read = [0_i64, 0, 0, 1];
    for (number, text) in read.iter_mut().zip(numbers) {
        let text = String::from_utf8_lossy(text);
        *number = text.parse().map_err(|_| {
            let shown: String = text.chars().take(40).collect();
            format!("Cell error: Couldn't parse as integer: {shown}")
        })?;
    }
    let [max_burst, count, period, quantity] = read;
    if count == 0 || period == 0 {
        return Err("Cell error: Zero rates are not supported".to_owned());
    }
    let number = |name: &str, number: i64| {
        u64::try_from(number).map_err(|_| format!("Cell error: {name} is {number}: allowed is 0 or more"))
    };
    let throttle = Throttle {
        max_burst: number("max_burst", max_burst)?,
        count: number("count", count)?,
        period_seconds: number("period", period)?,
    };
    Ok(ThrottleCommand { key, throttle, quantity })
}

impl ThrottleCommand<'_> {
    /// The most units at once.
    pub(crate) fn limit(&self) -> u64 {
        self.throttle.max_burst.saturating_add(1)
    }
}

/// Writes a decision: limited, limit, remaining, seconds until a retry or -1, seconds until nothing counts any more.
pub(crate) fn write(limit: u64, decision: &Decision, replies: &mut Replies) {
    let retry_after = match decision.retry_after_us() {
        Some(us) if !decision.allowed() => seconds(us),
        _ => -1,
    };
    let left = (decision.remaining(), decision.reset_after_us());
    put(i64::from(!decision.allowed()), limit, left, retry_after, replies);
}

/// Writes what is left after units were given back.
pub(crate) fn write_usage(limit: u64, usage: &Usage, replies: &mut Replies) {
    put(0, limit, (usage.remaining(), usage.reset_after_us()), -1, replies);
}

fn put(limited: i64, limit: u64, (remaining, reset_us): (u64, u64), retry_after: i64, replies: &mut Replies) {
    replies.array(5);
    replies.integer(limited);
    replies.units(limit);
    replies.units(remaining);
    replies.integer(retry_after);
    replies.integer(seconds(reset_us));
}

/// Whole seconds, rounded up where milliseconds are left; redis-cell ignores what is less.
fn seconds(us: u64) -> i64 {
    let seconds = us / 1_000_000 + u64::from(us % 1_000_000 >= 1_000);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
