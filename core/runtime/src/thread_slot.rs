//! A small number for each thread, by which it has a place of its own in a table.
//!
//! A thread takes a free number when it first needs one, and gives it back when it ends. There are few numbers, and threads
//! beyond have none. A forked child has one thread, and all of its numbers are free again.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fork::ProcessGeneration;

/// How many threads have a number at a time.
pub const SLOTS: usize = 64;
const SLOT_BITS: u32 = 8;

/// The generation of the process whose thread has each number; 0 while it is free.
static TAKEN: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

thread_local! {
    /// The process's generation and this thread's number in it, or [`SLOTS`] for a thread without one; 0 before.
    static MINE: Cell<u64> = const { Cell::new(0) };
    /// Gives the number back. Apart from the other, which needs no destructor and so is read without a check.
    static HELD: Held = const { Held(Cell::new(0)) };
}

/// The numbers of this process.
#[derive(Clone, Copy, Debug)]
pub struct ThreadSlots(u64);

impl ThreadSlots {
    pub fn here() -> Self {
        Self(ProcessGeneration::here().number() << SLOT_BITS)
    }

    /// This thread's number, below [`SLOTS`]; [`SLOTS`] or more for a thread that has none, or has not [taken](Self::take) it.
    #[expect(clippy::inline_always, reason = "three instructions on the shortest path of a check")]
    #[inline(always)]
    pub fn mine(self) -> usize {
        // The number alone where the generations are equal, and more than any number where they are not.
        usize::try_from(MINE.get() ^ self.0).unwrap_or(usize::MAX)
    }

    /// This thread's number, which it takes if it has not yet; [`SLOTS`] for a thread that has none.
    pub fn take(self) -> usize {
        let slot = self.mine();
        if slot <= SLOTS { slot } else { self.take_first() }
    }

    #[cold]
    fn take_first(self) -> usize {
        let generation = self.0 >> SLOT_BITS;
        let is_taken = |taken: &AtomicU64| {
            let by = taken.load(Ordering::Relaxed);
            // Sees what the thread before has written in its place.
            by != generation
                && taken.compare_exchange(by, generation, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        // While a thread ends it gets no number that it could not give back.
        let slot = HELD.try_with(|held| {
            let slot = TAKEN.iter().position(is_taken).unwrap_or(SLOTS);
            held.0.set(self.0 | slot as u64);
            slot
        });
        let slot = slot.unwrap_or(SLOTS);
        MINE.set(self.0 | slot as u64);
        slot
    }
}

/// A thread's number and its process's generation; 0 for none.
struct Held(Cell<u64>);

impl Drop for Held {
    fn drop(&mut self) {
        let held = self.0.get();
        let (generation, slot) = (held >> SLOT_BITS, held & ((1 << SLOT_BITS) - 1));
        MINE.set(generation << SLOT_BITS | SLOTS as u64);
        if let Some(taken) = usize::try_from(slot).ok().and_then(|slot| TAKEN.get(slot)) {
            // In a forked child another thread may have taken the number of the parent's thread.
            let _ = taken.compare_exchange(generation, 0, Ordering::Release, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

    #[test]
    fn threads_at_a_time_have_different_numbers_and_give_them_back() {
        let slots = ThreadSlots::here();
        for _ in 0..3 {
            let barrier = Arc::new(Barrier::new(3 * SLOTS));
            let threads: Vec<_> = (0..3 * SLOTS)
                .map(|_| {
                    let barrier = Arc::clone(&barrier);
                    thread::spawn(move || {
                        let slot = slots.take();
                        barrier.wait();
                        assert_eq!(slots.take(), slot);
                        barrier.wait();
                        slot
                    })
                })
                .collect();
            let mut taken: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            taken.sort_unstable();
            let with_number = taken.iter().filter(|slot| **slot < SLOTS).count();
            // Other tests of this program run at the same time, on few threads.
            assert!((SLOTS / 2..=SLOTS).contains(&with_number), "{with_number}");
            taken.truncate(with_number);
            taken.dedup();
            assert_eq!(taken.len(), with_number);
        }
    }
}
