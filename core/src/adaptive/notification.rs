//! Calls the hook with new limits: outside of locks, by one thread at a time, and in the end with the newest.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

type Hook = Box<dyn Fn(u32) + Send + Sync>;

pub(super) struct Notification {
    hook: Hook,
    is_running: AtomicBool,
    /// The limit that the hook knows.
    known: AtomicU32,
}

/// Marks the end of a hook, even if it panics.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // A swap, which sees the limit of a thread that found this mark and returned.
        self.0.swap(false, Ordering::AcqRel);
    }
}

impl Notification {
    pub(super) fn new(hook: Hook, limit: u32) -> Self {
        Self { hook, is_running: AtomicBool::new(false), known: AtomicU32::new(limit) }
    }

    /// Passes the limit to the hook, unless it runs already, or runs this: then the thread inside it looks again.
    pub(super) fn send(&self, limit: &AtomicU32) {
        loop {
            if self.is_running.swap(true, Ordering::AcqRel) {
                return;
            }
            let running = Running(&self.is_running);
            let newest = limit.load(Ordering::Acquire);
            if self.known.swap(newest, Ordering::AcqRel) != newest {
                (self.hook)(newest);
            }
            drop(running);
            if limit.load(Ordering::Acquire) == newest {
                return;
            }
        }
    }
}
