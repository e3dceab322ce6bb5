//! What stands where a state belongs is not one, or not a sound one.

use std::thread::sleep;
use std::time::Duration;

use polylimit::{Decision, Degradation, Limiter, Outage, Source};
use polylimit_redis_tests::{LONG, ask, asked_each_time, limiter};
use polylimit_test_servers::redis::Value;
use polylimit_test_servers::{Kind, Server};

const MAIN: &str = "polylimit:1:p:{k}";
const LOG: &str = "polylimit:1:p:{k}:log:60000000";

/// Quotas, and the key that holds the state.
const STATES: [(&str, &str); 9] = [
    ("50/m token_bucket", MAIN),
    ("7/m token_bucket", MAIN),
    ("50/m token_bucket step=5", MAIN),
    ("50/m leaky_bucket burst=5", MAIN),
    ("50/m fixed_window", MAIN),
    ("50/m", MAIN),
    ("50/m buckets=1", MAIN),
    ("50/m sliding_log", LOG),
    ("50/m token_bucket; 100/m; 90/m fixed_window", MAIN),
];

fn start(kind: Kind, quotas: &str) -> (Server, Limiter) {
    let server = Server::start(kind, &[]);
    let limiter = limiter(asked_each_time(&server.url()).deadline(LONG), quotas, Outage::Deny);
    (server, limiter)
}

fn set(server: &Server, key: &str, value: &[u8]) {
    server.command(&[b"SET".as_slice(), key.as_bytes(), value]);
}

fn assert_sound(decision: &Decision, case: &str) {
    assert_eq!((decision.source(), decision.degraded()), (Source::Store, None), "{case}: {decision:?}");
}

/// It is reported, nobody is let through for it, and it stays as it is.
#[test]
fn another_type() {
    for (quotas, key) in STATES {
        let (server, limiter) = start(Kind::Redis, quotas);
        server.command(&["RPUSH", key, "of", "somebody", "else"]);
        for _ in 0..10 {
            let decision = ask(&limiter, "k");
            let told = (decision.source(), decision.degraded(), decision.allowed());
            assert_eq!(told, (Source::Deny, Some(Degradation::WrongType), false), "{quotas}");
            assert_sound(&ask(&limiter, "other"), quotas);
        }
        let counters = limiter.stats();
        assert_eq!(
            (counters.permanent, counters.breaker_opened, counters.connections),
            (10, 0, 1),
            "{counters:?}"
        );
        assert_eq!(server.query::<u64>(&["LLEN", key]), 3);
        server.command(&["DEL", key]);
        let decision = ask(&limiter, "k");
        assert_sound(&decision, quotas);
        assert!(decision.allowed());
    }
}

/// Those that travel along with it are none the worse for it.
#[test]
fn another_type_in_a_batch() {
    for (quotas, key) in STATES {
        for kind in Kind::ALL {
            let (server, limiter) = start(kind, quotas);
            server.command(&["RPUSH", key, "of somebody else"]);
            let keys = ["a", "b", "k", "c", "a", "k"];
            let decisions = limiter.blocking().check_many(keys);
            for (key, decision) in keys.into_iter().zip(&decisions) {
                let decision = decision.as_ref().unwrap();
                if key == "k" {
                    assert_eq!(decision.degraded(), Some(Degradation::WrongType), "{quotas}: {decision:?}");
                } else {
                    assert_sound(decision, quotas);
                    assert!(decision.allowed());
                }
            }
            // What was answered is what was done.
            let fresh = ask(&limiter, "fresh").remaining();
            for (key, before) in [("a", 2), ("b", 1), ("c", 1)] {
                assert_eq!(ask(&limiter, key).remaining() + before, fresh, "{quotas}: {key}");
            }
        }
    }
}

/// Text, numbers that are none, and more than belongs there.
fn not_states() -> Vec<Vec<u8>> {
    let texts = [
        "x",
        "NaN",
        "-nan",
        "inf",
        "1e308",
        "-1",
        "0",
        "18446744073709551616",
        "null",
        "{\"tokens\":50}",
        "hello world, this is text",
    ];
    let mut values: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    values.extend([1, 4, 12, 16, 17, 18, 23, 25, 64].map(|length| vec![0; length]));
    values.extend([1, 4, 16, 17, 18, 23, 25, 64].map(|length| vec![0xff; length]));
    values.push(vec![b'9'; 1 << 20]);
    values.push(vec![0; 1 << 20]);
    values
}

/// Then everything counts as used up, and comes back as time goes by; a full budget would be an invitation.
#[test]
fn what_is_no_state() {
    for (quotas, key) in STATES {
        let (server, limiter) = start(Kind::Valkey, quotas);
        for (at, value) in (1..).zip(not_states()) {
            let case = format!(
                "{quotas} where there is {:?}",
                String::from_utf8_lossy(&value[..value.len().min(32)])
            );
            set(&server, key, &value);
            let decision = ask(&limiter, "k");
            assert_sound(&decision, &case);
            assert!(!decision.allowed() && decision.remaining() == 0, "{case}: {decision:?}");
            let wait = decision.retry_after().unwrap();
            // Of a window that began now the first unit slides out a little after its period.
            assert!(wait > Duration::ZERO && wait <= Duration::from_secs(62), "{case}: {decision:?}");
            assert_eq!(limiter.stats().healed, at, "{case}");
            let lives = server.query::<i64>(&["PTTL", key]);
            assert!((1..=200_000).contains(&lives), "{case}: {lives}");
            // Healed once, it is a state.
            assert!(!ask(&limiter, "k").allowed());
            assert_eq!(limiter.stats().healed, at, "{case}");
        }
        limiter.blocking().reset("k").unwrap();
        assert!(ask(&limiter, "k").allowed());
    }
}

/// Nothing of ours leaves an empty string behind, which must not pass for a key that was never seen.
#[test]
fn an_empty_string() {
    for (quotas, key) in STATES.into_iter().filter(|(_, key)| *key == MAIN) {
        let (server, limiter) = start(Kind::Redis, quotas);
        set(&server, key, b"");
        let decision = ask(&limiter, "k");
        assert_sound(&decision, quotas);
        assert!(!decision.allowed() && limiter.stats().healed == 1, "{quotas} {decision:?}");
    }
}

/// What of it comes back does so at the quota's own pace.
#[test]
fn what_was_healed_refills() {
    for quotas in ["50/300ms token_bucket", "5/300ms fixed_window", "5/300ms", "5/300ms buckets=1"] {
        let (server, limiter) = start(Kind::Redis, quotas);
        set(&server, MAIN, b"nonsense");
        let decision = ask(&limiter, "k");
        assert!(!decision.allowed());
        sleep(decision.retry_after().unwrap());
        assert!(ask(&limiter, "k").allowed(), "{quotas}");
        sleep(decision.reset_after());
        // What was asked for in between may still count.
        assert!(ask(&limiter, "k").remaining() >= 3, "{quotas}");
    }
}

fn state(server: &Server, key: &str) -> Vec<u8> {
    match server.command(&["GET", key]) {
        Value::BulkString(state) => state,
        other => panic!("{key} holds {other:?}"),
    }
}

#[test]
fn a_state_that_ends_too_early() {
    for (quotas, key) in STATES {
        let (server, limiter) = start(Kind::Redis, quotas);
        for _ in 0..5 {
            let _ = ask(&limiter, "k");
        }
        let whole = state(&server, key);
        let single = !quotas.contains(';') && key == MAIN;
        for length in 1..whole.len() {
            set(&server, key, &whole[..length]);
            let decision = ask(&limiter, "k");
            assert_sound(&decision, quotas);
            if single {
                assert!(!decision.allowed(), "{quotas}, {length} of {}: {decision:?}", whole.len());
            }
        }
    }
}

/// Whatever a state is made to say, it is decided or healed, and the script does not fail.
#[test]
fn a_state_with_any_byte_changed() {
    for (quotas, key) in STATES {
        let (server, limiter) = start(Kind::Redis, quotas);
        for _ in 0..5 {
            let _ = ask(&limiter, "k");
        }
        let whole = state(&server, key);
        for at in 0..whole.len() {
            for bits in [0x01, 0x08, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] ^= bits;
                set(&server, key, &changed);
                let case = format!("{quotas}, {bits:#x} at {at} of {whole:?}");
                for _ in 0..2 {
                    assert_sound(&ask(&limiter, "k"), &case);
                }
                let usage = limiter.blocking().refund("k").unwrap();
                assert_eq!(usage.source(), Source::Store, "{case}: {usage:?}");
            }
        }
        assert_eq!(limiter.stats().unknown, 0);
    }
}

/// Somebody has taken away the time to live: a key that is used gets one again.
#[test]
fn a_state_that_would_stay_for_good() {
    for (quotas, key) in [
        ("50/s token_bucket", MAIN),
        ("50/s fixed_window", MAIN),
        ("50/s", MAIN),
        ("50/s sliding_log", "polylimit:1:p:{k}:log:1000000"),
    ] {
        let server = Server::options(Kind::Redis).fake_clock().start();
        let limiter = limiter(asked_each_time(&server.url()).deadline(LONG), quotas, Outage::Deny);
        let _ = ask(&limiter, "k");
        assert!(server.query::<i64>(&["PTTL", key]) > 0);
        server.command(&["PERSIST", key]);
        assert_eq!(server.query::<i64>(&["PTTL", key]), -1);
        // It is renewed every ten seconds at most.
        server.set_clock_offset_us(11_000_000);
        let _ = ask(&limiter, "k");
        let _ = ask(&limiter, "k");
        assert!(server.query::<i64>(&["PTTL", key]) > 0, "{quotas}");
    }
}
