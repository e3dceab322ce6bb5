//! Interleaved rounds and their median.

use std::thread;
use std::time::{Duration, Instant};

use crate::contender::{Contender, Workload};

/// One figure for each contender, in nanoseconds per decision.
pub(crate) type Row = [f64; 4];

/// The number of rounds.
pub(crate) fn count(quick: bool) -> usize {
    if quick { 1 } else { 9 }
}

pub(crate) fn median_ns(contenders: &[Contender; 4], workload: &Workload<'_>, quick: bool) -> Row {
    let length = if quick { Duration::from_millis(2) } else { Duration::from_millis(100) };
    let mut figures = [(); 4].map(|()| Vec::new());
    let decisions = contenders.each_ref().map(|contender| decisions_in(contender, workload, length));
    for round in 1..=count(quick) {
        for ((contender, figures), decisions) in contenders.iter().zip(&mut figures).zip(decisions) {
            figures.push(time(contender, workload, decisions, round).as_nanos() as f64 / decisions as f64);
        }
    }
    figures.map(|mut figures| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    })
}

/// About how many decisions a contender makes in a round.
fn decisions_in(contender: &Contender, workload: &Workload<'_>, round: Duration) -> usize {
    let sample = 20_000;
    let taken = time(contender, workload, sample, 0).as_nanos().max(1);
    let decisions = sample as u128 * round.as_nanos() / taken;
    usize::try_from(decisions).unwrap_or(sample).clamp(1_000, 1 << 30)
}

/// How long every thread takes for `decisions` decisions. Panics when a decision is not the expected one.
fn time(contender: &Contender, workload: &Workload<'_>, decisions: usize, round: usize) -> Duration {
    let run = |thread: usize| {
        let allowed = contender.run(workload, decisions, round * 7_919 + thread * 500_009);
        assert_eq!(allowed, if workload.allowed { decisions } else { 0 });
    };
    thread::scope(|scope| {
        let start = Instant::now();
        for thread in 1..workload.threads {
            scope.spawn(move || run(thread));
        }
        run(0);
        start
    })
    .elapsed()
}
