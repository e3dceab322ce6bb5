//! A check by windows of the calendar compared with one by an aligned fixed window, in one run: `make bench-calendar`.
//!
//! Rounds of both are interleaved, so that a change of the machine's speed affects both; each figure is the median of its rounds.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

use std::hint::black_box;
use std::time::Instant;

use futures_util::future::join_all;
use polylimit::{Limiter, Policy, blocking};
use polylimit_test_servers::{Kind, Server};

/// The quotas that are compared. The first one is the base of the ratios.
const QUOTAS: [&str; 3] = [
    "1_000_000_000_000/day fixed_window aligned",
    "1_000_000_000_000/month",
    "1_000_000_000_000/month from=15 zone=Europe/Berlin",
];
const ROUNDS: usize = 41;
const CALLERS: usize = 64;

fn main() {
    // Ignores flags that `cargo bench` passes, such as --bench.
    let quick = std::env::args().any(|argument| argument == "--quick");
    println!("\nA check, median of {ROUNDS} rounds\n");
    println!("| | {} | {} | {} | ratio | ratio |", QUOTAS[0], QUOTAS[1], QUOTAS[2]);
    println!("|---|---:|---:|---:|---:|---:|");
    let checks = if quick { 200 } else { 200_000 };
    for count in [1, 100_000] {
        let keys: Vec<String> = (0..count).map(|number| format!("user:{number}")).collect();
        let limiters = QUOTAS.map(|quotas| limiter("memory:", quotas).blocking());
        let name = format!("memory, {count} keys, ns");
        row(&name, quick, |at| timed_ns(checks, &limiters[at], &keys));
    }
    let server = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let checks = if quick { 20 } else { 2_000 };
    let limiters = QUOTAS.map(|quotas| limiter(&server.url(), quotas));
    let keys: Vec<String> = (0..1_000).map(|number| format!("user:{number}")).collect();
    row("Redis, one caller, us", quick, |at| timed_ns(checks, &limiters[at].clone().blocking(), &keys) / 1e3);
    let together = |at: usize| {
        let started = Instant::now();
        runtime.block_on(join_all((0..CALLERS).map(|caller| {
            let (limiter, keys) = (&limiters[at], &keys);
            async move {
                for key in keys.iter().cycle().skip(caller * 13).take(checks / 10) {
                    assert!(limiter.check(key).await.unwrap().allowed());
                }
            }
        })));
        started.elapsed().as_secs_f64() * 1e6 / (CALLERS * (checks / 10)) as f64
    };
    row(&format!("Redis, {CALLERS} callers, us"), quick, together);
    row(&format!("the server's processor time, {CALLERS} callers, us"), quick, |at| {
        let before = cpu_us(&server);
        together(at);
        (cpu_us(&server) - before) / (CALLERS * (checks / 10)) as f64
    });
    println!("\nrepeat: cargo bench -p polylimit --bench calendar");
}

fn limiter(store: &str, quotas: &str) -> Limiter {
    Limiter::builder().store(store).policy(Policy::parse("api", quotas).unwrap()).build().unwrap()
}

/// Prints what the rounds of each of the quotas take.
fn row(name: &str, quick: bool, mut measure: impl FnMut(usize) -> f64) {
    let mut figures = QUOTAS.map(|_| Vec::new());
    for round in 0..=if quick { 1 } else { ROUNDS } {
        for (at, figures) in figures.iter_mut().enumerate() {
            let figure = measure(at);
            // The first round fills caches and opens connections.
            if round > 0 {
                figures.push(figure);
            }
        }
    }
    let [base, month, from] = figures.map(median);
    println!("| {name} | {base:.2} | {month:.2} | {from:.2} | {:.3} | {:.3} |", month / base, from / base);
}

fn timed_ns(checks: usize, limiter: &blocking::Limiter, keys: &[String]) -> f64 {
    let started = Instant::now();
    for key in keys.iter().cycle().take(checks) {
        let _ = black_box(limiter.check(key).unwrap());
    }
    started.elapsed().as_secs_f64() * 1e9 / checks as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn cpu_us(server: &Server) -> f64 {
    let seconds = |field: &str| server.info(field).parse::<f64>().unwrap();
    (seconds("used_cpu_user") + seconds("used_cpu_sys")) * 1e6
}
