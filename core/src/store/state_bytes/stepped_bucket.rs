//! Records of buckets that are refilled in steps.

use super::past::PastNumbers;
use super::reader::Reader;
use super::{Bytes, Form, MAX_LIMIT, MAX_US, Tag, put};
use crate::algorithm::State;
use crate::algorithm::stepped_bucket;
use crate::quota::Quota;
use crate::quota::tick::SATURATION;

/// The state that a record means under a quota; `None` when it is malformed.
pub(super) fn read(form: Form, mut record: Reader<'_>, quota: &Quota, past: &[PastNumbers]) -> Option<State> {
    let (used, at_us, limit) = (record.number(6)?, record.number(7)?, record.number(5)?);
    if form != Form::SteppedBucket || at_us > MAX_US || !(1..=MAX_LIMIT).contains(&limit) {
        return None;
    }
    let state = if ran_out(used, at_us, limit, quota, past) {
        stepped_bucket::State::default()
    } else {
        stepped_bucket::State::of_parts(used, at_us)
    };
    Some(State::SteppedBucket(state))
}

/// Whether nothing was used any more when the numbers that a record was written under, or some after them, were
/// superseded.
fn ran_out(used: u64, at_us: u64, limit: u64, quota: &Quota, past: &[PastNumbers]) -> bool {
    let written_under = past.iter().rposition(|past| past.limit == limit);
    let since = written_under.filter(|_| limit != quota.limit() && quota.limit() > 0);
    let step = quota.step().unwrap_or(0);
    since.is_some_and(|since| {
        past[since..].iter().filter(|past| past.limit > 0).any(|past| {
            let passed_us = past.superseded_at_us.saturating_sub(at_us);
            let struck = passed_us.checked_div(past.interval_us).unwrap_or(0);
            used.min(SATURATION * past.capacity) <= struck.saturating_mul(step)
        })
    })
}

/// Appends the record of a state, if it holds something.
pub(super) fn write(out: &mut Bytes, state: stepped_bucket::State, quota: &Quota, tag: Tag) {
    let (used, at_us) = state.parts();
    if used == 0 {
        return;
    }
    out.push(Form::SteppedBucket as u8);
    out.extend_from_slice(&tag.0);
    put(out, used, 6);
    put(out, at_us, 7);
    // Under a limit of 0 the state is another's, whose limit is not known here.
    put(out, quota.limit().max(1), 5);
}
