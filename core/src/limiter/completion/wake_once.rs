//! Wakes a loop once, however much it is woken for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Wake;

/// Wakes the loop once until it has come.
pub(crate) struct WakeOnce {
    /// [`WOKEN`], [`POLLING`] or both.
    state: AtomicU8,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The loop was woken and has not come yet; while it polls, that there is something to poll again.
const WOKEN: u8 = 1;
/// What can go on is being polled: who wakes meanwhile is heard without a call to the loop.
const POLLING: u8 = 2;
impl Wake for WakeOnce {
    fn wake(self: Arc<Self>) {
        self.wake_once();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_once();
    }
}

impl WakeOnce {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { state: AtomicU8::new(0), wake: Box::new(wake) }
    }

    pub(crate) fn wake_once(&self) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) == 0 {
            (self.wake)();
        }
    }

    /// `has_come` says that this is the loop, which takes all that it was woken for.
    pub(crate) fn polling(&self, has_come: bool) -> Polling<'_> {
        let before = self.state.swap(POLLING, Ordering::AcqRel);
        Polling { wake: self, comes: !has_come && before & WOKEN != 0 }
    }
}

/// For as long as calls are polled.
pub(crate) struct Polling<'a> {
    wake: &'a WakeOnce,
    /// Whether the loop comes anyway.
    comes: bool,
}

impl Polling<'_> {
    /// Whether something asked to be polled since the last look.
    pub(crate) fn again(&self) -> bool {
        self.wake.state.swap(POLLING, Ordering::AcqRel) & WOKEN != 0
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let end = if self.comes { WOKEN } else { 0 };
        if self.wake.state.compare_exchange(POLLING, end, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.wake.state.store(WOKEN, Ordering::Release);
            if !self.comes {
                (self.wake.wake)();
            }
        }
    }
}
