//! Header fields as text, which JavaScript reads faster than a list.

use polylimit::http::headers::HeaderField;

/// The value of `Field::Changed` when all names and values are returned.
const ALL: f64 = -1.0;

/// The bits of the values that changed, and the lines to return: the values that changed when the names are the same, and
/// otherwise all names and values.
pub(crate) fn changes(before: &[HeaderField], after: &[HeaderField]) -> (f64, String) {
    let mut text = String::new();
    let mut add = |line: &str| {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    };
    if !before.iter().map(|field| &field.name).eq(after.iter().map(|field| &field.name)) {
        for HeaderField { name, value } in after {
            add(name);
            add(value);
        }
        return (ALL, text);
    }
    let mut changed = 0_u32;
    for (at, (old, new)) in before.iter().zip(after).enumerate() {
        if old.value != new.value {
            changed |= 1 << at;
            add(&new.value);
        }
    }
    (changed.into(), text)
}

/// All names and values, each on a line.
pub(crate) fn all(fields: &[HeaderField]) -> String {
    changes(&[], fields).1
}
