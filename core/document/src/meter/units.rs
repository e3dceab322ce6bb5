//! Exact arithmetic of meters: decimal numbers as integers.

use polylimit_rules::request::Request;

/// A factor of 1, in millionths.
pub(super) const FACTOR: i128 = 1_000_000;
/// A value of 1, in units of 10^-12.
pub(super) const VALUE: i128 = 1_000_000_000_000;
/// The maximum of a value, and of a sum: what a request may spend.
const MAX: i128 = Request::MAX_COST as i128;
/// The digits of a number that are read: 13 before the point and 13 after it, so that a value fits into 128 bits. Those after them are cut
/// off.
const MAX_DIGITS: u32 = 26;

/// Reads a number as JSON writes it, such as `12`, `0.5` or `1.2e-05`, in units of `1/one`. What is smaller than that is cut off. `None`:
/// it is another text, negative, or above 10^12.
pub(super) fn decimal(text: &[u8], one: i128) -> Option<i128> {
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let mut power = match exponent {
        Some(digits) => {
            let digits = digits.strip_prefix(b"+").unwrap_or(digits);
            std::str::from_utf8(digits).ok()?.parse::<i32>().ok()?
        }
        None => 0,
    };
    let (whole, places) = match mantissa.iter().position(|byte| *byte == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &[][..]),
    };
    if whole.is_empty() || (whole.len() < mantissa.len() && places.is_empty()) {
        return None;
    }
    let (mut value, mut digits) = (0_i128, 0);
    for (at, byte) in whole.iter().chain(places).enumerate() {
        if !byte.is_ascii_digit() {
            return None;
        }
        if digits < MAX_DIGITS {
            value = value * 10 + i128::from(byte - b'0');
            digits += u32::from(value > 0);
            power = power.saturating_sub(i32::from(at >= whole.len()));
        } else {
            power = power.saturating_add(i32::from(at < whole.len()));
        }
    }
    scaled(value, power, one)
}

/// `value * 10^power`, in units of `1/one`.
fn scaled(value: i128, power: i32, one: i128) -> Option<i128> {
    let ten_to = 10_i128.checked_pow(power.unsigned_abs());
    let scaled = match ten_to {
        _ if value == 0 => 0,
        Some(ten_to) if power >= 0 => value.checked_mul(ten_to)?.checked_mul(one)?,
        Some(ten_to) => value * one / ten_to,
        None if power < 0 => 0,
        None => return None,
    };
    (scaled <= MAX * one).then_some(scaled)
}

/// The units of a sum of terms, each in units of 10^-18: rounded up, and at least 0. `None`: above 10^12.
pub(super) fn rounded_up(sum: i128) -> Option<u64> {
    let one = VALUE * FACTOR;
    let units = sum.max(0).checked_add(one - 1)? / one;
    u64::try_from(units).ok().filter(|_| units <= MAX)
}
