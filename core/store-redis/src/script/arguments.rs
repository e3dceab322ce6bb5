//! The arguments that describe a policy to a script.

use polylimit_rules::codec::Tag;
use polylimit_rules::groups::Groups;
use polylimit_rules::history::{Change, PastNumbers, past_of};
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::shares::shares_of;
use polylimit_rules::quota::tick::gcd;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::reservation::list::MAX_RESERVATIONS;

/// The number of slots of a policy without a quota of concurrent reservations.
const NO_CONCURRENCY: u64 = 65_535;

/// The number of a bucket that groups share; that of concurrency follows, in the same source.
pub(super) const GROUPS: u8 = 7;

/// Whether a quota has a state in the store: not one of concurrency, unless groups share it.
pub(super) fn has_state(quota: &Quota) -> bool {
    quota.algorithm().is_rate() || quota.is_grouped()
}

/// The number of a quota's algorithm in the scripts, from 1: the position of its Lua source.
pub(super) fn algorithm_number(quota: &Quota) -> u8 {
    match quota.algorithm() {
        Algorithm::Concurrency if quota.is_grouped() => GROUPS + 1,
        _ if quota.is_grouped() => GROUPS,
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
const HAS_GROUPS: u8 = 4;

/// The arguments of the general transition, with the other quotas that this process knows. `dropped` is the number of
/// keys per entry that only other quotas used.
pub(super) fn policy_arguments(policy: &Policy, change: Change<'_>, dropped: u8) -> Box<[u8]> {
    let rates = || policy.quotas().iter().filter(|quota| has_state(quota));
    let concurrency = policy.quotas().iter().find(|quota| !quota.algorithm().is_rate());
    let slots = concurrency.map_or(NO_CONCURRENCY, |quota| quota.limit().min(MAX_RESERVATIONS as u64));
    let mut out = vec![u8::try_from(rates().count()).unwrap_or(u8::MAX), dropped];
    put(&mut out, slots, 2);
    let penalty = policy.penalty();
    let is_changed_now = matches!(change, Change::Now(_));
    out.push(
        if penalty.is_some() { HAS_PENALTY } else { 0 }
            | if is_changed_now { IS_CHANGED_NOW } else { 0 }
            | if policy.groups().is_some() { HAS_GROUPS } else { 0 },
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
    if let Some(groups) = policy.groups() {
        put_groups(&mut out, policy, groups);
    }
    out.into()
}

/// The shares of each quota's groups.
fn put_groups(out: &mut Vec<u8>, policy: &Policy, groups: &Groups) {
    let small = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    put(out, groups.table.scale(), 6);
    out.extend([small(groups.own), small(groups.table.others()), small(groups.table.groups().len())]);
    for quota in policy.quotas().iter().filter(|quota| has_state(quota)) {
        for share in shares_of(quota, &groups.table) {
            out.extend_from_slice(&share.tag.0);
            put(out, share.weight, 1);
            put(out, share.rate, 5);
            put(out, share.burst, 6);
            put(out, share.top_rate, 5);
            put(out, share.top_burst, 6);
            put(out, share.minimum, 5);
        }
    }
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
        _ if quota.is_grouped() => (quota.period_us() / quota.tick_us(), 0),
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
    let slots = quota.limit().min(MAX_RESERVATIONS as u64);
    put(out, if quota.algorithm().is_rate() { quota.capacity() } else { slots }, 6);
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
