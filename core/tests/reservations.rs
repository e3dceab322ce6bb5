//! Handles of reservations: how they end, are renewed, are lost, and wait in line.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polylimit::clock::ManualClock;
use polylimit::raw::{Answer, Call, Completions, ReservationTerms};
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::{ErrorKind, Limiter, Policy, Quota, Request, blocking};

const START_US: u64 = 1_790_000_000_000_000;
const LONG: Duration = Duration::from_secs(60);

fn limiter(quotas: &str) -> (blocking::Limiter, ManualClock) {
    let clock = ManualClock::new(START_US).unwrap();
    let policy = Policy::parse("p", quotas).unwrap();
    (Limiter::builder().policy(policy).clock(clock.clone()).build().unwrap().blocking(), clock)
}

fn remaining(limiter: &blocking::Limiter) -> u64 {
    limiter.peek("key").unwrap().remaining()
}

/// Waits until something that another thread does is seen.
fn wait_until(mut is_seen: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_seen() {
        assert!(started.elapsed() < LONG, "the other thread did nothing");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn commit_charges_what_was_spent() {
    let (limiter, _) = limiter("2 concurrent; 100/hour token_bucket");
    let reserve = |cost| limiter.reserve(Request::new("key").cost(cost), ReserveOptions::default()).unwrap();
    let (one, two) = (reserve(40), reserve(60));
    assert!(one.allowed() && two.allowed() && !reserve(1).allowed());
    let left = one.commit_blocking(25).unwrap();
    assert!(left.found() && left.remaining() == 15);
    let left = two.commit_blocking(0).unwrap();
    assert!(left.found() && left.remaining() == 75);
    assert_eq!(remaining(&limiter), 75);
}

#[test]
fn handle_that_is_dropped_cancels() {
    let (limiter, _) = limiter("10/hour");
    let reservation = limiter.reserve(Request::new("key").cost(4), ReserveOptions::default()).unwrap();
    assert_eq!(remaining(&limiter), 6);
    drop(reservation);
    assert_eq!(remaining(&limiter), 10);
    let panicked = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _held = limiter.reserve(Request::new("key").cost(4), ReserveOptions::default()).unwrap();
            panic!("the holder fails");
        });
        holder.join().is_err()
    });
    assert!(panicked && remaining(&limiter) == 10);
}

#[test]
fn handle_commits_at_its_end_where_the_options_say_so() {
    let (limiter, _) = limiter("10/hour");
    let options = ReserveOptions::default().commit_at_end(true);
    drop(limiter.reserve(Request::new("key").cost(4), options).unwrap());
    assert_eq!(remaining(&limiter), 6);
    limiter.reserve(Request::new("key").cost(4), options).unwrap().cancel_blocking().unwrap();
    assert_eq!(remaining(&limiter), 6);
}

#[test]
fn denied_handle_ends_nothing() {
    let (limiter, _) = limiter("1 concurrent");
    let id = ReservationId::new("same").unwrap();
    let held = limiter.reserve("key", ReserveOptions::default().id(id)).unwrap();
    let denied = limiter.reserve("key", ReserveOptions::default()).unwrap();
    assert!(!denied.allowed() && denied.decision().retry_after() == Some(ReserveOptions::DEFAULT_TTL));
    drop(denied);
    assert_eq!(remaining(&limiter), 0);
    assert_eq!(held.detach(), id);
    assert_eq!(remaining(&limiter), 0);
    assert!(limiter.cancel("key", id).unwrap().found());
    assert!(!limiter.cancel("key", id).unwrap().found());
}

#[test]
fn handle_renews_until_its_max_age() {
    let (limiter, clock) = limiter("1 concurrent");
    let ttl = Duration::from_secs(30);
    let options = ReserveOptions::default().ttl(ttl).max_age(Duration::from_secs(95));
    let held = limiter.reserve("key", options).unwrap();
    for _ in 0..9 {
        clock.advance(ttl / 3).unwrap();
        wait_until(|| limiter.peek("key").unwrap().reset_after() == ttl);
        assert!(!held.is_lost());
    }
    let younger = limiter.reserve("younger", ReserveOptions::default().ttl(ttl)).unwrap();
    clock.advance(Duration::from_secs(29)).unwrap();
    // Both were due, in one batch.
    wait_until(|| limiter.peek("younger").unwrap().reset_after() == ttl);
    assert!(!younger.is_lost());
    assert_eq!(remaining(&limiter), 0);
    clock.advance(Duration::from_secs(1)).unwrap();
    wait_until(|| held.is_lost());
    assert_eq!(remaining(&limiter), 1);
    assert!(!held.commit_blocking(1).unwrap().found());
}

#[test]
fn handle_tells_that_its_reservation_was_lost() {
    let (limiter, clock) = limiter("1 concurrent");
    let held = limiter.reserve("key", ReserveOptions::default()).unwrap();
    limiter.reset("key").unwrap();
    assert!(!held.is_lost());
    clock.advance(Duration::from_secs(10)).unwrap();
    wait_until(|| held.is_lost());
}

#[test]
fn earlier_reservation_that_a_handle_finds_is_renewed_at_once() {
    let (limiter, clock) = limiter("1 concurrent");
    let ttl = Duration::from_secs(30);
    let options = ReserveOptions::default().ttl(ttl).id(ReservationId::new("job").unwrap());
    limiter.reserve("key", options.max_age(Duration::ZERO)).unwrap().detach();
    clock.advance(Duration::from_secs(29)).unwrap();
    let found = limiter.reserve("key", options).unwrap();
    assert!(found.allowed());
    // Its ttl counts from now, although none of it has passed for this handle.
    wait_until(|| limiter.peek("key").unwrap().reset_after() == ttl);
    clock.advance(Duration::from_secs(2)).unwrap();
    assert!(!found.is_lost());
    assert!(found.commit_blocking(1).unwrap().found());

    limiter.reserve("key", options.max_age(Duration::ZERO)).unwrap().detach();
    let found = limiter.reserve("key", options.max_age(Duration::ZERO)).unwrap();
    assert!(!found.is_lost(), "what is not renewed is not known to be lost");
}

#[test]
fn one_batch_renews_many_handles() {
    let (limiter, clock) = limiter("1000 concurrent");
    let held: Vec<_> =
        (0..1_000).map(|_| limiter.reserve("key", ReserveOptions::default()).unwrap()).collect();
    assert!(held.iter().all(polylimit::reservation::Reservation::allowed) && remaining(&limiter) == 0);
    for _ in 0..6 {
        clock.advance(Duration::from_secs(10)).unwrap();
        wait_until(|| limiter.peek("key").unwrap().retry_after() == Some(Duration::from_secs(30)));
    }
    drop(held);
    assert_eq!(remaining(&limiter), 1_000);
}

#[tokio::test]
async fn callers_wait_in_line_until_a_slot_is_free() {
    let (limiter, _) = limiter("1 concurrent");
    let limiter = limiter.asynchronous().clone();
    let held = limiter.reserve("key", ReserveOptions::default()).await.unwrap();
    let order = Arc::new(AtomicU64::new(0));
    let mut waiting = Vec::new();
    for number in 0..3 {
        let (limiter, order) = (limiter.clone(), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let waited = limiter.reserve("key", ReserveOptions::default().timeout(LONG)).await.unwrap();
            assert!(waited.allowed());
            assert_eq!(order.fetch_add(1, Ordering::SeqCst), number);
            waited.cancel().await.unwrap();
        }));
        // Each has its place in line before the next one comes.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(order.load(Ordering::SeqCst), 0);
    held.cancel().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }
    assert_eq!(limiter.peek("key").await.unwrap().remaining(), 1);
}

#[test]
fn blocking_caller_waits_until_a_slot_is_free() {
    let (limiter, _) = limiter("1 concurrent");
    let held = limiter.reserve("key", ReserveOptions::default()).unwrap();
    thread::scope(|scope| {
        let waiting = scope
            .spawn(|| limiter.reserve("key", ReserveOptions::default().timeout(LONG)).unwrap().allowed());
        drop(held);
        assert!(waiting.join().unwrap());
    });
    assert_eq!(remaining(&limiter), 1);
}

#[test]
fn caller_that_waits_too_long_is_denied() {
    let (limiter, clock) = limiter("1 concurrent");
    let held = limiter.reserve("key", ReserveOptions::default()).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            limiter.reserve("key", ReserveOptions::default().timeout(Duration::from_secs(2))).unwrap()
        });
        while !waiter.is_finished() {
            clock.advance(Duration::from_millis(100)).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        let denied = waiter.join().unwrap();
        assert!(!denied.allowed() && denied.decision().retry_after().is_some());
    });
    drop(held);
    assert_eq!(remaining(&limiter), 1);
}

#[tokio::test]
async fn caller_that_stops_waiting_leaves_nothing_behind() {
    let policy = Policy::parse("p", "1 concurrent").unwrap();
    let limiter = Limiter::builder().policy(policy).build().unwrap();
    let held = limiter.reserve("key", ReserveOptions::default()).await.unwrap();
    let waiting = limiter.reserve("key", ReserveOptions::default().timeout(LONG));
    assert!(tokio::time::timeout(Duration::from_millis(20), waiting).await.is_err());
    held.cancel().await.unwrap();
    let next = limiter.reserve("key", ReserveOptions::default().timeout(LONG)).await.unwrap();
    assert!(next.allowed());
}

#[test]
fn event_loop_that_does_not_come_delays_no_caller_behind_it() {
    let policy = Policy::parse("p", "2 concurrent").unwrap();
    let limiter = Limiter::builder().policy(policy).build().unwrap().blocking();
    let held = [0; 2].map(|_| limiter.reserve("key", ReserveOptions::default()).unwrap());
    let terms = ReserveOptions::default().timeout(LONG).terms().unwrap();
    let completions = Completions::new(|| {});
    let call = Call::Reserve(Request::new("key"), terms);
    assert_eq!(completions.submit(limiter.asynchronous(), &call, 1), None);
    thread::scope(|scope| {
        let behind = scope.spawn(|| limiter.reserve("key", ReserveOptions::default().timeout(LONG)).unwrap());
        drop(held);
        assert!(behind.join().unwrap().allowed());
    });
    // The event loop has not taken the answer: nothing is left of its reservation.
    wait_until(|| remaining(&limiter) == 1);
    assert!(completions.cancel(&1));
    wait_until(|| remaining(&limiter) == 2);
}

#[test]
fn no_more_than_the_limit_are_held_at_a_time() {
    let policy = Policy::parse("p", "20 concurrent").unwrap();
    let limiter = Limiter::builder().policy(policy).build().unwrap().blocking();
    let (holding, most) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let held = limiter.reserve("key", ReserveOptions::default()).unwrap();
                    if held.allowed() {
                        let now = holding.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        holding.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 20);
    assert_eq!(remaining(&limiter), 20);
}

#[test]
fn a_key_has_at_most_1000_reservations() {
    let (limiter, _) = limiter("1000000/hour");
    let reserve = || {
        let terms = ReservationTerms {
            id: ReservationId::random().unwrap(),
            ttl: Duration::from_secs(1),
            timeout: Duration::ZERO,
            remember: Duration::ZERO,
        };
        match limiter.raw().call(&Call::Reserve(Request::new("key"), terms)).unwrap() {
            Answer::Decision(decision) => decision,
            other => panic!("{other:?}"),
        }
    };
    assert!((0..1_000).all(|_| reserve().allowed()));
    let denied = reserve();
    assert!(!denied.allowed() && denied.retry_after() == Some(Duration::from_secs(1)));
    assert!(limiter.check("key").unwrap().allowed());
}

/// A request that is denied shows what its policies have now, also for a reserve with the id of a commit, which needs a slot and no units.
#[test]
fn denied_request_shows_the_units_that_are_left() {
    let slots = Policy::parse("slots", "3 concurrent; 20/hour fixed_window").unwrap();
    let empty = Policy::parse("empty", "0/hour").unwrap();
    let limiter = Limiter::builder().policy(slots).policy(empty).build().unwrap().blocking();
    let id = ReservationId::new("committed").unwrap();
    let terms = ReserveOptions::default().id(id).remember(LONG).terms().unwrap();
    let slot = Request::new("key").policy("slots");
    assert!(limiter.reserve_together(&[slot], &terms).unwrap()[0].allowed());
    assert!(limiter.commit(slot, id, Some(1)).unwrap().found());
    for _ in 0..2 {
        let other = ReserveOptions::default().terms().unwrap();
        assert!(limiter.reserve_together(&[slot], &other).unwrap()[0].allowed());
    }
    // The first one fits, and the second one would not if it needed units.
    for cost in [1, 21] {
        let requests = [slot.cost(cost), Request::new("key").policy("empty")];
        let decisions = limiter.reserve_together(&requests, &terms).unwrap();
        let seen: Vec<_> =
            decisions.iter().map(|decision| (decision.allowed(), decision.remaining())).collect();
        assert_eq!(seen, [(true, 17), (false, 0)], "{cost}");
    }
}

#[test]
fn bad_input_is_refused_with_what_is_allowed() {
    let (limiter, _) = limiter("1 concurrent; 5/hour");
    let refused = |error: polylimit::Error, allowed: &str| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(allowed), "{error}");
    };
    for id in [String::new(), "x".repeat(65)] {
        refused(ReservationId::new(id).unwrap_err(), "allowed are 1 to 64");
    }
    for ttl in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(48 * 3_600 + 1)] {
        let options = ReserveOptions::default().ttl(ttl);
        refused(limiter.reserve("key", options).unwrap_err(), "1 ms to 48 h");
        let id = ReservationId::new("a").unwrap();
        refused(limiter.renew("key", id, ttl).unwrap_err(), "1 ms to 48 h");
        let remembered = limiter.reserve("key", ReserveOptions::default().remember(ttl));
        match remembered {
            Ok(reserved) => assert!(ttl.is_zero() && reserved.allowed()),
            Err(error) => refused(error, "1 ms to 48 h, or 0 not to remember it"),
        }
    }
    refused(limiter.check("key").unwrap_err(), "use reserve");
    // Also where the store knows the key.
    let _ = limiter.reserve("key", ReserveOptions::default()).unwrap().detach();
    refused(limiter.check("key").unwrap_err(), "use reserve");
    refused(limiter.check_many(["key"]).remove(0).unwrap_err(), "use reserve");
    refused(limiter.take("key").unwrap_err(), "use reserve");
    refused(limiter.acquire("key", LONG).unwrap_err(), "use reserve");
    let queue = Request::new("key").policy("10/s leaky_bucket");
    refused(limiter.reserve(queue, ReserveOptions::default()).unwrap_err(), "use a token_bucket");
    for spent in [Request::MAX_COST + 1, (1 << 40) - 1, 1 << 40, u64::MAX] {
        let id = ReservationId::new("a").unwrap();
        refused(limiter.commit("key", id, Some(spent)).unwrap_err(), "cost is");
    }
    let long = Request::new("key").cost(Request::MAX_COST + 1);
    refused(limiter.reserve(long, ReserveOptions::default()).unwrap_err(), "cost is");
    refused(Policy::parse("q", "10/s leaky_bucket; 2 concurrent").unwrap_err(), "cannot be reserved");
    refused(Policy::parse("q", "1 concurrent; 2 concurrent").unwrap_err(), "have to differ");
    refused(Quota::concurrent(Quota::MAX_UNITS + 1).unwrap_err(), "0 to 1000000000000");
    assert!(limiter.charge("key").is_ok() && limiter.refund("key").is_ok());
}
