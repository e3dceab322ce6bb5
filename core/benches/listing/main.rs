//! What a list of a million keys costs the server and a service that runs beside it: `cargo bench -p polylimit --bench listing`.
//!
//! One server has a million keys. A service of one task checks keys of its own at a steady rate, and the latency of each check is
//! measured from the time at which it was due. A list of pages of 100,000 examined keys runs for a while, at its usual pace and without
//! pauses. The server's time is what it counts itself (INFO commandstats): that of SCAN, and that of the script calls that the list
//! makes. Figures are medians of rounds.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polylimit::{KeyFilter, Limiter, ListBudget, Policy, Request};
use polylimit_test_servers::{Kind, Server};
use tokio::runtime::Runtime;

/// How often the service checks a key.
const EVERY: Duration = Duration::from_millis(1);
/// How many keys are checked at once to fill the server.
const AT_ONCE: usize = 2_000;

fn limiter(server: &Server) -> Limiter {
    let builder = Limiter::builder().store(&format!("{}?deadline=5s&doctor_after=0", server.url()));
    builder.policy(Policy::parse("api", "100/day token_bucket").unwrap()).build().unwrap()
}

fn main() {
    // Ignores flags that `cargo bench` passes, such as --bench.
    let quick = std::env::args().any(|argument| argument == "--quick");
    let keys = if quick { 20_000 } else { 1_000_000 };
    let rounds = if quick { 1 } else { 5 };
    let lasts = Duration::from_secs(if quick { 1 } else { 20 });
    let server = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);
    // The service has a thread and connections of its own, as another process has.
    let service = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let lister = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    fill(&lister, &limiter(&server), keys);
    println!("{keys} keys, a check each {} us, {rounds} rounds of {lasts:?} (medians)\n", EVERY.as_micros());
    println!("| list | keys a second | server's time for the list | checks p50 | p99 | p99.9 |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, pace) in [("none", None), ("pace_percent 10", Some(10)), ("pace_percent 100", Some(100))] {
        let mut figures = [const { Vec::new() }; 5];
        for _ in 0..rounds {
            let row = measure(&server, &service, &lister, pace, lasts);
            for (figures, figure) in figures.iter_mut().zip(row) {
                figures.push(figure);
            }
        }
        let [per_second, share, p50, p99, p999] = figures.map(median);
        println!("| {name} | {per_second:.0} | {share:.1} % | {p50:.0} us | {p99:.0} us | {p999:.0} us |");
    }
    in_memory(keys);
    println!("\nrepeat: cargo bench -p polylimit --bench listing");
}

fn fill(runtime: &Runtime, limiter: &Limiter, keys: usize) {
    let all: Vec<usize> = (0..keys).collect();
    for some in all.chunks(AT_ONCE) {
        let names: Vec<String> = some.iter().map(|key| format!("user:{key}")).collect();
        let decisions = runtime.block_on(limiter.check_many(names.iter().map(Request::new)));
        assert!(decisions.into_iter().all(|decision| decision.unwrap().allowed()));
    }
}

/// Keys listed in a second, the server's time for the list in percent, and the latency of checks in us.
fn measure(
    server: &Server,
    service: &Runtime,
    runtime: &Runtime,
    pace: Option<u8>,
    lasts: Duration,
) -> [f64; 5] {
    let ends = Arc::new(AtomicBool::new(false));
    let checks = service.spawn(check_steadily(limiter(server), Arc::clone(&ends)));
    let (before, started) = (busy_us(server), Instant::now());
    let mut listed = 0;
    if let Some(pace) = pace {
        let listing = limiter(server);
        let budget = ListBudget::default().entries(100_000).pace_percent(pace);
        let mut cursor = None;
        while started.elapsed() < lasts {
            let budget = budget.examined(if pace == 100 { 100_000 } else { 10_000 });
            let part =
                runtime.block_on(listing.list(&KeyFilter::default(), &budget, cursor.as_deref())).unwrap();
            listed += part.keys.len();
            cursor = part.cursor;
        }
    } else {
        std::thread::sleep(lasts);
    }
    let (took, after) = (started.elapsed(), busy_us(server));
    ends.store(true, Ordering::Relaxed);
    let mut latencies = service.block_on(checks).unwrap();
    latencies.sort_unstable();
    let percentile =
        |per_mille: usize| latencies[(latencies.len() - 1) * per_mille / 1_000].as_secs_f64() * 1e6;
    // The checks of the service are calls of one check each; what they take alone is in the first row.
    let share = (after - before) / (took.as_secs_f64() * 1e6) * 100.0;
    [listed as f64 / took.as_secs_f64(), share, percentile(500), percentile(990), percentile(999)]
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

/// The time that the server has spent on SCAN and on scripts.
fn busy_us(server: &Server) -> f64 {
    let text: String = server.query(&["INFO", "commandstats"]);
    let of = |command: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let us = line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix("usec=")));
        us.map_or(0.0, |us| us.parse().unwrap())
    };
    of("scan") + of("evalsha") + of("eval")
}

/// The longest time for which a list in memory keeps a lock shows in the checks of another thread.
fn in_memory(keys: usize) {
    let policy = Policy::parse("api", "100/day token_bucket").unwrap();
    let limiter = Limiter::builder().policy(policy).max_keys(2 * keys).build().unwrap().blocking();
    for key in 0..keys {
        let _ = limiter.check(&format!("user:{key}")).unwrap();
    }
    println!("\n| in memory | keys a second | checks p50 | p99 | p99.9 | longest |");
    println!("|---|---:|---:|---:|---:|---:|");
    for is_listed in [false, true] {
        let ends = AtomicBool::new(false);
        let (per_second, mut latencies) = std::thread::scope(|scope| {
            let checks = scope.spawn(|| {
                let mut latencies = Vec::new();
                for key in (0..keys).step_by(7).cycle() {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let started = Instant::now();
                    let _ = limiter.check(&format!("user:{key}")).unwrap();
                    latencies.push(started.elapsed());
                }
                latencies
            });
            let started = Instant::now();
            let mut listed = 0;
            if is_listed {
                let budget = ListBudget::default().entries(usize::MAX).examined(u64::MAX);
                listed = limiter.list(&KeyFilter::default(), &budget, None).unwrap().keys.len();
            } else {
                std::thread::sleep(Duration::from_secs(1));
            }
            let took = started.elapsed();
            ends.store(true, Ordering::Relaxed);
            (listed as f64 / took.as_secs_f64(), checks.join().unwrap())
        });
        latencies.sort_unstable();
        let at = |per_mille: usize| latencies[(latencies.len() - 1) * per_mille / 1_000].as_secs_f64() * 1e6;
        let name = if is_listed { "listed" } else { "not listed" };
        let (p50, p99, p999, longest) = (at(500), at(990), at(999), at(1_000));
        println!("| {name} | {per_second:.0} | {p50:.2} us | {p99:.2} us | {p999:.2} us | {longest:.0} us |");
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}
