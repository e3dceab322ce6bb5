//! Kinds of options that are a number with a range: durations, counts, sizes and a share.
//!
//! A range is written once, as readable text: `1ms to 60s`.

use std::time::Duration;

use crate::store::duration;
use crate::store::option::OptionKind;
use crate::store::redis::config::kind::Kind;

/// Whether a value is in a range such as `1 to 100`, or is 0 where the range says `0 (...), or 1 to 100`.
fn within<T: PartialOrd + Default>(allowed: &str, value: &T, read: fn(&str) -> Option<T>) -> bool {
    let (zero, range) = match allowed.split_once(", or ") {
        Some((_, range)) => (*value == T::default(), range),
        None => (false, allowed),
    };
    let bounds = range.split_once(" to ").and_then(|(least, most)| Some(read(least)?..=read(most)?));
    zero || bounds.is_some_and(|bounds| bounds.contains(value))
}

/// A duration.
pub(crate) enum Time {}

impl Kind for Time {
    type Argument = Duration;
    type Value = Duration;
    const SHOWN: OptionKind = OptionKind::Duration;
    const FORM: &'static str = ", as a whole number of us, ms, s, m or h";

    fn from_argument(argument: Duration) -> Duration {
        argument
    }

    fn read(text: &str) -> Option<Duration> {
        duration::read(text)
    }

    fn allows(allowed: &str, value: &Duration) -> bool {
        within(allowed, value, duration::read)
    }

    fn show(value: &Duration) -> String {
        duration::write(*value)
    }
}

/// A number of items.
pub(crate) enum Count {}

impl Kind for Count {
    type Argument = u32;
    type Value = u32;
    const SHOWN: OptionKind = OptionKind::Number;

    fn from_argument(argument: u32) -> u32 {
        argument
    }

    fn read(text: &str) -> Option<u32> {
        // `parse` alone would take a plus sign.
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    }

    fn allows(allowed: &str, value: &u32) -> bool {
        within(allowed, value, Self::read)
    }

    fn show(value: &u32) -> String {
        value.to_string()
    }
}

/// A number of bytes.
pub(crate) enum Size {}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

impl Kind for Size {
    type Argument = usize;
    type Value = usize;
    const SHOWN: OptionKind = OptionKind::Number;
    const FORM: &'static str = ", as a whole number of bytes, KiB or MiB";

    fn from_argument(argument: usize) -> usize {
        argument
    }

    fn read(text: &str) -> Option<usize> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "" => 1,
            "KiB" => KIB,
            "MiB" => MIB,
            _ => return None,
        };
        number.parse::<usize>().ok()?.checked_mul(unit)
    }

    fn allows(allowed: &str, value: &usize) -> bool {
        within(allowed, value, Self::read)
    }

    fn show(value: &usize) -> String {
        match *value {
            bytes if bytes > 0 && bytes.is_multiple_of(MIB) => format!("{}MiB", bytes / MIB),
            bytes if bytes > 0 && bytes.is_multiple_of(KIB) => format!("{}KiB", bytes / KIB),
            bytes => bytes.to_string(),
        }
    }
}

/// A fraction, stored in parts per million.
pub(crate) enum Share {}

const WHOLE: u32 = 1_000_000;

impl Kind for Share {
    type Argument = f64;
    type Value = u32;
    const SHOWN: OptionKind = OptionKind::Number;

    /// Rounds to the nearest part per million. An invalid share becomes a number that is out of range.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and NaN becomes 0"
    )]
    fn from_argument(argument: f64) -> u32 {
        (argument * f64::from(WHOLE)).round() as u32
    }

    fn read(text: &str) -> Option<u32> {
        let (whole, decimals) = match text.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        };
        if whole.is_empty() || decimals.len() > 6 {
            return None;
        }
        let whole = Count::read(whole)?.checked_mul(WHOLE)?;
        whole.checked_add(Count::read(&format!("{decimals:0<6}"))?)
    }

    fn allows(_: &str, value: &u32) -> bool {
        (1..=WHOLE).contains(value)
    }

    fn show(value: &u32) -> String {
        let text = format!("{}.{:06}", value / WHOLE, value % WHOLE);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_ends() {
        for (value, held) in [(0, false), (1, true), (7, true), (100, true), (101, false)] {
            assert_eq!(Count::allows("1 to 100", &value), held, "{value}");
        }
        assert!(Count::allows("0 (never), or 5 to 6", &0));
        assert!(!Count::allows("0 (never), or 5 to 6", &1));
        assert!(!Count::allows("any", &1));
    }

    #[test]
    fn counts_are_digits() {
        assert_eq!(Count::read("0016384"), Some(16_384));
        for text in ["", "-1", "+1", "1.0", "1e3", " 1", "1_000", "4294967296", "99999999999999999999", "NaN"]
        {
            assert_eq!(Count::read(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_binary_units() {
        let table =
            [("0", 0, "0"), ("1000", 1000, "1000"), ("2048", 2048, "2KiB"), ("16MiB", 16 * MIB, "16MiB")];
        for (text, bytes, shown) in table {
            assert_eq!(Size::read(text), Some(bytes), "{text}");
            assert_eq!(Size::show(&bytes), shown);
        }
        for text in ["", "MiB", "1MB", "1 KiB", "1kib", "-1", "1.5MiB", "99999999999999999999"] {
            assert_eq!(Size::read(text), None, "{text}");
        }
    }

    #[test]
    fn shares_are_exact_to_a_millionth() {
        let table = [
            ("1", WHOLE, "1"),
            ("0.5", 500_000, "0.5"),
            ("1.0", WHOLE, "1"),
            ("0.333333", 333_333, "0.333333"),
            ("0.000001", 1, "0.000001"),
        ];
        for (text, parts, shown) in table {
            assert_eq!(Share::read(text), Some(parts), "{text}");
            assert_eq!(Share::show(&parts), shown);
            assert_eq!(Share::from_argument(text.parse().unwrap()), parts);
            assert!(Share::allows("", &parts));
        }
        for text in ["", ".", "1.", ".5", "0.0000001", "-0.5", "+0.5", "1e-3", "0,5", "NaN", "inf", "99999"] {
            assert_eq!(Share::read(text), None, "{text}");
        }
        for share in [0.0, -0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.1, 1e308, 4e-7] {
            assert!(!Share::allows("", &Share::from_argument(share)), "{share}");
        }
        assert_eq!(Share::from_argument(1.0 / 3.0), 333_333);
    }
}
