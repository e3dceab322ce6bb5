//! A file without free space.

use std::time::{Duration, Instant};

use polylimit::Request;
use polylimit::clock::ManualClock;
use polylimit::decision::Degradation;

use super::Store;

const NOW_US: u64 = 1_800_000_000_000_000;

#[test]
fn key_in_use_is_never_evicted_for_a_new_one() {
    for quotas in ["2/minute", "2/minute token_bucket", "2/minute sliding_log; 5/hour fixed_window"] {
        let store = Store::new();
        let clock = ManualClock::new(NOW_US).unwrap();
        let limiter = store.builder(quotas).clock(clock.clone()).build().unwrap().blocking();
        let mut old = 0;
        while limiter.check(Request::new(&format!("old:{old}")).cost(2)).unwrap().degraded().is_none() {
            old += 1;
        }
        assert!(old > 2_000, "{old}");
        for key in 0..1_000 {
            let decision = limiter.check(&format!("new:{key}")).unwrap();
            // All new keys share one state with a limit of 2, which the first has spent.
            assert_eq!(decision.degraded(), Some(Degradation::StoreFull), "{quotas}");
            assert!(!decision.allowed());
        }
        assert_eq!(limiter.asynchronous().admin().keys(), Some(old));
        for key in 0..old {
            let decision = limiter.check(&format!("old:{key}")).unwrap();
            assert!(!decision.allowed() && decision.degraded().is_none());
        }
        // Idle keys make room.
        clock.advance(Duration::from_secs(7_200)).unwrap();
        for key in 0..old {
            let decision = limiter.check(&format!("late:{key}")).unwrap();
            assert!(decision.allowed() && decision.degraded().is_none(), "{key}");
        }
    }
}

#[test]
fn idle_keys_are_removed() {
    let store = Store::new();
    let clock = ManualClock::new(NOW_US).unwrap();
    let limiter = store.builder("10/s token_bucket").clock(clock.clone()).build().unwrap().blocking();
    for key in 0..100_000 {
        assert!(limiter.check(&format!("key:{key}")).unwrap().degraded().is_none());
        clock.advance(Duration::from_millis(1)).unwrap();
    }
    assert!(
        limiter.asynchronous().admin().keys().unwrap() < 6_000,
        "{:?}",
        limiter.asynchronous().admin().keys()
    );
}

#[test]
fn log_that_outgrows_the_file_keeps_its_usage() {
    let store = Store::new();
    let clock = ManualClock::new(NOW_US).unwrap();
    let limiter = store.builder("1000000/h sliding_log").clock(clock.clone()).build().unwrap().blocking();
    assert!(limiter.check("key").unwrap().degraded().is_none());
    let others = (0..).map(|other| limiter.check(&format!("other:{other}")).unwrap());
    assert!(others.take_while(|decision| decision.degraded().is_none()).count() > 1_000);
    let mut own = 1;
    clock.advance(Duration::from_micros(10)).unwrap();
    while limiter.check("key").unwrap().degraded().is_none() {
        own += 1;
        clock.advance(Duration::from_micros(10)).unwrap();
    }
    assert_eq!(limiter.peek("key").unwrap().remaining(), 1_000_000 - own);
    clock.advance(Duration::from_secs(7_200)).unwrap();
    assert!(limiter.check("key").unwrap().degraded().is_none());
}

/// A thread that waits for the lock of the shared state reads the clock after it has the lock. An earlier time would move
/// back what other threads have used.
#[test]
fn shared_state_of_new_keys_is_not_refilled_by_waiting_threads() {
    const RATE: u64 = 5_000;
    let store = Store::new();
    // The file has several shards, whose keys use one shared state.
    let limiter = |quotas: &str| store.builder(quotas).local_size(8 << 20).build().unwrap().blocking();
    let full = limiter("1/52w");
    let degraded = (0..200_000).filter(|key| full.check(&format!("{key}")).unwrap().degraded().is_some());
    assert!(degraded.count() > 1_000);
    let limiter = limiter(&format!("{RATE}/s token_bucket"));
    let started = Instant::now();
    let admitted: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|thread| {
                let limiter = &limiter;
                scope.spawn(move || {
                    let mut admitted = 0;
                    for number in 0.. {
                        if started.elapsed() > Duration::from_secs(1) {
                            break;
                        }
                        let decision = limiter.check(&format!("{thread} {number:100}")).unwrap();
                        assert_eq!(decision.degraded(), Some(Degradation::StoreFull));
                        admitted += u64::from(decision.allowed());
                    }
                    admitted
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let passed_us = u64::try_from(started.elapsed().as_micros()).unwrap();
    let bound = RATE + RATE * passed_us / 1_000_000 + 1;
    assert!(admitted <= bound, "{admitted} of {bound}");
}
