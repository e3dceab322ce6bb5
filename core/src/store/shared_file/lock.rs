//! The lock of a shard: a word with the token of its owner, or 0.
//!
//! A lock is held for less than a microsecond. A waiting thread spins, then yields, then sleeps, and from time to time
//! looks at the owner. If the owner is gone, the waiting thread takes the lock over and repairs the shard. If the owner is
//! suspended, the wait ends with an error, and this process remembers it: as long as the same hold lasts, no caller waits
//! for it again.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::monotonic;
use crate::store::shared_file::owner::{OwnerState, Token};
use crate::units::micros;

const SPINS: u32 = 64;
const YIELDS: u32 = 200;
const SLEEP: Duration = Duration::from_micros(50);
/// How long an impatient caller tries. On a busy machine one yield may take longer.
const SPIN_FOR: Duration = Duration::from_micros(200);
/// How long an owner may hold the lock before waiting threads look at it, and the time between two looks.
const SUSPECT: Duration = Duration::from_millis(2);
/// How long an owner may hold the lock whose process cannot be seen from here.
const UNSEEN: Duration = Duration::from_millis(10);
/// How long an owner may hold the lock that could run, and waits for a processor.
const STARVED: Duration = Duration::from_secs(1);
/// The longest wait, even if owners change.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// How a lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquisition {
    Free,
    /// Taken over from an owner that is gone, possibly in the middle of an operation.
    Takeover,
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Some microseconds, without sleeping: the caller must not hold up others.
    Spin,
    /// Until the lock is free or its owner is known to be stuck.
    Wait,
}

/// The lock was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAcquired {
    /// Its owner may release it at any time.
    Busy,
    /// Its owner exists, and makes no progress.
    HeldBy(Token),
}

/// What this process knows of one hold of a lock, in microseconds of [`monotonic::ticks`].
#[derive(Debug, Default)]
pub(crate) struct HolderWatch {
    /// Identifies the hold; 0 before the first.
    hold: AtomicU64,
    since_us: AtomicU64,
    looked_us: AtomicU64,
    /// How many looks in a row have found the owner suspended.
    suspended: AtomicU32,
    is_stuck: AtomicBool,
}

/// The words of a lock, and what acquiring it needs.
pub(crate) struct Lock<'a, F> {
    pub(crate) word: &'a AtomicU64,
    /// Increases with every acquisition.
    pub(crate) count: &'a AtomicU64,
    pub(crate) watch: &'a HolderWatch,
    pub(crate) token: Token,
    /// Looks at an owner.
    pub(crate) state_of: F,
}

impl HolderWatch {
    fn is_known_to_be_stuck(&self, hold: u64, now_us: u64) -> bool {
        self.hold.load(Ordering::Relaxed) == hold
            && self.is_stuck.load(Ordering::Relaxed)
            && now_us.saturating_sub(self.looked_us.load(Ordering::Relaxed)) < micros(SUSPECT)
    }

    /// Judges a hold: [`OwnerState::Suspended`] where no caller should wait for its end.
    fn judge(&self, hold: u64, now_us: u64, state: impl Fn() -> OwnerState) -> OwnerState {
        if self.hold.load(Ordering::Relaxed) != hold {
            self.since_us.store(now_us, Ordering::Relaxed);
            self.looked_us.store(now_us, Ordering::Relaxed);
            self.suspended.store(0, Ordering::Relaxed);
            self.is_stuck.store(false, Ordering::Relaxed);
            self.hold.store(hold, Ordering::Relaxed);
            return OwnerState::Runs;
        }
        if now_us.saturating_sub(self.looked_us.load(Ordering::Relaxed)) >= micros(SUSPECT) {
            self.looked_us.store(now_us, Ordering::Relaxed);
            let held_us = now_us.saturating_sub(self.since_us.load(Ordering::Relaxed));
            let state = state();
            let suspended =
                if state == OwnerState::Suspended { self.suspended.load(Ordering::Relaxed) + 1 } else { 0 };
            self.suspended.store(suspended, Ordering::Relaxed);
            let is_stuck = match state {
                OwnerState::Gone => return OwnerState::Gone,
                // A process that ends may look like this for a moment.
                OwnerState::Suspended => suspended >= 2,
                OwnerState::Unseen => held_us >= micros(UNSEEN),
                OwnerState::Runs => held_us >= micros(STARVED),
            };
            self.is_stuck.store(is_stuck, Ordering::Relaxed);
        }
        if self.is_stuck.load(Ordering::Relaxed) { OwnerState::Suspended } else { OwnerState::Runs }
    }
}

impl<F: Fn(Token) -> OwnerState> Lock<'_, F> {
    #[inline]
    pub(crate) fn acquire(self, patience: Patience) -> Result<Acquisition, NotAcquired> {
        let count = self.count;
        let how = match self.word.compare_exchange(0, self.token.0, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Acquisition::Free,
            Err(_) => self.wait(patience)?,
        };
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        Ok(how)
    }

    #[cold]
    fn wait(self, patience: Patience) -> Result<Acquisition, NotAcquired> {
        let Self { word, count, watch, token, state_of } = self;
        let started = monotonic::now();
        for round in 0_u32.. {
            match word.compare_exchange_weak(0, token.0, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Acquisition::Free),
                Err(0) => continue,
                Err(owner) if round == 0 || round >= SPINS => {
                    let now_us = micros(monotonic::ticks());
                    let hold = hold_of(owner, count.load(Ordering::Relaxed));
                    let owner = Token(owner);
                    if watch.is_known_to_be_stuck(hold, now_us) {
                        return Err(NotAcquired::HeldBy(owner));
                    }
                    // Another thread of this process runs, since this one does.
                    let state = || if owner == token { OwnerState::Runs } else { state_of(owner) };
                    match watch.judge(hold, now_us, state) {
                        OwnerState::Gone => {
                            let taken =
                                word.compare_exchange(owner.0, token.0, Ordering::Acquire, Ordering::Relaxed);
                            if taken.is_ok() {
                                return Ok(Acquisition::Takeover);
                            }
                        }
                        OwnerState::Suspended => return Err(NotAcquired::HeldBy(owner)),
                        OwnerState::Runs | OwnerState::Unseen => {}
                    }
                    let waited = monotonic::now() - started;
                    if patience == Patience::Spin && (round >= YIELDS || waited > SPIN_FOR) {
                        return Err(NotAcquired::Busy);
                    }
                    if waited > LOCK_TIMEOUT {
                        return Err(NotAcquired::HeldBy(owner));
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
        Err(NotAcquired::Busy)
    }
}

/// Identifies one hold of a lock, never 0.
fn hold_of(owner: u64, count: u64) -> u64 {
    (owner.rotate_left(17) ^ count).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// Releases the lock.
#[inline]
pub(crate) fn release(lock: &AtomicU64) {
    lock.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MINE: Token = Token(7);
    const OTHER: u64 = 9;

    struct Held {
        word: AtomicU64,
        count: AtomicU64,
        watch: HolderWatch,
    }

    impl Held {
        fn new() -> Self {
            Self { word: AtomicU64::new(OTHER), count: AtomicU64::new(1), watch: HolderWatch::default() }
        }

        fn acquire(
            &self,
            patience: Patience,
            state: impl Fn() -> OwnerState,
        ) -> Result<Acquisition, NotAcquired> {
            let Self { word, count, watch } = self;
            Lock { word, count, watch, token: MINE, state_of: |_| state() }.acquire(patience)
        }
    }

    #[test]
    fn suspended_owner_is_waited_for_once() {
        let held = Held::new();
        let looks = Cell::new(0);
        let suspended = || {
            looks.set(looks.get() + 1);
            OwnerState::Suspended
        };
        let stuck = Err(NotAcquired::HeldBy(Token(OTHER)));
        assert_eq!(held.acquire(Patience::Wait, suspended), stuck);
        assert_eq!(looks.get(), 2);
        // The hold is known: no caller spins for it, however patient it is.
        let started = monotonic::now();
        for _ in 0..1_000 {
            assert_eq!(held.acquire(Patience::Wait, suspended), stuck);
            assert_eq!(held.acquire(Patience::Spin, suspended), stuck);
        }
        // One look every two milliseconds.
        let most = micros(monotonic::now() - started) / micros(SUSPECT) + 3;
        assert!(looks.get() <= most, "{} looks, at most {most}", looks.get());
        held.word.store(0, Ordering::Relaxed);
        assert_eq!(held.acquire(Patience::Spin, suspended), Ok(Acquisition::Free));
    }

    #[test]
    fn owner_that_ends_while_it_is_suspended_loses_the_lock() {
        let held = Held::new();
        let stuck = Err(NotAcquired::HeldBy(Token(OTHER)));
        assert_eq!(held.acquire(Patience::Wait, || OwnerState::Suspended), stuck);
        std::thread::sleep(SUSPECT);
        assert_eq!(held.acquire(Patience::Wait, || OwnerState::Gone), Ok(Acquisition::Takeover));
        assert_eq!(held.word.load(Ordering::Relaxed), MINE.0);
    }

    #[test]
    fn impatient_caller_does_not_wait_for_an_owner_that_runs() {
        for _ in 0..3 {
            let held = Held::new();
            assert_eq!(held.acquire(Patience::Spin, || OwnerState::Runs), Err(NotAcquired::Busy));
        }
    }

    #[test]
    fn how_long_a_hold_may_last_depends_on_what_is_seen_of_its_owner() {
        for (state, least_us) in
            [(OwnerState::Suspended, 4_000), (OwnerState::Unseen, 10_000), (OwnerState::Runs, 1_000_000)]
        {
            let watch = HolderWatch::default();
            let judge = |hold, now_us| watch.judge(hold, now_us, || state);
            assert_eq!(judge(1, 5), OwnerState::Runs);
            assert_eq!(judge(1, 5 + least_us - 2_000), OwnerState::Runs, "{state:?}");
            assert_eq!(judge(1, 5 + least_us), OwnerState::Suspended, "{state:?}");
            // Known until the next look is due.
            assert!(watch.is_known_to_be_stuck(1, 5 + least_us + 1_999));
            assert!(!watch.is_known_to_be_stuck(1, 5 + least_us + 2_000));
            // Another hold, by the same owner or by another one, is judged anew.
            assert!(!watch.is_known_to_be_stuck(2, 5 + least_us));
            assert_eq!(judge(2, 6 + least_us), OwnerState::Runs);
            assert!(!watch.is_known_to_be_stuck(2, 6 + least_us));
        }
    }
}
