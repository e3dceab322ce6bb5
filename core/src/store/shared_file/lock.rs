//! The lock of a shard: a word with the token of its owner, or 0.
//!
//! It is held for less than a microsecond. Who waits spins, then yields, then sleeps, and at times looks whether the owner
//! is still there: the lock of one that is gone is taken over, and the shard is put in order. One that is there and does
//! not go on, because it was stopped, is waited for only so long.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::monotonic;
use crate::store::shared_file::owner::Token;

const SPINS: u32 = 64;
const YIELDS: u32 = 200;
const SLEEP: Duration = Duration::from_micros(50);
/// How long one owner holds it before others look whether it is there.
const SUSPECT: Duration = Duration::from_millis(5);
/// How long one owner may hold it.
const STUCK: Duration = Duration::from_secs(1);
/// How long anybody waits, whoever holds it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// How a lock was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Freely,
    /// From an owner that is gone, in the midst of whatever it did.
    Over,
}

/// It was not had: its owner is there and keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept(pub(crate) Token);

/// Takes a lock for an owner. The count goes up whenever somebody takes it.
#[inline]
pub(crate) fn take(
    lock: &AtomicU64,
    count: &AtomicU64,
    token: Token,
    is_gone: impl Fn(Token) -> bool,
) -> Result<Taken, Kept> {
    let how = match lock.compare_exchange(0, token.0, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Taken::Freely,
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
) -> Result<Taken, Kept> {
    let started = monotonic::now();
    let mut seen = (0, 0);
    let (mut since, mut looked) = (started, started);
    for round in 0_u32.. {
        match lock.compare_exchange_weak(0, token.0, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(Taken::Freely),
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
                        return Ok(Taken::Over);
                    }
                }
                if now - since > STUCK || now - started > LOCK_TIMEOUT {
                    return Err(Kept(owner));
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
    Err(Kept(token))
}

/// Gives it back.
#[inline]
pub(crate) fn give(lock: &AtomicU64) {
    lock.store(0, Ordering::Release);
}
