//! The memory store, on one thread.

use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::turns::Turns;

/// What no run exhausts, and what admits one request a key.
const ALLOWED: &str = "1000000/s token_bucket burst=4000000000";
const DENIED: &str = "1/day token_bucket";
const TWO_MORE: &str = "; 9000000000/h; 90000000000/day";

pub(crate) fn rows() -> Vec<String> {
    let outcomes = ["allowed", "denied", "allowed, 3 quotas", "denied, 3 quotas"];
    let keys = [1, 1_000, 1_000_000].into_iter();
    keys.flat_map(|keys| outcomes.map(|outcome| format!("memory, {keys} keys, {outcome}"))).collect()
}

/// A new limiter of one of the revisions.
macro_rules! limiter {
    ($revision:ident, $quotas:expr, $keys:expr) => {{
        let policy = crate::$revision::Policy::parse("bench", $quotas).unwrap();
        let limiter =
            crate::$revision::Limiter::builder().policy(policy).max_keys(2_000_000).build().unwrap();
        let limiter = limiter.blocking();
        // Every key has a state from here on, and the keys of the denied rows are denied.
        (0..$keys).for_each(|number| assert!(limiter.check(&format!("user:{number}")).unwrap().allowed()));
        limiter
    }};
}

/// A function that decides; a macro, because the limiters are of two types.
macro_rules! decide {
    ($limiter:expr) => {
        |key: &String| {
            let decision = $limiter.check(key).unwrap();
            black_box((decision.remaining(), decision.retry_after_us()));
            decision.allowed()
        }
    };
}

pub(crate) fn measure(row: &str, after_first: bool) -> Turns {
    let keys = row.split(' ').find_map(|word| word.parse().ok()).unwrap_or(1_usize);
    let allowed = row.contains("allowed");
    let mut quotas = if allowed { ALLOWED } else { DENIED }.to_owned();
    quotas += if row.ends_with("3 quotas") { TWO_MORE } else { "" };
    // A prime scatters them. They are in memory in the order of the requests: a service has just built the key.
    let asked: Vec<_> = (0..keys.max(1_000)).map(|at| format!("user:{}", at * 7_368_787 % keys)).collect();
    let (before, after);
    if after_first {
        after = limiter!(after, &quotas, keys);
        before = limiter!(before, &quotas, keys);
    } else {
        before = limiter!(before, &quotas, keys);
        after = limiter!(after, &quotas, keys);
    }
    Turns::take(
        |numbers| time(&asked, numbers, allowed, &decide!(before)),
        |numbers| time(&asked, numbers, allowed, &decide!(after)),
    )
}

/// Takes processor time, which does not advance while other programs run.
#[inline(never)]
fn time(
    asked: &[String],
    numbers: Range<usize>,
    allowed: bool,
    decide: &impl Fn(&String) -> bool,
) -> Duration {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let (started, decisions) = (now(), numbers.len());
    let keys = asked.iter().cycle().skip(numbers.start % asked.len()).take(decisions);
    let as_expected = keys.filter(|key| decide(black_box(key)) == allowed).count();
    let taken = now().saturating_sub(started);
    assert_eq!(as_expected, decisions);
    taken
}
