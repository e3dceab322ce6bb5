//! The wall clock: microseconds since the Unix epoch.

mod manual;
mod system;

pub use manual::ManualClock;

/// The clock of a limiter that decides in this process.
///
/// ```
/// use polylimit::{Clock, Limiter, ManualClock, Policy};
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
    System(&'static system::Counted),
    Coarse,
    Manual(ManualClock),
}

impl Clock {
    /// The system clock in microseconds, within one or two microseconds of the operating system's own answer. The
    /// default.
    pub fn system() -> Self {
        Self(Source::System(system::counted()))
    }

    /// The system clock as of the kernel's last tick: several times as fast to read, and up to 4 ms late on Linux;
    /// elsewhere it is the system clock. Decisions are exact for the time that it shows.
    pub fn coarse() -> Self {
        Self(Source::Coarse)
    }

    /// Microseconds since the Unix epoch.
    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        match &self.0 {
            Source::System(clock) => clock.now_us(),
            Source::Coarse => system::coarse_now_us(),
            Source::Manual(clock) => clock.now_us(),
        }
    }

    /// The manual clock, if it is one.
    pub(crate) fn manual(&self) -> Option<&ManualClock> {
        match &self.0 {
            Source::Manual(clock) => Some(clock),
            Source::System(_) | Source::Coarse => None,
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
