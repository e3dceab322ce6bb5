//! Interleaved rounds and their median.

use std::thread;
use std::time::{Duration, Instant};

use crate::contender::{Contender, Workload};

/// One figure for each contender, in nanoseconds a decision.
pub(crate) type Row = [f64; 3];

/// How many rounds there are.
pub(crate) fn count(quick: bool) -> usize {
    if quick { 1 } else { 9 }
}

pub(crate) fn median_ns(contenders: &[Contender; 3], workload: &Workload<'_>, quick: bool) -> Row {
    let round = if quick { Duration::from_millis(2) } else { Duration::from_millis(100) };
    let mut figures = [(); 3].map(|()| Vec::new());
    let decisions = contenders.each_ref().map(|contender| decisions_in(contender, workload, round));
    for seed in 1..=count(quick) as u64 {
        for ((contender, figures), decisions) in contenders.iter().zip(&mut figures).zip(decisions) {
            figures.push(time(contender, workload, decisions, seed).as_nanos() as f64 / decisions as f64);
        }
    }
    figures.map(|mut figures| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    })
}

/// About how many decisions a contender makes in a round.
fn decisions_in(contender: &Contender, workload: &Workload<'_>, round: Duration) -> u64 {
    let sample = 20_000;
    let taken = time(contender, workload, sample, 77).as_nanos().max(1);
    let decisions = u128::from(sample) * round.as_nanos() / taken;
    u64::try_from(decisions).unwrap_or(sample).clamp(1_000, 1 << 30)
}

/// How long every thread takes for so many decisions of its own.
fn time(contender: &Contender, workload: &Workload<'_>, decisions: u64, seed: u64) -> Duration {
    thread::scope(|scope| {
        let start = Instant::now();
        for thread in 1..workload.threads as u64 {
            scope.spawn(move || contender.run(workload, decisions, seed.wrapping_mul(0x9E37_79B9) + thread));
        }
        contender.run(workload, decisions, seed.wrapping_mul(0x85EB_CA6B) + 1_000_003);
        start
    })
    .elapsed()
}
