//! Values that are not states, calls that come late, and how long keys live.

use polylimit::clock::ManualClock;
use polylimit::quota::Algorithm;
use polylimit::testing::script::{Item, Operation, Outcome, Read, is_log};
use polylimit::{Decision, Limiter, Policy, Quota, Request};
use polylimit_test_servers::redis::Value;
use polylimit_test_servers::{Kind, Server};

use super::session::{Session, ask, connect};
use crate::generators::Random;

const NOW_US: u64 = 1_790_000_000_000_000;

fn decision(session: &mut Session<'_>, now_us: Option<u64>, item: Item<'_>) -> Decision {
    match session.run(now_us, &[item]).1.remove(0) {
        Outcome::Decision(decision) => decision,
        Outcome::Usage(_) => panic!("not a decision"),
    }
}

fn policy(quotas: &str) -> Policy {
    Policy::parse("p", quotas).unwrap()
}

const POLICIES: [&str; 9] = [
    "5/m token_bucket",
    "999983/day leaky_bucket",
    "10/m token_bucket step=5",
    "5/m fixed_window",
    "5/month from=15 zone=Europe/Berlin",
    "5/m",
    "5/m sliding_log",
    "5/m token_bucket; 7/h; 9/day fixed_window aligned",
    "5/m token_bucket; 7/h sliding_log; 9/day token_bucket step=3",
];

fn garbage(random: &mut Random) -> Vec<u8> {
    let texts: [&[u8]; 10] = [
        b"nan",
        b"-nan",
        b"inf",
        b"1e308",
        b"-1",
        b"123456789012",
        b"99999999999999999999",
        b"not-a-state!",
        b"\0",
        b"{}",
    ];
    if random.once_in(2) {
        return random.pick(&texts).to_vec();
    }
    let longest = if random.once_in(20) { 9_000 } else { 60 };
    let length = 1 + random.below(longest);
    let mut bytes: Vec<u8> = (0..length).map(|_| byte(random)).collect();
    bytes[0] = random.pick(&[0, 6, 7, b'9', 255]);
    bytes
}

fn byte(random: &mut Random) -> u8 {
    u8::try_from(random.below(256)).unwrap()
}

/// The keys of a policy's entry that a test can break.
fn keys(quotas: &str) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    if quotas.split(';').any(|quota| !quota.contains("sliding_log")) {
        keys.push(b"k".to_vec());
    }
    for quota in policy(quotas).quotas() {
        if quota.algorithm() == Algorithm::SlidingLog {
            keys.push(log_key(b"k".as_slice(), quota));
        }
    }
    keys
}

fn log_key(main: &[u8], quota: &Quota) -> Vec<u8> {
    [main, format!(":log:{}", quota.period().as_micros()).as_bytes()].concat()
}

#[test]
fn malformed_state_is_healed_to_one_in_which_everything_is_used() {
    let server = Server::start(Kind::Redis, &[]);
    let mut connection = connect(&server);
    let mut random = Random::new(7);
    for at in 0..400_usize {
        let quotas = POLICIES[at % POLICIES.len()];
        server.command(&["FLUSHALL"]);
        for key in keys(quotas) {
            server.command(&[b"SET".as_slice(), &key, &garbage(&mut random)]);
        }
        let mut session = Session::new(&mut connection, &policy(quotas));
        let operation = random.pick(&[Operation::Check, Operation::Peek]);
        let found = decision(&mut session, Some(NOW_US), (b"k".as_slice(), operation, 1, 1));
        assert!(!found.allowed() && found.remaining() == 0, "{quotas}: {found:?}");
        assert_eq!(session.healed, 1);
        // It refills as an empty bucket does, and is not healed again.
        let wait_us = found.retry_after_us().unwrap();
        let early =
            decision(&mut session, Some(NOW_US + wait_us - 1), (b"k".as_slice(), Operation::Check, 1, 1));
        let in_time =
            decision(&mut session, Some(NOW_US + wait_us), (b"k".as_slice(), Operation::Check, 1, 1));
        assert!(!early.allowed() && in_time.allowed(), "{quotas}: {early:?} {in_time:?}");
        assert_eq!(session.healed, 1);
    }
}

#[test]
fn script_never_fails_on_a_state_with_changed_bytes() {
    let server = Server::start(Kind::Redis, &[]);
    let mut connection = connect(&server);
    let mut random = Random::new(8);
    for at in 0..3_000_usize {
        let quotas = POLICIES[at % POLICIES.len()];
        let mut session = Session::new(&mut connection, &policy(quotas));
        for _ in 0..3 {
            session.run(Some(NOW_US), &[(b"k".as_slice(), Operation::Charge, 1 + random.below(3), 1)]);
        }
        for key in keys(quotas) {
            let Value::BulkString(mut value) = server.command(&[b"GET".as_slice(), &key]) else { continue };
            for _ in 0..=random.below(3) {
                let place = usize::try_from(random.below(value.len() as u64)).unwrap();
                match random.below(4) {
                    0 => value.truncate(place.max(1)),
                    1 => value.insert(place, byte(&mut random)),
                    _ => value[place] = byte(&mut random),
                }
            }
            server.command(&[b"SET".as_slice(), &key, &value]);
        }
        for _ in 0..3 {
            let operation =
                random.pick(&[Operation::Check, Operation::Take, Operation::Refund, Operation::Charge]);
            session.run(Some(NOW_US + random.below(100_000_000)), &[(b"k".as_slice(), operation, 1, 1)]);
        }
    }
}

#[test]
fn call_after_its_deadline_is_not_applied() {
    let server = Server::start(Kind::Redis, &[]);
    let mut connection = connect(&server);
    let mut session = Session::new(&mut connection, &policy("5/m token_bucket"));
    let item: Item<'_> = (b"k", Operation::Check, 1, 1);
    for (deadline_us, manual_now_us) in [(NOW_US - 1, None), (1, Some(NOW_US))] {
        let reply = session.call(*b"nonce1", deadline_us, manual_now_us, &[item]);
        // The server of this test has today's time.
        let read = session.script.read(&reply, *b"nonce1", &[item]);
        assert!(matches!(read, Read::Late(server_now_us) if server_now_us > NOW_US - 1), "{read:?}");
        assert_eq!(session.script.read(&reply, *b"nonce2", &[item]), Read::Malformed);
        assert_eq!(server.query::<u64>(&["DBSIZE"]), 0);
    }
    let reply = session.call(*b"nonce1", ManualClock::MAX_US, None, &[item]);
    assert!(matches!(session.script.read(&reply, *b"nonce1", &[item]), Read::Decided { .. }));
    for length in 0..reply.len() {
        assert_eq!(session.script.read(&reply[..length], *b"nonce1", &[item]), Read::Malformed);
    }
}

fn lives_until_us(server: &Server, key: &[u8]) -> Option<u64> {
    match server.query::<i64>(&[b"PEXPIRETIME".as_slice(), key]) {
        -1 => Some(u64::MAX),
        -2 => None,
        until_ms => Some(u64::try_from(until_ms).unwrap() * 1_000),
    }
}

#[test]
fn manual_clock_sets_no_time_to_live() {
    let server = Server::start(Kind::Redis, &[]);
    let mut connection = connect(&server);
    for quotas in POLICIES {
        server.command(&["FLUSHALL"]);
        let mut session = Session::new(&mut connection, &policy(quotas));
        for step in 0..5 {
            session.run(Some(NOW_US + step), &[(b"k".as_slice(), Operation::Check, 1, 1)]);
        }
        for key in keys(quotas) {
            assert_eq!(lives_until_us(&server, &key), Some(u64::MAX), "{quotas}");
        }
    }
}

/// Short periods, so that much of it happens while the test runs.
const BRIEF: [&str; 8] = [
    "40/20ms token_bucket",
    "40/20ms token_bucket burst=400",
    "7/10ms leaky_bucket",
    "40/20ms token_bucket step=4",
    "30/5ms fixed_window",
    "30/20ms buckets=4",
    "30/20ms sliding_log",
    "40/20ms token_bucket; 30/40ms; 60/25ms sliding_log; 9/30ms token_bucket step=3",
];

const MOSTLY_CHECKS: [Operation; 6] = [
    Operation::Check,
    Operation::Check,
    Operation::Check,
    Operation::Take,
    Operation::Charge,
    Operation::Refund,
];

#[test]
fn server_clock_gives_the_same_answers_and_keys_live_as_long_as_their_states_count() {
    let server = Server::start(Kind::Redis, &[]);
    let mut connection = connect(&server);
    let mut random = Random::new(9);
    for quotas in BRIEF {
        let clock = ManualClock::new(0).unwrap();
        let memory =
            Limiter::builder().clock(clock.clone()).policy(policy(quotas)).build().unwrap().blocking();
        let mut session = Session::new(&mut connection, &policy(quotas));
        let mut key = Vec::new();
        for at in 0..600 {
            if at % 100 == 0 {
                key = format!("{quotas} {at}").into_bytes();
            }
            if random.once_in(10) {
                std::thread::sleep(std::time::Duration::from_micros(random.below(8_000)));
            }
            let (operation, cost) = (random.pick(&MOSTLY_CHECKS), 1 + random.below(9));
            let (now_us, found) = session.run(None, &[(&key, operation, cost, 1)]);
            clock.set(now_us).unwrap();
            let expected = ask(&memory, Request::new(&key).cost(cost), operation);
            assert_eq!(found, [expected], "{quotas} {at}");
            for (quota, usage) in policy(quotas).quotas().iter().zip(found[0].quotas()) {
                let is_log = quota.algorithm() == Algorithm::SlidingLog;
                let its_key = if is_log { log_key(&key, quota) } else { key.clone() };
                let counts_us = usage.reset_after_us;
                let until_us = lives_until_us(&server, &its_key);
                let lives = until_us.is_some_and(|until_us| until_us >= now_us + counts_us);
                // It may have gone between the two commands, when its time was over.
                let over = until_us.is_none() && now_us + counts_us < server_now_us(&server);
                assert!(counts_us == 0 || lives || over, "{quotas}: {counts_us} {until_us:?}");
                assert!(until_us.is_none_or(|until_us| until_us < now_us + counts_us + 40_000_000));
            }
        }
    }
}

fn server_now_us(server: &Server) -> u64 {
    let [seconds, us] = server.query::<[u64; 2]>(&["TIME"]);
    seconds * 1_000_000 + us
}

#[test]
fn key_that_lost_its_time_to_live_gets_one_again() {
    let server = Server::start(Kind::Redis, &[]);
    let mut connection = connect(&server);
    let mut session = Session::new(&mut connection, &policy("10/10s token_bucket burst=30"));
    let _ = decision(&mut session, None, (b"k".as_slice(), Operation::Check, 1, 1));
    server.command(&["PERSIST", "k"]);
    let _ = decision(&mut session, None, (b"k".as_slice(), Operation::Check, 25, 1));
    assert_ne!(lives_until_us(&server, b"k"), Some(u64::MAX));
}

#[test]
fn long_log_counts_every_unit() {
    let server = Server::start(Kind::Redis, &[]);
    let mut connection = connect(&server);
    let policy = policy("3000/10s sliding_log");
    let memory_clock = ManualClock::new(NOW_US).unwrap();
    let limiter =
        Limiter::builder().clock(memory_clock.clone()).policy(policy.clone()).build().unwrap().blocking();
    let mut session = Session::new(&mut connection, &policy);
    let mut random = Random::new(11);
    let mut now_us = NOW_US;
    for at in 0..30_000 {
        now_us += random.below(6_000);
        if random.once_in(500) {
            now_us -= random.pick(&[1, 5_000, 3_000_000]);
        }
        memory_clock.set(now_us).unwrap();
        let cost = if random.once_in(50) { 200 } else { 1 };
        let (outcome, expected) = if random.once_in(40) {
            let outcome =
                session.run(Some(now_us), &[(b"k".as_slice(), Operation::Refund, cost, 1)]).1.remove(0);
            (outcome, Outcome::Usage(limiter.refund(Request::new("k").cost(cost)).unwrap()))
        } else {
            let outcome =
                session.run(Some(now_us), &[(b"k".as_slice(), Operation::Check, cost, 1)]).1.remove(0);
            (outcome, Outcome::Decision(limiter.check(Request::new("k").cost(cost)).unwrap()))
        };
        assert_eq!(outcome, expected, "{at}");
    }
    assert!(is_log(&server.query::<Vec<u8>>(&["GET", "k:log:10000000"])));
}
