//! Callers of both faces share one budget, and together they get exactly what the quota allows: `make demo`.

use std::error::Error;
use std::time::{Duration, Instant};

use polylimit::{Limiter, Policy};

const CALLERS: usize = 4;
const REQUESTS_EACH: usize = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::parse("demo", "100/minute sliding_log")?;
    println!("{policy}: {CALLERS} callers share it, each with {REQUESTS_EACH} requests for one key\n");
    let limiter = Limiter::builder().policy(policy).build()?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let mut rows = Vec::new();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (limiter, runtime) = (&limiter, &runtime);
                scope.spawn(move || {
                    if caller % 2 == 0 {
                        ("blocking", blocking(limiter))
                    } else {
                        ("asynchronous", runtime.block_on(asynchronous(limiter)))
                    }
                })
            })
            .collect();
        rows.extend(callers.into_iter().filter_map(|caller| caller.join().ok()));
    });

    println!("{:<14} {:>9} {:>9} {:>18}", "caller", "admitted", "denied", "ns a decision");
    let mut admitted = 0;
    for (face, (allowed, took)) in &rows {
        let denied = REQUESTS_EACH - allowed;
        let each_ns = took.as_nanos() / REQUESTS_EACH as u128;
        println!("{face:<14} {allowed:>9} {denied:>9} {each_ns:>18}");
        admitted += allowed;
    }
    println!("{:<14} {admitted:>9} {:>9}\n", "together", CALLERS * REQUESTS_EACH - admitted);
    if admitted != 100 {
        return Err(format!("{admitted} were admitted where the quota allows exactly 100").into());
    }
    println!("exactly what the quota allows");
    Ok(())
}

/// How many requests are admitted, and how long all of them take.
fn blocking(limiter: &Limiter) -> (usize, Duration) {
    let (limiter, start) = (limiter.blocking(), Instant::now());
    let admits = |_: &usize| limiter.check("user:42").is_ok_and(|decision| decision.allowed());
    ((0..REQUESTS_EACH).filter(admits).count(), start.elapsed())
}

async fn asynchronous(limiter: &Limiter) -> (usize, Duration) {
    let (mut allowed, start) = (0, Instant::now());
    for _ in 0..REQUESTS_EACH {
        allowed += usize::from(limiter.check("user:42").await.is_ok_and(|decision| decision.allowed()));
    }
    (allowed, start.elapsed())
}
