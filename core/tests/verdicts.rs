//! The verdict of each quota: which one denied a request, and how long each denies it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by a panic")]

#[path = "verdicts/together.rs"]
mod together;

use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::decision::{Cause, QuotaVerdict, Source};
use polylimit::raw::{Answer, Call, ReservationTerms};
use polylimit::reservation::ReservationId;
use polylimit::{Decision, Limiter, Policy, Request, blocking};

const NOW_US: u64 = 1_800_000_000_000_000;
const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;
const HOUR_US: u64 = 60 * MINUTE_US;
const ADMITS: (bool, Option<u64>) = (true, Some(0));
const NEVER: (bool, Option<u64>) = (false, None);

const fn denies(wait_us: u64) -> (bool, Option<u64>) {
    (false, Some(wait_us))
}

fn clock() -> ManualClock {
    ManualClock::new(NOW_US).unwrap()
}

fn limiter(quotas: &str) -> blocking::Limiter {
    let policy = Policy::parse("p", quotas).unwrap();
    Limiter::builder().clock(clock()).policy(policy).build().unwrap().blocking()
}

fn configured(policies: &str) -> blocking::Limiter {
    let document = format!(r#"{{"polylimit": 1, "policies": {policies}}}"#);
    Limiter::builder().clock(clock()).document(&document).build().unwrap().blocking()
}

fn request(cost: u64) -> Request<'static> {
    Request::new("key").policy("p").cost(cost)
}

fn verdicts(decision: &Decision) -> Vec<(bool, Option<u64>)> {
    decision.verdicts().map(|QuotaVerdict { allowed, retry_after_us }| (allowed, retry_after_us)).collect()
}

fn reserve(limiter: &blocking::Limiter, id: &str, cost: u64, ttl_us: u64) -> Decision {
    let ttl = Duration::from_micros(ttl_us);
    let terms = ReservationTerms {
        id: ReservationId::new(id).unwrap(),
        ttl,
        timeout: Duration::ZERO,
        remember: Duration::ZERO,
    };
    let answer = limiter.raw().call(&Call::Reserve(request(cost), terms)).unwrap();
    let Answer::Decision(decision) = answer else { panic!("{answer:?}") };
    decision
}

#[test]
fn quota_that_denies_is_told_among_several() {
    let limiter = limiter("5/hour fixed_window; 2/minute fixed_window");
    assert_eq!(verdicts(&limiter.check(request(2)).unwrap()), [ADMITS; 2]);
    for denied in [limiter.check(request(1)).unwrap(), limiter.peek(request(1)).unwrap()] {
        assert_eq!(verdicts(&denied), [ADMITS, denies(MINUTE_US)]);
        assert_eq!(denied.retry_after_us(), Some(MINUTE_US));
    }
    assert_eq!(verdicts(&limiter.check(request(4)).unwrap()), [denies(HOUR_US), NEVER]);
    assert_eq!(verdicts(&limiter.check(request(0)).unwrap()), [ADMITS; 2]);
}

#[test]
fn verdict_of_the_only_quota_is_that_of_the_decision() {
    let limiter = limiter("1/minute fixed_window");
    assert_eq!(verdicts(&limiter.check(request(1)).unwrap()), [ADMITS]);
    for cost in [1, 1, 2] {
        let denied = limiter.check(request(cost)).unwrap();
        assert_eq!(verdicts(&denied), [(false, denied.retry_after_us())]);
    }
}

#[test]
fn denied_requests_that_count_are_part_of_the_verdict() {
    let limiter = limiter("2/hour fixed_window count_denied; 1/minute fixed_window");
    let _ = limiter.check(request(1)).unwrap();
    // The denial spends the last unit of the first quota.
    assert_eq!(verdicts(&limiter.check(request(1)).unwrap()), [denies(HOUR_US), denies(MINUTE_US)]);
}

#[test]
fn block_leaves_each_quota_its_verdict() {
    for (quotas, open, used) in [
        ("1/minute fixed_window", vec![ADMITS], vec![denies(MINUTE_US)]),
        ("5/hour fixed_window; 1/minute fixed_window", vec![ADMITS; 2], vec![ADMITS, denies(MINUTE_US)]),
    ] {
        let limiter = limiter(quotas);
        for (block, expected) in [(SECOND_US, &open), (HOUR_US, &used)] {
            let _ = limiter.admin().block(request(0), Duration::from_micros(block)).unwrap();
            let denied = limiter.check(request(1)).unwrap();
            assert_eq!((denied.cause(), denied.retry_after_us()), (Some(Cause::Blocked), Some(block)));
            assert_eq!(&verdicts(&denied), expected);
            let _ = limiter.admin().block(request(0), Duration::ZERO).unwrap();
            let _ = limiter.charge(request(1)).unwrap();
        }
    }
}

#[test]
fn concurrency_and_what_is_set_aside_deny_each_by_itself() {
    let limiter = limiter("2 concurrent; 10/minute fixed_window; 20/hour fixed_window");
    for (id, ttl_us) in [("a", 10 * SECOND_US), ("b", 30 * SECOND_US)] {
        assert_eq!(verdicts(&reserve(&limiter, id, 5, ttl_us)), [ADMITS; 3]);
    }
    // A slot is free when the first ends; five units fit then as well, eight when the second has ended.
    let denied = reserve(&limiter, "c", 5, SECOND_US);
    assert_eq!(verdicts(&denied), [denies(10 * SECOND_US), denies(10 * SECOND_US), ADMITS]);
    let denied = reserve(&limiter, "c", 8, SECOND_US);
    assert_eq!(verdicts(&denied), [denies(10 * SECOND_US), denies(30 * SECOND_US), ADMITS]);
    assert_eq!((denied.cause(), denied.retry_after_us()), (Some(Cause::Quota), Some(30 * SECOND_US)));
    let denied = reserve(&limiter, "c", 0, SECOND_US);
    assert_eq!(verdicts(&denied), [denies(10 * SECOND_US), ADMITS, ADMITS]);
    assert_eq!(denied.cause(), Some(Cause::Concurrency));
}

#[test]
fn headroom_counts_for_each_quota() {
    let limiter = limiter("10/minute fixed_window; 40/hour fixed_window");
    let _ = limiter.charge(request(5)).unwrap();
    let peek = |headroom| verdicts(&limiter.peek(request(1).headroom(headroom)).unwrap());
    assert_eq!(peek(40), [ADMITS, ADMITS]);
    assert_eq!(peek(50), [denies(MINUTE_US), ADMITS]);
    assert_eq!(peek(99), [NEVER, NEVER]);
}

#[test]
fn more_reservations_than_a_key_may_have_are_denied_by_no_quota() {
    let limiter = limiter("5000/minute");
    for number in 0..1_000 {
        assert!(reserve(&limiter, &number.to_string(), 1, MINUTE_US).allowed());
    }
    let denied = reserve(&limiter, "one more", 1, MINUTE_US);
    assert_eq!((denied.cause(), denied.retry_after_us()), (Some(Cause::Concurrency), Some(MINUTE_US)));
    assert_eq!(verdicts(&denied), [ADMITS]);
}

#[test]
fn policy_in_shadow_tells_which_quota_would_deny() {
    for (quotas, expected) in [
        ("1/minute fixed_window", vec![denies(MINUTE_US)]),
        ("5/hour fixed_window; 1/minute fixed_window", vec![ADMITS, denies(MINUTE_US)]),
    ] {
        let limiter = configured(&format!(r#"{{"p": {{"quotas": "{quotas}", "mode": "shadow"}}}}"#));
        assert!(verdicts(&limiter.check(request(1)).unwrap()).iter().all(|verdict| *verdict == ADMITS));
        let shadowed = limiter.check(request(1)).unwrap();
        assert!(shadowed.allowed() && shadowed.shadowed());
        assert_eq!(verdicts(&shadowed), expected);
    }
}

#[test]
fn pool_leaves_each_quota_its_verdict() {
    for (quotas, expected) in [
        ("1/hour fixed_window", vec![denies(HOUR_US)]),
        ("5/hour fixed_window; 1/hour sliding_log", vec![ADMITS, denies(HOUR_US)]),
    ] {
        let elastic = r#"{"policy": "pool", "key": "all"}"#;
        let limiter = configured(&format!(
            r#"{{"p": {{"quotas": "{quotas}", "elastic": {elastic}}}, "pool": {{"quotas": "2/minute fixed_window"}}}}"#
        ));
        let _ = limiter.check(request(1)).unwrap();
        let admitted = limiter.check(request(1)).unwrap();
        assert!(admitted.allowed() && admitted.elastic());
        assert_eq!(admitted.retry_after_us(), Some(0));
        assert_eq!(verdicts(&admitted), expected);
        let denied = limiter.check(request(1)).unwrap();
        assert_eq!((denied.allowed(), denied.retry_after_us()), (false, Some(MINUTE_US)));
        assert_eq!(verdicts(&denied), expected);
    }
}

#[test]
fn no_quota_denies_what_the_configuration_decides() {
    for quotas in ["1/minute", "1/minute; 5/hour"] {
        for mode in ["on", "shadow"] {
            let document = format!(
                r#"{{"polylimit": 1, "policies": {{"p": {{"quotas": "{quotas}", "mode": "{mode}"}}}},
                    "lists": {{"deny": ["key p key"]}}}}"#
            );
            let limiter = Limiter::builder().document(&document).build().unwrap().blocking();
            let Ok(denied) = limiter.check(request(1)) else { panic!("{document}") };
            assert_eq!((denied.cause(), denied.source()), (Some(Cause::DenyList), Source::Configuration));
            assert!(verdicts(&denied).iter().all(|verdict| *verdict == ADMITS), "{denied:?}");
        }
    }
}

#[test]
fn refund_of_another_policy_leaves_a_denial_its_verdicts() {
    let policies =
        ["a", "b"].map(|name| Policy::parse(name, "5/hour fixed_window; 1/minute fixed_window").unwrap());
    let builder =
        policies.into_iter().fold(Limiter::builder().clock(clock()), polylimit::LimiterBuilder::policy);
    let limiter = builder.build().unwrap().blocking();
    let _ = limiter.check(Request::new("key").policy("b")).unwrap();
    let both = ["a", "b"].map(|name| Request::new("key").policy(name));
    let decisions = limiter.check_together(&both).unwrap();
    assert_eq!(verdicts(&decisions[0]), [ADMITS; 2]);
    assert_eq!(verdicts(&decisions[1]), [ADMITS, denies(MINUTE_US)]);
}

#[test]
fn denied_acquire_tells_whose_turn_comes_too_late() {
    let leaky = limiter("100/hour fixed_window; 2/second leaky_bucket burst=4");
    let _ = leaky.charge(request(3)).unwrap();
    let denied = leaky.acquire(request(1), Duration::from_secs(1)).unwrap();
    assert_eq!(verdicts(&denied), [ADMITS, denies(SECOND_US / 2)]);
    assert_eq!(denied.retry_after_us(), Some(SECOND_US / 2));
    // The longest wait counts, also where another quota denies for longer than the turn is late.
    let _ = leaky.charge(request(97)).unwrap();
    let denied = leaky.acquire(request(1), Duration::from_secs(1)).unwrap();
    assert_eq!(denied.retry_after_us(), Some(HOUR_US));
    assert_eq!(verdicts(&denied)[0], denies(HOUR_US));
}

#[tokio::test]
async fn denied_acquire_counts_the_requests_ahead_of_it() {
    let policy = Policy::parse("p", "1000/10s token_bucket; 1/second token_bucket").unwrap();
    let limiter = Limiter::builder().clock(clock()).policy(policy).build().unwrap();
    let _ = limiter.check(request(1)).await.unwrap();
    let ahead = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(request(1), Duration::from_secs(1)).await.unwrap() }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let denied = limiter.acquire(request(1), Duration::ZERO).await.unwrap();
    assert_eq!(verdicts(&denied), [ADMITS, denies(2 * SECOND_US)]);
    assert_eq!(denied.retry_after_us(), Some(2 * SECOND_US));
    ahead.abort();
}
