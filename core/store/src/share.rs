//! A part of each limit, which a process admits by itself while its store cannot decide.

/// Parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ppm(pub u32);

pub const WHOLE: u32 = 1_000_000;

impl Ppm {
    pub const ALL: Self = Self(WHOLE);

    /// Reads a decimal number with up to 6 decimals, which may be out of range; `None` for any other text.
    pub fn read(text: &str) -> Option<Self> {
        let (whole, decimals) = match text.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        };
        if whole.is_empty() || decimals.len() > 6 {
            return None;
        }
        let whole = digits(whole)?.checked_mul(WHOLE)?;
        whole.checked_add(digits(&format!("{decimals:0<6}"))?).map(Self)
    }

    /// Whether it is more than 0 and up to 1.
    pub fn is_allowed(self) -> bool {
        (1..=WHOLE).contains(&self.0)
    }
}

/// `parse` alone would take a plus sign.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl From<f64> for Ppm {
    /// Rounds to the nearest part per million. An invalid share becomes a number that is out of range.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and NaN becomes 0"
    )]
    fn from(share: f64) -> Self {
        Self((share * f64::from(WHOLE)).round() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_a_decimal_number() {
        for (text, parts) in [
            ("0.25", 250_000),
            ("1", WHOLE),
            ("0", 0),
            ("0.000001", 1),
            ("2.5", 2_500_000),
            ("1.000000", WHOLE),
        ] {
            assert_eq!(Ppm::read(text), Some(Ppm(parts)), "{text}");
        }
        for text in
            ["", ".", ".5", "1.", "0.0000001", "+1", "-1", "1e3", "0.+5", "5000", "4294.967296", "1.2.3"]
        {
            assert_eq!(Ppm::read(text), None, "{text}");
        }
        let allowed = |parts| Ppm(parts).is_allowed();
        assert!(!allowed(0) && allowed(1) && allowed(WHOLE) && !allowed(WHOLE + 1));
        assert_eq!(
            (Ppm::from(0.25), Ppm::from(0.000_000_6), Ppm::from(1.0)),
            (Ppm(250_000), Ppm(1), Ppm::ALL)
        );
        assert!(
            !Ppm::from(f64::NAN).is_allowed()
                && !Ppm::from(-1.0).is_allowed()
                && !Ppm::from(9.0).is_allowed()
        );
    }
}
