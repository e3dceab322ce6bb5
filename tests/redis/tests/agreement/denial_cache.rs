//! A denial that is answered without asking the store is one that the store would give: a limiter that knows denials is
//! compared with one that asks each time, while others give back, reset and change numbers.

use std::time::{Duration, Instant};

use polylimit::{Decision, Limiter, ManualClock, Outage, Policy, Request, Source};
use polylimit_test_servers::{Kind, Server};

use super::policies::random_policy_of;
use super::random::Random;

const CASES: u64 = 300;
const OPERATIONS: usize = 60;

fn limiter(server: &Server, policy: &Policy, clock: &ManualClock, denial_cache_max: Duration) -> Limiter {
    let options = polylimit::RedisOptions::parse(&server.url()).unwrap();
    let options = options.deadline(Duration::from_secs(30)).denial_cache_max(denial_cache_max);
    let builder = Limiter::builder().redis(options).policy(policy.clone()).clock(clock.clone());
    builder.outage(policy.name(), Outage::Deny).build().unwrap()
}

/// The decision but for where it came from.
fn told(decision: &Decision) -> (bool, u64, Option<u64>, u64) {
    (decision.allowed(), decision.remaining(), decision.retry_after_us(), decision.reset_after_us())
}

/// Has a limiter know a denial, so that it listens to what is given back; says whether it does. It never knows any of a
/// policy that counts denied requests.
fn listens(server: &Server, limiter: &polylimit::blocking::Limiter, capacity: u64) -> bool {
    let _ = limiter.charge(Request::new("other").cost(capacity)).unwrap();
    let _ = limiter.check("other").unwrap();
    if limiter.check("other").unwrap().source() != Source::DenialCache {
        return false;
    }
    until_listening(server, 1);
    server.command(&["PUBLISH", CHANNEL, "nothing"]);
    until_heard(limiter, 1);
    true
}

fn heard(limiter: &polylimit::blocking::Limiter) -> u64 {
    limiter.asynchronous().stats().given_back_heard
}

/// Waits until so many messages were heard.
fn until_heard(limiter: &polylimit::blocking::Limiter, messages: u64) {
    let start = Instant::now();
    while heard(limiter) < messages {
        assert!(start.elapsed() < Duration::from_secs(10), "{} of {messages} were heard", heard(limiter));
        std::thread::yield_now();
    }
}

#[test]
fn denials_are_those_that_the_store_would_give() {
    let server = Server::start(Kind::Redis, &[]);
    let mut random = Random::new(11);
    let mut known = 0;
    for case in 0..CASES {
        let name = format!("known{case}");
        let quotas = 1 + random.below(3);
        let policy = random_policy_of(&name, quotas, &mut random);
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let knowing = limiter(&server, &policy, &clock, Duration::from_secs(3_600)).blocking();
        let asking = limiter(&server, &policy, &clock, Duration::ZERO).blocking();
        let capacity = policy.quotas().iter().map(polylimit::Quota::capacity).min().unwrap();
        until_listening(&server, 0);
        let listens = listens(&server, &knowing, capacity);
        for operation in 0..OPERATIONS {
            let cost =
                random.pick(&[1, 1, 1, 2, capacity / 2 + 1, capacity, (capacity + 1).min(Request::MAX_COST)]);
            let request = Request::new("key").cost(cost);
            // By this process, or by another one.
            let somebody = random.pick(&[&knowing, &asking]);
            let before = heard(&knowing);
            match random.below(12) {
                0 | 1 => {
                    let is_reset = random.below(2) == 0;
                    let given_back =
                        if is_reset { somebody.reset(request) } else { somebody.refund(request) };
                    assert_eq!(given_back.unwrap().source(), Source::Store);
                    if listens && (is_reset || cost > 0) {
                        until_heard(&knowing, before + 1);
                    }
                }
                2 => assert_eq!(knowing.charge(request).unwrap().source(), Source::Store),
                3 => {
                    // The same numbers, which makes it forget as others do.
                    knowing.asynchronous().set_policy(policy.clone()).unwrap();
                }
                4 => {
                    let most = random.pick(policy.quotas()).period() / random.pick(&[1, 3, 10, 100]);
                    clock.advance(most).unwrap();
                }
                5 => clock.set(clock.now_us() - random.pick(&[0, 1, 1_000, 1_000_000])).unwrap(),
                _ => {
                    let expected = asking.peek(request).unwrap();
                    let decision = knowing.check(request).unwrap();
                    assert_eq!(decision.allowed(), expected.allowed(), "{policy}, {operation}: {cost}");
                    if decision.source() == Source::DenialCache {
                        known += 1;
                        assert_eq!(told(&decision), told(&expected), "{policy}, {operation}: {cost}");
                    }
                }
            }
        }
    }
    assert!(known > 1_000, "only {known} were known");
}

fn knowing(server: &Server, quotas: &str, denial_cache_max: Duration) -> polylimit::blocking::Limiter {
    let options = polylimit::RedisOptions::parse(&server.url()).unwrap();
    let options = options.deadline(Duration::from_secs(30)).denial_cache_max(denial_cache_max);
    Limiter::builder().redis(options).policy(Policy::parse("p", quotas).unwrap()).build().unwrap().blocking()
}

/// Waits until so many listen to what is given back.
fn until_listening(server: &Server, listeners: u64) {
    let start = Instant::now();
    let listening = || server.query::<(String, u64)>(&["PUBSUB", "NUMSUB", CHANNEL]).1;
    while listening() != listeners {
        assert!(start.elapsed() < Duration::from_secs(10), "{} of {listeners} listen", listening());
        std::thread::yield_now();
    }
}

fn until_allowed(limiter: &polylimit::blocking::Limiter, key: &[u8]) {
    let start = Instant::now();
    while !limiter.check(key).unwrap().allowed() {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

const CHANNEL: &str = "polylimit:1:given_back";
const NEVER: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(3_600);

#[test]
fn what_another_process_gives_back_is_heard() {
    let server = Server::start(Kind::Redis, &[]);
    for (round, quotas) in
        ["3/day", "3/day sliding_log", "3/day buckets=5; 9/day sliding_log"].into_iter().enumerate()
    {
        let (here, other) = (knowing(&server, quotas, LONG), knowing(&server, quotas, NEVER));
        let long = [b'x'; 200];
        for (key, reset) in [(&b"user"[..], true), (b"user {2}", false), (b"", true), (&long, false)] {
            let request = Request::new(key);
            let _ = other.charge(request.cost(3)).unwrap();
            assert!(!here.check(request).unwrap().allowed());
            until_listening(&server, 1);
            // What was known before somebody listened is forgotten.
            assert!(!here.check(request).unwrap().allowed());
            let _ = if reset { other.reset(request).unwrap() } else { other.refund(request).unwrap() };
            until_allowed(&here, key);
            let _ = other.reset(request).unwrap();
        }
        drop(here);
        until_listening(&server, 0);
        assert!(other.asynchronous().stats().applied > 0, "{round}");
    }
}

#[test]
fn what_another_process_gives_back_while_nobody_listens_is_seen_in_time() {
    let server = Server::start(Kind::Redis, &[]);
    let (here, other) =
        (knowing(&server, "3/day", Duration::from_millis(50)), knowing(&server, "3/day", NEVER));
    // Nobody may listen, and nobody may tell.
    server.command(&["ACL", "SETUSER", "default", "-subscribe", "-publish"]);
    let _ = other.charge(Request::new("user").cost(3)).unwrap();
    assert_eq!(here.check("user").unwrap().source(), Source::Store);
    assert_eq!(here.check("user").unwrap().source(), Source::DenialCache);
    let _ = other.reset("user").unwrap();
    until_allowed(&here, b"user");
    until_listening(&server, 0);
}

#[test]
fn somebody_who_lost_the_connection_listens_again() {
    let server = Server::start(Kind::Redis, &[]);
    let (here, other) = (knowing(&server, "3/day", LONG), knowing(&server, "3/day", NEVER));
    let _ = other.charge(Request::new("user").cost(3)).unwrap();
    assert!(!here.check("user").unwrap().allowed());
    until_listening(&server, 1);
    assert!(!here.check("user").unwrap().allowed());
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    // Nothing that happens meanwhile is missed, since all is forgotten when somebody listens again.
    let _ = other.reset("user").unwrap();
    until_allowed(&here, b"user");
    until_listening(&server, 1);
}

#[test]
fn what_is_given_back_here_is_seen_at_once() {
    let server = Server::start(Kind::Redis, &[]);
    let here = knowing(&server, "3/day", LONG);
    let _ = here.charge(Request::new("user").cost(3)).unwrap();
    assert!(!here.check("user").unwrap().allowed());
    let _ = here.refund(Request::new("user")).unwrap();
    assert!(here.check("user").unwrap().allowed());
}

#[test]
fn a_flood_on_a_denied_key_asks_nothing() {
    let server = Server::start(Kind::Redis, &[]);
    let limiter = knowing(&server, "3/day", LONG);
    let allowed = (0..4).filter(|_| limiter.check("user").unwrap().allowed()).count();
    assert_eq!(allowed, 3);
    until_listening(&server, 1);
    // The answer to that may be on its way; what is heard comes after it.
    server.command(&["PUBLISH", CHANNEL, "nothing"]);
    let start = Instant::now();
    while limiter.asynchronous().stats().given_back_heard == 0 {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    assert!(!limiter.check("user").unwrap().allowed());
    let known = limiter.asynchronous().stats().denial_cache;
    let commands = || server.info("total_commands_processed").parse::<u64>().unwrap();
    let (first, before) = (commands(), commands());
    for _ in 0..100_000 {
        let decision = limiter.check("user").unwrap();
        assert_eq!((decision.allowed(), decision.source()), (false, Source::DenialCache));
    }
    // To ask how many there were is as many as it was before.
    assert_eq!(commands() - before, before - first);
    assert_eq!(limiter.asynchronous().stats().denial_cache - known, 100_000);
}
