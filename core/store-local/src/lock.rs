//! The lock of a shard: a word with the token of its owner, or 0.
//!
//! A lock is held for less than a microsecond. A waiting thread spins, then yields, then sleeps, and from time to time
//! looks at the owner. If the owner is gone, the waiting thread takes the lock over and repairs the shard. If the owner is
//! suspended, the wait ends with an error, and this process remembers it: as long as the same hold lasts, no caller waits
//! for it again.
//!
//! The time of a hold counts from when any thread of this process first saw it. So a caller that must not wait can try for a moment and
//! come back later, again and again, and the owner is judged as if the caller had waited all the time.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::owner::{OwnerState, Token};
use crate::patience::{LOCK_TIMEOUT, Patience, SPIN_FOR};
use polylimit_rules::units::micros;
use polylimit_runtime::monotonic;

const SPINS: u32 = 64;
const YIELDS: u32 = 200;
const SLEEP: Duration = Duration::from_micros(50);
/// How long an owner may hold the lock before waiting threads look at it, and the time between two looks.
const SUSPECT: Duration = Duration::from_millis(2);
/// How long an owner may hold the lock if its process cannot be seen from here.
const UNSEEN: Duration = Duration::from_millis(10);
/// How long an owner that waits in the system may hold the lock: longer than a disk takes to read a page of a program.
const WAITING: Duration = Duration::from_millis(100);
/// How long an owner that could run, but waits for a processor, may hold the lock.
const STARVED: Duration = Duration::from_secs(1);

/// How a lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquisition {
    Free,
    /// Taken over from an owner that is gone, possibly in the middle of an operation.
    Takeover,
}

/// The lock was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAcquired {
    /// Its owner may release it at any moment.
    Busy,
    /// Its owner exists but makes no progress, or the caller has waited for too long.
    HeldBy(Token),
}

/// The record that this process keeps of one hold of a lock, in microseconds of [`monotonic::ticks`].
#[derive(Debug, Default)]
pub(crate) struct HolderWatch {
    /// Identifies the hold; 0 before the first.
    hold: AtomicU64,
    since_us: AtomicU64,
    looked_us: AtomicU64,
    /// The hold, once no caller should wait for its end; 0 until then.
    stuck: AtomicU64,
    /// How many consecutive looks have found the owner suspended. Only the thread that locks this writes.
    looks: Mutex<u32>,
}

/// The words of a lock, and what is needed to acquire it.
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
        self.stuck.load(Ordering::Acquire) == hold
            && now_us.saturating_sub(self.looked_us.load(Ordering::Relaxed)) < micros(SUSPECT)
    }

    /// Whether impatient callers have tried for long enough during a hold.
    fn was_tried(&self, hold: u64, now_us: u64) -> bool {
        self.hold.load(Ordering::Acquire) == hold
            && now_us.saturating_sub(self.since_us.load(Ordering::Relaxed)) > micros(SPIN_FOR)
    }

    /// Judges a hold: [`OwnerState::Suspended`] where no caller should wait for its end.
    ///
    /// On a busy machine a thread may stop for many milliseconds between any two of these steps, and by then the lock may have other
    /// owners. So one thread judges at a time, and its observation counts only if the lock `is_held` as before after it looked.
    fn judge(
        &self,
        hold: u64,
        now_us: impl Fn() -> u64,
        is_held: impl Fn() -> bool,
        state: impl Fn() -> OwnerState,
    ) -> OwnerState {
        let Some(mut looks) = self.looks.try_lock() else { return OwnerState::Runs };
        let now_us = now_us();
        if self.hold.load(Ordering::Relaxed) != hold {
            if is_held() {
                *looks = 0;
                self.stuck.store(0, Ordering::Relaxed);
                self.looked_us.store(now_us, Ordering::Relaxed);
                self.since_us.store(now_us, Ordering::Relaxed);
                self.hold.store(hold, Ordering::Release);
            }
            return OwnerState::Runs;
        }
        if now_us.saturating_sub(self.looked_us.load(Ordering::Relaxed)) >= micros(SUSPECT) {
            let state = state();
            if !is_held() {
                return OwnerState::Runs;
            }
            if state == OwnerState::Gone {
                return OwnerState::Gone;
            }
            *looks = if state == OwnerState::Suspended { *looks + 1 } else { 0 };
            let held_us = now_us.saturating_sub(self.since_us.load(Ordering::Relaxed));
            let is_stuck = match state {
                // A process that ends may look like this for a moment.
                OwnerState::Suspended => *looks >= 2,
                OwnerState::Unseen => held_us >= micros(UNSEEN),
                OwnerState::Waits => held_us >= micros(WAITING),
                OwnerState::Runs | OwnerState::Gone => held_us >= micros(STARVED),
            };
            self.looked_us.store(now_us, Ordering::Relaxed);
            self.stuck.store(if is_stuck { hold } else { 0 }, Ordering::Release);
        }
        if self.stuck.load(Ordering::Relaxed) == hold { OwnerState::Suspended } else { OwnerState::Runs }
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
        let started_us = micros(monotonic::ticks());
        for round in 0_u32.. {
            match word.compare_exchange_weak(0, token.0, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Acquisition::Free),
                Err(0) => continue,
                Err(owner) if round == 0 || round >= SPINS => {
                    let now = || micros(monotonic::ticks());
                    let now_us = now();
                    let hold = hold_of(owner, count.load(Ordering::Relaxed));
                    let is_held = || {
                        word.load(Ordering::Relaxed) == owner
                            && hold_of(owner, count.load(Ordering::Relaxed)) == hold
                    };
                    let owner = Token(owner);
                    if watch.is_known_to_be_stuck(hold, now_us) {
                        return Err(NotAcquired::HeldBy(owner));
                    }
                    // Another thread of this process runs, since this one does.
                    let state = || if owner == token { OwnerState::Runs } else { state_of(owner) };
                    match watch.judge(hold, now, is_held, state) {
                        OwnerState::Gone => {
                            let taken =
                                word.compare_exchange(owner.0, token.0, Ordering::Acquire, Ordering::Relaxed);
                            if taken.is_ok() {
                                return Ok(Acquisition::Takeover);
                            }
                        }
                        OwnerState::Suspended => return Err(NotAcquired::HeldBy(owner)),
                        OwnerState::Runs | OwnerState::Waits | OwnerState::Unseen => {}
                    }
                    let waited_us = now_us.saturating_sub(started_us);
                    let has_tried = || waited_us > micros(SPIN_FOR) || watch.was_tried(hold, now_us);
                    match patience {
                        Patience::Spin if has_tried() => return Err(NotAcquired::Busy),
                        Patience::Last if has_tried() => return Err(NotAcquired::HeldBy(owner)),
                        Patience::Wait if waited_us > micros(LOCK_TIMEOUT) => {
                            return Err(NotAcquired::HeldBy(owner));
                        }
                        Patience::Spin | Patience::Last | Patience::Wait => {}
                    }
                }
                Err(_) => {}
            }
            match (patience, round) {
                (Patience::Wait, SPINS..YIELDS) => std::thread::yield_now(),
                (Patience::Wait, YIELDS..) => std::thread::sleep(SLEEP),
                // On a busy machine a yield may take milliseconds.
                _ => spin_loop(),
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
            let given_up = Err(NotAcquired::HeldBy(Token(OTHER)));
            assert_eq!(held.acquire(Patience::Last, || OwnerState::Runs), given_up);
        }
    }

    /// Impatient callers never wait for the verdict, yet it comes as early as for a waiting caller.
    #[test]
    fn owner_is_judged_across_attempts_of_impatient_callers() {
        let held = Held::new();
        let looks = Cell::new(0);
        let suspended = || {
            looks.set(looks.get() + 1);
            OwnerState::Suspended
        };
        let started = monotonic::now();
        let mut attempts = 0;
        while held.acquire(Patience::Spin, suspended) == Err(NotAcquired::Busy) {
            attempts += 1;
            std::thread::sleep(Duration::from_millis(1));
            assert!(started.elapsed() < Duration::from_secs(60));
        }
        assert!(attempts >= 2 && started.elapsed() >= 2 * SUSPECT, "{attempts} {:?}", started.elapsed());
        assert_eq!(looks.get(), 2);
        assert_eq!(held.acquire(Patience::Spin, suspended), Err(NotAcquired::HeldBy(Token(OTHER))));
    }

    #[test]
    fn impatient_callers_try_once_during_a_hold() {
        let watch = HolderWatch::default();
        let judge = |hold, now_us| watch.judge(hold, || now_us, || true, || OwnerState::Runs);
        assert_eq!(judge(1, 5), OwnerState::Runs);
        assert!(!watch.was_tried(1, 55) && watch.was_tried(1, 56) && !watch.was_tried(2, 56));
        assert_eq!(judge(2, 300), OwnerState::Runs);
        assert!(!watch.was_tried(2, 300));
    }

    /// On a busy machine the looking thread may be stopped for long. What it saw says nothing about the next hold.
    #[test]
    fn look_at_a_hold_that_is_over_counts_for_no_other() {
        let watch = HolderWatch::default();
        assert_eq!(watch.judge(1, || 5, || true, || OwnerState::Suspended), OwnerState::Runs);
        for now_us in [3_000, 6_000, 9_000] {
            assert_eq!(watch.judge(1, || now_us, || false, || OwnerState::Suspended), OwnerState::Runs);
            assert_eq!(watch.judge(1, || now_us, || false, || OwnerState::Gone), OwnerState::Runs);
        }
        // A late thread does not bring back the hold that it saw.
        assert_eq!(watch.judge(2, || 9_001, || true, || OwnerState::Runs), OwnerState::Runs);
        assert_eq!(watch.judge(1, || 9_002, || false, || OwnerState::Runs), OwnerState::Runs);
        assert_eq!(watch.judge(2, || 12_000, || true, || OwnerState::Suspended), OwnerState::Runs);
        assert!(!watch.is_known_to_be_stuck(2, 12_000));
        // Another thread may see the next hold while this one still looks.
        let other = || watch.judge(3, || 15_000, || true, || OwnerState::Runs);
        let looks = || {
            assert_eq!(other(), OwnerState::Runs);
            OwnerState::Suspended
        };
        assert_eq!(watch.judge(2, || 15_000, || false, looks), OwnerState::Runs);
        assert!(!watch.is_known_to_be_stuck(2, 15_000) && !watch.is_known_to_be_stuck(3, 15_000));
    }

    #[test]
    fn how_long_a_hold_may_last_depends_on_what_is_seen_of_its_owner() {
        for (state, least_us) in [
            (OwnerState::Suspended, 4_000),
            (OwnerState::Unseen, 10_000),
            (OwnerState::Waits, 100_000),
            (OwnerState::Runs, 1_000_000),
        ] {
            let watch = HolderWatch::default();
            let judge = |hold, now_us| watch.judge(hold, || now_us, || true, || state);
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
