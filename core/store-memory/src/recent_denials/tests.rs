use super::*;
use crate::MemoryStore;
use polylimit_rules::policy::Policy;
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::{Clock, ManualClock};
use polylimit_store::charge::{Action, Charge};

const ID: PolicyId = PolicyId(0);
const START_US: u64 = 1_700_000_000_000_000;

fn store(quota: &str) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new(START_US).unwrap();
    let store = MemoryStore::new(100, Clock::from(clock.clone()));
    store.set_policy(ID, &Policy::parse("api", quota).unwrap());
    (store, clock)
}

fn ask(store: &MemoryStore, key: &[u8], operation: Operation, cost: u64) -> Decision {
    store.answer(Charge::new(ID, key, Action::Apply(operation), cost)).unwrap().0
}

/// Denies twice; the second denial is answered by an entry.
fn denied(store: &MemoryStore, key: &[u8]) -> Decision {
    let answer = || ask(store, key, Operation::Check, 1);
    let (first, second) = (answer(), answer());
    assert_eq!(first, second);
    assert!(!second.allowed() && second == ask(store, key, Operation::Peek, 1));
    second
}

fn published(store: &MemoryStore) -> u32 {
    store.shards.iter().map(|padded| padded.recent_denials.published.load(Ordering::Relaxed)).sum()
}

#[test]
fn an_entry_counts_down_to_the_microsecond() {
    for quota in ["1/minute token_bucket", "7/minute token_bucket burst=1", "999983/day token_bucket burst=1"]
    {
        let (store, clock) = store(quota);
        let _ = ask(&store, b"a", Operation::Check, 1);
        let wait_us = denied(&store, b"a").retry_after_us().unwrap();
        assert_eq!(published(&store), 1);
        for passed_us in [1, wait_us / 2, wait_us - 1] {
            clock.set(START_US + passed_us).unwrap();
            assert_eq!(denied(&store, b"a").retry_after_us(), Some(wait_us - passed_us), "{quota}");
        }
        clock.set(START_US + wait_us).unwrap();
        assert!(ask(&store, b"a", Operation::Check, 1).allowed(), "{quota}");
        assert_eq!(published(&store), 0);
    }
}

#[test]
fn every_write_invalidates_the_entry() {
    let (store, clock) = store("2/minute token_bucket");
    let _ = ask(&store, b"a", Operation::Check, 2);
    let _ = denied(&store, b"a");
    let _ = ask(&store, b"a", Operation::Refund, 1);
    assert!(ask(&store, b"a", Operation::Check, 1).allowed());
    let _ = denied(&store, b"a");
    let _ = ask(&store, b"a", Operation::Charge, 2);
    assert_eq!(denied(&store, b"a").retry_after_us(), Some(90_000_000));
    let request = Charge::new(ID, b"a", Action::Reset, 0);
    let _ = store.answer(request);
    assert!(ask(&store, b"a", Operation::Check, 2).allowed());
    let _ = denied(&store, b"a");
    store.set_policy(ID, &Policy::parse("api", "4/minute token_bucket").unwrap());
    assert_eq!(denied(&store, b"a").quotas()[0].limit, 4);
    clock.set(START_US - 1).unwrap();
    let wait_us = denied(&store, b"a").retry_after_us();
    clock.set(START_US).unwrap();
    assert_eq!(denied(&store, b"a").retry_after_us(), wait_us.map(|us| us - 1));
}

#[test]
fn entry_answers_its_own_key_only() {
    let recent_denials = RecentDenials::default();
    let usage = QuotaUsage { limit: 1, remaining: 0, reset_after_us: 10, over: 0 };
    let keys: [&[u8]; 9] = [
        b"",
        b"\0",
        b"\0\0",
        b"abc",
        b"abcd",
        b"abcdabcd",
        b"abcdabcdabcd",
        b"abcdabcdabcdabcd",
        b"abcdabce",
    ];
    for published in keys {
        recent_denials.invalidate_all();
        recent_denials.publish(ID, 0, published, 5, 10, usage);
        for asked in keys {
            let found = recent_denials.denial(ID, 0, asked, 7);
            assert_eq!(found.is_some(), asked == published, "{asked:?} {published:?}");
            assert!(recent_denials.denial(PolicyId(1), 0, asked, 7).is_none());
        }
        assert!(recent_denials.denial(ID, 0, published, 4).is_none());
        assert!(recent_denials.denial(ID, 0, published, 15).is_none());
    }
}

#[test]
fn refund_is_visible_to_every_later_check() {
    const REFUNDS: usize = 2_000;
    let (store, _) = store("1/day token_bucket");
    let check = || ask(&store, b"a", Operation::Check, 1).allowed();
    std::thread::scope(|scope| {
        let spenders = [(); 2].map(|()| scope.spawn(|| (0..20_000).filter(|_| check()).count()));
        let mine = (0..REFUNDS).filter(|_| {
            let _ = ask(&store, b"a", Operation::Refund, 1);
            // One of the three is published.
            check()
        });
        let mine = mine.count();
        let theirs: usize = spenders.into_iter().map(|spender| spender.join().unwrap()).sum();
        assert!(mine + theirs <= REFUNDS + 1, "{mine} {theirs}");
    });
    for _ in 0..10 {
        assert!(!check());
        let _ = ask(&store, b"a", Operation::Refund, 1);
        assert!(check());
    }
}

const USAGE: QuotaUsage = QuotaUsage { limit: 5, remaining: 0, reset_after_us: 200, over: 0 };

/// Publishes a denial at 1,000 that lasts for 100.
fn denial_of(key: &[u8]) -> RecentDenials {
    let denials = RecentDenials::default();
    denials.publish(ID, 0, key, 1_000, 100, USAGE);
    denials
}

#[test]
fn denial_is_that_of_its_key_and_policy_only() {
    let keys: [&[u8]; 12] = [
        b"",
        b"a",
        b"b",
        b"ab",
        b"cb",
        b"ac",
        b"abc",
        b"abd",
        b"abcd",
        b"abcde",
        b"abcdefgh",
        b"abcdefghijklmnop",
    ];
    for key in keys {
        let denials = denial_of(key);
        for other in keys {
            assert_eq!(denials.denial(ID, 0, other, 1_000).is_some(), key == other, "{key:?} {other:?}");
        }
        assert!(denials.denial(PolicyId(1), 0, key, 1_000).is_none(), "{key:?}");
    }
    assert!(denial_of(b"abcdefghijklmnopq").denial(ID, 0, b"abcdefghijklmnopq", 1_000).is_none());
    assert!(
        !format!("{:?}", denial_of(b"secret")).contains("secret")
            && !format!("{:?}", denial_of(b"")).is_empty()
    );
}

#[test]
fn denial_lasts_until_its_time() {
    let denials = denial_of(b"key");
    let at = |now_us| denials.denial(ID, 0, b"key", now_us);
    for now_us in [1_000, 1_001, 1_099] {
        let decision = at(now_us).unwrap();
        assert_eq!((decision.wait_us, decision.total.reset_after_us), (1_100 - now_us, 1_200 - now_us));
        assert_eq!((decision.allowed, decision.total.limit), (false, 5));
    }
    // A clock that went back is for the transition to handle.
    assert!(at(999).is_none() && at(1_100).is_none());
    let denials = RecentDenials::default();
    denials.publish(ID, 0, b"key", 1_000, 100, QuotaUsage { over: 1, ..USAGE });
    assert!(denials.denial(ID, 0, b"key", 1_000).is_none());
}

#[test]
fn place_that_is_taken_is_given_to_every_64th_denial_or_when_it_is_over() {
    let denials = denial_of(b"key");
    let publish = |now_us| denials.publish(ID, 0, b"other", now_us, 100, USAGE);
    let is_other = |now_us| denials.denial(ID, 0, b"other", now_us).is_some();
    (1..64).for_each(|_| publish(1_050));
    assert!(!is_other(1_050) && denials.denial(ID, 0, b"key", 1_050).is_some());
    publish(1_050);
    assert!(is_other(1_050) && denials.denial(ID, 0, b"key", 1_050).is_none());
    let denials = denial_of(b"key");
    denials.publish(ID, 0, b"other", 1_100, 100, USAGE);
    assert!(denials.denial(ID, 0, b"other", 1_100).is_some());
}

#[test]
fn entry_is_odd_while_it_is_written_and_readers_skip_it() {
    let denials = denial_of(b"key");
    let entry = &denials.places.get().unwrap()[0];
    let version = || entry.version.load(Ordering::Relaxed);
    assert_eq!(version(), 2);
    entry.write(|| {
        assert_eq!(version(), 3);
        assert!(denials.denial(ID, 0, b"key", 1_000).is_none());
    });
    assert_eq!(version(), 4);
    assert!(denials.denial(ID, 0, b"key", 1_000).is_some());
    denials.invalidate(7 << 48);
    assert!(denials.denial(ID, 0, b"key", 1_000).is_some());
    denials.invalidate(0);
    assert!(denials.denial(ID, 0, b"key", 1_000).is_none());
    let empty = denial_of(b"");
    empty.invalidate(0);
    assert!(empty.denial(ID, 0, b"", 1_000).is_none());
    assert_eq!((place(0), place(5 << 48), place(37 << 48), place(u64::MAX >> 16)), (0, 5, 5, 0));
}
