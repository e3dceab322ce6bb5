//! Waiting that ends before its answer is there.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::mpsc::channel;
use std::time::Duration;

use polylimit::{Answer, Call, Completions, Limiter, ManualClock, Policy, Request};

const HOUR: Duration = Duration::from_secs(3600);

fn limiter(clock: &ManualClock) -> Limiter {
    let policy = Policy::parse("api", "1/minute fixed_window").unwrap();
    Limiter::builder().policy(policy).clock(clock.clone()).build().unwrap()
}

fn is_allowed(answer: &Answer) -> bool {
    matches!(answer, Answer::Decision(decision) if decision.allowed())
}

#[test]
fn who_is_stopped_gives_up_the_place_and_may_use_the_limiter_meanwhile() {
    let clock = ManualClock::new(0).unwrap();
    let limiter = limiter(&clock).blocking();
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    assert!(is_allowed(&limiter.call_until(&acquire, HOUR, || panic!("known at once")).unwrap().unwrap()));
    let mut asked = 0;
    let answer = limiter.call_until(&acquire, Duration::from_millis(1), || {
        asked += 1;
        assert!(limiter.acquire(&format!("another {asked}"), HOUR).unwrap().allowed());
        asked == 3
    });
    assert_eq!((answer, asked), (None, 3));
    clock.advance(Duration::from_secs(60)).unwrap();
    assert!(limiter.check("user").unwrap().allowed());
}

#[test]
fn who_is_not_stopped_is_answered() {
    let clock = ManualClock::new(0).unwrap();
    let limiter = limiter(&clock).blocking();
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    assert!(limiter.check("user").unwrap().allowed());
    let answer = limiter.call_until(&acquire, Duration::from_millis(1), || {
        clock.advance(Duration::from_secs(20)).unwrap();
        false
    });
    assert!(is_allowed(&answer.unwrap().unwrap()));
}

#[test]
fn what_is_abandoned_is_never_handed_out() {
    let clock = ManualClock::new(0).unwrap();
    let limiter = limiter(&clock);
    let (wake, woken) = channel();
    let completions = Completions::new(move || _ = wake.send(()));
    assert!(limiter.blocking().check("user").unwrap().allowed());
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    for tag in [1, 2] {
        assert_eq!(completions.submit(&limiter, &acquire, tag), None);
    }
    completions.abandon(&1);
    completions.abandon(&3);
    clock.advance(Duration::from_secs(60)).unwrap();
    let mut tags = Vec::new();
    while completions.pending() > 0 {
        woken.recv_timeout(Duration::from_secs(10)).unwrap();
        completions.drain(|tag, answer| tags.push((tag, is_allowed(&answer.unwrap()))));
    }
    // The first in line has gone, so that the second is admitted.
    assert_eq!(tags, [(2, true)]);
}

#[test]
fn stopped_acquire_refunds_its_units_during_a_leaky_buckets_delay() {
    let clock = ManualClock::new(0).unwrap();
    let policy = Policy::parse("api", "2/second leaky_bucket burst=4").unwrap();
    let limiter = Limiter::builder().policy(policy).clock(clock).build().unwrap().blocking();
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    assert!(limiter.check("user").unwrap().allowed());
    let mut left = None;
    let answer = limiter.call_until(&acquire, Duration::from_millis(1), || {
        left = Some(limiter.peek("user").unwrap().remaining());
        true
    });
    assert_eq!((answer, left), (None, Some(2)));
    assert_eq!(limiter.peek("user").unwrap().remaining(), 3);
}

#[test]
fn abandoned_acquire_refunds_its_units_during_a_leaky_buckets_delay() {
    let clock = ManualClock::new(0).unwrap();
    let policy = Policy::parse("api", "2/second leaky_bucket burst=4").unwrap();
    let limiter = Limiter::builder().policy(policy).clock(clock).build().unwrap();
    let completions = Completions::new(|| {});
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    assert!(limiter.blocking().check("user").unwrap().allowed());
    assert_eq!(completions.submit(&limiter, &acquire, 1), None);
    assert_eq!(limiter.blocking().peek("user").unwrap().remaining(), 2);
    assert!(completions.abandon(&1));
    assert_eq!(limiter.blocking().peek("user").unwrap().remaining(), 3);
}
