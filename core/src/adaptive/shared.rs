//! What all clones of a limit and its calls share.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::adaptive::algorithm::Algorithm;
use crate::adaptive::notification::Notification;
use crate::adaptive::thousandths::MILLI;
use crate::adaptive::time::Time;
use crate::adaptive::window::Window;

pub(super) struct Shared {
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) limit: AtomicU32,
    pub(super) in_flight: AtomicU32,
    /// The most calls in flight since the window began.
    pub(super) peak: AtomicU32,
    pub(super) control: Mutex<Control>,
    pub(super) time: Time,
    pub(super) notification: Option<Notification>,
}

/// What the end of a window changes.
pub(super) struct Control {
    pub(super) window: Window,
    pub(super) algorithm: Algorithm,
    pub(super) limit_milli: u64,
}

impl Shared {
    pub(super) fn enter(&self) -> bool {
        let entered = self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, |in_flight| {
            // The limit is read for each attempt: it may have shrunk while another thread won.
            (in_flight < self.limit.load(Ordering::Acquire)).then_some(in_flight + 1)
        });
        if let Ok(before) = entered {
            self.peak.fetch_max(before + 1, Ordering::AcqRel);
        }
        entered.is_ok()
    }

    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts a call that has ended; if it completes the window, the limit changes.
    pub(super) fn record(&self, began_us: u64, failed: bool) {
        if self.adjust(began_us, failed)
            && let Some(notification) = &self.notification
        {
            notification.send(&self.limit);
        }
    }

    /// Whether the limit has changed.
    fn adjust(&self, began_us: u64, failed: bool) -> bool {
        let mut control = self.control.lock();
        // Read under the lock, so that the times of a window are in order.
        let now_us = self.time.now_us();
        let latency_us = now_us.saturating_sub(began_us);
        let failed = failed || latency_us > control.algorithm.longest_us();
        control.window.add(now_us, latency_us, failed);
        if !control.window.is_complete(now_us) {
            return false;
        }
        let limit = self.limit.load(Ordering::Acquire);
        let peak = self.peak.swap(self.in_flight.load(Ordering::Acquire), Ordering::AcqRel);
        // As in `AIMDLimit` and `Gradient2Limit`; a call that has just left counts.
        let is_limiting = u64::from(peak) * 2 >= u64::from(limit);
        let measurement = control.window.finish(now_us, is_limiting);
        let limit_milli = control.limit_milli;
        let bounds = (u64::from(self.min) * MILLI, u64::from(self.max) * MILLI);
        control.limit_milli = control.algorithm.after(limit_milli, &measurement).clamp(bounds.0, bounds.1);
        let rounded = u32::try_from(control.limit_milli / MILLI).unwrap_or(self.max);
        self.limit.store(rounded, Ordering::Release);
        rounded != limit
    }
}
