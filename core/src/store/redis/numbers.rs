//! What a script is told of a policy: its numbers, packed.

use crate::rules::codec::{Form, Tag, is_lone};
use crate::rules::history::{PastNumbers, Superseded, past_of};
use crate::rules::policy::Policy;
use crate::rules::quota::tick::gcd;
use crate::rules::quota::{Algorithm, Quota};
use crate::store::redis::script::{Ordinary, kind};

/// Whether the main key is used: not by a policy of logs alone, and in a form of its own by one with a lone bucket.
fn main_key(policy: &Policy) -> u8 {
    let is_packed = |quota: &Quota| quota.algorithm() != Algorithm::SlidingLog;
    match policy.quotas() {
        quotas if is_lone(quotas) => 2,
        quotas => u8::from(quotas.iter().any(is_packed)),
    }
}

/// The numbers of a policy, of which this process knows these past ones and which leaves so many keys unused that they
/// used.
pub(crate) fn numbers(
    policy: &Policy,
    superseded: &[Superseded],
    ordinary: &Ordinary,
    dropped: u8,
) -> Box<[u8]> {
    let count = u8::try_from(policy.quotas().len()).unwrap_or(u8::MAX);
    let mut out = Vec::new();
    for (at, quota) in policy.quotas().iter().enumerate() {
        put_ordinary(&mut out, ordinary, at, quota);
    }
    out.extend([count, main_key(policy), dropped]);
    for quota in policy.quotas() {
        put_quota(&mut out, quota);
    }
    for quota in policy.quotas() {
        let past = past_of(quota, superseded);
        // The oldest are of the least use.
        let past = &past[past.len().saturating_sub(usize::from(u8::MAX))..];
        out.push(u8::try_from(past.len()).unwrap_or(u8::MAX));
        for numbers in past {
            put_past(&mut out, quota, numbers);
        }
    }
    out.into()
}

/// Time to live is seldom renewed: it ends at a multiple of the period, or of this if that is longer.
const MIN_UNIT_US: u64 = 10_000_000;

/// The numbers for checks of ordinary states.
fn put_ordinary(out: &mut Vec<u8>, ordinary: &Ordinary, at: usize, quota: &Quota) {
    let (limit, period_us, tick_us) = (quota.limit(), quota.period_us(), quota.tick_us());
    let tag = Tag::of(quota).0;
    let unit_us = period_us.max(MIN_UNIT_US);
    let form = match ordinary {
        Ordinary::None => return,
        Ordinary::Lone => {
            let token = period_us / limit;
            put(out, 1 << 47 | u64::from(tag[0]) << 35, 6);
            put(out, token, 5);
            put(out, quota.capacity() * token, 5);
            return put(out, unit_us, 6);
        }
        Ordinary::Sequence(forms) => forms[at],
    };
    out.push(form as u8);
    out.extend_from_slice(&tag);
    let (token, rate) = token_and_rate(quota);
    // Only that of a bucket is told, and fits.
    let empty = quota.capacity().saturating_mul(token);
    let step = quota.step().unwrap_or(0);
    let buckets = u64::from(quota.buckets().unwrap_or(1));
    let exponent = u64::from(tick_us.ilog10());
    let numbers: &[(u64, usize)] = match form {
        Form::ShortBucket => &[(token, 7), (empty, 7), (unit_us, 6)],
        Form::Bucket => &[(token, 7), (empty, 7), (rate, 5), (limit, 5), (exponent, 1), (unit_us, 6)],
        Form::SteppedBucket => {
            &[(step, 5), (quota.step_interval_us(), 7), (quota.capacity(), 5), (limit, 5), (unit_us, 6)]
        }
        Form::FixedWindow => &[(limit, 5), (period_us, 6), (quota.aligned().into(), 1)],
        Form::SlidingWindow => {
            &[(limit, 5), (period_us / buckets / tick_us, 6), (buckets, 1), (tick_us, 7), (unit_us, 6)]
        }
    };
    for (number, bytes) in numbers {
        put(out, *number, *bytes);
    }
}

/// What a token is worth and how much debt a tick repays.
fn token_and_rate(quota: &Quota) -> (u64, u64) {
    let ticks = quota.period_us() / quota.tick_us();
    let divisor = gcd(quota.limit(), ticks);
    (ticks / divisor, quota.limit() / divisor)
}

/// The last bytes of a number, big-endian.
fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
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
        (Algorithm::FixedWindow | Algorithm::SlidingLog, _) => (0, 0),
    };
    out.push(kind(quota));
    out.push(u8::from(quota.count_denied()) | u8::from(quota.aligned()) << 1);
    put(out, u64::from(quota.tick_us().ilog10()), 1);
    out.extend_from_slice(&Tag::of(quota).0);
    put(out, limit, 5);
    put(out, quota.capacity(), 5);
    put(out, a, 7);
    put(out, b, 7);
    put(out, period_us, 6);
}

fn put_past(out: &mut Vec<u8>, quota: &Quota, past: &PastNumbers) {
    let is_stepped = quota.step().is_some();
    put(out, past.limit, 5);
    put(out, if is_stepped { past.capacity } else { u64::from(past.repays_one) }, 5);
    put(out, if is_stepped { past.interval_us } else { past.tick_us }, 7);
    put(out, past.superseded_at_us, 7);
}
