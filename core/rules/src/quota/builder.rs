//! Builds a quota from numbers and checks every bound.

use std::time::Duration;

use crate::error::Error;
use crate::quota::calendar::Calendar;
use crate::quota::{Algorithm, Quota, tick};
use crate::units::micros;

/// The name of the refused setting, from which the parser finds its column, and the error message.
pub(crate) struct Refusal {
    pub(crate) setting: &'static str,
    pub(crate) message: String,
}

/// The settings of a [`Quota`] before they are checked; made by [`Quota::builder`].
///
/// ```
/// use std::time::Duration;
/// use polylimit::quota::Algorithm;
/// use polylimit::Quota;
///
/// let quota = Quota::builder(5, Duration::from_secs(60)).algorithm(Algorithm::SlidingLog).build()?;
/// assert_eq!(quota.to_string(), "5/minute sliding_log");
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder makes a quota only when `build` is called"]
pub struct QuotaBuilder {
    /// `None` for the default.
    algorithm: Option<Algorithm>,
    limit: u64,
    period: Duration,
    calendar: Option<Calendar>,
    burst: Option<u64>,
    step: Option<u64>,
    buckets: Option<u32>,
    aligned: bool,
    count_denied: bool,
    excess: Option<Excess>,
}

/// An excess as it was given.
#[derive(Clone, Copy, Debug)]
enum Excess {
    Units(u64),
    Percent(u64),
}

impl QuotaBuilder {
    pub(crate) fn new(limit: u64, period: Duration) -> Self {
        Self {
            algorithm: None,
            limit,
            period,
            calendar: None,
            burst: None,
            step: None,
            buckets: None,
            aligned: false,
            count_denied: false,
            excess: None,
        }
    }

    /// The algorithm; a sliding window by default.
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = Some(algorithm);
        self
    }

    /// Windows by the calendar; the period is zero then. Fixed window only, which is the default with them.
    pub fn calendar(mut self, calendar: Calendar) -> Self {
        self.calendar = Some(calendar);
        self
    }

    /// The same settings without a period, as windows by the calendar need.
    pub(super) fn without_period(self) -> Self {
        Self { period: Duration::ZERO, ..self }
    }

    fn chosen(&self) -> Algorithm {
        let of_calendar = self.calendar.as_ref().map(|_| Algorithm::FixedWindow);
        self.algorithm.or(of_calendar).unwrap_or_default()
    }

    /// The capacity of a bucket in units, 1 to [`MAX_UNITS`](Quota::MAX_UNITS); `limit` by default. Token and leaky
    /// bucket only.
    pub fn burst(mut self, units: u64) -> Self {
        self.burst = Some(units);
        self
    }

    /// The bucket gets this many tokens at a time, 1 to [`MAX_UNITS`](Quota::MAX_UNITS), instead of one by one. Token
    /// bucket only.
    pub fn step(mut self, units: u64) -> Self {
        self.step = Some(units);
        self
    }

    /// The number of sub-windows of the period, 1 to [`MAX_BUCKETS`](Quota::MAX_BUCKETS); 10 by default where the period
    /// divides by 10, otherwise 1. Sliding window only.
    pub fn buckets(mut self, buckets: u32) -> Self {
        self.buckets = Some(buckets);
        self
    }

    /// Whether windows start at multiples of the period since the Unix epoch. Fixed window only.
    pub fn aligned(mut self, aligned: bool) -> Self {
        self.aligned = aligned;
        self
    }

    /// Whether denied requests are charged too, so that a client that keeps asking stays denied.
    pub fn count_denied(mut self, count_denied: bool) -> Self {
        self.count_denied = count_denied;
        self
    }

    /// Soft throttling: this many units beyond the limit, or beyond the burst of the two buckets, are admitted as well, and
    /// each decision says how many of them are in use. 0, which is the default, to [`MAX_UNITS`](Quota::MAX_UNITS).
    pub fn excess(mut self, units: u64) -> Self {
        self.excess = Some(Excess::Units(units));
        self
    }

    /// The excess as a part of the limit, 0 to 100 percent; rounded down to whole units.
    pub fn excess_percent(mut self, percent: u64) -> Self {
        self.excess = Some(Excess::Percent(percent));
        self
    }

    /// Checks every bound and makes the quota.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with the setting, its value and what is allowed.
    pub fn build(self) -> Result<Quota, Error> {
        self.check().map_err(|refusal| Error::invalid_argument(refusal.message))
    }

    pub(crate) fn check(&self) -> Result<Quota, Refusal> {
        let limit = self.limit;
        if limit > Quota::MAX_UNITS {
            return Err(refuse("limit", limit, "0 to 1000000000000 units"));
        }
        let algorithm = self.chosen();
        if algorithm == Algorithm::Concurrency {
            return self.check_concurrency();
        }
        let period_us = match &self.calendar {
            Some(calendar) => self.checked_calendar(calendar)?,
            None => self.checked_period_us()?,
        };
        let is_token_bucket = algorithm == Algorithm::TokenBucket;
        let burst = self.checked_units("burst", self.burst, algorithm.is_bucket(), "the two buckets")?;
        let step = self.checked_units("step", self.step, is_token_bucket, "token_bucket")?;
        let buckets = self.checked_buckets(period_us)?;
        if self.aligned && algorithm != Algorithm::FixedWindow {
            return Err(self.misplaced("aligned", "fixed_window"));
        }
        let excess = self.checked_excess()?;
        let mut quota = Quota {
            algorithm,
            limit,
            period_us,
            capacity: burst.unwrap_or(limit) + excess,
            excess,
            step: step.unwrap_or(0),
            buckets: buckets.unwrap_or(0),
            aligned: self.aligned,
            calendar: self.calendar.clone(),
            count_denied: self.count_denied,
            tick_us: 1,
            is_grouped: false,
        };
        quota.tick_us = checked_tick_us(&quota)?;
        Ok(quota)
    }

    /// Concurrency has a limit and nothing else.
    fn check_concurrency(&self) -> Result<Quota, Refusal> {
        let settings = [
            ("period", !self.period.is_zero() || self.calendar.is_some()),
            ("burst", self.burst.is_some()),
            ("step", self.step.is_some()),
            ("buckets", self.buckets.is_some()),
            ("aligned", self.aligned),
            ("count_denied", self.count_denied),
            ("excess", self.excess.is_some()),
        ];
        if let Some((setting, _)) = settings.into_iter().find(|(_, is_given)| *is_given) {
            let message = format!(
                "{setting} does not belong to concurrency, which has a limit only, such as {} concurrent: leave it out or \
                 change the algorithm",
                self.limit
            );
            return Err(Refusal { setting, message });
        }
        Ok(Quota {
            algorithm: Algorithm::Concurrency,
            limit: self.limit,
            period_us: 0,
            capacity: self.limit,
            excess: 0,
            step: 0,
            buckets: 0,
            aligned: false,
            calendar: None,
            count_denied: false,
            tick_us: 1,
            is_grouped: false,
        })
    }

    /// Only a fixed window counts by the calendar.
    fn checked_calendar(&self, calendar: &Calendar) -> Result<u64, Refusal> {
        let algorithm = self.chosen();
        if algorithm != Algorithm::FixedWindow {
            let message = format!(
                "a {algorithm} has no windows by the calendar: use fixed_window, or a period of one length, such as 30d"
            );
            return Err(Refusal { setting: "algorithm", message });
        }
        if self.aligned {
            let message = "aligned belongs to periods of one length, and windows by the calendar start with their unit: leave it out";
            return Err(Refusal { setting: "aligned", message: message.to_owned() });
        }
        if !self.period.is_zero() {
            let message = format!(
                "period is {:?}, and the windows of {calendar} have no period: leave one of them out",
                self.period
            );
            return Err(Refusal { setting: "period", message });
        }
        Ok(calendar.shortest_us())
    }

    fn checked_period_us(&self) -> Result<u64, Refusal> {
        let allowed = "whole microseconds from 1 ms to 366 days";
        let period_us = micros(self.period);
        let is_good = (Quota::MIN_PERIOD..=Quota::MAX_PERIOD).contains(&self.period)
            && Duration::from_micros(period_us) == self.period;
        if is_good {
            Ok(period_us)
        } else {
            Err(refuse("period", format_args!("{:?}", self.period), allowed))
        }
    }

    fn checked_units(
        &self,
        setting: &'static str,
        units: Option<u64>,
        belongs: bool,
        to: &str,
    ) -> Result<Option<u64>, Refusal> {
        match units {
            Some(_) if !belongs => Err(self.misplaced(setting, to)),
            Some(units) if !(1..=Quota::MAX_UNITS).contains(&units) => {
                Err(refuse(setting, units, "1 to 1000000000000 units"))
            }
            units => Ok(units),
        }
    }

    fn checked_buckets(&self, period_us: u64) -> Result<Option<u32>, Refusal> {
        match self.buckets {
            Some(_) if self.chosen() != Algorithm::SlidingWindow => {
                Err(self.misplaced("buckets", "sliding_window"))
            }
            Some(buckets) if !(1..=Quota::MAX_BUCKETS).contains(&buckets) => {
                Err(refuse("buckets", buckets, "1 to 60 sub-windows"))
            }
            Some(buckets) if !period_us.is_multiple_of(u64::from(buckets)) => {
                Err(refuse("buckets", buckets, &format!("a divisor of the period, which is {period_us} us")))
            }
            None if self.chosen() == Algorithm::SlidingWindow => Ok(Some(default_buckets(period_us))),
            buckets => Ok(buckets),
        }
    }

    fn checked_excess(&self) -> Result<u64, Refusal> {
        let limit = self.limit;
        match self.excess {
            None => Ok(0),
            Some(Excess::Units(units)) if units > Quota::MAX_UNITS => {
                Err(refuse("excess", units, "0 to 1000000000000 units"))
            }
            Some(Excess::Units(units)) => Ok(units),
            Some(Excess::Percent(percent)) if percent > 100 => {
                Err(refuse("excess", format_args!("{percent}%"), "0% to 100% of the limit"))
            }
            // At most 10^12 * 100, which fits.
            Some(Excess::Percent(percent)) => Ok(limit * percent / 100),
        }
    }

    fn misplaced(&self, setting: &'static str, to: &str) -> Refusal {
        let message = format!(
            "{setting} belongs to {to} only, and this quota is a {}: leave it out or change the algorithm",
            self.chosen()
        );
        Refusal { setting, message }
    }
}

/// 10 sub-windows where the period divides by 10, otherwise 1.
pub(crate) fn default_buckets(period_us: u64) -> u32 {
    if period_us.is_multiple_of(10) { 10 } else { 1 }
}

/// The tick in which the quota can count exactly. Every wait, in whole ticks, must fit 63 bits of microseconds. A stepped bucket counts
/// microseconds; its refill interval must be whole, and its longest wait must stay exact too.
fn checked_tick_us(quota: &Quota) -> Result<u64, Refusal> {
    if quota.limit == 0 {
        return Ok(1);
    }
    let tick = match (quota.algorithm, quota.step) {
        (Algorithm::TokenBucket, 1..) => return checked_step(quota).map(|()| 1),
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, _) => {
            tick::of_bucket(quota.limit, quota.period_us, quota.capacity)
                .filter(|tick| longest_wait_us(quota).next_multiple_of(u128::from(*tick)) < 1 << 63)
        }
        (Algorithm::SlidingWindow, _) => {
            tick::of_sliding_window(quota.capacity, quota.period_us / u64::from(quota.buckets))
        }
        (Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::Concurrency, _) => Some(1),
    };
    tick.ok_or_else(|| {
        let message = format!(
            "a {} of capacity {} with limit {} per {} us cannot be counted exactly: use a smaller limit or burst, \
             or a period with more factors of ten",
            quota.algorithm, quota.capacity, quota.limit, quota.period_us
        );
        Refusal { setting: "limit", message }
    })
}

/// How long a saturated bucket takes to become full.
fn longest_wait_us(quota: &Quota) -> u128 {
    let saturated = u128::from(tick::SATURATION) * u128::from(quota.capacity);
    (saturated * u128::from(quota.period_us)).div_ceil(u128::from(quota.limit))
}

fn checked_step(quota: &Quota) -> Result<(), Refusal> {
    let span = u128::from(quota.step) * u128::from(quota.period_us);
    if !span.is_multiple_of(u128::from(quota.limit)) {
        return Err(refuse(
            "step",
            quota.step,
            &format!(
                "a number for which step * period / limit is whole microseconds; here it is {span} / {}",
                quota.limit
            ),
        ));
    }
    let interval_us = span / u128::from(quota.limit);
    let steps = (u128::from(tick::SATURATION) * u128::from(quota.capacity)).div_ceil(u128::from(quota.step));
    if steps * interval_us > tick::MAX_EXACT {
        let message = format!(
            "a token_bucket of burst {} that gets {} every {interval_us} us could be in debt for longer than can be \
             counted exactly: use a smaller burst, a larger step or a shorter period",
            quota.capacity, quota.step
        );
        return Err(Refusal { setting: "step", message });
    }
    Ok(())
}

fn refuse(setting: &'static str, read: impl std::fmt::Display, allowed: &str) -> Refusal {
    Refusal { setting, message: format!("{setting} is {read}: allowed is {allowed}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn message(builder: QuotaBuilder) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn bounds_are_inclusive() {
        for limit in [0, 1, 1_000_000] {
            assert_eq!(Quota::builder(limit, SECOND).build().unwrap().limit(), limit);
        }
        for period in [Quota::MIN_PERIOD, Quota::MAX_PERIOD] {
            assert_eq!(Quota::builder(1, period).build().unwrap().period(), period);
        }
        let log = Quota::builder(Quota::MAX_UNITS, SECOND).algorithm(Algorithm::SlidingLog);
        assert_eq!(log.build().unwrap().capacity(), Quota::MAX_UNITS);
    }

    #[test]
    fn named_periods_are_as_long_as_they_say() {
        for (quota, text) in [
            (Quota::per_second(5), "5/second"),
            (Quota::per_minute(5), "5/minute"),
            (Quota::per_hour(5), "5/hour"),
        ] {
            assert_eq!(quota.unwrap(), text.parse().unwrap());
        }
    }

    #[test]
    fn bucket_whose_debt_would_last_too_long_is_refused() {
        for text in [
            "1/366d token_bucket burst=1000000000000",
            "1/366d leaky_bucket burst=1000000000000",
            "1/366d token_bucket step=1 burst=1000000000000",
        ] {
            let refused = text.parse::<Quota>().unwrap_err().to_string();
            assert!(refused.contains("use a smaller"), "{refused}");
        }
        // Eight times the burst may be in debt. A wait is less than 2^63 us, with steps at most 2^53 us.
        for (text, most, too_much) in [
            ("1/100d leaky_bucket", 100_000, 500_000),
            ("1/day token_bucket step=1", 13_000, 50_000),
            ("1/1048576us token_bucket step=1", 1 << 30, (1 << 30) + 1),
        ] {
            let is_counted = |burst: u64| format!("{text} burst={burst}").parse::<Quota>().is_ok();
            assert!(is_counted(most) && !is_counted(too_much), "{text}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_says_what_is_allowed() {
        let quota = || Quota::builder(10, SECOND);
        let bucket = || quota().algorithm(Algorithm::TokenBucket);
        assert_eq!(
            message(Quota::builder(Quota::MAX_UNITS + 1, SECOND)),
            "limit is 1000000000001: allowed is 0 to 1000000000000 units"
        );
        for period in
            [Duration::ZERO, Duration::from_nanos(1_000_001), Duration::from_micros(999), Duration::MAX]
        {
            assert!(message(Quota::builder(1, period)).contains("1 ms to 366 days"));
        }
        assert!(message(quota().buckets(0)).contains("1 to 60"));
        assert!(message(quota().buckets(61)).contains("1 to 60"));
        assert!(message(quota().buckets(7)).contains("a divisor of the period"));
        assert!(message(bucket().burst(0)).contains("1 to 1000000000000"));
        assert!(message(bucket().step(0)).contains("1 to 1000000000000"));
        assert!(message(bucket().step(Quota::MAX_UNITS + 1)).contains("1 to 1000000000000"));
        assert!(
            message(Quota::builder(7, SECOND).algorithm(Algorithm::TokenBucket).step(1)).contains("whole")
        );
    }

    #[test]
    fn a_setting_of_another_algorithm_is_refused() {
        let quota = || Quota::builder(10, SECOND);
        assert!(message(quota().burst(5)).contains("burst belongs to the two buckets only"));
        assert!(message(quota().aligned(true)).contains("aligned belongs to fixed_window only"));
        assert!(message(quota().algorithm(Algorithm::LeakyBucket).step(5)).contains("token_bucket only"));
        assert!(message(quota().algorithm(Algorithm::SlidingLog).buckets(5)).contains("sliding_window only"));
    }

    #[test]
    fn what_cannot_be_counted_exactly_is_refused() {
        let odd = Duration::from_micros(1_000_000_000_001);
        let bucket = Quota::builder(1, odd).algorithm(Algorithm::TokenBucket).burst(Quota::MAX_UNITS);
        assert!(message(bucket.clone()).contains("cannot be counted exactly"));
        assert!(message(bucket.step(1)).contains("could be in debt for longer"));
        let century = Quota::builder(1, Duration::from_secs(100 * 86_400)).algorithm(Algorithm::LeakyBucket);
        assert!(message(century.burst(Quota::MAX_UNITS)).contains("cannot be counted exactly"));
    }

    #[test]
    fn a_limit_of_nothing_has_no_capacity() {
        let quota =
            Quota::builder(0, SECOND).algorithm(Algorithm::TokenBucket).burst(5).step(3).build().unwrap();
        assert_eq!((quota.capacity(), quota.step()), (0, Some(3)));
    }
}
