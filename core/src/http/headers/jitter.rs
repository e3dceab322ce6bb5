//! Waits that differ from client to client, so that denied clients do not all come back in the same second.

use std::str::FromStr;

use polylimit_rules::error::{Error, excerpt};

/// How much longer than the denial lasts `retry-after` asks a client to wait: a random number of whole seconds from 0 up to this.
///
/// As text it is `5s`, from 1 to 3,600 seconds, or `20%`, from 1 to 100 percent of the wait, rounded up to whole seconds.
///
/// ```
/// use polylimit::http::headers::{HeaderSettings, HeaderStyle, RetryJitter};
///
/// let settings = HeaderSettings::default().jitter("20%".parse::<RetryJitter>()?);
/// assert_eq!("ietf jitter=20%".parse::<HeaderSettings>()?, settings);
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryJitter(Most);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Most {
    Seconds(u16),
    Percent(u16),
}

impl RetryJitter {
    /// The seconds that are added to a wait, for 64 random bits.
    pub(crate) fn extra(self, seconds: u64, random: u64) -> u64 {
        let most = match self.0 {
            Most::Seconds(most) => most.into(),
            Most::Percent(percent) => seconds.saturating_mul(percent.into()).div_ceil(100),
        };
        // The upper half of the product is floor((most + 1) * random / 2^64).
        let (_, extra) = random.carrying_mul(most.saturating_add(1), 0);
        extra
    }
}

impl FromStr for RetryJitter {
    type Err = Error;

    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for any other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |digits: &str, most: u16| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|number| is_number && (1..=most).contains(number))
        };
        let seconds = text.strip_suffix('s').and_then(|digits| number(digits, 3_600)).map(Most::Seconds);
        let percent = || text.strip_suffix('%').and_then(|digits| number(digits, 100)).map(Most::Percent);
        seconds.or_else(percent).map(Self).ok_or_else(|| {
            Error::invalid_argument(format!(
                "jitter {} of retry-after: allowed are 1s to 3600s, and 1% to 100% of the wait",
                excerpt(text)
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_seconds_are_uniform_from_zero_to_the_most() {
        for (text, seconds, most) in [("5s", 1, 5), ("20%", 10, 2), ("20%", 1, 1), ("100%", 3_600, 3_600)] {
            let jitter: RetryJitter = text.parse().unwrap();
            let extra = |random| jitter.extra(seconds, random);
            assert_eq!((extra(0), extra(u64::MAX)), (0, most), "{text} of {seconds} s");
            assert_eq!(extra(1 << 63), most.div_ceil(2), "{text} of {seconds} s");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "5", "s", "%", "0s", "3601s", "0%", "101%", "-1s", "+1s", "1.5s", "5 s", "99999999s"]
        {
            assert!(text.parse::<RetryJitter>().is_err(), "{text}");
        }
    }
}
