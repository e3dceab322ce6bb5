//! What a middleware's guard costs compared with a plain check with its header fields.

use std::hint::black_box;
use std::time::Instant;

use polylimit::http::guard::{Guard, RequestFacts, RequestLimits, Verdict};
use polylimit::http::headers::{HeaderSettings, fields};
use polylimit::{Limiter, Policy};

const ROUNDS: usize = 9;
const REQUESTS: usize = 50_000;

/// Prints the fastest round of each, because a request of 1 us shares the machine with everything else.
pub(crate) fn report() {
    let policy = Policy::parse("api", "1000000/s token_bucket burst=4000000000").expect("a quota");
    let limiter = Limiter::builder().policy(policy.clone()).build().expect("a limiter");
    let guard = Guard::builder(limiter.clone()).policy("api").build().expect("a guard");
    let (limiter, settings) = (limiter.blocking(), HeaderSettings::default());
    let keys: Vec<String> = (0..1_000).map(|number| format!("user:{number}")).collect();
    let plain = |key: &str| {
        let decision = limiter.check(key).expect("a decision");
        black_box(fields(&[(&policy, &decision)], &settings, 0));
    };
    let guarded = |key: &str| {
        let facts = RequestFacts::new().key(key.as_bytes());
        let mut check = guard.start(&RequestLimits::default(), &facts).expect("a check");
        check.run_blocking();
        assert!(matches!(check.conclude(), Verdict::Admit));
        check.finish(true);
        black_box(check.fields());
    };
    let mut best = [f64::MAX; 2];
    for _ in 0..ROUNDS {
        best[0] = best[0].min(ns_each(&keys, plain));
        best[1] = best[1].min(ns_each(&keys, guarded));
    }
    println!("\nns a request on one thread: check and fields {:.0}, by a guard {:.0}", best[0], best[1]);
}

fn ns_each(keys: &[String], request: impl Fn(&str)) -> f64 {
    let start = Instant::now();
    for key in keys.iter().cycle().take(REQUESTS) {
        request(key);
    }
    start.elapsed().as_nanos() as f64 / REQUESTS as f64
}
