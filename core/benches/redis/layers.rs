//! The time of decisions without Redis: from the denial cache and from leases.

use std::time::{Duration, Instant};

use polylimit::decision::Source;
use polylimit::redis::Lease;
use polylimit::{Limiter, Policy};
use polylimit_test_servers::Server;

const ROUNDS: usize = 21;

pub(crate) fn report(server: &Server, quick: bool) {
    let decisions: u32 = if quick { 1_000 } else { 200_000 };
    println!("\nDecisions without asking Redis, ns each (median of {ROUNDS} rounds of {decisions})\n");
    println!("| source | ns | of all asked |\n|---|---:|---:|");
    let denied = limiter(server, "1/day token_bucket", None);
    let _ = denied.blocking().check("user").unwrap();
    row(&denied, Source::DenialCache, decisions);
    let lease = Lease::new(Lease::MAX_UNITS, Duration::from_secs(10)).unwrap();
    row(&limiter(server, "1000000000/day token_bucket", Some(lease)), Source::Lease, decisions);
}

fn limiter(server: &Server, quota: &str, lease: Option<Lease>) -> Limiter {
    let policy = Policy::parse("layers", quota).unwrap();
    let url = format!("{}?deadline=10s&outage=deny&denial_cache_max=1h", server.url());
    let builder = Limiter::builder().store(&url).policy(policy);
    let limiter = lease.into_iter().fold(builder, |builder, lease| builder.lease("layers", lease));
    let limiter = limiter.build().unwrap();
    server.command(&["FLUSHALL"]);
    limiter
}

fn row(limiter: &Limiter, source: Source, decisions: u32) {
    let blocking = limiter.blocking();
    let (mut rounds, mut here, mut asked) = (Vec::new(), 0, 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..decisions {
            here += u64::from(blocking.check("user").unwrap().source() == source);
        }
        asked += u64::from(decisions);
        rounds.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(decisions));
    }
    rounds.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    let part = here as f64 * 100.0 / asked as f64;
    println!("| {} | {:.0} | {part:.2} % |", source.name(), rounds[ROUNDS / 2]);
}
