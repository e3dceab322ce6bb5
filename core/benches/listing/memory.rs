//! The longest time for which a list in memory keeps a lock shows in the checks of another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polylimit::admin::{KeyFilter, ListBudget};
use polylimit::{Limiter, Policy};

use super::at;

pub(crate) fn measure(keys: usize) {
    let policy = Policy::parse("api", "100/day token_bucket").unwrap();
    let limiter = Limiter::builder().policy(policy).max_keys(2 * keys).build().unwrap().blocking();
    for key in 0..keys {
        let _ = limiter.check(&format!("user:{key}")).unwrap();
    }
    println!("\n| in memory | keys a second | checks p50 | p99 | p99.9 | longest |");
    println!("|---|---:|---:|---:|---:|---:|");
    for is_listed in [false, true] {
        let ends = AtomicBool::new(false);
        let (per_second, latencies) = std::thread::scope(|scope| {
            let checks = scope.spawn(|| {
                let mut latencies = Vec::new();
                for key in (0..keys).step_by(7).cycle() {
                    let started = Instant::now();
                    let _ = limiter.check(&format!("user:{key}")).unwrap();
                    latencies.push(started.elapsed().as_secs_f64() * 1e6);
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                }
                latencies
            });
            let started = Instant::now();
            let mut listed = 0;
            if is_listed {
                let budget = ListBudget::default().entries(usize::MAX).examined(u64::MAX);
                listed = limiter.admin().list(&KeyFilter::default(), &budget, None).unwrap().keys.len();
            } else {
                std::thread::sleep(Duration::from_millis(keys as u64 / 1_000));
            }
            let took = started.elapsed();
            ends.store(true, Ordering::Relaxed);
            (listed as f64 / took.as_secs_f64(), checks.join().unwrap())
        });
        let [p50, p99, p999, longest] =
            [500, 990, 999, 1_000].map(|per_mille| at(latencies.clone(), per_mille));
        let name = if is_listed { "listed" } else { "not listed" };
        println!("| {name} | {per_second:.0} | {p50:.2} us | {p99:.2} us | {p999:.2} us | {longest:.0} us |");
    }
}
