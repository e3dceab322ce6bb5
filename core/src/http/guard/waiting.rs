//! What a check that holds its request has: how long, and its place among those that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::limiter::deadline::Deadline;
use polylimit_rules::error::{Error, excerpt};

/// How long requests may be held, and how many at the same time.
pub(super) struct WaitOptions {
    /// Zero where requests are not held.
    pub(super) wait: Duration,
    pub(super) max_waiting: u32,
}

impl Default for WaitOptions {
    fn default() -> Self {
        Self { wait: Duration::ZERO, max_waiting: Self::DEFAULT_MAX_WAITING }
    }
}

impl WaitOptions {
    pub(super) const MAX_WAIT: Duration = Duration::from_mins(1);
    pub(super) const DEFAULT_MAX_WAITING: u32 = 100;
    pub(super) const MOST_WAITING: u32 = 1_000_000;

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.wait > Self::MAX_WAIT {
            let wait = excerpt(&format!("{:?}", self.wait));
            return Err(Error::invalid_argument(format!(
                "wait is {wait}: allowed is 0 to 60 s, in which the connection of a waiting request stays open"
            )));
        }
        if !(1..=Self::MOST_WAITING).contains(&self.max_waiting) {
            return Err(Error::invalid_argument(format!(
                "max_waiting is {}: allowed is 1 to {}",
                self.max_waiting,
                Self::MOST_WAITING
            )));
        }
        Ok(())
    }
}

/// A check that holds its request, or has held it.
pub(super) struct Waiting {
    /// When the request has to be decided.
    pub(super) deadline: Deadline,
    /// How long it is held next, in microseconds; 0 when it is not held any more.
    pub(super) for_us: u64,
    pub(super) then: Then,
    pub(super) _place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The store decides again.
    Ask,
    /// It is the turn of a request that a leaky bucket has admitted.
    Proceed,
}

impl Waiting {
    pub(super) fn is_held(&self) -> bool {
        self.for_us > 0
    }
}

/// The number of requests that wait, of all clones of a guard.
#[derive(Clone, Default)]
pub(super) struct WaitingCount(Arc<AtomicU32>);

/// One of the places for requests that wait, until it is dropped.
pub(super) struct Place(WaitingCount);

impl WaitingCount {
    pub(super) fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes a place, of which there are `most`; `None` where all are taken.
    pub(super) fn place(&self, most: u32) -> Option<Place> {
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < most).then_some(count + 1));
        taken.is_ok().then(|| Place(self.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
