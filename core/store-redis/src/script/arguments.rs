//! The arguments that describe a policy to a script.

use polylimit_rules::codec::Tag;
use polylimit_rules::history::{Change, PastNumbers, past_of};
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::tick::gcd;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::reservation::list::MAX_RESERVATIONS;

/// The number of slots of a policy without a quota of concurrent reservations.
const NO_CONCURRENCY: u64 = 65_535;

/// The number of a quota's algorithm in the scripts, from 1: the position of its Lua source.
pub(super) fn algorithm_number(quota: &Quota) -> u8 {
    match quota.algorithm() {
        Algorithm::TokenBucket if quota.step().is_some() => 2,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => 1,
        Algorithm::FixedWindow if quota.calendar().is_some() => 6,
        Algorithm::FixedWindow => 3,
        Algorithm::SlidingWindow => 4,
        Algorithm::SlidingLog => 5,
        // Concurrency has no arguments of its own.
        _ => 0,
    }
}

/// A policy's features besides its quotas, as the bits of a byte.
const HAS_PENALTY: u8 = 1;
const IS_CHANGED_NOW: u8 = 2;

/// The arguments of the general transition, with the other quotas that this process knows. `dropped` is the number of
/// keys per entry that only other quotas used.
pub(super) fn policy_arguments(policy: &Policy, change: Change<'_>, dropped: u8) -> Box<[u8]> {
    let rates = || policy.quotas().iter().filter(|quota| quota.algorithm().is_rate());
    let concurrency = policy.quotas().iter().find(|quota| !quota.algorithm().is_rate());
    let slots = concurrency.map_or(NO_CONCURRENCY, |quota| quota.limit().min(MAX_RESERVATIONS as u64));
    let mut out = vec![u8::try_from(rates().count()).unwrap_or(u8::MAX), dropped];
    put(&mut out, slots, 2);
    let penalty = policy.penalty();
    let is_changed_now = matches!(change, Change::Now(_));
    out.push(
        if penalty.is_some() { HAS_PENALTY } else { 0 } | if is_changed_now { IS_CHANGED_NOW } else { 0 },
    );
    for quota in rates() {
        put_quota(&mut out, quota);
    }
    for quota in rates() {
        let past = past_of(quota, change.past());
        // The oldest past quotas are the least useful.
        let past = &past[past.len().saturating_sub(usize::from(u8::MAX))..];
        out.push(u8::try_from(past.len()).unwrap_or(u8::MAX));
        for numbers in past {
            put_past(&mut out, quota, numbers);
        }
    }
    if let Some(Penalty { denials, within_us, block_us, max_us, forget_us }) = penalty {
        put(&mut out, (*denials).into(), 2);
        for us in [within_us, block_us, max_us, forget_us] {
            put(&mut out, *us, 7);
        }
    }
    out.into()
}

/// The position of the two numbers of the algorithm of a quota in the [policy's arguments](policy_arguments), by the quota's place among
/// those that count units.
pub(super) const fn numbers_at(place: usize) -> usize {
    5 + 38 * place + 18
}

/// The debt of a token, and the debt that a tick repays.
pub(super) fn token_and_rate(quota: &Quota) -> (u64, u64) {
    let ticks = quota.period_us() / quota.tick_us();
    let divisor = gcd(quota.limit(), ticks);
    (ticks / divisor, quota.limit() / divisor)
}

/// The last bytes of a number, big-endian.
pub(super) fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
    out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
}

fn put_quota(out: &mut Vec<u8>, quota: &Quota) {
    let (limit, period_us) = (quota.limit(), quota.period_us());
    let (a, b) = match (quota.algorithm(), quota.step()) {
        (Algorithm::TokenBucket, Some(step)) => (step, quota.step_interval_us()),
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, _) => token_and_rate(quota),
        (Algorithm::SlidingWindow, _) => {
            let buckets = u64::from(quota.buckets().unwrap_or(1));
            (period_us / buckets / quota.tick_us(), buckets)
        }
        // The window of a quota by the calendar is written at the time of the call.
        _ => (0, 0),
    };
    out.push(algorithm_number(quota));
    out.push(u8::from(quota.count_denied()) | u8::from(quota.aligned()) << 1);
    put(out, u64::from(quota.tick_us().ilog10()), 1);
    out.extend_from_slice(&Tag::of(quota).0);
    put(out, limit, 5);
    put(out, quota.capacity(), 6);
    put(out, a, 7);
    put(out, b, 7);
    put(out, period_us, 6);
}

fn put_past(out: &mut Vec<u8>, quota: &Quota, past: &PastNumbers) {
    let is_stepped = quota.step().is_some();
    put(out, past.limit, 5);
    put(out, if is_stepped { past.capacity } else { u64::from(past.repays_one) }, 6);
    put(out, if is_stepped { past.interval_us } else { past.tick_us }, 7);
    put(out, past.superseded_at_us, 7);
}
