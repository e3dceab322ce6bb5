//! What a reservation costs in memory, compared with a check.

use std::hint::black_box;
use std::time::{Duration, Instant};

use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::{Limiter, Policy, Request, blocking};

const ROUNDS: usize = 9;
const OPERATIONS: usize = 20_000;

/// Prints the fastest round of each, because an operation of 1 us shares the machine with everything else.
pub(crate) fn report() {
    let policy = Policy::parse("reserved", "1000000000/minute token_bucket").expect("a quota");
    println!(
        "\nns an operation on one thread (fastest of {ROUNDS} rounds; reserve and commit: both together)\n"
    );
    println!("| alive | check | reserve and commit | check of that key |");
    println!("|---:|---:|---:|---:|");
    for alive in [1, 4, 20, 100] {
        let limiter = Limiter::builder().policy(policy.clone()).build().expect("a limiter").blocking();
        // One more comes and goes with each round.
        let kept: Vec<_> = (1..alive).map(|number| reserve(&limiter, number)).collect();
        let mut best = [f64::MAX; 3];
        for _ in 0..ROUNDS {
            best[0] = best[0].min(ns_each(|| drop(black_box(limiter.check("without")))));
            best[1] = best[1].min(ns_each(|| {
                black_box(reserve(&limiter, 0).commit_blocking(1).expect("a usage"));
            }));
            best[2] = best[2].min(ns_each(|| drop(black_box(limiter.check("with")))));
        }
        println!("| {alive} | {:.0} | {:.0} | {:.0} |", best[0], best[1], best[2]);
        drop(kept);
    }
}

fn reserve(limiter: &blocking::Limiter, number: u32) -> polylimit::reservation::Reservation {
    let id = ReservationId::new(number.to_string()).expect("an id");
    let options = ReserveOptions::default().id(id).ttl(Duration::from_secs(3_600)).max_age(Duration::ZERO);
    limiter.reserve(Request::new("with"), options).expect("a reservation")
}

fn ns_each(operation: impl Fn()) -> f64 {
    let start = Instant::now();
    (0..OPERATIONS).for_each(|_| operation());
    start.elapsed().as_nanos() as f64 / OPERATIONS as f64
}
