//! The memory of a layer after requests for more keys than it keeps: its bound in bytes.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polylimit::Limiter;
use polylimit::redis::Lease;
use polylimit_test_servers::Server;

use crate::allocated::held;
use crate::footprint::limiter;

/// How many keys a layer keeps: 1,024 in each of its 64 shards.
const MAX_KEYS: usize = 64 * 1024;
/// Twice as many keys fill every shard; a layer without a bound would take more than the allowed bytes.
const KEYS: usize = 2 * MAX_KEYS;
const CALLERS: usize = 256;

struct Layer {
    name: &'static str,
    quota: &'static str,
    lease: Option<Lease>,
    /// The allowed bytes per key, including tables and spare room. With full tables, 188 and 588 bytes were measured.
    max_bytes_per_key: usize,
}

/// Whether every layer stays within its bound.
pub(crate) fn hold(server: &Server) -> bool {
    let lease = Lease::new(8, Duration::from_secs(60)).unwrap();
    let layers = [
        Layer { name: "denial cache", quota: "0/day", lease: None, max_bytes_per_key: 280 },
        Layer { name: "leases", quota: "1000000/day", lease: Some(lease), max_bytes_per_key: 700 },
    ];
    println!("\nbytes held after {KEYS} keys, of which a layer keeps {MAX_KEYS}\n");
    println!("| layer | held | least | most |\n|---|---:|---:|---:|");
    layers.map(|layer| layer.holds(server)).iter().all(|&holds| holds)
}

impl Layer {
    fn holds(&self, server: &Server) -> bool {
        let limiter = limiter(server, self.quota, self.lease);
        let held = bytes_after_all_keys(&limiter);
        // A layer with too few keys was not tested. A quarter of the allowed bytes is less than half of a full layer's
        // memory.
        let (least, most) = (MAX_KEYS * self.max_bytes_per_key / 4, MAX_KEYS * self.max_bytes_per_key);
        println!("| {} | {held} | {least} | {most} |", self.name);
        let holds = (least..=most).contains(&held);
        if !holds {
            println!("\nFAILED: the {} hold {held} bytes: allowed are {least} to {most}\n", self.name);
        }
        holds
    }
}

fn bytes_after_all_keys(limiter: &Limiter) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = async |caller: usize| {
        for number in (caller..KEYS).step_by(CALLERS) {
            let _ = limiter.check(format!("user:{number}").as_str()).await.unwrap();
        }
    };
    runtime.block_on(async {
        // Opens the connection and its buffers before the first measurement.
        let _ = limiter.check("user").await.unwrap();
        let before = held();
        (0..CALLERS).map(ask).collect::<FuturesUnordered<_>>().collect::<()>().await;
        held().saturating_sub(before)
    })
}
