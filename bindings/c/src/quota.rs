//! Quotas as structs of numbers, and as text.

use std::ffi::c_char;
use std::time::Duration;

use polylimit::Quota;
use polylimit::quota::Algorithm;

use crate::arguments::{Sized32, TextBuffer, sized, sized_out, text};
use crate::error::{Failure, MessageBuffer, guard_unit, polylimit_status};

/// A bucket of `burst` tokens that is refilled continuously (GCRA), or `step` tokens at a time.
pub const POLYLIMIT_TOKEN_BUCKET: u32 = 1;
/// A queue of `burst` places that drains at the rate; an admitted request has a delay.
pub const POLYLIMIT_LEAKY_BUCKET: u32 = 2;
/// A counter that starts at 0 in every period.
pub const POLYLIMIT_FIXED_WINDOW: u32 = 3;
/// Counters of sub-windows, the oldest of which slides out in proportion.
pub const POLYLIMIT_SLIDING_WINDOW: u32 = 4;
/// A list with the time of every admitted unit.
pub const POLYLIMIT_SLIDING_LOG: u32 = 5;
/// At most `limit` reservations at a time, whatever their units; only ever reserved.
pub const POLYLIMIT_CONCURRENCY: u32 = 6;

const ALGORITHMS: [(u32, Algorithm); 6] = [
    (POLYLIMIT_TOKEN_BUCKET, Algorithm::TokenBucket),
    (POLYLIMIT_LEAKY_BUCKET, Algorithm::LeakyBucket),
    (POLYLIMIT_FIXED_WINDOW, Algorithm::FixedWindow),
    (POLYLIMIT_SLIDING_WINDOW, Algorithm::SlidingWindow),
    (POLYLIMIT_SLIDING_LOG, Algorithm::SlidingLog),
    (POLYLIMIT_CONCURRENCY, Algorithm::Concurrency),
];

/// At most `limit` units per period, counted by an algorithm.
#[repr(C)]
pub struct polylimit_quota {
    /// sizeof(polylimit_quota), set by the caller.
    pub size: u32,
    /// POLYLIMIT_TOKEN_BUCKET to POLYLIMIT_CONCURRENCY; 0 is the default, a sliding window.
    pub algorithm: u32,
    /// Units per period, or reservations at a time: 0 to 10^12.
    pub limit: u64,
    /// The period in microseconds: 1 ms to 366 days; 0 for concurrency, which has none.
    pub period_us: u64,
    /// The two buckets only: the most units that can be spent at once, 1 to 10^12; 0 for the default.
    pub burst: u64,
    /// Token bucket only: the number of tokens that arrive at a time; 0 when they arrive continuously.
    pub step: u64,
    /// Sliding window only: the number of sub-windows, 1 to 60; 0 for the default.
    pub buckets: u32,
    /// Fixed window only: 1 when windows start at multiples of the period since the Unix epoch.
    pub aligned: u8,
    /// 1 when denied requests are charged too.
    pub count_denied: u8,
    /// Always 0.
    pub reserved: u16,
    /// Units beyond the limit or burst that are admitted as well, and reported as `over` in decisions: 0 to 10^12.
    pub excess: u64,
    /// Fixed window only: windows by the calendar in place of a period, which is 0 then, as in "month from=15 zone=Europe/Berlin", with
    /// a NUL at its end; empty for a period.
    pub calendar: [c_char; 64],
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_quota {
    const NAME: &'static str = "quota";
    const MIN_SIZE: u32 = 120;
}

/// Reads one quota from its text form, such as "10/s token_bucket burst=20". For an invalid text it returns
/// POLYLIMIT_INVALID_ARGUMENT, and the message names what was read, where, and what is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_quota_parse(
    quota: *const c_char,
    quota_out: *mut polylimit_quota,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a text and a quota.
        let (quota, quota_out) = unsafe { (text(quota, "quota")?, sized_out(quota_out)?) };
        quota_out.set(&quota.parse()?)
    })
}

/// Writes a quota in its canonical text form; a quota that is out of bounds is POLYLIMIT_INVALID_ARGUMENT. The length
/// without the NUL is written to `length_out`, which may be NULL, even if the buffer is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_quota_text(
    quota: *const polylimit_quota,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a quota.
        let quota = unsafe { sized(quota) }?.get()?;
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&quota.to_string()) }
    })
}

impl polylimit_quota {
    fn set(&mut self, quota: &Quota) -> Result<(), Failure> {
        let number = ALGORITHMS.iter().find(|(_, algorithm)| *algorithm == quota.algorithm());
        let (number, algorithm) = number.ok_or_else(|| {
            Failure::invalid(format!("algorithm {} has no number in this interface", quota.algorithm()))
        })?;
        let has_burst = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        self.algorithm = *number;
        self.limit = quota.limit();
        self.period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
        self.burst = if has_burst { quota.capacity() - quota.excess() } else { 0 };
        self.step = quota.step().unwrap_or(0);
        self.buckets = quota.buckets().unwrap_or(0);
        self.aligned = u8::from(quota.aligned());
        self.count_denied = u8::from(quota.count_denied());
        self.reserved = 0;
        self.excess = quota.excess();
        self.calendar = [0; 64];
        if let Some(calendar) = quota.calendar() {
            self.period_us = 0;
            let text = calendar.to_string();
            if text.len() >= self.calendar.len() {
                return Err(Failure::invalid(format!(
                    "calendar {text} does not fit into a quota: use the text"
                )));
            }
            for (place, byte) in self.calendar.iter_mut().zip(text.bytes()) {
                *place = byte.cast_signed();
            }
        }
        Ok(())
    }

    fn get(&self) -> Result<Quota, Failure> {
        let mut builder = Quota::builder(self.limit, Duration::from_micros(self.period_us))
            .aligned(flag("aligned", self.aligned)?)
            .count_denied(flag("count_denied", self.count_denied)?);
        if self.algorithm != 0 {
            let algorithm = ALGORITHMS.iter().find(|(number, _)| *number == self.algorithm);
            let (_, algorithm) = algorithm.ok_or_else(|| {
                let last = ALGORITHMS.len();
                Failure::invalid(format!(
                    "algorithm {} is not known: allowed are 0 to {last}",
                    self.algorithm
                ))
            })?;
            builder = builder.algorithm(*algorithm);
        }
        if self.calendar[0] != 0 {
            let bytes: Vec<u8> = self.calendar.iter().map(|byte| byte.cast_unsigned()).collect();
            let end = bytes.iter().position(|byte| *byte == 0);
            let calendar = end.and_then(|end| std::str::from_utf8(&bytes[..end]).ok());
            let calendar = calendar
                .ok_or_else(|| Failure::invalid("calendar is no text of at most 63 bytes".to_owned()))?;
            builder = builder.calendar(calendar.parse()?);
        }
        if self.burst != 0 {
            builder = builder.burst(self.burst);
        }
        if self.step != 0 {
            builder = builder.step(self.step);
        }
        if self.buckets != 0 {
            builder = builder.buckets(self.buckets);
        }
        if self.excess != 0 {
            builder = builder.excess(self.excess);
        }
        Ok(builder.build()?)
    }
}

fn flag(name: &str, value: u8) -> Result<bool, Failure> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Failure::invalid(format!("{name} is {value}: allowed are 0 and 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_a_number() {
        assert_eq!(ALGORITHMS.map(|(_, algorithm)| algorithm), Algorithm::ALL);
    }

    #[test]
    fn struct_and_text_are_the_same_quota() {
        for text in [
            "0/second",
            "10/second token_bucket burst=20",
            "50/day token_bucket burst=200 step=50",
            "2/second leaky_bucket burst=4 count_denied",
            "5/15minutes sliding_log",
            "7/3hours fixed_window aligned",
            "7/3hours buckets=60",
            "20 concurrent",
            "3/month from=15 zone=America/Argentina/ComodRivadavia excess=1",
        ] {
            let mut numbers: polylimit_quota = unsafe { std::mem::zeroed() };
            let quota: Quota = text.parse().unwrap();
            numbers.set(&quota).unwrap();
            assert_eq!(numbers.get().unwrap(), quota, "{text}");
        }
    }
}
