//! The wall clock: microseconds since the Unix epoch.

mod system;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::counter::CounterClock;
#[cfg(feature = "testing")]
use crate::monotonic::{self, Instant};
use polylimit_rules::error::Error;
use polylimit_rules::units::{MAX_US, micros};

/// The clock of a limiter that decides in this process.
///
/// ```
/// use polylimit::clock::{Clock, ManualClock};
/// use polylimit::{Limiter, Policy};
///
/// let clock = ManualClock::new(1_700_000_000_000_000)?;
/// let limiter = Limiter::builder().clock(clock.clone()).policy(Policy::parse("api", "1/s")?).build()?;
/// # let _: (Limiter, Clock) = (limiter, clock.into());
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System(&'static CounterClock),
    Coarse,
    Manual(ManualClock),
    /// The time in microseconds at a moment, from which the clock goes on with the monotonic time.
    #[cfg(feature = "testing")]
    Paused(u64, Instant),
}

impl Clock {
    /// The system clock in microseconds, within one or two microseconds of the operating system's own answer. The
    /// default.
    pub fn system() -> Self {
        Self(Source::System(system::counter_clock()))
    }

    /// The system clock as of the kernel's last tick: several times as fast to read, and up to 4 ms late on Linux;
    /// elsewhere it is the system clock. Decisions are exact for the time that it shows.
    pub fn coarse() -> Self {
        Self(Source::Coarse)
    }

    /// A clock that shows `now_us` now and goes on with the time of the runtime, which a test has paused.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn of_paused_time(now_us: u64) -> Self {
        Self(Source::Paused(now_us, monotonic::now()))
    }

    /// Microseconds since the Unix epoch.
    #[inline]
    #[doc(hidden)]
    pub fn now_us(&self) -> u64 {
        match &self.0 {
            Source::System(clock) => clock.now_us(),
            Source::Coarse => system::coarse_now_us(),
            Source::Manual(clock) => clock.now_us(),
            #[cfg(feature = "testing")]
            Source::Paused(at_us, at) => {
                at_us.saturating_add(micros(monotonic::now().saturating_duration_since(*at))).min(MAX_US)
            }
        }
    }

    /// The manual clock, if it is one.
    #[doc(hidden)]
    pub fn manual(&self) -> Option<&ManualClock> {
        match &self.0 {
            Source::Manual(clock) => Some(clock),
            Source::System(_) | Source::Coarse => None,
            #[cfg(feature = "testing")]
            Source::Paused(..) => None,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self(Source::Manual(clock))
    }
}

/// A clock for tests: it stands still until it is set or advanced, and it may go back. Clones show the same time.
///
/// ```
/// use std::time::Duration;
/// use polylimit::clock::ManualClock;
///
/// let clock = ManualClock::new(1_700_000_000_000_000)?;
/// clock.advance(Duration::from_secs(60))?;
/// assert_eq!(clock.now_us(), 1_700_000_060_000_000);
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    now_us: AtomicU64,
    changed: Notify,
}

impl ManualClock {
    /// The latest time that this clock can show, in microseconds since the Unix epoch: 2^53 - 1, in the year 2255.
    pub const MAX_US: u64 = MAX_US;

    /// A clock that shows `now_us`, in microseconds since the Unix epoch.
    ///
    /// # Errors
    /// `InvalidArgument` when `now_us` is beyond [`MAX_US`](Self::MAX_US).
    pub fn new(now_us: u64) -> Result<Self, Error> {
        let shared = Shared { now_us: AtomicU64::new(checked(now_us)?), changed: Notify::new() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The time that the clock shows, in microseconds since the Unix epoch.
    pub fn now_us(&self) -> u64 {
        self.shared.now_us.load(Ordering::Acquire)
    }

    /// Sets the time, in microseconds since the Unix epoch; it may go back.
    ///
    /// # Errors
    /// As [`new`](Self::new); then the time stays as it was.
    pub fn set(&self, now_us: u64) -> Result<(), Error> {
        self.shared.now_us.store(checked(now_us)?, Ordering::Release);
        self.shared.changed.notify_waiters();
        Ok(())
    }

    /// Moves the time forward, by whole microseconds.
    ///
    /// # Errors
    /// As [`new`](Self::new); then the time stays as it was.
    pub fn advance(&self, by: Duration) -> Result<(), Error> {
        let by_us = micros(by);
        let advanced = |now_us: u64| now_us.checked_add(by_us).filter(|later| *later <= MAX_US);
        self.shared.now_us.fetch_update(Ordering::AcqRel, Ordering::Acquire, advanced).map_err(beyond)?;
        self.shared.changed.notify_waiters();
        Ok(())
    }

    /// Waits until the clock shows `target_us` or a later time.
    #[doc(hidden)]
    pub async fn reached(&self, target_us: u64) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // The waiter is registered before it reads the time, so that it misses no change.
            changed.as_mut().enable();
            if self.now_us() >= target_us {
                return;
            }
            changed.await;
        }
    }
}

fn checked(now_us: u64) -> Result<u64, Error> {
    if now_us <= MAX_US { Ok(now_us) } else { Err(beyond(now_us)) }
}

fn beyond(read_us: u64) -> Error {
    Error::invalid_argument(format!(
        "manual clock at {read_us} us: it can show 0 to {MAX_US} us since the Unix epoch, which is the year 2255"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_what_it_was_told() {
        let clock = ManualClock::new(5).unwrap();
        clock.clone().set(3).unwrap();
        assert_eq!(clock.now_us(), 3);
        clock.advance(Duration::from_nanos(2_999)).unwrap();
        assert_eq!(clock.now_us(), 5);
    }

    #[test]
    fn it_refuses_what_it_cannot_show_and_stays() {
        let clock = ManualClock::new(ManualClock::MAX_US).unwrap();
        for refused in
            [clock.set(MAX_US + 1), clock.advance(Duration::from_micros(1)), clock.advance(Duration::MAX)]
        {
            assert!(refused.unwrap_err().to_string().contains("the year 2255"));
        }
        assert_eq!(clock.now_us(), MAX_US);
        ManualClock::new(u64::MAX).unwrap_err();
    }
}
