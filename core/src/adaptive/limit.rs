//! The limit.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::adaptive::call::Call;
use crate::adaptive::shared::Shared;

/// How many calls may be in flight in this process, by latency and errors; see the [module](crate::adaptive). Clones share everything.
#[derive(Clone)]
pub struct AdaptiveLimit {
    pub(super) shared: Arc<Shared>,
}

impl AdaptiveLimit {
    /// The highest upper bound: 1,000,000 calls.
    pub const MAX: u32 = 1_000_000;

    /// Begins a call, unless the limit's number of calls is in flight.
    pub fn try_begin(&self) -> Option<Call> {
        self.shared.enter().then(|| Call::new(Arc::clone(&self.shared)))
    }

    /// The current limit, N.
    pub fn limit(&self) -> u32 {
        self.shared.limit.load(Ordering::Acquire)
    }

    /// The calls that have begun and not ended. More than the limit only for as long as calls are running that began before it shrank.
    pub fn in_flight(&self) -> u32 {
        self.shared.in_flight.load(Ordering::Acquire)
    }
}

impl fmt::Debug for AdaptiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimit")
            .field("bounds", &(self.shared.min..=self.shared.max))
            .field("limit", &self.limit())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
