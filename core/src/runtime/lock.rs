//! The lock of a shard: of the memory store, and of the cached denials.
//!
//! A shard is locked for a few nanoseconds, of which taking the lock and giving it up is a good part. So waiters spin:
//! giving it up is then a plain store, where a lock whose waiters sleep has to ask whether there are any. Who waits for
//! longer, because the holder was interrupted or moves a table, lets other threads run, and then sleeps.

use std::hint;
use std::thread;
use std::time::Duration;

use spin::mutex::{SpinMutex, SpinMutexGuard};

/// How often a waiter doubles how long it spins before it looks again.
const SPINS: u32 = 6;
/// How often it lets other threads run before it sleeps.
const YIELDS: u32 = 16;
const SLEEP: Duration = Duration::from_micros(100);

#[derive(Debug)]
pub(crate) struct Lock<T>(SpinMutex<T>);

pub(crate) type Guard<'a, T> = SpinMutexGuard<'a, T>;

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    /// Waits until nobody else holds it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        let mut tries = 0;
        loop {
            if tries < SPINS {
                for _ in 0..1_u32 << tries {
                    hint::spin_loop();
                }
            } else if tries < SPINS + YIELDS {
                thread::yield_now();
            } else {
                thread::sleep(SLEEP);
            }
            tries = tries.saturating_add(1);
            // Looking does not take the cache line away from the holder; trying does.
            if !self.0.is_locked()
                && let Some(guard) = self.0.try_lock()
            {
                return guard;
            }
        }
    }
}
