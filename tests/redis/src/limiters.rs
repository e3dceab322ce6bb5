//! Limiters for tests, and what a server holds in the end.

use std::time::Duration;

use polylimit::{Decision, Limiter, Outage, Policy, RedisOptions, Request, Source};

/// A quota that admits everything and counts it exactly: what remains says how much the server holds.
pub const COUNTING: &str = "1_000_000_000/day fixed_window";

/// A deadline for those who only look, so that a busy machine does not disturb them.
pub const LONG: Duration = Duration::from_secs(5);

/// The options of a URL, for a limiter that has nothing done in the background that was not asked for.
pub fn options(url: &str) -> RedisOptions {
    RedisOptions::parse(url).expect("a store URL").doctor_after(Duration::ZERO)
}

/// The options of a URL, for a limiter that asks the server each time: somebody changes behind its back what it knows.
pub fn asked_each_time(url: &str) -> RedisOptions {
    options(url).denial_cache_max(Duration::ZERO)
}

/// A limiter with one policy, `p`, of these quotas.
pub fn limiter(options: RedisOptions, quotas: &str, outage: Outage) -> Limiter {
    let policy = Policy::parse("p", quotas).expect("quotas");
    Limiter::builder().policy(policy).outage("p", outage).redis(options).build().expect("a limiter")
}

/// A decision on this thread.
pub fn ask(limiter: &Limiter, key: &str) -> Decision {
    limiter.blocking().check(key).expect("a decision")
}

/// How many units the server at that URL holds for a key under these quotas, as somebody who comes anew sees it.
pub fn used(url: &str, quotas: &str, key: &str) -> u64 {
    let limiter = limiter(options(url).deadline(LONG), quotas, Outage::Deny);
    let decision = limiter.blocking().peek(Request::new(key)).expect("a decision");
    assert_eq!(decision.source(), Source::Store, "{decision:?}");
    decision.quotas()[0].limit - decision.remaining()
}

/// How many units the server at that URL holds for all of these keys together.
pub fn held(url: &str, quotas: &str, keys: &[String]) -> u64 {
    keys.iter().map(|key| used(url, quotas, key)).sum()
}
