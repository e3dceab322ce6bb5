//! The lock of one shard of the memory store or of the denial cache.
//!
//! A thread holds this lock for a few nanoseconds, and locking and unlocking are a good part of them. So waiters spin:
//! unlocking is then a plain store, whereas a lock with sleeping waiters has to check for them. A waiter that spins for
//! longer, because the holder was interrupted or grows a table, yields to other threads and then sleeps.

use std::hint;
use std::thread;
use std::time::Duration;

use spin::mutex::{SpinMutex, SpinMutexGuard};

/// How many rounds a waiter spins, each twice as long as the one before.
const SPINS: u32 = 6;
/// How many times a waiter then yields before it sleeps.
const YIELDS: u32 = 16;
const SLEEP: Duration = Duration::from_micros(100);

#[derive(Debug)]
pub struct Lock<T>(SpinMutex<T>);

pub(crate) type Guard<'a, T> = SpinMutexGuard<'a, T>;

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    /// Waits until no other thread holds the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
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
            // A read leaves the cache line with the holder; an attempt to lock takes it away.
            if !self.0.is_locked()
                && let Some(guard) = self.0.try_lock()
            {
                return guard;
            }
        }
    }
}
