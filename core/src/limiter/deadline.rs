//! A time until which a caller or a task waits, by the limiter's clock.

use std::time::Duration;

use polylimit_rules::error::Error;
use polylimit_rules::units::micros;
use polylimit_runtime::backoff::part_of;
use polylimit_runtime::clock::{Clock, ManualClock};
use polylimit_runtime::monotonic::{self, Instant};
use polylimit_runtime::park;
use polylimit_runtime::sleep::{sleep, sleep_until};

/// The longest timeout; longer ones are truncated to these 100 years.
const MAX_WAIT: Duration = Duration::from_secs(100 * 366 * 86_400);

/// When a caller stops waiting. With the system clock this is monotonic time, so that a step of the system clock makes no
/// caller wait longer.
#[derive(Clone, Debug)]
pub(crate) enum Deadline {
    Monotonic(Instant),
    Manual(ManualClock, u64),
}

/// When a store was called, by a manual clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedAt(u64);

impl Deadline {
    pub(crate) fn after(timeout: Duration, clock: &Clock) -> Self {
        let timeout = timeout.min(MAX_WAIT);
        match clock.manual() {
            None => Self::Monotonic(monotonic::now() + timeout),
            Some(clock) => Self::Manual(clock.clone(), clock.now_us().saturating_add(micros(timeout))),
        }
    }

    /// The time until the deadline, in microseconds.
    pub(crate) fn left_us(&self) -> u64 {
        match self {
            Self::Monotonic(at) => micros(at.saturating_duration_since(monotonic::now())),
            Self::Manual(clock, at_us) => at_us.saturating_sub(clock.now_us()),
        }
    }

    /// A random wait that keeps callers of several processes apart: at most 1 ms and at most `most_us`; 0 with a manual
    /// clock.
    pub(crate) fn spread_us(&self, most_us: u64) -> u64 {
        const SPREAD_US: u64 = 1_000;
        match self {
            Self::Monotonic(_) => micros(part_of(Duration::from_micros(most_us.min(SPREAD_US)))),
            Self::Manual(..) => 0,
        }
    }

    /// Waits until the deadline passes.
    pub(crate) async fn reached(&self) {
        match self {
            Self::Monotonic(at) => sleep_until(*at).await,
            Self::Manual(clock, at_us) => clock.reached(*at_us).await,
        }
    }

    /// The time of a manual clock now, before a store is called for the time to wait: the wait counts from it, since
    /// the program may advance the clock before the answer arrives. By the system clock a wait counts from the answer.
    pub(crate) fn asked_at(&self) -> AskedAt {
        match self {
            Self::Monotonic(_) => AskedAt(0),
            Self::Manual(clock, _) => AskedAt(clock.now_us()),
        }
    }

    /// Waits for a duration in microseconds, by the same clock.
    pub(crate) async fn sleep(&self, asked_at: AskedAt, for_us: u64) {
        match self {
            Self::Monotonic(_) => sleep(Duration::from_micros(for_us)).await,
            // A wait beyond what the clock can show never ends.
            Self::Manual(clock, _) => clock.reached(asked_at.0.saturating_add(for_us)).await,
        }
    }

    /// Whether this caller can wait: with the system clock it needs tokio's timer, or a thread that keeps the time itself.
    pub(crate) fn can_wait(&self) -> Result<(), Error> {
        match self {
            Self::Monotonic(_) if park::is_waiting() => Ok(()),
            Self::Monotonic(_) => in_tokio("acquire"),
            Self::Manual(..) => Ok(()),
        }
    }
}

/// Fails outside of a tokio runtime; the message names the operation.
pub(crate) fn in_tokio(operation: &str) -> Result<(), Error> {
    tokio::runtime::Handle::try_current().map(drop).map_err(|_| {
        Error::invalid_argument(format!(
            "{operation} has to wait and there is no tokio runtime here: call it from one, or use \
             polylimit::blocking::Limiter"
        ))
    })
}
