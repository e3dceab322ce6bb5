//! The settings of a limit, and their bounds.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use parking_lot::Mutex;

use crate::adaptive::aimd::Aimd;
use crate::adaptive::algorithm::Algorithm;
use crate::adaptive::gradient::Gradient;
use crate::adaptive::limit::AdaptiveLimit;
use crate::adaptive::notification::Notification;
use crate::adaptive::shared::{Control, Shared};
use crate::adaptive::thousandths::MILLI;
use crate::adaptive::time::Time;
use crate::adaptive::window::Window;
use polylimit_rules::error::Error;
use polylimit_rules::units::micros;
use polylimit_runtime::clock::Clock;

const WINDOWS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);
const LATENCIES: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(86_400);

/// The settings of an [`AdaptiveLimit`] before they are checked.
#[must_use = "a builder makes a limit only when `build` is called"]
pub struct AdaptiveLimitBuilder {
    min: u32,
    max: u32,
    initial: Option<u32>,
    /// The latency of AIMD; the gradient without one.
    latency: Option<Duration>,
    window: Duration,
    tolerated_percent: u32,
    clock: Clock,
    hook: Option<Box<dyn Fn(u32) + Send + Sync>>,
}

impl AdaptiveLimit {
    /// Starts a limit between two bounds, which it never leaves. It begins with the lower one.
    pub fn builder(bounds: RangeInclusive<u32>) -> AdaptiveLimitBuilder {
        let (min, max) = bounds.into_inner();
        AdaptiveLimitBuilder {
            min,
            max,
            initial: None,
            latency: None,
            window: Duration::from_millis(100),
            tolerated_percent: 5,
            clock: Clock::default(),
            hook: None,
        }
    }
}

impl AdaptiveLimitBuilder {
    /// Follows the gradient of latency: the default. It needs no number, and is wrong where the latency of calls changes for
    /// reasons other than load, such as a mix of requests that changes within seconds.
    pub fn gradient(mut self) -> Self {
        self.latency = None;
        self
    }

    /// Additive increase, multiplicative decrease: calls that take longer than `latency` count as failed. A latency of about three
    /// times the usual one lets a queue form that keeps all workers busy; the deadline of clients is too long.
    pub fn aimd(mut self, latency: Duration) -> Self {
        self.latency = Some(latency);
        self
    }

    /// The limit to begin with: the lower bound, unless set. From a high one a new process may be flooded before it has measured
    /// anything.
    pub fn initial(mut self, limit: u32) -> Self {
        self.initial = Some(limit);
        self
    }

    /// How long calls are counted until the limit may change: 100 ms, unless set, and at least 10 calls.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// The failures in a window that are no sign of overload, in percent of its calls: 5, unless set.
    pub fn tolerated_failures(mut self, percent: u32) -> Self {
        self.tolerated_percent = percent;
        self
    }

    /// The clock that measures calls, for tests: a [`ManualClock`](crate::clock::ManualClock). With any other, calls are measured by
    /// the monotonic time, which no correction of the wall clock changes.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// Calls `hook` with the new limit after a window has changed it; in a thread that ended a call, outside of locks, and never in two at
    /// the same time. If the limit changes while the hook runs, it is called once more with the newest.
    ///
    /// The hook sets what depends on N, such as the quotas of a policy:
    ///
    /// ```
    /// use polylimit::adaptive::AdaptiveLimit;
    /// use polylimit::{Limiter, Policy};
    ///
    /// let workers = |n: u32| Policy::parse("workers", &format!("{n} concurrent"));
    /// let limiter = Limiter::builder().policy(workers(8)?).build()?;
    /// let of_hook = limiter.clone();
    /// let limit = AdaptiveLimit::builder(8..=200)
    ///     .on_change(move |n| {
    ///         if let Err(error) = workers(n).and_then(|policy| of_hook.set_policy(policy)) {
    ///             eprintln!("the limit of {n} workers: {error}");
    ///         }
    ///     })
    ///     .build()?;
    /// # let _ = limit;
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn on_change(mut self, hook: impl Fn(u32) + Send + Sync + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Makes the limit.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the bounds are not 1 to [`AdaptiveLimit::MAX`] in this order, the
    /// initial limit is not between them, the window is not 1 ms to 1 h, the latency of AIMD is not 1 us to 1 day, or the
    /// tolerated failures are more than 50 %.
    pub fn build(self) -> Result<AdaptiveLimit, Error> {
        self.check()?;
        let limit = self.initial.unwrap_or(self.min);
        let time = Time::of(&self.clock);
        let algorithm = match self.latency {
            Some(latency) => Algorithm::Aimd(Aimd { longest_us: micros(latency) }),
            None => Algorithm::Gradient(Gradient::default()),
        };
        let window = Window::new(micros(self.window), u64::from(self.tolerated_percent), time.now_us());
        let shared = Shared {
            min: self.min,
            max: self.max,
            limit: AtomicU32::new(limit),
            in_flight: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            control: Mutex::new(Control { window, algorithm, limit_milli: u64::from(limit) * MILLI }),
            time,
            notification: self.hook.map(|hook| Notification::new(hook, limit)),
        };
        Ok(AdaptiveLimit { shared: Arc::new(shared) })
    }

    fn check(&self) -> Result<(), Error> {
        let Self { min, max, tolerated_percent, window, .. } = self;
        let problem = if *min == 0 || max < min || *max > AdaptiveLimit::MAX {
            let most = AdaptiveLimit::MAX;
            format!("bounds {min}..={max}: they are 1 to {most}, the lower one first")
        } else if let Some(initial) = self.initial.filter(|initial| !(min..=max).contains(&initial)) {
            format!("initial limit {initial}: it is within the bounds, {min} to {max}")
        } else if !WINDOWS.contains(window) {
            format!("window {window:?}: it is 1 ms to 1 h")
        } else if let Some(latency) = self.latency.filter(|latency| !LATENCIES.contains(latency)) {
            format!("latency {latency:?}: calls that take longer count as failed, so it is 1 us to 1 day")
        } else if *tolerated_percent > 50 {
            format!("tolerated failures {tolerated_percent} %: they are 0 to 50 % of the calls")
        } else {
            return Ok(());
        };
        Err(Error::invalid_argument(format!("adaptive limit with {problem}")))
    }
}

impl fmt::Debug for AdaptiveLimitBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimitBuilder")
            .field("bounds", &(self.min..=self.max))
            .field("initial", &self.initial)
            .field("latency", &self.latency)
            .field("window", &self.window)
            .field("tolerated_percent", &self.tolerated_percent)
            .finish_non_exhaustive()
    }
}
