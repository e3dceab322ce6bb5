//! Values that are not states, calls that come late, and how long keys live.

use crate::rules::transition::Operation;
use crate::store::redis::call::{Entry, Head};
use crate::store::redis::reply::{Malformed, Reply, read_reply};
use crate::store::redis::script::tests::random::Random;
use crate::store::redis::script::tests::server::{Connection, Server, Value};
use crate::store::redis::script::tests::session::{Outcome, Session, ask};
use crate::store::request::Action;
use crate::{Algorithm, Decision, Limiter, ManualClock, Policy, Request};

const NOW_US: u64 = 1_790_000_000_000_000;

fn entry(key: &[u8], operation: Operation, cost: u64) -> Entry<'_> {
    Entry { key, action: Action::Apply(operation), cost, count: 1 }
}

fn decision(session: &mut Session<'_>, now_us: Option<u64>, entry: Entry<'_>) -> Decision {
    match session.run(now_us, &[entry]).remove(0) {
        Outcome::Decision(decision) => decision,
        Outcome::Usage(_) => panic!("not a decision"),
    }
}

fn policy(quotas: &str) -> Policy {
    Policy::parse("p", quotas).unwrap()
}

const POLICIES: [&str; 8] = [
    "5/m token_bucket",
    "999983/day leaky_bucket",
    "10/m token_bucket step=5",
    "5/m fixed_window",
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
    let mut bytes: Vec<u8> = (0..length).map(|_| random.next().to_be_bytes()[0]).collect();
    bytes[0] = random.pick(&[0, 6, 7, b'9', 255]);
    bytes
}

/// The keys of a policy's entry that a test can break.
fn keys(quotas: &str) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    if quotas.split(';').any(|quota| !quota.contains("sliding_log")) {
        keys.push(b"k".to_vec());
    }
    for quota in policy(quotas).quotas() {
        if quota.algorithm() == Algorithm::SlidingLog {
            keys.push(format!("k:log:{}", quota.period_us()).into_bytes());
        }
    }
    keys
}

#[test]
fn what_is_not_a_state_is_healed_to_one_in_which_everything_is_used() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut random = Random::new(7);
    for at in 0..400_usize {
        let quotas = POLICIES[at % POLICIES.len()];
        connection.command(&[b"FLUSHALL"]);
        for key in keys(quotas) {
            let mut value = garbage(&mut random);
            // A lone bucket's state has no room for more than a bit by which it can be known.
            if value.len() == 12 {
                value.push(0);
            }
            connection.command(&[b"SET", &key, &value]);
        }
        let mut session = Session::new(&mut connection, &policy(quotas));
        let operation = random.pick(&[Operation::Check, Operation::Peek]);
        let found = decision(&mut session, Some(NOW_US), entry(b"k", operation, 1));
        assert!(!found.allowed() && found.remaining() == 0, "{quotas}: {found:?}");
        assert_eq!(session.healed, 1);
        // It refills as an empty bucket does, and is not healed again.
        let wait_us = found.retry_after_us().unwrap();
        let early = decision(&mut session, Some(NOW_US + wait_us - 1), entry(b"k", Operation::Check, 1));
        let in_time = decision(&mut session, Some(NOW_US + wait_us), entry(b"k", Operation::Check, 1));
        assert!(!early.allowed() && in_time.allowed(), "{quotas}: {early:?} {in_time:?}");
        assert_eq!(session.healed, 1);
    }
}

#[test]
fn bytes_that_may_be_a_state_never_break_a_call() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut random = Random::new(8);
    for at in 0..3_000_usize {
        let quotas = POLICIES[at % POLICIES.len()];
        let mut session = Session::new(&mut connection, &policy(quotas));
        for _ in 0..3 {
            session.run(Some(NOW_US), &[entry(b"k", Operation::Charge, 1 + random.below(3))]);
        }
        for key in keys(quotas) {
            let Value::Bulk(mut value) = session.connection.command(&[b"GET", &key]) else { continue };
            for _ in 0..=random.below(3) {
                let place = usize::try_from(random.below(value.len() as u64)).unwrap();
                match random.below(4) {
                    0 => value.truncate(place.max(1)),
                    1 => value.insert(place, random.next().to_be_bytes()[0]),
                    _ => value[place] = random.next().to_be_bytes()[0],
                }
            }
            session.connection.command(&[b"SET", &key, &value]);
        }
        for _ in 0..3 {
            let operation =
                random.pick(&[Operation::Check, Operation::Take, Operation::Refund, Operation::Charge]);
            session.run(Some(NOW_US + random.below(100_000_000)), &[entry(b"k", operation, 1)]);
        }
    }
}

#[test]
fn a_call_that_comes_late_is_not_applied() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut session = Session::new(&mut connection, &policy("5/m token_bucket"));
    for (deadline_us, manual_now_us) in [(NOW_US - 1, None), (1, Some(NOW_US))] {
        let head = Head { nonce: *b"nonce1", deadline_us, manual_now_us };
        let reply = session.send(&head, &[entry(b"k", Operation::Check, 1)]);
        // A server of this test runs today.
        assert!(
            matches!(read_reply(&reply, *b"nonce1"), Ok(Reply::Late { server_now_us }) if server_now_us > NOW_US - 1)
        );
        assert!(matches!(read_reply(&reply, *b"nonce2"), Err(Malformed)));
        assert_eq!(session.connection.command(&[b"DBSIZE"]), Value::Integer(0));
    }
    let head = Head { nonce: *b"nonce1", deadline_us: crate::units::MAX_US, manual_now_us: None };
    let reply = session.send(&head, &[entry(b"k", Operation::Check, 1)]);
    assert!(matches!(read_reply(&reply, *b"nonce1"), Ok(Reply::Decided { .. })));
    for length in 0..reply.len() {
        let Ok(Reply::Decided { entries: mut answers, .. }) = read_reply(&reply[..length], *b"nonce1") else {
            continue;
        };
        let entry = entry(b"k", Operation::Check, 1);
        assert!(session.call.next_answer(&mut answers, &entry).is_err() || answers.finish().is_err());
    }
}

fn lives_until_us(connection: &mut Connection, key: &[u8]) -> Option<u64> {
    match connection.command(&[b"PEXPIRETIME", key]).integer() {
        -1 => Some(u64::MAX),
        -2 => None,
        until_ms => Some(u64::try_from(until_ms).unwrap() * 1_000),
    }
}

#[test]
fn a_manual_clock_sets_no_time_to_live() {
    let server = Server::start();
    let mut connection = server.connect();
    for quotas in POLICIES {
        connection.command(&[b"FLUSHALL"]);
        let mut session = Session::new(&mut connection, &policy(quotas));
        for step in 0..5 {
            session.run(Some(NOW_US + step), &[entry(b"k", Operation::Check, 1)]);
        }
        for key in keys(quotas) {
            assert_eq!(lives_until_us(&mut connection, &key), Some(u64::MAX), "{quotas}");
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
fn by_its_own_clock_it_answers_the_same_and_keys_live_as_long_as_their_states_count() {
    let server = Server::start();
    let mut connection = server.connect();
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
            let (now_us, found) = session.run_now(&[entry(&key, operation, cost)]);
            clock.set(now_us).unwrap();
            let expected = ask(&memory, Request::new(&key).cost(cost), Action::Apply(operation));
            assert_eq!(found, [expected], "{quotas} {at}");
            for (quota, usage) in policy(quotas).quotas().iter().zip(found[0].quotas()) {
                let mut its_key = key.clone();
                if quota.algorithm() == Algorithm::SlidingLog {
                    its_key.extend(format!(":log:{}", quota.period_us()).bytes());
                }
                let counts_us = usage.reset_after_us;
                let until_us = lives_until_us(session.connection, &its_key);
                let lives = until_us.is_some_and(|until_us| until_us >= now_us + counts_us);
                // It may have gone between the two commands, when its time was over.
                let over = until_us.is_none() && now_us + counts_us < server_now_us(session.connection);
                assert!(counts_us == 0 || lives || over, "{quotas}: {counts_us} {until_us:?}");
                assert!(until_us.is_none_or(|until_us| until_us < now_us + counts_us + 40_000_000));
            }
        }
    }
}

fn server_now_us(connection: &mut Connection) -> u64 {
    let Value::Array(time) = connection.command(&[b"TIME"]) else { panic!("no time") };
    let number = |value: &Value| String::from_utf8(value.clone().bulk()).unwrap().parse::<u64>().unwrap();
    number(&time[0]) * 1_000_000 + number(&time[1])
}

#[test]
fn a_key_that_lost_its_time_to_live_gets_one_again() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut session = Session::new(&mut connection, &policy("10/10s token_bucket burst=30"));
    let _ = decision(&mut session, None, entry(b"k", Operation::Check, 1));
    session.connection.command(&[b"PERSIST", b"k"]);
    let _ = decision(&mut session, None, entry(b"k", Operation::Check, 25));
    assert_ne!(lives_until_us(&mut connection, b"k"), Some(u64::MAX));
}

#[test]
fn a_long_log_counts_every_unit() {
    let server = Server::start();
    let mut connection = server.connect();
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
            let outcome = session.run(Some(now_us), &[entry(b"k", Operation::Refund, cost)]).remove(0);
            (outcome, Outcome::Usage(limiter.refund(Request::new("k").cost(cost)).unwrap()))
        } else {
            let outcome = session.run(Some(now_us), &[entry(b"k", Operation::Check, cost)]).remove(0);
            (outcome, Outcome::Decision(limiter.check(Request::new("k").cost(cost)).unwrap()))
        };
        assert_eq!(outcome, expected, "{at}");
    }
    let Value::Bulk(value) = connection.command(&[b"GET", b"k:log:10000000"]) else { panic!("no log") };
    assert!(crate::rules::codec::log::read(&value).is_some());
}
