//! Requests that a layer holds in place of a denial, in front of the server that the module `framework` of the test has.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::http::tower::RateLimitLayer;
use polylimit::{Limiter, Policy};

use crate::framework::{Body, Unfinished, serve};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn held_request_proceeds_when_units_return_and_a_further_one_is_denied() {
    for quotas in ["1/minute token_bucket", "1/minute leaky_bucket burst=10"] {
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let policy = Policy::parse("api", quotas).unwrap();
        let limiter = Limiter::builder().policy(policy).clock(clock.clone()).build().unwrap();
        let layer = RateLimitLayer::<Body>::builder(limiter, |_| "key").wait(LONG).max_waiting(1).build();
        let service = serve(vec![layer.unwrap()], Unfinished::default());
        assert_eq!(service.get("/").status, 200);
        let (sender, statuses) = channel();
        thread::scope(|scope| {
            for _ in 0..2 {
                let (sender, service) = (sender.clone(), &service);
                scope.spawn(move || sender.send(service.get("/")).unwrap());
            }
            let denied = statuses.recv_timeout(LONG).unwrap();
            assert_eq!((denied.status, denied.field("retry-after")), (429, vec!["60"]), "{quotas}");
            // The other one may begin to wait only now.
            let held = loop {
                clock.advance(LONG).unwrap();
                if let Ok(held) = statuses.recv_timeout(Duration::from_millis(20)) {
                    break held;
                }
            };
            assert_eq!(held.status, 200, "{quotas}");
        });
    }
}

#[test]
fn request_that_would_wait_too_long_is_denied_at_once() {
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let limiter = Limiter::builder().clock(clock).build().unwrap();
    let layer = RateLimitLayer::<Body>::builder(limiter, |_| "key").policy("1/hour").wait(LONG).build();
    let service = serve(vec![layer.unwrap()], Unfinished::default());
    assert_eq!(service.statuses("/", 2), [200, 429]);
}
