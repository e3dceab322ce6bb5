//! A policy as text, for a store that decides elsewhere: what the client sends to the module in Redis.
//!
//! ```text
//! 10/second; 1000/hour concurrent ...          the quotas
//! penalty 3 1000000 60000000 3600000000 0      denials, within, block, max and forget, in microseconds
//! now                                          each key has its own quotas, so that a state under others was changed just now
//! past 1790000000000000 5/second               quotas that were superseded, and when, oldest first
//! logs 60000000 1000000                        the periods of logs that only other quotas used: the next write deletes them
//! window 1788220800000000 1790812800000000     for each quota by the calendar, in their order: the window in which the call has to be
//! ```

use std::fmt::Write as _;
use std::ops::Range;

use crate::codec::log::{MAX_DROPPED, dropped_logs, log_period_us};
use crate::error::Error;
use crate::history::{Change, PastPolicy};
use crate::penalty::Penalty;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::units::MAX_US;

/// The longest text, in bytes: nine times 16 quotas are shorter.
pub const MAX_LENGTH: usize = 32_768;
/// The most past quotas in a text.
const MAX_PAST: usize = 8;
/// The longest time of a penalty, and the longest period.
const MAX_PENALTY_US: u64 = 366 * 86_400_000_000;

/// The text of a policy; `None` for one with groups, now or in the past. A quota by the calendar also needs its [window](write_window).
pub fn write_policy(policy: &Policy, change: Change<'_>) -> Option<String> {
    if !is_plain(policy) || !change.others().all(is_plain) {
        return None;
    }
    let mut text = quotas(policy);
    if let Some(Penalty { denials, within_us, block_us, max_us, forget_us }) = policy.penalty() {
        let _ = write!(text, "\npenalty {denials} {within_us} {block_us} {max_us} {forget_us}");
    }
    if matches!(change, Change::Now(_)) {
        text.push_str("\nnow");
    }
    for PastPolicy { policy, at_us } in change.past() {
        let _ = write!(text, "\npast {at_us} {}", quotas(policy));
    }
    let dropped = dropped_logs(policy, change);
    if !dropped.is_empty() {
        text.push_str("\nlogs");
        for period_us in dropped {
            let _ = write!(text, " {period_us}");
        }
    }
    (text.len() <= MAX_LENGTH).then_some(text)
}

/// Appends the window of the next quota by the calendar to a text.
pub fn write_window(text: &mut String, window_us: &Range<u64>) {
    let _ = write!(text, "\nwindow {} {}", window_us.start, window_us.end);
}

fn is_plain(policy: &Policy) -> bool {
    policy.groups().is_none() && !policy.quotas().iter().any(Quota::is_grouped)
}

fn quotas(policy: &Policy) -> String {
    policy.quotas().iter().map(Quota::to_string).collect::<Vec<_>>().join("; ")
}

/// A policy that was read, with its past quotas.
#[derive(Clone, Debug)]
pub struct WirePolicy {
    pub policy: Policy,
    is_changed_now: bool,
    past: Vec<PastPolicy>,
    /// The periods of the logs that only other quotas used, in the order of their keys.
    pub dropped_logs: Vec<u64>,
    /// The windows of the quotas by the calendar: all of them, or none.
    pub windows_us: Vec<Range<u64>>,
}

impl WirePolicy {
    /// Reads a text, which is not trusted.
    ///
    /// # Errors
    /// When it is not one that [`write_policy`] may have written.
    pub fn read(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_LENGTH {
            let length = text.len();
            return Err(Error::invalid_argument(format!(
                "the policy has {length} bytes: allowed are up to {MAX_LENGTH}"
            )));
        }
        let mut lines = text.split('\n');
        let policy = read_quotas(lines.next().unwrap_or_default())?;
        let mut read = Self {
            policy,
            is_changed_now: false,
            past: Vec::new(),
            dropped_logs: Vec::new(),
            windows_us: Vec::new(),
        };
        for line in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "penalty" if read.policy.penalty().is_none() => {
                    let penalty = read_penalty(rest).ok_or_else(|| unknown(line))?;
                    read.policy = read.policy.with_penalty(Some(penalty));
                }
                "now" if line == "now" && !read.is_changed_now => read.is_changed_now = true,
                "past" if read.past.len() < MAX_PAST => {
                    let (at, quotas) = rest.split_once(' ').ok_or_else(|| unknown(line))?;
                    let at_us = read_number(at, MAX_US).ok_or_else(|| unknown(line))?;
                    read.past.push(PastPolicy { policy: read_quotas(quotas)?, at_us });
                }
                "logs" if read.dropped_logs.is_empty() => {
                    let periods = read.read_dropped(rest).ok_or_else(|| unknown(line))?;
                    read.dropped_logs = periods;
                }
                "window" => read.windows_us.push(read_window(rest).ok_or_else(|| unknown(line))?),
                _ => return Err(unknown(line)),
            }
        }
        let by_calendar = read.policy.quotas().iter().filter(|quota| quota.calendar().is_some()).count();
        if !read.windows_us.is_empty() && read.windows_us.len() != by_calendar {
            return Err(Error::invalid_argument(format!(
                "the policy has {} windows: allowed are as many as quotas by the calendar, which are {by_calendar}",
                read.windows_us.len()
            )));
        }
        Ok(read)
    }

    /// Periods of logs, all of them different and none that of a quota of the policy: each is a key.
    fn read_dropped(&self, text: &str) -> Option<Vec<u64>> {
        let mut periods = Vec::new();
        for text in text.split(' ') {
            let period_us = read_number(text, MAX_PENALTY_US)?;
            let is_known = self.policy.quotas().iter().any(|quota| log_period_us(quota) == Some(period_us));
            if is_known || periods.contains(&period_us) || periods.len() == MAX_DROPPED {
                return None;
            }
            periods.push(period_us);
        }
        Some(periods)
    }

    /// The other quotas under which states may have been written.
    pub fn change(&self) -> Change<'_> {
        if self.is_changed_now { Change::Now(&[]) } else { Change::Past(&self.past) }
    }
}

fn read_quotas(text: &str) -> Result<Policy, Error> {
    let policy = Policy::parse("policy", text)?;
    // What was written can be read, and nothing else.
    if is_plain(&policy) {
        return Ok(policy);
    }
    Err(Error::invalid_argument("the policy has groups: allowed are policies without any".to_owned()))
}

fn read_window(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once(' ')?;
    // The last window ends after the last time that a clock can show.
    let window_us = read_number(start, MAX_US)?..read_number(end, 2 * MAX_US)?;
    (!window_us.is_empty()).then_some(window_us)
}

fn read_penalty(text: &str) -> Option<Penalty> {
    let mut numbers = text.split(' ');
    let denials = u16::try_from(read_number(numbers.next()?, u16::MAX.into())?).ok()?;
    let mut us = || read_number(numbers.next()?, MAX_PENALTY_US);
    let (within_us, block_us, max_us, forget_us) = (us()?, us()?, us()?, us()?);
    (denials > 0 && numbers.next().is_none()).then_some(Penalty {
        denials,
        within_us,
        block_us,
        max_us,
        forget_us,
    })
}

fn read_number(text: &str, most: u64) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number <= most).then_some(number)
}

fn unknown(line: &str) -> Error {
    Error::invalid_argument(format!(
        "the policy has the line {}: allowed are one each of penalty, now and logs, {MAX_PAST} of past, and windows",
        crate::error::excerpt(line)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(quotas: &str) -> Policy {
        Policy::parse("p", quotas).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let penalty = Penalty { denials: 3, within_us: 1, block_us: 2, max_us: 3, forget_us: 4 };
        let written =
            policy("10/s token_bucket burst=20; 7/h buckets=4; 3 concurrent").with_penalty(Some(penalty));
        let past = [PastPolicy { policy: policy("5/s; 9/h"), at_us: 17 }];
        for change in [Change::NONE, Change::Past(&past), Change::Now(&[])] {
            let text = write_policy(&written, change).unwrap();
            let read = WirePolicy::read(&text).unwrap();
            assert_eq!(read.policy.quotas(), written.quotas());
            assert_eq!(read.policy.penalty(), written.penalty());
            assert_eq!(write_policy(&read.policy, read.change()), Some(text));
        }
    }

    #[test]
    fn logs_that_other_quotas_used_are_named() {
        let written = policy("10/s sliding_log; 5/m sliding_log; 7/h");
        let others =
            [policy("1/m sliding_log; 2/10s sliding_log"), policy("3/h sliding_log; 9/10s sliding_log")];
        let text = write_policy(&written, Change::Now(&others)).unwrap();
        assert!(text.ends_with("\nnow\nlogs 10000000 3600000000"), "{text}");
        let read = WirePolicy::read(&text).unwrap();
        assert_eq!(read.dropped_logs, [10_000_000, 3_600_000_000]);
        let past = others.map(|policy| PastPolicy { policy, at_us: 17 });
        let text = write_policy(&written, Change::Past(&past)).unwrap();
        assert_eq!(WirePolicy::read(&text).unwrap().dropped_logs, read.dropped_logs);
        // Two keys of an entry are never the same.
        for line in ["logs 60000000", "logs 5 5", "logs", "logs x", "logs 31622400000001", "logs 1\nlogs 2"] {
            assert!(WirePolicy::read(&format!("10/m sliding_log\n{line}")).is_err(), "{line}");
        }
        let many =
            |count| (1..=count).fold("5/s\nlogs".to_owned(), |text, period| format!("{text} {period}"));
        assert!(WirePolicy::read(&many(MAX_DROPPED)).is_ok());
        assert!(WirePolicy::read(&many(MAX_DROPPED + 1)).is_err());
    }

    #[test]
    fn quotas_by_the_calendar_have_all_of_their_windows_or_none() {
        let written = policy("5/month; 9/s; 5/day zone=Europe/Berlin");
        let mut text = write_policy(&written, Change::NONE).unwrap();
        assert!(WirePolicy::read(&text).unwrap().windows_us.is_empty());
        write_window(&mut text, &(1..5));
        assert!(WirePolicy::read(&text).is_err());
        write_window(&mut text, &(2..MAX_US + 9));
        let read = WirePolicy::read(&text).unwrap();
        assert_eq!(read.policy.quotas(), written.quotas());
        assert_eq!(read.windows_us, [1..5, 2..MAX_US + 9]);
        for line in ["window 1 2", "window 5", "window 5 5", "window 5 4", "window -1 4", "window 1 9 9"] {
            assert!(WirePolicy::read(&format!("{text}\n{line}")).is_err(), "{line}");
            assert!(WirePolicy::read(&format!("5/month\n{line}")).is_err() || line == "window 1 2", "{line}");
        }
        assert!(WirePolicy::read("5/s\nwindow 1 2").is_err());
    }

    #[test]
    fn time_of_a_penalty_is_at_most_366_days() {
        let most_us: u64 = 31_622_400_000_000;
        let read = |us: u64| WirePolicy::read(&format!("5/s\npenalty 1 1 1 1 {us}"));
        assert_eq!(read(most_us).unwrap().policy.penalty().map(|penalty| penalty.forget_us), Some(most_us));
        assert!(read(most_us + 1).is_err());
    }

    #[test]
    fn everything_else_is_refused() {
        let lines =
            ["", "now", "5/s\nnow\nnow", "5/s\nnow ", "5/s\npenalty 0 1 1 1 1", "5/s\npenalty 1 1 1 1"];
        let more =
            ["5/s\npenalty 1 1 1 1 1 1", "5/s\npast 5/s", "5/s\npast -1 5/s", "5/s\n", "5/s\npast 1 x"];
        let long = format!("5/s\n{}", "past 1 5/s\n".repeat(MAX_LENGTH));
        for text in lines.into_iter().chain(more).chain([long.as_str(), &"5/s\npast 1 5/s".repeat(9)]) {
            assert!(WirePolicy::read(text).is_err(), "{text:.40}");
        }
    }
}
