//! Random numbers that a seed repeats.

use fastrand::Rng;

pub(crate) struct Random(Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound.max(1))
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())].clone()
    }
}
