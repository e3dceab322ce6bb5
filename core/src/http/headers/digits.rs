//! Numbers in the fields.

/// Writes a number; several times as fast as through `Display`.
pub(crate) fn push_digits(text: &mut String, mut number: u64) {
    // 2^64 has 20 digits.
    let mut digits = [b'0'; 20];
    let mut first = digits.len() - 1;
    loop {
        digits[first] = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            break;
        }
        first -= 1;
    }
    text.push_str(std::str::from_utf8(&digits[first..]).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::push_digits;

    #[test]
    fn numbers_are_written_as_they_are() {
        for number in [0, 7, 10, 1_000_000, 999_999_999_999_999, u64::MAX] {
            let mut text = String::from("=");
            push_digits(&mut text, number);
            assert_eq!(text, format!("={number}"));
        }
    }
}
