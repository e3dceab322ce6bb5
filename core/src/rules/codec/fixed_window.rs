//! Records of fixed windows.

use crate::rules::algorithm::State;
use crate::rules::algorithm::fixed_window;
use crate::rules::codec::reader::Reader;
use crate::rules::codec::{Bytes, Form, MAX_US, Tag, put};

/// Reads a record; `None` when it is malformed.
pub(crate) fn read(form: Form, mut record: Reader<'_>) -> Option<State> {
    let (count, start_us) = (record.number(6)?, record.number(7)?);
    let good = form == Form::FixedWindow && start_us <= MAX_US;
    good.then(|| State::FixedWindow(fixed_window::State::of_parts(count, start_us)))
}

/// Appends the record of a state, if the state has use.
pub(crate) fn write(out: &mut Bytes, state: fixed_window::State, tag: Tag) {
    let (count, start_us) = state.parts();
    if count == 0 {
        return;
    }
    out.push(Form::FixedWindow as u8);
    out.extend_from_slice(&tag.0);
    put(out, count, 6);
    put(out, start_us, 7);
}
