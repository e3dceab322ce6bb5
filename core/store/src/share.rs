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
