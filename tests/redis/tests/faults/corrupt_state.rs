//! Keys that hold something else than a valid state: another type, other bytes, a truncated or changed state.

use std::thread::sleep;
use std::time::Duration;

use polylimit::decision::{Degradation, Source};
use polylimit::storage::Outage;
use polylimit::{Decision, Limiter, Policy, Request};
use polylimit_redis_tests::{GENEROUS_DEADLINE, check, limiter, uncached};
use polylimit_test_servers::redis::Value;
use polylimit_test_servers::{Kind, Row, Server};

const MAIN: &str = "polylimit:1:p:{k}";
const LOG: &str = "polylimit:1:p:{k}:log:60000000";

/// Quotas, and the key that holds their state.
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
    let limiter = limiter(uncached(&server.url()).deadline(GENEROUS_DEADLINE), quotas, Outage::Deny);
    (server, limiter)
}

fn set(server: &Server, key: &str, value: &[u8]) {
    server.command(&[b"SET".as_slice(), key.as_bytes(), value]);
}

fn assert_decided(decision: &Decision, case: &str) {
    assert_eq!((decision.source(), decision.degraded()), (Source::Store, None), "{case}: {decision:?}");
}

/// The fault is reported, the request is not admitted, and the key is left unchanged.
#[test]
fn key_of_another_type_is_reported_as_wrong_type() {
    for (quotas, key) in STATES {
        let (server, limiter) = start(Kind::Redis, quotas);
        server.command(&["RPUSH", key, "of", "another", "program"]);
        for _ in 0..10 {
            let decision = check(&limiter, "k");
            let actual = (decision.source(), decision.degraded(), decision.allowed());
            assert_eq!(actual, (Source::Deny, Some(Degradation::WrongType), false), "{quotas}");
            assert_decided(&check(&limiter, "other"), quotas);
        }
        let counters = limiter.stats();
        assert_eq!(
            (counters.permanent, counters.breaker_opened, counters.connections),
            (10, 0, 1),
            "{counters:?}"
        );
        assert_eq!(server.query::<u64>(&["LLEN", key]), 3);
        server.command(&["DEL", key]);
        let decision = check(&limiter, "k");
        assert_decided(&decision, quotas);
        assert!(decision.allowed());
    }
    let decisions = 21 * STATES.len() as u64;
    Row::new("F18", "key of another type").decisions(decisions).measured("reported; key unchanged").record();
}

/// Other keys of the same batch are decided as usual.
#[test]
fn key_of_another_type_affects_no_other_key_of_its_batch() {
    for (quotas, key) in STATES {
        for kind in Kind::ALL {
            let (server, limiter) = start(kind, quotas);
            server.command(&["RPUSH", key, "of another program"]);
            let keys = ["a", "b", "k", "c", "a", "k"];
            let decisions = limiter.blocking().check_many(keys);
            for (key, decision) in keys.into_iter().zip(&decisions) {
                let decision = decision.as_ref().unwrap();
                if key == "k" {
                    assert_eq!(decision.degraded(), Some(Degradation::WrongType), "{quotas}: {decision:?}");
                } else {
                    assert_decided(decision, quotas);
                    assert!(decision.allowed());
                }
            }
            // The server has counted what it answered.
            let fresh = check(&limiter, "fresh").remaining();
            for (key, before) in [("a", 2), ("b", 1), ("c", 1)] {
                assert_eq!(check(&limiter, key).remaining() + before, fresh, "{quotas}: {key}");
            }
        }
    }
}

/// A request with such a key is not decided at all, and those that share its call are.
#[test]
fn key_of_another_type_affects_no_other_request_of_its_call() {
    for (quotas, key) in STATES {
        let (server, limiter) = start(Kind::Redis, quotas);
        limiter.set_policy(Policy::parse("q", "100/m").unwrap()).unwrap();
        server.command(&["RPUSH", key, "of another program"]);
        let keys = ["a", "k", "b", "k", "a"];
        let requests = keys.map(|key| {
            let limiter = limiter.clone();
            move || {
                let both = [Request::new(key).policy("q"), Request::new(key).policy("p")];
                limiter.blocking().check_together(&both).unwrap()
            }
        });
        std::thread::scope(|scope| {
            let asked = requests.map(|request| scope.spawn(request));
            for (key, asked) in keys.into_iter().zip(asked) {
                for decision in asked.join().unwrap() {
                    if key == "k" {
                        assert_eq!(
                            decision.degraded(),
                            Some(Degradation::WrongType),
                            "{quotas}: {decision:?}"
                        );
                    } else {
                        assert_decided(&decision, quotas);
                        assert!(decision.allowed());
                    }
                }
            }
        });
        let used = |key| 100 - limiter.blocking().peek(Request::new(key).policy("q")).unwrap().remaining();
        assert_eq!(["a", "b", "k"].map(used), [2, 1, 0], "{quotas}");
    }
}

/// Text, invalid numbers, and bytes of wrong lengths.
fn invalid_states() -> Vec<Vec<u8>> {
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

/// The quota then counts as used up and is refilled at its own pace. If it counted as unused, an attacker could gain from
/// writing garbage.
#[test]
fn invalid_state_is_replaced_by_one_that_is_used_up() {
    for (quotas, key) in STATES {
        let (server, limiter) = start(Kind::Valkey, quotas);
        for (at, value) in (1..).zip(invalid_states()) {
            let case = format!(
                "{quotas} with the state {:?}",
                String::from_utf8_lossy(&value[..value.len().min(32)])
            );
            set(&server, key, &value);
            let decision = check(&limiter, "k");
            assert_decided(&decision, &case);
            assert!(!decision.allowed() && decision.remaining() == 0, "{case}: {decision:?}");
            let wait = decision.retry_after().unwrap();
            // The first unit of a window that begins now leaves it a little after its period.
            assert!(wait > Duration::ZERO && wait <= Duration::from_secs(62), "{case}: {decision:?}");
            assert_eq!(limiter.stats().healed, at, "{case}");
            let ttl_ms = server.query::<i64>(&["PTTL", key]);
            assert!((1..=200_000).contains(&ttl_ms), "{case}: {ttl_ms}");
            // The replaced state is valid.
            assert!(!check(&limiter, "k").allowed());
            assert_eq!(limiter.stats().healed, at, "{case}");
        }
        limiter.blocking().reset("k").unwrap();
        assert!(check(&limiter, "k").allowed());
    }
    let cases = STATES.len() * invalid_states().len();
    Row::new("F18", "text, numbers such as NaN and 1e308, and other lengths")
        .decisions(2 * cases as u64)
        .bound(0, 0)
        .measured(format!("{cases} states replaced by one that is used up"))
        .record();
}

/// No script writes an empty string. It must not count as a key without a state.
#[test]
fn empty_string_is_replaced_by_a_state_that_is_used_up() {
    for (quotas, key) in STATES.into_iter().filter(|(_, key)| *key == MAIN) {
        let (server, limiter) = start(Kind::Redis, quotas);
        set(&server, key, b"");
        let decision = check(&limiter, "k");
        assert_decided(&decision, quotas);
        assert!(!decision.allowed() && limiter.stats().healed == 1, "{quotas} {decision:?}");
    }
}

#[test]
fn replaced_state_is_refilled_at_the_pace_of_its_quota() {
    for quotas in ["50/300ms token_bucket", "5/300ms fixed_window", "5/300ms", "5/300ms buckets=1"] {
        let (server, limiter) = start(Kind::Redis, quotas);
        set(&server, MAIN, b"garbage");
        let decision = check(&limiter, "k");
        assert!(!decision.allowed());
        sleep(decision.retry_after().unwrap());
        assert!(check(&limiter, "k").allowed(), "{quotas}");
        sleep(decision.reset_after());
        // The requests in between may still count.
        assert!(check(&limiter, "k").remaining() >= 3, "{quotas}");
    }
}

fn state(server: &Server, key: &str) -> Vec<u8> {
    match server.command(&["GET", key]) {
        Value::BulkString(state) => state,
        other => panic!("{key} holds {other:?}"),
    }
}

#[test]
fn truncated_state_is_replaced() {
    for (quotas, key) in STATES {
        let (server, limiter) = start(Kind::Redis, quotas);
        for _ in 0..5 {
            let _ = check(&limiter, "k");
        }
        let whole = state(&server, key);
        let single = !quotas.contains(';') && key == MAIN;
        for length in 1..whole.len() {
            set(&server, key, &whole[..length]);
            let decision = check(&limiter, "k");
            assert_decided(&decision, quotas);
            if single {
                assert!(!decision.allowed(), "{quotas}, {length} of {}: {decision:?}", whole.len());
            }
        }
    }
    Row::new("F18", "state cut at every byte").measured("none admitted by a lost part").record();
}

/// The script decides by the changed state or replaces it, and never fails.
#[test]
fn state_with_any_byte_changed_causes_no_failure() {
    for (quotas, key) in STATES {
        let (server, limiter) = start(Kind::Redis, quotas);
        for _ in 0..5 {
            let _ = check(&limiter, "k");
        }
        let whole = state(&server, key);
        for at in 0..whole.len() {
            for bits in [0x01, 0x08, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] ^= bits;
                set(&server, key, &changed);
                let case = format!("{quotas}, {bits:#x} at {at} of {whole:?}");
                for _ in 0..2 {
                    assert_decided(&check(&limiter, "k"), &case);
                }
                let usage = limiter.blocking().refund("k").unwrap();
                assert_eq!(usage.source(), Source::Store, "{case}: {usage:?}");
            }
        }
        assert_eq!(limiter.stats().unknown, 0);
    }
    Row::new("F18", "every byte of a state changed").measured("no failure").record();
}

#[test]
fn state_without_a_time_to_live_gets_one_on_use() {
    for (quotas, key) in [
        ("50/s token_bucket", MAIN),
        ("50/s fixed_window", MAIN),
        ("50/s", MAIN),
        ("50/s sliding_log", "polylimit:1:p:{k}:log:1000000"),
    ] {
        let server = Server::options(Kind::Redis).fake_clock().start();
        let limiter = limiter(uncached(&server.url()).deadline(GENEROUS_DEADLINE), quotas, Outage::Deny);
        let _ = check(&limiter, "k");
        assert!(server.query::<i64>(&["PTTL", key]) > 0);
        server.command(&["PERSIST", key]);
        assert_eq!(server.query::<i64>(&["PTTL", key]), -1);
        // The script renews it at most every ten seconds.
        server.set_clock_offset_us(11_000_000);
        let _ = check(&limiter, "k");
        let _ = check(&limiter, "k");
        assert!(server.query::<i64>(&["PTTL", key]) > 0, "{quotas}");
    }
    Row::new("F18", "no time to live").measured("repaired on use").record();
}
