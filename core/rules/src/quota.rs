//! A quota: an algorithm with its numbers. An invalid quota cannot be built.

mod admission;
mod builder;
pub mod calendar;
#[doc(hidden)]
pub mod shares;
mod text;
pub mod tick;

use std::time::Duration;

pub use builder::QuotaBuilder;
pub use calendar::Calendar;
pub use text::parse_duration;
pub use text::{parse_duration_us, parse_quotas};

use crate::error::Error;
use crate::groups::GroupTable;
use crate::names::named_enum;
use crate::quota::calendar::KeyOptions;

named_enum! {
    /// How a quota counts. The table in the [crate documentation](crate#how-much-each-algorithm-can-admit) says how much
    /// each admits at most over any span of real time.
    #[derive(Default)]
    Algorithm, parsed as "algorithm" {
        /// A bucket of `burst` tokens that is refilled continuously (GCRA), or `step` tokens at a time.
        TokenBucket = "token_bucket",
        /// A queue of `burst` places that drains at the rate; an admitted request gets the delay until its turn.
        LeakyBucket = "leaky_bucket",
        /// A counter that restarts every period.
        FixedWindow = "fixed_window",
        /// Counters of sub-windows, the oldest of which slides out in proportion. The default.
        #[default]
        SlidingWindow = "sliding_window",
        /// The time of every admitted unit.
        SlidingLog = "sliding_log",
        /// How many reservations of a key there are at a time, whatever their units. It has no period, and such a quota is only
        /// ever reserved.
        Concurrency = "concurrency",
    }
}

impl Algorithm {
    /// Whether `burst` applies: the two buckets have a capacity of their own.
    pub(crate) const fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }

    /// Whether it counts units: all but concurrency, which counts reservations.
    #[doc(hidden)]
    pub const fn is_rate(self) -> bool {
        !matches!(self, Self::Concurrency)
    }
}

/// At most `limit` units per `period`, counted by an [`Algorithm`].
///
/// A quota is made from text or with a [builder](Quota::builder); both refuse values that are out of bounds, so every
/// quota is valid. [`Display`](std::fmt::Display) prints the canonical text, which parses to an equal quota.
///
/// | number | bounds |
/// |---|---|
/// | limit | 0 to [`MAX_UNITS`](Self::MAX_UNITS) units; 0 admits nothing |
/// | period | [`MIN_PERIOD`](Self::MIN_PERIOD) to [`MAX_PERIOD`](Self::MAX_PERIOD), whole microseconds; none for concurrency |
/// | burst | 1 to [`MAX_UNITS`](Self::MAX_UNITS) units; the two buckets only; default `limit` |
/// | step | 1 to [`MAX_UNITS`](Self::MAX_UNITS) units; token bucket only; `step * period / limit` whole microseconds |
/// | excess | 0 to 1,000,000,000,000 units, or 0 to 100 % of `limit` rounded down; default 0 |
/// | buckets | 1 to [`MAX_BUCKETS`](Self::MAX_BUCKETS), dividing the period; sliding window only; default 10 where the period divides by 10, otherwise 1 |
///
/// ```
/// use polylimit::quota::Algorithm;
/// use polylimit::Quota;
///
/// let quota: Quota = "10/s token_bucket burst=20".parse()?;
/// assert_eq!((quota.algorithm(), quota.limit(), quota.capacity()), (Algorithm::TokenBucket, 10, 20));
/// assert_eq!(quota.to_string(), "10/second token_bucket burst=20");
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    algorithm: Algorithm,
    limit: u64,
    period_us: u64,
    /// `burst` of the two buckets, `limit` of the windows; plus `excess`.
    capacity: u64,
    /// The part of the capacity above the limit or burst.
    excess: u64,
    /// 0 for a bucket that is refilled continuously and for every other algorithm.
    step: u64,
    /// 0 for every algorithm but the sliding window.
    buckets: u32,
    aligned: bool,
    /// The windows of a fixed window by the calendar.
    calendar: Option<Calendar>,
    count_denied: bool,
    /// Follows from the other numbers; see [`tick`].
    tick_us: u64,
    /// Whether the groups of its policy share it. Its state is another one then.
    is_grouped: bool,
}

impl Quota {
    /// The largest limit, burst, step and cost: 10^12 units.
    pub const MAX_UNITS: u64 = 1_000_000_000_000;
    /// The shortest period: one millisecond.
    pub const MIN_PERIOD: Duration = Duration::from_millis(1);
    /// The longest period: 366 days.
    pub const MAX_PERIOD: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    /// The most sub-windows of a sliding window.
    pub const MAX_BUCKETS: u32 = 60;

    /// Starts a quota of `limit` units per `period`; a sliding window by default.
    pub fn builder(limit: u64, period: Duration) -> QuotaBuilder {
        QuotaBuilder::new(limit, period)
    }

    /// At most `limit` reservations of a key at a time, such as `20 concurrent`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the limit is above [`MAX_UNITS`](Self::MAX_UNITS).
    pub fn concurrent(limit: u64) -> Result<Self, Error> {
        Self::builder(limit, Duration::ZERO).algorithm(Algorithm::Concurrency).build()
    }

    /// `limit` units per second in a sliding window of 10 sub-windows.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the limit is above [`MAX_UNITS`](Self::MAX_UNITS).
    pub fn per_second(limit: u64) -> Result<Self, Error> {
        Self::builder(limit, Duration::from_secs(1)).build()
    }

    /// `limit` units per minute in a sliding window of 10 sub-windows.
    ///
    /// # Errors
    /// As [`per_second`](Self::per_second).
    pub fn per_minute(limit: u64) -> Result<Self, Error> {
        Self::builder(limit, Duration::from_secs(60)).build()
    }

    /// `limit` units per hour in a sliding window of 10 sub-windows.
    ///
    /// # Errors
    /// As [`per_second`](Self::per_second).
    pub fn per_hour(limit: u64) -> Result<Self, Error> {
        Self::builder(limit, Duration::from_secs(60 * 60)).build()
    }

    /// The algorithm by which this quota counts.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The limit, in units per period; in reservations for concurrency.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The period, in whole microseconds; 0 for concurrency, which has none. By the calendar, no window is shorter than this.
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// The most units that can be spent at once: the burst of the two buckets or the limit of the windows, plus the
    /// excess; 0 when the limit is 0.
    pub fn capacity(&self) -> u64 {
        if self.limit == 0 { 0 } else { self.capacity }
    }

    /// The units beyond the limit, or beyond the burst of the two buckets, that are admitted all the same; decisions say
    /// how many of them are in use (`over`). 0 by default.
    pub fn excess(&self) -> u64 {
        self.excess
    }

    /// What clients see as the limit: the capacity without the excess; 0 when the limit is 0.
    #[doc(hidden)]
    pub fn regular_capacity(&self) -> u64 {
        self.capacity() - self.excess
    }

    /// How many tokens a stepped token bucket gets at a time; `None` when it is refilled continuously.
    pub fn step(&self) -> Option<u64> {
        (self.step > 0).then_some(self.step)
    }

    /// How many sub-windows a sliding window has; `None` for every other algorithm.
    pub fn buckets(&self) -> Option<u32> {
        (self.buckets > 0).then_some(self.buckets)
    }

    /// Whether a fixed window starts at multiples of the period since the Unix epoch.
    pub fn aligned(&self) -> bool {
        self.aligned
    }

    /// The windows of a fixed window by the calendar; `None` for a period of one length.
    pub fn calendar(&self) -> Option<&Calendar> {
        self.calendar.as_ref()
    }

    /// Whether denied requests are charged too.
    pub fn count_denied(&self) -> bool {
        self.count_denied
    }

    #[doc(hidden)]
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    /// How often a stepped token bucket gets its tokens, in whole microseconds: at most 2^53, checked when it is made. 0
    /// for every other quota.
    #[doc(hidden)]
    pub fn step_interval_us(&self) -> u64 {
        let span = u128::from(self.step) * u128::from(self.period_us);
        span.checked_div(u128::from(self.limit)).and_then(|us| u64::try_from(us).ok()).unwrap_or(0)
    }

    /// The unit of time in which this quota counts, in microseconds.
    #[doc(hidden)]
    pub fn tick_us(&self) -> u64 {
        self.tick_us
    }

    /// Whether groups share it.
    #[doc(hidden)]
    pub fn is_grouped(&self) -> bool {
        self.is_grouped
    }

    /// The quota as the groups of its policy share it.
    ///
    /// # Errors
    /// Invalid argument: its algorithm or a setting excludes groups, or it cannot be divided among these.
    pub(crate) fn grouped(&self, table: &GroupTable) -> Result<Self, Error> {
        let is_bucket = self.algorithm == Algorithm::TokenBucket && self.step == 0;
        if !(is_bucket || self.algorithm == Algorithm::Concurrency) || self.excess > 0 || self.count_denied {
            return Err(Error::invalid_argument(format!(
                "groups cannot share {self}: allowed are token_bucket without step, excess and count_denied, and concurrent"
            )));
        }
        let tick_us = if is_bucket { shares::tick_of(self) } else { Some(1) };
        let Some(tick_us) = tick_us else {
            return Err(Error::invalid_argument(format!(
                "groups cannot share {self} exactly: use a smaller limit or burst, or a period with more factors of ten"
            )));
        };
        shares::check(self, table)?;
        Ok(Self { tick_us, is_grouped: true, ..self.clone() })
    }

    /// The quota with the calendar of a key, if it is one by the calendar.
    pub(crate) fn of_key(&self, own: &KeyOptions) -> Self {
        let Some(calendar) = self.calendar.as_ref().map(|calendar| calendar.of_key(own)) else {
            return self.clone();
        };
        Self { period_us: calendar.shortest_us(), calendar: Some(calendar), ..self.clone() }
    }

    /// Algorithm, period or calendar, step and buckets, and whether groups share it. They identify the quota's state within a policy: while they stay the same,
    /// changed numbers keep the use.
    #[doc(hidden)]
    pub fn identity(&self) -> (Algorithm, u64, Option<&Calendar>, u64, u32, bool) {
        (self.algorithm, self.period_us, self.calendar.as_ref(), self.step, self.buckets, self.is_grouped)
    }
}
