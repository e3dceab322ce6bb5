//! The memory store: bounded in its keys, never evicts a key in use, and removes idle keys.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::decision::Degradation;
use polylimit::{Limiter, Policy, Request, blocking};

const NOW_US: u64 = 1_800_000_000_000_000;

fn limiter(quotas: &str, max_keys: usize) -> (blocking::Limiter, ManualClock) {
    let clock = ManualClock::new(NOW_US).unwrap();
    let policy = Policy::parse("test", quotas).unwrap();
    let limiter = Limiter::builder().policy(policy).clock(clock.clone()).max_keys(max_keys).build().unwrap();
    (limiter.blocking(), clock)
}

fn keys(limiter: &blocking::Limiter) -> usize {
    limiter.asynchronous().admin().keys().unwrap()
}

#[test]
fn key_in_use_is_never_evicted_for_a_new_one() {
    for quotas in ["2/minute", "2/minute token_bucket", "2/minute sliding_log; 5/hour fixed_window"] {
        let (limiter, _) = limiter(quotas, 100);
        for key in 0..100 {
            assert!(limiter.check(Request::new(&format!("old:{key}")).cost(2)).unwrap().allowed());
        }
        for key in 0..1_000 {
            let decision = limiter.check(&format!("new:{key}")).unwrap();
            assert_eq!(decision.degraded(), Some(Degradation::StoreFull), "{quotas}");
            // All new keys share one state, with a limit of 2.
            assert_eq!(decision.allowed(), key < 2, "{quotas}");
        }
        assert_eq!(keys(&limiter), 100);
        for key in 0..100 {
            let decision = limiter.check(&format!("old:{key}")).unwrap();
            assert!(!decision.allowed() && decision.degraded().is_none());
        }
    }
}

#[test]
fn idle_key_is_evicted_first() {
    let (limiter, clock) = limiter("1/minute token_bucket", 1_000);
    for key in 0..999 {
        assert!(limiter.check(&format!("early:{key}")).unwrap().allowed());
        clock.advance(Duration::from_micros(1)).unwrap();
    }
    clock.advance(Duration::from_secs(10)).unwrap();
    assert!(limiter.check("late").unwrap().degraded().is_none());
    // One key after the other becomes idle, and each makes room for one more.
    clock.set(NOW_US + 60_000_000 - 1).unwrap();
    for key in 0..500 {
        assert!(limiter.check(&format!("new:{key}")).unwrap().degraded().is_some());
        clock.advance(Duration::from_micros(1)).unwrap();
        let decision = limiter.check(&format!("new:{key}")).unwrap();
        assert!(decision.allowed() && decision.degraded().is_none(), "{key}");
    }
    assert!(!limiter.check("late").unwrap().allowed());
    assert_eq!(keys(&limiter), 1_000);
}

#[test]
fn refund_or_reset_makes_room() {
    let (limiter, _) = limiter("5/minute", 10);
    for key in 0..10 {
        assert!(limiter.check(&format!("old:{key}")).unwrap().allowed());
    }
    for given_back in 0..10 {
        assert!(limiter.check("new").unwrap().degraded().is_some());
        let old = format!("old:{given_back}");
        if given_back % 2 == 0 {
            limiter.refund(&old).unwrap()
        } else {
            limiter.reset(&old).unwrap()
        };
        let decision = limiter.check(&format!("new:{given_back}")).unwrap();
        assert!(decision.degraded().is_none(), "{given_back}");
    }
}

#[test]
fn idle_keys_are_removed_as_new_ones_arrive() {
    let (limiter, clock) = limiter("1/second sliding_log", 1_000_000);
    for second in 0..100 {
        for key in 0..1_000 {
            assert!(limiter.check(&format!("{second}:{key}")).unwrap().allowed());
        }
        clock.advance(Duration::from_secs(1)).unwrap();
    }
    assert!(keys(&limiter) < 5_000, "{} of 100,000 keys are still there", keys(&limiter));
}

#[test]
fn operations_without_effect_store_no_state() {
    let (limiter, _) = limiter("2/minute", 10);
    for key in 0..100 {
        let key = format!("key:{key}");
        assert!(limiter.peek(&key).unwrap().allowed());
        assert!(limiter.check(Request::new(&key).cost(0)).unwrap().allowed());
        assert!(!limiter.check(Request::new(&key).cost(3)).unwrap().allowed());
        assert_eq!(limiter.refund(&key).unwrap().remaining(), 2);
        assert_eq!(limiter.reset(&key).unwrap().remaining(), 2);
    }
    assert_eq!(keys(&limiter), 0);
}

#[test]
fn policies_and_keys_have_separate_states() {
    let names = ["a", "b", "c"];
    let builder = names
        .iter()
        .fold(Limiter::builder(), |builder, name| builder.policy(Policy::parse(name, "1/minute").unwrap()));
    let limiter = builder.build().unwrap().blocking();
    // Ambiguous, empty, binary and long keys are all keys of their own.
    let long = vec![b'k'; 1 << 20];
    let mut other = long.clone();
    other[1 << 19] = b'x';
    let user_keys: [&[u8]; 10] =
        [b"", b"\0", b"\0\0", b"{a}", b"a:b", b"a", "\u{1f980}".as_bytes(), b"\xff\xfe", &long, &other];
    for name in names {
        for key in user_keys {
            assert!(limiter.check(Request::new(key).policy(name)).unwrap().allowed());
            assert!(!limiter.check(Request::new(key).policy(name)).unwrap().allowed());
        }
    }
    assert_eq!(keys(&limiter), 30);
}

#[test]
fn limit_of_zero_keeps_earlier_usage() {
    let (limiter, clock) = limiter("10/minute token_bucket step=5", 10);
    assert!(limiter.check(Request::new("user").cost(10)).unwrap().allowed());
    let set = |quotas| limiter.asynchronous().set_policy(Policy::parse("test", quotas).unwrap()).unwrap();
    set("0/minute token_bucket step=5");
    for key in 0..100 {
        assert!(!limiter.check(&format!("{key}")).unwrap().allowed());
    }
    clock.advance(Duration::from_secs(30)).unwrap();
    set("10/minute token_bucket step=5");
    assert_eq!(limiter.peek("user").unwrap().remaining(), 5);
}

#[test]
fn key_with_a_lowered_limit_is_kept_until_it_is_refilled() {
    let (limiter, clock) = limiter("20/second token_bucket step=5", 2);
    assert!(limiter.check(Request::new("user").cost(20)).unwrap().allowed());
    let policy = Policy::parse("test", "5/second token_bucket step=5").unwrap();
    limiter.asynchronous().set_policy(policy).unwrap();
    // Under its first limit it would be idle after a second, and under this one after four.
    clock.advance(Duration::from_secs(2)).unwrap();
    for key in 0..100 {
        assert!(limiter.check(&format!("{key}")).is_ok());
    }
    assert!(!limiter.check("user").unwrap().allowed());
    clock.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(limiter.peek("user").unwrap().remaining(), 0);
    clock.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(limiter.peek("user").unwrap().remaining(), 5);
}
