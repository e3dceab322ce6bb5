//! Numbers as people read them.

/// A duration in its two largest units that say something, such as `1h 30m`, `12.5s` or `40ms`.
pub(crate) fn duration(us: u64) -> String {
    match us {
        0 => "0".to_owned(),
        1..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}ms", decimal(us, 1_000)),
        1_000_000..60_000_000 => format!("{}s", decimal(us, 1_000_000)),
        60_000_000..3_600_000_000 => two(us / 1_000_000, (60, "m"), (1, "s")),
        3_600_000_000..86_400_000_000 => two(us / 1_000_000, (3_600, "h"), (60, "m")),
        _ => two(us / 1_000_000, (86_400, "d"), (3_600, "h")),
    }
}

/// With up to two digits after the point.
fn decimal(number: u64, unit: u64) -> String {
    let hundredths = number / (unit / 100);
    match (hundredths / 100, hundredths % 100) {
        (whole, 0) => whole.to_string(),
        (whole, part) if part % 10 == 0 => format!("{whole}.{}", part / 10),
        (whole, part) => format!("{whole}.{part:02}"),
    }
}

fn two(seconds: u64, (large, large_name): (u64, &str), (small, small_name): (u64, &str)) -> String {
    match (seconds / large, seconds % large / small) {
        (first, 0) => format!("{first}{large_name}"),
        (first, second) => format!("{first}{large_name} {second}{small_name}"),
    }
}

/// A number with `_` between groups of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push('_');
        }
        grouped.push(digit);
    }
    grouped
}

/// A part of a whole, in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let hundredths = u128::from(part) * 10_000 / u128::from(whole);
    // What happens at all is not nothing.
    if hundredths == 0 && part > 0 {
        return "<0.01 %".to_owned();
    }
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (us, text) in [
            (0, "0"),
            (999, "999us"),
            (40_000, "40ms"),
            (1_234, "1.23ms"),
            (12_500_000, "12.5s"),
            (60_000_000, "1m"),
            (90_000_000, "1m 30s"),
            (5_400_000_000, "1h 30m"),
            (86_400_000_000, "1d"),
            (700_000_000_000, "8d 2h"),
        ] {
            assert_eq!(duration(us), text);
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1_000", "1_234_567"]);
    }

    #[test]
    fn percents_have_two_digits() {
        assert_eq!(percent(1, 3), "33.33 %");
        assert_eq!((percent(0, 3), percent(3, 3)), ("0.00 %".to_owned(), "100.00 %".to_owned()));
        assert_eq!((percent(1, 1_000_000), percent(0, 0)), ("<0.01 %".to_owned(), "-".to_owned()));
    }
}
