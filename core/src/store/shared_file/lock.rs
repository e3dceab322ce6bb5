//! The lock of a shard: a word with the token of its owner, or 0.
//!
//! A lock is held for less than a microsecond. A waiting thread spins, then yields, then sleeps, and from time to time
//! checks whether the owner still exists. If the owner is gone, the waiting thread takes the lock over and repairs the
//! shard. If the owner exists but makes no progress, because it was stopped, the wait ends with an error.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::monotonic;
use crate::store::shared_file::owner::Token;

const SPINS: u32 = 64;
const YIELDS: u32 = 200;
const SLEEP: Duration = Duration::from_micros(50);
/// How long an owner may hold the lock before waiting threads check whether it still exists.
const SUSPECT: Duration = Duration::from_millis(5);
/// How long one owner may hold the lock before waiting threads give up.
const STUCK: Duration = Duration::from_secs(1);
/// The longest wait, even if owners change.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// How a lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquisition {
    Free,
    /// Taken over from an owner that is gone, possibly in the middle of an operation.
    Takeover,
}

/// The lock was not acquired: its owner exists and keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldBy(pub(crate) Token);

/// Acquires a lock for an owner. The count increases with every acquisition.
#[inline]
pub(crate) fn acquire(
    lock: &AtomicU64,
    count: &AtomicU64,
    token: Token,
    is_gone: impl Fn(Token) -> bool,
) -> Result<Acquisition, HeldBy> {
    let how = match lock.compare_exchange(0, token.0, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Acquisition::Free,
        Err(_) => wait(lock, count, token, is_gone)?,
    };
    count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    Ok(how)
}

#[cold]
fn wait(
    lock: &AtomicU64,
    count: &AtomicU64,
    token: Token,
    is_gone: impl Fn(Token) -> bool,
) -> Result<Acquisition, HeldBy> {
    let started = monotonic::now();
    let mut seen = (0, 0);
    let (mut since, mut looked) = (started, started);
    for round in 0_u32.. {
        match lock.compare_exchange_weak(0, token.0, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(Acquisition::Free),
            Err(0) => continue,
            Err(owner) if round >= SPINS => {
                let now = monotonic::now();
                if seen != (owner, count.load(Ordering::Relaxed)) {
                    seen = (owner, count.load(Ordering::Relaxed));
                    since = now;
                }
                let owner = Token(owner);
                if owner != token && now - since > SUSPECT && now - looked > SUSPECT {
                    looked = now;
                    if is_gone(owner)
                        && lock
                            .compare_exchange(owner.0, token.0, Ordering::Acquire, Ordering::Relaxed)
                            .is_ok()
                    {
                        return Ok(Acquisition::Takeover);
                    }
                }
                if now - since > STUCK || now - started > LOCK_TIMEOUT {
                    return Err(HeldBy(owner));
                }
            }
            Err(_) => {}
        }
        match round {
            0..SPINS => spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(SLEEP),
        }
    }
    Err(HeldBy(token))
}

/// Releases the lock.
#[inline]
pub(crate) fn release(lock: &AtomicU64) {
    lock.store(0, Ordering::Release);
}
