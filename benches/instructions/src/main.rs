//! Operations whose instructions `benches/guard` counts, one after the other.
//!
//! Nothing here depends on the time of day, the machine's speed or other processes: the clock is a manual one, and each operation
//! is repeated on the same keys.

#![allow(clippy::expect_used, reason = "a benchmark stops at the first surprise")]

use std::hint::black_box;
use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::document::RequestAttributes;
use polylimit::http::guard::{Guard, RequestFacts, RequestLimits, Verdict};
use polylimit::http::headers::{HeaderSettings, fields};
use polylimit::reservation::ReserveOptions;
use polylimit::{Limiter, Policy, Request, blocking};

/// How often each operation is repeated while it is counted.
const REPETITIONS: usize = 2_000;

/// What no run exhausts.
const AMPLE: &str = "1000000/s token_bucket burst=4000000000";
const DENIED: &str = "1/day token_bucket";
const WINDOW: &str = "9000000000/h";
const TWO_MORE: &str = "; 9000000000/h; 90000000000/day";

/// A hundred rules, of which the last one concerns the request.
fn document() -> String {
    let rules: Vec<_> = (0..100)
        .map(|at| {
            format!(
                r#"{{"match": {{"path": "/v1/{at}/{{id}}", "method": ["GET", "POST"]}}, "apply": [{{"policy": "p", "key": "{{user}}"}}]}}"#
            )
        })
        .collect();
    format!(
        r#"{{"polylimit": 1, "policies": {{"p": {{"quotas": "{AMPLE}"}}}}, "rules": [{}]}}"#,
        rules.join(", ")
    )
}

fn limiter(policies: &[(&str, &str)]) -> Limiter {
    let clock = ManualClock::new(1_700_000_000_000_000).expect("a time");
    let mut builder = Limiter::builder().clock(clock);
    for (name, quotas) in policies {
        builder = builder.policy(Policy::parse(name, quotas).expect("quotas"));
    }
    builder.build().expect("a limiter")
}

/// What is repeated.
type Operation = Box<dyn FnMut()>;

/// Checks of keys that have a state.
fn checks(quotas: &str, keys: usize, is_allowed: bool) -> Operation {
    let limiter = limiter(&[("p", quotas)]).blocking();
    let keys: Vec<_> = (0..keys).map(|at| format!("user:{at}")).collect();
    for key in &keys {
        assert!(limiter.check(key).expect("a decision").allowed());
    }
    let mut at = 0;
    Box::new(move || {
        let decision = limiter.check(&keys[at]).expect("a decision");
        assert_eq!(decision.allowed(), is_allowed);
        black_box(decision.remaining());
        at = (at + 1) % keys.len();
    })
}

fn together(limiter: &blocking::Limiter, policies: &[&str]) {
    let requests: Vec<_> = policies.iter().map(|policy| Request::new("user:42").policy(policy)).collect();
    let decisions = limiter.check_together(&requests).expect("decisions");
    assert!(black_box(decisions).iter().all(polylimit::Decision::allowed));
}

fn rows() -> Vec<(&'static str, Operation)> {
    let three = ["a", "b", "c"];
    let several = limiter(&three.map(|name| (name, AMPLE))).blocking();
    let reserving = limiter(&[("p", AMPLE)]).blocking();
    let decides = Limiter::builder().document(&document());
    let decides = decides.clock(ManualClock::new(1_700_000_000_000_000).expect("a time"));
    let decides = decides.build().expect("a limiter").blocking();
    let terms = ReserveOptions::default().terms().expect("terms");
    let guard = Guard::builder(limiter(&[("p", AMPLE)])).policy("p").build().expect("a guard");
    let (shown, policy) = (limiter(&[("p", AMPLE)]).blocking(), Policy::parse("p", AMPLE).expect("quotas"));
    let decision = shown.check("user:42").expect("a decision");
    vec![
        ("check, bucket, 1 key, allowed", checks(AMPLE, 1, true)),
        ("check, bucket, 1 key, denied", checks(DENIED, 1, false)),
        ("check, bucket, 1,000 keys, allowed", checks(AMPLE, 1_000, true)),
        ("check, sliding window, 1 key, allowed", checks(WINDOW, 1, true)),
        ("check, 3 quotas, 1 key, allowed", checks(&format!("{AMPLE}{TWO_MORE}"), 1, true)),
        ("check of 3 policies together, allowed", Box::new(move || together(&several, &three))),
        (
            "reserve and commit",
            Box::new(move || {
                let options = ReserveOptions::default().ttl(Duration::from_secs(60)).max_age(Duration::ZERO);
                let reservation = reserving.reserve(Request::new("user:42"), options).expect("a reservation");
                black_box(reservation.commit_blocking(1).expect("a usage"));
            }),
        ),
        (
            "decide by a document of 100 rules",
            Box::new(move || {
                let request = RequestAttributes::new().method("GET").path("/v1/99/7").attribute("user", "42");
                assert!(black_box(decides.decide(&request, &terms).expect("a decision")).allowed);
            }),
        ),
        (
            "request by a guard, with its fields",
            Box::new(move || {
                let facts = RequestFacts::new().key(b"user:42");
                let mut check = guard.start(&RequestLimits::default(), &facts).expect("a check");
                check.run_blocking();
                assert!(matches!(check.conclude(), Verdict::Admit));
                check.finish(true);
                black_box(check.fields());
            }),
        ),
        (
            "fields of a decision",
            Box::new(move || {
                black_box(fields(&[(&policy, &decision)], &HeaderSettings::default(), 0));
            }),
        ),
        (
            "parse quotas",
            Box::new(|| {
                black_box(
                    Policy::parse("p", "100/minute; 1000/hour token_bucket burst=20; 5/s leaky_bucket")
                        .expect("quotas"),
                );
            }),
        ),
    ]
}

/// What callgrind counts: `benches/guard` names this function.
#[inline(never)]
fn counted_operation(operation: &mut dyn FnMut()) {
    for _ in 0..REPETITIONS {
        operation();
    }
}

fn main() {
    for (name, mut operation) in rows() {
        println!("{name}");
        // What is allocated once.
        for _ in 0..1_000 {
            operation();
        }
        counted_operation(&mut *operation);
    }
}
