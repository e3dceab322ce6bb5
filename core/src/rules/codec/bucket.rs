//! Records of continuously refilled buckets.

use crate::rules::algorithm::State;
use crate::rules::algorithm::token_bucket::{self, Parts};
use crate::rules::codec::reader::Reader;
use crate::rules::codec::{Bytes, Form, MAX_LIMIT, MAX_US, Tag, put};
use crate::rules::history::{PastNumbers, bucket_ran_out, rate, repays_one};
use crate::rules::quota::Quota;
use crate::rules::quota::tick::SATURATION;

const MAX_DEBT: u64 = 1 << 53;
const MAX_TICK_EXPONENT: u8 = 13;
/// The largest debt that fits the five bytes of a short record.
const MAX_SHORT_DEBT: u64 = (1 << 40) - 1;

/// Whether a bucket's records are short, whatever its debt is.
pub(crate) fn is_short(quota: &Quota) -> bool {
    let token = || u128::from(quota.period_us() / quota.limit());
    repays_one(quota) && u128::from(SATURATION * quota.capacity()) * token() <= u128::from(MAX_SHORT_DEBT)
}

/// Reads a record of a quota; `None` when it is malformed.
pub(crate) fn read(form: Form, mut record: Reader<'_>, quota: &Quota, past: &[PastNumbers]) -> Option<State> {
    match form {
        Form::ShortBucket => {
            let (at_us, debt) = (record.number(7)?, record.number(5)?);
            if at_us > MAX_US {
                return None;
            }
            // With a limit of 1 a microsecond repays 1, whatever the period.
            let limit = if repays_one(quota) { quota.limit() } else { 1 };
            let parts = Parts { debt, at: at_us, limit, tick_us: 1 };
            Some(state(parts, quota, past, past.iter().any(|past| past.repays_one)))
        }
        Form::Bucket => {
            let parts = read_long(record)?;
            let named = |past: &PastNumbers| (past.limit, past.tick_us) == (parts.limit, parts.tick_us);
            Some(state(parts, quota, past, past.iter().any(named)))
        }
        _ => None,
    }
}

fn read_long(mut record: Reader<'_>) -> Option<Parts> {
    let (at, debt, limit) = (record.number(7)?, record.number(7)?, record.number(5)?);
    let exponent = record.byte().filter(|exponent| *exponent <= MAX_TICK_EXPONENT)?;
    let tick_us = 10_u64.pow(u32::from(exponent));
    let fits = at <= MAX_US / tick_us && debt <= MAX_DEBT && (1..=MAX_LIMIT).contains(&limit);
    fits.then_some(Parts { debt, at, limit, tick_us })
}

/// The state; fresh when nothing was used any more at the time when its numbers were superseded.
fn state(parts: Parts, quota: &Quota, past: &[PastNumbers], is_past: bool) -> State {
    let kept = (!bucket_ran_out(parts, quota, past, is_past)).then(|| token_bucket::State::of_parts(parts));
    State::TokenBucket(kept.unwrap_or_default())
}

/// Appends the record of a state, if the state has use.
pub(crate) fn write(out: &mut Bytes, state: token_bucket::State, quota: &Quota, tag: Tag) {
    let Parts { debt, at, limit, tick_us } = state.parts();
    if debt == 0 {
        return;
    }
    let is_time = tick_us == 1 && rate(limit, quota.period_us(), 1) == 1;
    let form = if is_time && debt <= MAX_SHORT_DEBT { Form::ShortBucket } else { Form::Bucket };
    out.push(form as u8);
    out.extend_from_slice(&tag.0);
    put(out, at, 7);
    if form == Form::ShortBucket {
        put(out, debt, 5);
        return;
    }
    put(out, debt, 7);
    put(out, limit, 5);
    put(out, u64::from(tick_us.ilog10()), 1);
}
