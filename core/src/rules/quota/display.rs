//! Prints a quota in its canonical text form.

use std::fmt;

use crate::rules::quota::builder::default_buckets;
use crate::rules::quota::{Algorithm, Quota};

/// The units of a period from long to short: microseconds, the word for one unit, the letters after a number.
pub(crate) const UNITS: [(u64, &str, &str); 7] = [
    (7 * 86_400_000_000, "week", "w"),
    (86_400_000_000, "day", "d"),
    (3_600_000_000, "hour", "h"),
    (60_000_000, "minute", "m"),
    (1_000_000, "second", "s"),
    (1_000, "ms", "ms"),
    (1, "us", "us"),
];

/// The canonical text: settings that equal the default are left out, and the period is in the longest unit that divides
/// it.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.limit)?;
        write_period(f, self.period_us)?;
        if self.algorithm != Algorithm::default() {
            write!(f, " {}", self.algorithm)?;
        }
        if self.capacity != self.limit {
            write!(f, " burst={}", self.capacity)?;
        }
        if let Some(step) = self.step() {
            write!(f, " step={step}")?;
        }
        if let Some(buckets) = self.buckets().filter(|&buckets| buckets != default_buckets(self.period_us)) {
            write!(f, " buckets={buckets}")?;
        }
        if self.aligned {
            f.write_str(" aligned")?;
        }
        if self.count_denied {
            f.write_str(" count_denied")?;
        }
        Ok(())
    }
}

fn write_period(f: &mut fmt::Formatter<'_>, period_us: u64) -> fmt::Result {
    for (unit_us, word, letters) in UNITS {
        if period_us == unit_us {
            return f.write_str(word);
        }
        if period_us.is_multiple_of(unit_us) {
            return write!(f, "{}{letters}", period_us / unit_us);
        }
    }
    Ok(())
}
