//! Callers of both faces share one budget, and together they get exactly what the quota allows: `make demo`. With
//! `make demo REDIS_URL=redis://...` they share nothing but a Redis server.

#![expect(clippy::cast_precision_loss, reason = "the figures are rounded")]

use std::error::Error;
use std::time::{Duration, Instant, SystemTime};

use polylimit::{Limiter, Policy};

const CALLERS: usize = 4;
const REQUESTS_EACH: usize = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::parse("demo", "100/minute sliding_log")?;
    println!("{policy}: {CALLERS} callers share it, each with {REQUESTS_EACH} requests for one key\n");
    // Limiters of one store share a budget; those of the memory store are clones of one.
    let limiters = match std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty()) {
        None => vec![Limiter::builder().policy(policy).build()?; CALLERS],
        Some(url) => {
            let limiter = |_| Limiter::builder().store(&url).policy(policy.clone()).build();
            (0..CALLERS).map(limiter).collect::<Result<_, _>>()?
        }
    };
    limiters[0].blocking().ready(Duration::from_secs(5))?;
    // A user that no earlier run has asked for.
    let user = format!("user:{}", SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros());

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows = Vec::new();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (limiter, runtime, user) = (&limiters[caller], &runtime, &*user);
                scope.spawn(move || {
                    if caller % 2 == 0 {
                        ("blocking", blocking(limiter, user))
                    } else {
                        ("asynchronous", runtime.block_on(asynchronous(limiter, user)))
                    }
                })
            })
            .collect();
        rows.extend(callers.into_iter().filter_map(|caller| caller.join().ok()));
    });

    println!("{:<14} {:>9} {:>9} {:>18}", "caller", "admitted", "denied", "us a decision");
    let mut admitted = 0;
    for (face, (allowed, took)) in &rows {
        let denied = REQUESTS_EACH - allowed;
        let each_us = took.as_secs_f64() * 1e6 / REQUESTS_EACH as f64;
        println!("{face:<14} {allowed:>9} {denied:>9} {each_us:>18.2}");
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
fn blocking(limiter: &Limiter, user: &str) -> (usize, Duration) {
    let (limiter, start) = (limiter.blocking(), Instant::now());
    let admits = |_: &usize| limiter.check(user).is_ok_and(|decision| decision.allowed());
    ((0..REQUESTS_EACH).filter(admits).count(), start.elapsed())
}

async fn asynchronous(limiter: &Limiter, user: &str) -> (usize, Duration) {
    let (mut allowed, start) = (0, Instant::now());
    for _ in 0..REQUESTS_EACH {
        allowed += usize::from(limiter.check(user).await.is_ok_and(|decision| decision.allowed()));
    }
    (allowed, start.elapsed())
}
