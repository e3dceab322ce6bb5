//! What a quota says about a key, in the words of its algorithm, for people.

use crate::algorithm::{QuotaRules, State};
use crate::quota::{Algorithm, Quota};

/// What the state of a key under a quota means, such as `debt 12.4 of 100, repays 1.67/s`. `used` is in units, or in reservations
/// for concurrency.
pub fn words(
    quota: &Quota,
    rules: &QuotaRules,
    state: &State,
    (used, reset_after_us): (u64, u64),
    now_us: u64,
) -> String {
    let capacity = quota.capacity();
    if quota.limit() == 0 {
        return "the limit is 0: nothing is admitted".to_owned();
    }
    match (rules, state) {
        (QuotaRules::TokenBucket(bucket), State::TokenBucket(state)) => {
            let (debt, rate) = (tenths(bucket.debt_tenths(state, now_us)), rate(quota));
            format!("debt {debt} of {capacity}, repays {rate}")
        }
        (QuotaRules::LeakyBucket(bucket), State::TokenBucket(state)) => {
            let (debt, rate) = (tenths(bucket.debt_tenths(state, now_us)), rate(quota));
            format!("{debt} of {capacity} in the queue, {rate} leave")
        }
        (QuotaRules::SteppedBucket(_), _) => {
            let (step, every) = (quota.step().unwrap_or(0), time(quota.step_interval_us()));
            format!("{used} of {capacity} in use, {step} come back every {every}")
        }
        (QuotaRules::FixedWindow(_), _) if let Some(calendar) = quota.calendar() => {
            format!("{used} of {capacity} {}", calendar.words(now_us))
        }
        (QuotaRules::FixedWindow(_), _) if used > 0 => {
            format!("{used} of {capacity} in this window, which ends in {}", time(reset_after_us))
        }
        (QuotaRules::FixedWindow(_), _) => {
            format!("0 of {capacity} in a window of {}", time(quota.period_us()))
        }
        (QuotaRules::SlidingWindow(_), _) => {
            let (period, parts) = (time(quota.period_us()), quota.buckets().unwrap_or(1));
            format!("{used} of {capacity} in the last {period}, counted in {parts} parts")
        }
        (QuotaRules::SlidingLog(_), _) => {
            format!("{used} of {capacity} in the last {}, each at its time", time(quota.period_us()))
        }
        (QuotaRules::GroupedBucket(_), _) => {
            format!("{used} of {capacity} in use by all groups, repays {}", rate(quota))
        }
        _ if quota.algorithm() == Algorithm::Concurrency => {
            format!("{used} of {} reservations", quota.limit())
        }
        _ => format!("{used} of {capacity}"),
    }
}

fn tenths(tenths: u64) -> String {
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        digit => format!("{}.{digit}", tenths / 10),
    }
}

/// The rate of a bucket, by the shortest unit of time in which a whole unit comes.
fn rate(quota: &Quota) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000, "s"), (60_000_000, "minute"), (3_600_000_000, "hour"), (86_400_000_000, "day")];
    let (limit, period_us) = (u128::from(quota.limit()), u128::from(quota.period_us().max(1)));
    let whole = UNITS.iter().find(|(unit_us, _)| limit * u128::from(*unit_us) >= period_us);
    let (unit_us, name) = whole.unwrap_or(&UNITS[3]);
    let hundredths = (limit * u128::from(*unit_us) * 100 + period_us / 2) / period_us;
    let (units, part) = (hundredths / 100, hundredths % 100);
    match (part, part % 10) {
        (0, _) => format!("{units}/{name}"),
        (_, 0) => format!("{units}.{}/{name}", part / 10),
        _ => format!("{units}.{part:02}/{name}"),
    }
}

/// A time in the two longest units that it has, rounded up: `12.3s`, `4m5s`, `2d3h`.
pub(crate) fn time(us: u64) -> String {
    const LONG: [(u64, &str, u64, &str); 3] =
        [(86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")];
    match us {
        0..1_000 => return format!("{us}us"),
        1_000..1_000_000 => return format!("{}ms", us.div_ceil(1_000)),
        1_000_000..60_000_000 => return format!("{}s", tenths(us.div_ceil(100_000))),
        _ => {}
    }
    let seconds = us.div_ceil(1_000_000);
    let (unit, name, part, part_name) =
        LONG.into_iter().find(|(unit, ..)| seconds >= *unit).unwrap_or(LONG[2]);
    match seconds % unit / part {
        0 => format!("{}{name}", seconds / unit),
        rest => format!("{}{name}{rest}{part_name}", seconds / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (us, text) in [
            (0, "0us"),
            (999_000, "999ms"),
            (12_340_000, "12.4s"),
            (60_000_000, "1m"),
            (245_000_000, "4m5s"),
            (7_200_000_000, "2h"),
            (183_600_000_000, "2d3h"),
            (u64::MAX, "213503982d8h"),
        ] {
            assert_eq!(time(us), text);
        }
    }

    #[test]
    fn rates_are_by_the_shortest_unit_with_a_whole_one() {
        for (quota, text) in [
            ("100/minute", "1.67/s"),
            ("10/s", "10/s"),
            ("90/m", "1.5/s"),
            ("30/m", "30/minute"),
            ("1/h", "1/hour"),
            ("1/2d", "0.5/day"),
        ] {
            assert_eq!(rate(&quota.parse().unwrap()), text, "{quota}");
        }
    }
}
