//! What a list of a million keys costs the server and a service that runs at the same time:
//! `cargo bench -p polylimit --bench listing [-- ROUNDS]`, 15 rounds by default.
//!
//! One server has a million keys. A service of one task checks keys of its own at a steady rate, and the latency of each check is
//! measured from the time at which it was due. In each round the service runs alone, during `list`, during `top` by a scan, each at
//! the usual pace, and during a list without pauses, in an order that changes from round to round. The server's time is what it counts
//! itself for SCAN and scripts (INFO commandstats), minus what the service alone took in the same round. What a list does to the service
//! is the ratio of its 99th percentile to the one without a list in the same round: the machine's own noise is in both.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

mod memory;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polylimit::admin::{KeyFilter, ListBudget};
use polylimit::{Limiter, Policy, Request};
use polylimit_test_servers::{Kind, Server};
use tokio::runtime::Runtime;

/// How often the service checks a key.
const EVERY: Duration = Duration::from_millis(1);
/// How many keys are checked at once to fill the server.
const AT_ONCE: usize = 2_000;
/// How many keys one call of the limiter goes over: a page of `polylimit list`.
const EXAMINED: u64 = 10_000;

/// What runs at the same time as the service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    List { pace_percent: u8 },
    Top { pace_percent: u8 },
}

/// The variants, the service alone first.
const VARIANTS: [(&str, Beside); 4] = [
    ("none", Beside::Nothing),
    ("`list`, `pace_percent` 10", Beside::List { pace_percent: 10 }),
    ("`scan_top`, `pace_percent` 10", Beside::Top { pace_percent: 10 }),
    ("`list`, `pace_percent` 100", Beside::List { pace_percent: 100 }),
];

/// What one variant did in one round.
#[derive(Clone, Copy, Default)]
struct Seen {
    keys_a_second: f64,
    /// The server's time for SCAN and scripts, in percent of the time that passed.
    server_percent: f64,
    p50_us: f64,
    p99_us: f64,
}

fn limiter(server: &Server) -> Limiter {
    let builder = Limiter::builder().store(&format!("{}?deadline=5s&doctor_after=0", server.url()));
    builder.policy(Policy::parse("api", "100/day token_bucket").unwrap()).build().unwrap()
}

fn main() {
    // Ignores flags that `cargo bench` passes, such as --bench.
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (keys, default_rounds, lasts) =
        if quick { (1_000, 1, Duration::from_millis(300)) } else { (1_000_000, 15, Duration::from_secs(4)) };
    let rounds =
        std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(default_rounds);
    let server = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);
    // The service has a thread and connections of its own, as another process has.
    let service = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let lister = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    fill(&lister, &limiter(&server), keys);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut seen = [const { Vec::new() }; VARIANTS.len()];
    for round in 0..rounds {
        for turn in 0..VARIANTS.len() {
            let at = (round + turn) % VARIANTS.len();
            seen[at].push(measure(&server, &service, &lister, VARIANTS[at].1, lasts));
        }
    }
    println!(
        "{keys} keys, a check each {} us, {rounds} rounds of {lasts:?} for each row; load before the rounds: {}\n",
        EVERY.as_micros(),
        load.split(' ').next().unwrap_or_default()
    );
    print_rows(&seen);
    memory::measure(keys);
    println!("\nrepeat: cargo bench -p polylimit --bench listing");
}

fn print_rows(seen: &[Vec<Seen>; VARIANTS.len()]) {
    println!(
        "| next to the service | keys a second | server's time for it | checks, p50 | p99 | p99, ratio to none | quartiles |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let [none, ..] = seen;
    for ((name, _), rows) in VARIANTS.iter().zip(seen) {
        let of = |figure: fn(&Seen) -> f64| at(rows.iter().map(figure).collect(), 500);
        let pairs = || rows.iter().zip(none);
        let share = at(pairs().map(|(row, none)| row.server_percent - none.server_percent).collect(), 500);
        let ratios: Vec<f64> = pairs().map(|(row, none)| row.p99_us / none.p99_us).collect();
        let [low, middle, high] = [250, 500, 750].map(|per_mille| at(ratios.clone(), per_mille));
        println!(
            "| {name} | {:.0} | {share:.1} % | {:.0} us | {:.0} us | {middle:.2} | {low:.2} to {high:.2} |",
            of(|row| row.keys_a_second),
            of(|row| row.p50_us),
            of(|row| row.p99_us),
        );
    }
}

fn fill(runtime: &Runtime, limiter: &Limiter, keys: usize) {
    let all: Vec<usize> = (0..keys).collect();
    for some in all.chunks(AT_ONCE) {
        let names: Vec<String> = some.iter().map(|key| format!("user:{key}")).collect();
        let decisions = runtime.block_on(limiter.check_many(names.iter().map(Request::new)));
        assert!(decisions.into_iter().all(|decision| decision.unwrap().allowed()));
    }
}

fn measure(server: &Server, service: &Runtime, runtime: &Runtime, beside: Beside, lasts: Duration) -> Seen {
    let ends = Arc::new(AtomicBool::new(false));
    let checks = service.spawn(check_steadily(limiter(server), Arc::clone(&ends)));
    let (before, started) = (busy_us(server), Instant::now());
    let examined = match beside {
        Beside::Nothing => {
            std::thread::sleep(lasts);
            0
        }
        Beside::List { pace_percent } => list(server, runtime, pace_percent, lasts),
        Beside::Top { pace_percent } => top(server, runtime, pace_percent, lasts),
    };
    let (took, after) = (started.elapsed(), busy_us(server));
    ends.store(true, Ordering::Relaxed);
    let latencies = service.block_on(checks).unwrap();
    let us: Vec<f64> = latencies.iter().map(|latency| latency.as_secs_f64() * 1e6).collect();
    Seen {
        keys_a_second: examined as f64 / took.as_secs_f64(),
        server_percent: (after - before) / (took.as_secs_f64() * 1e6) * 100.0,
        p50_us: at(us.clone(), 500),
        p99_us: at(us, 990),
    }
}

/// Lists for a time, and returns how many keys the server went over.
fn list(server: &Server, runtime: &Runtime, pace_percent: u8, lasts: Duration) -> u64 {
    let (listing, started) = (limiter(server), Instant::now());
    let budget = ListBudget::default().entries(100_000).examined(EXAMINED).pace_percent(pace_percent);
    let (mut examined, mut cursor) = (0, None);
    while started.elapsed() < lasts {
        let page = runtime
            .block_on(listing.admin().list(&KeyFilter::default(), &budget, cursor.as_deref()))
            .unwrap();
        examined += page.examined;
        cursor = page.cursor;
    }
    examined
}

/// The same for the keys of which most is used; each look for them begins anew.
fn top(server: &Server, runtime: &Runtime, pace_percent: u8, lasts: Duration) -> u64 {
    let (listing, started) = (limiter(server), Instant::now());
    let budget = ListBudget::default().examined(EXAMINED).pace_percent(pace_percent);
    let mut examined = 0;
    while started.elapsed() < lasts {
        let page = runtime.block_on(listing.admin().scan_top(&KeyFilter::default(), 10, &budget)).unwrap();
        examined += page.examined;
    }
    examined
}

async fn check_steadily(limiter: Limiter, ends: Arc<AtomicBool>) -> Vec<Duration> {
    let mut latencies = Vec::new();
    let mut due = tokio::time::Instant::now();
    for key in (0..100).cycle() {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        due += EVERY;
        tokio::time::sleep_until(due).await;
        let _ = limiter.check(&format!("service:{key}")).await.unwrap();
        latencies.push(due.elapsed());
    }
    latencies
}

/// The time that the server has spent on SCAN and on scripts. What a script calls is within the script's time and has counts of its
/// own in addition, which would be added twice.
fn busy_us(server: &Server) -> f64 {
    let text: String = server.query(&["INFO", "commandstats"]);
    let of = |command: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let us = line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix("usec=")));
        us.map_or(0.0, |us| us.parse().unwrap())
    };
    ["scan", "evalsha", "eval"].map(of).iter().sum()
}

/// The value that this share, per mille, does not exceed.
fn at(mut figures: Vec<f64>, per_mille: usize) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[(figures.len() - 1) * per_mille / 1_000]
}
