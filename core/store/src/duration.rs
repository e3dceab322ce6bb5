//! Durations as text: a whole number and a unit, such as `50ms`.

use std::time::Duration;

/// The units with their microseconds, the longest first.
const UNITS: [(&str, u64); 5] =
    [("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// Parses a whole number and a unit; 0 needs no unit.
pub fn read(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, unit_us) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let number: u64 = number.parse().ok()?;
    number.checked_mul(unit_us).map(Duration::from_micros)
}

/// Formats a duration in the longest unit that divides it. Fractions of a microsecond are dropped.
pub fn write(duration: Duration) -> String {
    let us = duration.as_micros();
    let unit = UNITS.into_iter().find(|(_, unit_us)| us.is_multiple_of(u128::from(*unit_us)));
    match unit {
        Some((name, unit_us)) if us > 0 => format!("{}{name}", us / u128::from(unit_us)),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_the_longest_is_written() {
        let table = [
            ("0", 0, "0"),
            ("0ms", 0, "0"),
            ("1us", 1, "1us"),
            ("50ms", 50_000, "50ms"),
            ("1500us", 1_500, "1500us"),
            ("0002s", 2_000_000, "2s"),
            ("120s", 120_000_000, "2m"),
            ("90m", 5_400_000_000, "90m"),
            ("24h", 86_400_000_000, "24h"),
            ("18446744073709551615us", u64::MAX, "18446744073709551615us"),
        ];
        for (text, us, written) in table {
            assert_eq!(read(text), Some(Duration::from_micros(us)), "{text}");
            assert_eq!(write(Duration::from_micros(us)), written);
        }
        assert_eq!(write(Duration::from_nanos(1_999)), "1us");
    }

    #[test]
    fn everything_else_is_refused() {
        let refused = [
            "",
            "1",
            "50",
            "ms",
            "-1s",
            "+1s",
            "1.5s",
            "1 s",
            " 1s",
            "1s ",
            "1S",
            "1min",
            "1d",
            "1s2ms",
            "٣s",
            "18446744073709551616us",
            "18446744073709551615ms",
        ];
        for text in refused {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
