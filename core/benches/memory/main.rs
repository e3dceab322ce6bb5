//! The memory store next to governor, in one run: `make bench`.
//!
//! Both decide by a token bucket (GCRA) with text keys. Rounds of all contenders are interleaved, so that a change of the
//! machine's speed affects all of them; the figure of a row is the median of its rounds.

#![allow(
    clippy::expect_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

mod contender;
mod footprint;
mod guard;
mod reservations;
mod rounds;

use contender::{Contender, Workload};
use rounds::{Row, median_ns};

/// The most keys. A quick run, which is not optimised, uses fewer.
fn most_keys(quick: bool) -> usize {
    if quick { 10_000 } else { 1_000_000 }
}

fn main() {
    // Ignores flags that `cargo bench` passes, such as --bench.
    let quick = std::env::args().any(|argument| argument == "--quick");
    if let Some(limiter) = footprint::asked_for() {
        return footprint::print(&limiter, most_keys(quick));
    }
    footprint::report(most_keys(quick), quick);
    guard::report();
    reservations::report();
    println!("\nns a decision, as each thread sees it (median of {} rounds)\n", rounds::count(quick));
    println!("governor* also says what remains or how long to wait, as every decision of polylimit does\n");
    println!(
        "| keys | threads | outcome | governor | governor* | polylimit | ratio to * | coarse clock | ratio to * |"
    );
    println!("|---:|---:|---|---:|---:|---:|---:|---:|---:|");
    let mut worst = [0.0_f64; 2];
    for count in [1, 1_000, most_keys(quick)] {
        let keys: Vec<String> = (0..count).map(|number| format!("user:{number}")).collect();
        let asked = at_random(&keys);
        for allowed in [true, false] {
            let contenders = Contender::all(allowed);
            for contender in &contenders {
                contender.warm_up(&keys);
            }
            for threads in [1, 2] {
                let workload = Workload { asked: &asked, threads, allowed };
                let row: Row = median_ns(&contenders, &workload, quick);
                let ratios = [row[2] / row[1], row[3] / row[1]];
                for (worst, ratio) in worst.iter_mut().zip(ratios) {
                    *worst = worst.max(ratio);
                }
                let outcome = if allowed { "allowed" } else { "denied" };
                println!(
                    "| {count} | {threads} | {outcome} | {:.1} | {:.1} | {:.1} | {:.2} | {:.1} | {:.2} |",
                    row[0], row[1], row[2], ratios[0], row[3], ratios[1]
                );
            }
        }
    }
    println!("\nworst ratio to governor*: {:.2}; with the coarse clock {:.2}", worst[0], worst[1]);
    println!("repeat: cargo bench -p polylimit --bench memory");
}

/// Random keys (xorshift64, Marsaglia 2003): two of each key on average, enough that a restart at the beginning takes no
/// time.
fn at_random(keys: &[String]) -> Vec<String> {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        ((u128::from(random) * keys.len() as u128) >> 64) as usize
    };
    (0..(2 * keys.len()).max(1_000)).map(|_| keys[next()].clone()).collect()
}
