//! Two revisions that take turns, and the ratios of neighbouring turns.

use std::ops::Range;
use std::time::Duration;

/// Long enough that it does not matter which data the other revision has left in the processor's caches.
const TURN: Duration = Duration::from_millis(10);
/// How many pairs of turns a process measures.
pub(crate) const PAIRS: usize = 100;

/// Nanoseconds a decision, before and after, in neighbouring turns.
pub(crate) struct Turns(Vec<[f64; 2]>);

impl Turns {
    /// Lets both revisions take turns, in the order before, after, after, before. In its turn a revision makes the decisions
    /// with these numbers, and returns the time that they took.
    pub(crate) fn take(
        mut before: impl FnMut(Range<usize>) -> Duration,
        mut after: impl FnMut(Range<usize>) -> Duration,
    ) -> Self {
        let mut decisions = 16;
        // The first turns also open connections and fill caches.
        let _ = (before(0..decisions), after(0..decisions));
        while before(0..decisions).min(after(0..decisions)) < TURN * 4 / 5 {
            decisions += decisions / 4;
        }
        let pairs = (0..PAIRS).map(|pair| {
            let numbers = pair * decisions..(pair + 1) * decisions;
            let taken = if pair % 2 == 0 {
                [before(numbers.clone()), after(numbers)]
            } else {
                let taken_after = after(numbers.clone());
                [before(numbers), taken_after]
            };
            taken.map(|taken| taken.as_secs_f64() * 1e9 / decisions as f64)
        });
        Self(pairs.collect())
    }

    pub(crate) fn ns(&self, side: usize) -> impl Iterator<Item = f64> {
        self.0.iter().map(move |pair| pair[side])
    }

    pub(crate) fn ratio(&self) -> f64 {
        median(self.0.iter().map(|[before, after]| after / before))
    }

    /// Prints the pairs for the process that has started this one.
    pub(crate) fn print(&self) {
        self.0.iter().for_each(|[before, after]| println!("{before} {after}"));
    }

    pub(crate) fn parse(printed: &str) -> Self {
        let pair = |line: &str| {
            let (before, after) = line.split_once(' ').unwrap();
            [before, after].map(|ns| ns.parse().unwrap())
        };
        Self(printed.lines().map(pair).collect())
    }
}

pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
