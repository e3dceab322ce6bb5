//! Records of buckets that are refilled in steps.

use crate::rules::algorithm::State;
use crate::rules::algorithm::stepped_bucket;
use crate::rules::codec::reader::Reader;
use crate::rules::codec::{Bytes, Form, MAX_LIMIT, MAX_US, Tag, put};
use crate::rules::history::{PastNumbers, stepped_bucket_ran_out};
use crate::rules::quota::Quota;

/// Reads a record of a quota; `None` when it is malformed.
pub(crate) fn read(form: Form, mut record: Reader<'_>, quota: &Quota, past: &[PastNumbers]) -> Option<State> {
    let (used, at_us, limit) = (record.number(6)?, record.number(7)?, record.number(5)?);
    if form != Form::SteppedBucket || at_us > MAX_US || !(1..=MAX_LIMIT).contains(&limit) {
        return None;
    }
    let state = stepped_bucket::State::of_parts(used, at_us);
    let kept = (!stepped_bucket_ran_out(state, limit, quota, past)).then_some(state);
    Some(State::SteppedBucket(kept.unwrap_or_default()))
}

/// Appends the record of a state, if the state has use.
pub(crate) fn write(out: &mut Bytes, state: stepped_bucket::State, quota: &Quota, tag: Tag) {
    let (used, at_us) = state.parts();
    if used == 0 {
        return;
    }
    out.push(Form::SteppedBucket as u8);
    out.extend_from_slice(&tag.0);
    put(out, used, 6);
    put(out, at_us, 7);
    // Under a limit of 0 the state was written under an earlier limit, which is not known here.
    put(out, quota.limit().max(1), 5);
}
