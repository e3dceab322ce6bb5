//! Durations, keys and tables as users read them.

use std::ffi::OsStr;

use comfy_table::{Table, presets};
use polylimit::admin::KeyName;
use polylimit::raw::printable;

const SECOND_US: u64 = 1_000_000;
const UNITS: [(&str, u64); 4] =
    [("d", 86_400 * SECOND_US), ("h", 3_600 * SECOND_US), ("m", 60 * SECOND_US), ("s", SECOND_US)];

/// A duration in at most two units, such as `1m30s`, `4.25s` or `850us`. Parts below the second are cut.
pub(crate) fn duration(us: u64) -> String {
    if us < 1_000 {
        return format!("{us}us");
    }
    if us < SECOND_US {
        return format!("{}ms", us / 1_000);
    }
    if us < 60 * SECOND_US {
        let hundredths = us / 10_000;
        let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        return format!("{}s", text.trim_end_matches('0').trim_end_matches('.'));
    }
    let Some(at) = UNITS.iter().position(|(_, unit)| us >= *unit) else { return format!("{us}us") };
    let (name, unit) = UNITS[at];
    let whole = format!("{}{name}", us / unit);
    match UNITS.get(at + 1) {
        Some((next, smaller)) if us % unit >= *smaller => format!("{whole}{}{next}", us % unit / smaller),
        _ => whole,
    }
}

/// A key of the command line, as reports have it.
pub(crate) fn key_name(key: &OsStr) -> KeyName {
    KeyName::Bytes(key.as_encoded_bytes().to_vec())
}

/// A table without lines. Its cells are escaped: keys, items, reasons and hosts may come from any client.
pub(crate) struct Rows(Table);

/// A table with these titles.
pub(crate) fn table<const N: usize>(titles: [&str; N]) -> Rows {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(titles);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    Rows(table)
}

impl Rows {
    pub(crate) fn add_row<const N: usize>(&mut self, cells: [&str; N]) {
        self.0.add_row(cells.map(printable));
    }

    /// The table as text; `None` where it has only its titles.
    pub(crate) fn text(&self) -> Option<String> {
        self.0.row_iter().next().map(|_| self.0.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_in_at_most_two_units() {
        for (us, text) in [
            (0, "0us"),
            (999, "999us"),
            (850_999, "850ms"),
            (1_000_000, "1s"),
            (4_259_999, "4.25s"),
            (59_999_999, "59.99s"),
            (60_000_000, "1m"),
            (90_000_000, "1m30s"),
            (3_600_000_000, "1h"),
            (3_659_999_999, "1h"),
            (90_000_000_000, "1d1h"),
        ] {
            assert_eq!(duration(us), text, "{us}");
        }
    }

    #[test]
    fn cells_do_not_control_terminals() {
        let mut rows = table(["item"]);
        rows.add_row(["a\u{1b}[31m\n\u{7}\u{202e}b"]);
        assert_eq!(rows.0.trim_fmt(), "item\n".to_owned() + r"a\u{1b}[31m\u{a}\u{7}\u{202e}b");
    }
}
