//! Quotas of real limiters that follow an adaptive limit.

use std::time::Duration;

use polylimit::adaptive::{AdaptiveLimit, Call};
use polylimit::clock::ManualClock;
use polylimit::reservation::{Reservation, ReserveOptions};
use polylimit::{Limiter, Policy, Request};

const START_US: u64 = 1_700_000_000_000_000;

/// Ends a window in which ten calls succeeded or failed, with as many in flight as the limit allows.
fn window(limit: &AdaptiveLimit, clock: &ManualClock, failed: bool) {
    let mut calls: Vec<Call> = std::iter::from_fn(|| limit.try_begin()).collect();
    clock.advance(Duration::from_millis(100)).unwrap();
    calls.drain(..10).for_each(|call| if failed { call.failed() } else { call.succeeded() });
}

#[test]
fn quota_of_concurrency_follows_the_limit() {
    let clock = ManualClock::new(START_US).unwrap();
    let workers = |n: u32| Policy::parse("workers", &format!("{n} concurrent")).unwrap();
    let limiter = Limiter::builder().clock(clock.clone()).policy(workers(20)).build().unwrap();
    let of_hook = limiter.clone();
    let limit = AdaptiveLimit::builder(10..=40)
        .initial(20)
        .aimd(Duration::from_secs(1))
        .clock(clock.clone())
        .on_change(move |n| of_hook.set_policy(workers(n)).unwrap())
        .build()
        .unwrap();
    let limiter = limiter.blocking();
    let free = || limiter.peek("all").unwrap().remaining();
    assert_eq!(free(), 20);
    let reserve = || limiter.reserve(Request::new("all"), ReserveOptions::default()).unwrap();
    let held: Vec<_> = (0..18).map(|_| reserve()).collect();
    assert!(held.iter().all(Reservation::allowed));

    window(&limit, &clock, true);
    assert_eq!((limit.limit(), free()), (18, 0));
    assert!(!reserve().allowed(), "18 of 18 are held");
    window(&limit, &clock, true);
    assert_eq!((limit.limit(), free()), (16, 0));
    (0..4).for_each(|_| window(&limit, &clock, false));
    assert_eq!((limit.limit(), free()), (20, 2));
    drop(held);
}

/// A pool admits by rate, so N is turned into one: with 50 ms for each call, N places serve 20 N calls a second.
#[test]
fn pool_of_an_elastic_policy_follows_the_limit() {
    let document = |n: u32| {
        format!(
            "polylimit = 1\n\
             [policies.customer]\nquotas = '1/hour fixed_window'\n\
             elastic = {{ policy = 'machines', key = 'all', headroom = 0 }}\n\
             [policies.machines]\nquotas = '{}/s fixed_window'\n\
             [[rules]]\napply = [{{ policy = 'customer', key = '{{tenant}}', missing = 'deny' }}]\n",
            20 * n
        )
    };
    let clock = ManualClock::new(START_US).unwrap();
    let limiter = Limiter::builder().clock(clock.clone()).document(&document(20)).build().unwrap();
    let of_hook = limiter.clone();
    let limit = AdaptiveLimit::builder(10..=40)
        .initial(20)
        .clock(clock.clone())
        .on_change(move |n| drop(of_hook.admin().set_document(&document(n)).unwrap()))
        .build()
        .unwrap();
    // The customer's own request of this hour; everything else is from the pool.
    let limiter = limiter.blocking();
    let admitted = || {
        clock.advance(Duration::from_secs(10)).unwrap();
        let decisions = (0..1000).map(|_| limiter.check(Request::new("a").policy("customer")).unwrap());
        decisions.filter(|decision| decision.allowed() && decision.elastic()).count()
    };
    assert!(!limiter.check(Request::new("a").policy("customer")).unwrap().elastic());
    assert_eq!(admitted(), 400);
    window(&limit, &clock, true);
    assert_eq!((limit.limit(), admitted()), (18, 360));
    window(&limit, &clock, true);
    assert_eq!((limit.limit(), admitted()), (16, 320));
}
