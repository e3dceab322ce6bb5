//! The load: callers request more keys than the layers keep, under a policy that denies and under one that is leased.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polylimit::redis::Lease;
use polylimit::{Limiter, Policy, Request};
use polylimit_test_servers::Server;

use crate::KEYS;
use crate::allocated::{held, resident};

const CALLERS: u64 = 256;
const SAMPLES: u32 = 30;

#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) held: usize,
}

/// Runs the load for `length` and prints memory samples meanwhile.
pub(crate) fn run(server: &Server, length: Duration) -> Vec<Sample> {
    server.command(&["FLUSHALL"]);
    let policy = |name, quota| Policy::parse(name, quota).unwrap();
    let limiter = Limiter::builder()
        .store(&format!("{}?deadline=10s&outage=deny", server.url()))
        .policy(policy("denied", "1/day"))
        .policy(policy("leased", "1000000/day"))
        .lease("leased", Lease::auto())
        .build()
        .unwrap();
    println!("\n{KEYS} keys, {CALLERS} callers, {} s\n", length.as_secs());
    println!("| s | decisions | denial cache | leased | bytes held | resident | keys in Redis |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    let (samples, decisions) = (RefCell::new(Vec::new()), RefCell::new(0_u64));
    let start = Instant::now();
    let sampling = async {
        for number in 1..=SAMPLES {
            tokio::time::sleep_until((start + length * number / SAMPLES).into()).await;
            let (stats, held) = (limiter.stats(), held());
            println!(
                "| {} | {} | {} | {} | {held} | {} | {} |",
                start.elapsed().as_secs(),
                decisions.borrow(),
                stats.denial_cache,
                stats.leased,
                resident(),
                server.query::<u64>(&["DBSIZE"])
            );
            samples.borrow_mut().push(Sample { held });
        }
    };
    let callers: FuturesUnordered<_> = (0..CALLERS)
        .map(|caller| {
            let (limiter, decisions) = (&limiter, &decisions);
            async move {
                let mut random = 88_172_645_463_325_252 + caller;
                while start.elapsed() < length {
                    let number = uniform(&mut random);
                    // Each key is denied from its second request on, and the first few keys are requested again and
                    // again.
                    let few = if number.is_multiple_of(2) { number % 5_000 } else { number };
                    let key = few.to_string();
                    for policy in ["denied", "leased"] {
                        let _ = limiter.check(Request::new(&key).policy(policy)).await.unwrap();
                    }
                    *decisions.borrow_mut() += 2;
                }
            }
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::join!(sampling, callers.collect::<()>()) });
    samples.into_inner()
}

/// A number below the number of keys: xorshift64 (Marsaglia 2003).
fn uniform(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random % KEYS
}
