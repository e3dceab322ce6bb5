//! Limiters for tests, and the units that a server has stored.

use std::time::Duration;

use polylimit::decision::Source;
use polylimit::redis::RedisOptions;
use polylimit::storage::Outage;
use polylimit::{Decision, Limiter, Policy, Request};

/// A quota that admits everything and counts it exactly, so that `remaining` shows how many units the server has stored.
pub const COUNTER_QUOTA: &str = "1_000_000_000/day fixed_window";

/// A deadline that a busy machine does not miss, for tests that do not measure time.
pub const GENEROUS_DEADLINE: Duration = Duration::from_secs(5);

/// The options of a URL, with the automatic run of the doctor turned off.
pub fn options(url: &str) -> RedisOptions {
    RedisOptions::parse(url).expect("a store URL").doctor_after(Duration::ZERO)
}

/// The same options without the denial cache: the test changes states in the server behind the limiter's back.
pub fn uncached(url: &str) -> RedisOptions {
    options(url).denial_cache_max(Duration::ZERO)
}

/// The URL with one more parameter.
#[must_use]
pub fn with(url: &str, parameter: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{parameter}")
}

/// A limiter with one policy, `p`, of these quotas.
pub fn limiter(options: RedisOptions, quotas: &str, outage: Outage) -> Limiter {
    let policy = Policy::parse("p", quotas).expect("quotas");
    Limiter::builder().policy(policy).outage("p", outage).redis(options).build().expect("a limiter")
}

/// A runtime of one thread.
pub fn current_thread_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A blocking check.
pub fn check(limiter: &Limiter, key: &str) -> Decision {
    limiter.blocking().check(key).expect("a decision")
}

/// Asserts that the store made the decision, and returns whether it admitted the request.
#[track_caller]
pub fn assert_from_store(decision: &Decision) -> bool {
    assert_eq!((decision.source(), decision.degraded()), (Source::Store, None), "{decision:?}");
    decision.allowed()
}

/// How many units of a key the server has stored under these quotas, read through a new limiter.
pub fn stored_units(url: &str, quotas: &str, key: &str) -> u64 {
    let limiter = limiter(options(url).deadline(GENEROUS_DEADLINE), quotas, Outage::Deny);
    let decision = limiter.blocking().peek(Request::new(key)).expect("a decision");
    assert_eq!(decision.source(), Source::Store, "{decision:?}");
    decision.quotas()[0].limit - decision.remaining()
}

/// How many units of all these keys the server has stored.
pub fn total_stored_units(url: &str, quotas: &str, keys: &[String]) -> u64 {
    keys.iter().map(|key| stored_units(url, quotas, key)).sum()
}
