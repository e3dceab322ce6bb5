//! A number of callers, each of which sends a request as soon as the previous one is answered.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::contender::Contender;

/// The distribution of the requested keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// One of 100,000, all equally likely.
    Uniform,
    /// One of 100,000, the n-th with a weight of n^-1.1.
    Zipf,
    One,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) keys: Keys,
    pub(crate) quotas: usize,
    pub(crate) outcome: Outcome,
    pub(crate) callers: usize,
    pub(crate) quick: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

const KEY_COUNT: usize = 100_000;

impl Measured {
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| median(rounds.iter().map(field).collect());
        Self {
            per_second: of(|measured| measured.per_second),
            p50_us: of(|measured| measured.p50_us),
            p99_us: of(|measured| measured.p99_us),
            max_us: of(|measured| measured.max_us),
        }
    }
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Runs one round.
pub(crate) fn run(runtime: &Runtime, contender: &Contender, workload: &Workload) -> Measured {
    let keys = Rc::new(keys(workload.keys));
    let length = Duration::from_millis(if workload.quick { 50 } else { 1_000 });
    let latencies = Rc::new(RefCell::new(Vec::with_capacity(4_000_000)));
    let local = LocalSet::new();
    let started = Instant::now();
    // The contender outlives the round, but a local task must own what it uses, so the callers are polled side by side
    // instead.
    let callers = (0..workload.callers).map(|caller| {
        let (keys, latencies) = (Rc::clone(&keys), Rc::clone(&latencies));
        async move {
            let mut at = caller * 7_919;
            // One reading of the clock per decision, because a reading takes a good part of a decision's time.
            let mut asked = Instant::now();
            // At least one: on a loaded machine a short round may be over before it begins.
            loop {
                contender.decide(&keys[at % keys.len()]).await;
                let answered = Instant::now();
                latencies.borrow_mut().push((answered - asked).as_nanos() as u64);
                asked = answered;
                if asked - started >= length {
                    break;
                }
                at += 1 + workload.callers;
            }
        }
    });
    local.block_on(runtime, side_by_side(callers));
    let taken = started.elapsed().as_secs_f64();
    let mut latencies = latencies.take();
    latencies.sort_unstable();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    Measured {
        per_second: latencies.len() as f64 / taken,
        p50_us: at(0.5),
        p99_us: at(0.99),
        max_us: at(1.0),
    }
}

/// Polls only the callers that were woken.
async fn side_by_side(callers: impl Iterator<Item = impl Future<Output = ()>>) {
    use futures_util::StreamExt;
    let callers: futures_util::stream::FuturesUnordered<_> = callers.collect();
    callers.collect::<()>().await;
}

/// The keys in the order of the requests.
fn keys(keys: Keys) -> Vec<String> {
    let mut random = 88_172_645_463_325_252_u64;
    // xorshift64 (Marsaglia 2003).
    let mut part = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as f64 / u64::MAX as f64
    };
    let name = |number: usize| format!("user:{number}");
    match keys {
        Keys::One => vec![name(42)],
        Keys::Uniform => (0..1_000_003).map(|_| name((part() * KEY_COUNT as f64) as usize)).collect(),
        Keys::Zipf => {
            let weights = (1..=KEY_COUNT).scan(0.0, |sum, rank| {
                *sum += (rank as f64).powf(-1.1);
                Some(*sum)
            });
            let sums: Vec<f64> = weights.collect();
            let total = sums[KEY_COUNT - 1];
            let mut drawn = || {
                let drawn = part() * total;
                name(sums.partition_point(|sum| *sum < drawn))
            };
            (0..1_000_003).map(|_| drawn()).collect()
        }
    }
}
