//! The denial cache gives only denials that the store would give. A limiter with the cache is compared with one without,
//! while both refund, reset and change policies.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use polylimit::clock::ManualClock;
use polylimit::decision::{QuotaVerdict, Source};
use polylimit::document::RequestAttributes;
use polylimit::raw::{Answer, Call, Completions};
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::storage::Outage;
use polylimit::testing::script::invalidation_channel;
use polylimit::{Decision, Limiter, LimiterBuilder, Policy, Request};
use polylimit_test_servers::{Kind, Row, Server};

use super::generators::{Random, random_headroom, random_policy_of, with_random_penalty};

const CASES: u64 = 300;
const OPERATIONS: usize = 60;

fn limiter(server: &Server, policy: &Policy, clock: &ManualClock, denial_cache_max: Duration) -> Limiter {
    let options = polylimit::redis::RedisOptions::parse(&server.url()).unwrap();
    let options = options.deadline(Duration::from_secs(30)).denial_cache_max(denial_cache_max);
    let builder = Limiter::builder().redis(options).policy(policy.clone()).clock(clock.clone());
    builder.outage(policy.name(), Outage::Deny).build().unwrap()
}

/// The decision without its source.
fn numbers(decision: &Decision) -> (bool, u64, Option<u64>, u64, Vec<QuotaVerdict>) {
    let verdicts = decision.verdicts().collect();
    (decision.allowed(), decision.remaining(), decision.retry_after_us(), decision.reset_after_us(), verdicts)
}

/// A key whose messages come on the same channel as those of the key `key`.
fn key_beside(policy: &str) -> String {
    let channel = |key: &str| invalidation_channel("polylimit", policy, key.as_bytes());
    let shared = channel("key");
    (0..1_000_000).map(|number| format!("other{number}")).find(|other| channel(other) == shared).unwrap()
}

/// Has a limiter cache a denial of another key of the channel, so that it subscribes. Returns whether it does: no denial of a
/// key under a log with an excess is cached.
fn subscribe(server: &Server, limiter: &polylimit::blocking::Limiter, policy: &str, capacity: u64) -> bool {
    let other = &*key_beside(policy);
    let _ = limiter.charge(Request::new(other).cost(capacity)).unwrap();
    // Where denials are counted, only those of a blocked key are cached. The block is published before there is a subscription:
    // a message that is still on its way would later be taken for that of an operation.
    let _ = limiter.admin().block(other, Duration::from_secs(60)).unwrap();
    // The start of the subscription clears the cache, once. So a denial that is cacheable is found in it by the third check at the latest.
    if !(0..3).any(|_| limiter.check(other).unwrap().source() == Source::DenialCache) {
        return false;
    }
    let channel = invalidation_channel("polylimit", policy, b"key");
    until_subscribed(server, &channel, 1);
    server.command(&["PUBLISH", &channel, "nothing"]);
    until_received(limiter, 1);
    true
}

fn messages_received(limiter: &polylimit::blocking::Limiter) -> u64 {
    limiter.asynchronous().stats().invalidations
}

/// Waits until the limiter has received this number of messages.
fn until_received(limiter: &polylimit::blocking::Limiter, messages: u64) {
    let start = Instant::now();
    while messages_received(limiter) < messages {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "received {} of {messages}",
            messages_received(limiter)
        );
        std::thread::yield_now();
    }
}

#[test]
fn cached_denials_match_the_store() {
    let server = Server::start(Kind::Redis, &[]);
    let mut random = Random::new(11);
    let mut hits = 0;
    for case in 0..CASES {
        let name = format!("case{case}");
        let quotas = 1 + random.below(3);
        let policy = random_policy_of(&name, quotas, &mut random);
        let policy = if random.once_in(3) { with_random_penalty(policy, &mut random) } else { policy };
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let cached = limiter(&server, &policy, &clock, Duration::from_secs(3_600)).blocking();
        let plain = limiter(&server, &policy, &clock, Duration::ZERO).blocking();
        let capacity = policy.quotas().iter().map(polylimit::Quota::capacity).min().unwrap();
        let is_subscribed = subscribe(&server, &cached, &name, capacity);
        for operation in 0..OPERATIONS {
            let cost =
                random.pick(&[1, 1, 1, 2, capacity / 2 + 1, capacity, (capacity + 1).min(Request::MAX_COST)]);
            let request = Request::new("key").cost(cost).headroom(random_headroom(&mut random));
            // Refunds, resets and blocks by either limiter invalidate the denial.
            let either = random.pick(&[&cached, &plain]);
            let before = messages_received(&cached);
            match random.below(13) {
                0 | 1 => {
                    let is_reset = random.below(2) == 0;
                    let refunded = if is_reset { either.reset(request) } else { either.refund(request) };
                    assert_eq!(refunded.unwrap().source(), Source::Store);
                    if is_subscribed && (is_reset || cost > 0) {
                        until_received(&cached, before + 1);
                    }
                }
                2 => assert_eq!(cached.charge(request).unwrap().source(), Source::Store),
                3 => {
                    // A change to the same numbers clears the cache, too.
                    cached.asynchronous().set_policy(policy.clone()).unwrap();
                }
                4 => {
                    let most = random.pick(policy.quotas()).period() / random.pick(&[1, 3, 10, 100]);
                    clock.advance(most).unwrap();
                }
                6 => {
                    let time = Duration::from_millis(random.pick(&[0, 1, 1_000, 3_600_000]));
                    assert_eq!(either.admin().block(request, time).unwrap().source(), Source::Store);
                    if is_subscribed {
                        until_received(&cached, before + 1);
                    }
                }
                5 => clock.set(clock.now_us() - random.pick(&[0, 1, 1_000, 1_000_000])).unwrap(),
                _ => {
                    let expected = plain.peek(request).unwrap();
                    // Of single checks, those with headroom go to the store.
                    let decision = cached.check_many([request]).pop().unwrap().unwrap();
                    assert_eq!(decision.allowed(), expected.allowed(), "{policy}, {operation}: {cost}");
                    if decision.source() == Source::DenialCache {
                        hits += 1;
                        assert_eq!(numbers(&decision), numbers(&expected), "{policy}, {operation}: {cost}");
                    }
                }
            }
        }
    }
    assert!(hits > 1_000, "only {hits} cache hits");
}

fn limiter_with_cache(
    server: &Server,
    quotas: &str,
    denial_cache_max: Duration,
) -> polylimit::blocking::Limiter {
    let options = polylimit::redis::RedisOptions::parse(&server.url()).unwrap();
    let options = options.deadline(Duration::from_secs(30)).denial_cache_max(denial_cache_max);
    Limiter::builder().redis(options).policy(Policy::parse("p", quotas).unwrap()).build().unwrap().blocking()
}

/// The channel of a user key under the policy `p`.
fn channel_of(key: &[u8]) -> String {
    invalidation_channel("polylimit", "p", key)
}

/// Waits until a channel has this number of subscribers.
pub(crate) fn until_subscribed(server: &Server, channel: &str, subscribers: u64) {
    let start = Instant::now();
    let count = || server.query::<(String, u64)>(&["PUBSUB", "NUMSUB", channel]).1;
    while count() != subscribers {
        assert!(start.elapsed() < Duration::from_secs(10), "{} of {subscribers} subscribers", count());
        std::thread::yield_now();
    }
}

fn until_allowed(limiter: &polylimit::blocking::Limiter, key: &[u8]) {
    let start = Instant::now();
    while !limiter.check(key).unwrap().allowed() {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

const NEVER: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(3_600);

#[test]
fn refund_by_another_process_invalidates_the_denial() {
    let server = Server::start(Kind::Redis, &[]);
    for (round, quotas) in
        ["3/day", "3/day sliding_log", "3/day buckets=5; 9/day sliding_log"].into_iter().enumerate()
    {
        let (here, other) =
            (limiter_with_cache(&server, quotas, LONG), limiter_with_cache(&server, quotas, NEVER));
        let long = [b'x'; 200];
        for (key, reset) in [(&b"user"[..], true), (b"user {2}", false), (b"", true), (&long, false)] {
            let request = Request::new(key);
            let _ = other.charge(request.cost(3)).unwrap();
            assert!(!here.check(request).unwrap().allowed());
            until_subscribed(&server, &channel_of(key), 1);
            // The start of the subscription clears the cache.
            assert!(!here.check(request).unwrap().allowed());
            let _ = if reset { other.reset(request).unwrap() } else { other.refund(request).unwrap() };
            until_allowed(&here, key);
            let _ = other.reset(request).unwrap();
        }
        drop(here);
        until_subscribed(&server, &channel_of(&long), 0);
        assert!(other.asynchronous().stats().applied > 0, "{round}");
    }
}

#[test]
fn without_subscription_a_denial_expires_after_denial_cache_max() {
    let server = Server::start(Kind::Redis, &[]);
    let (here, other) = (
        limiter_with_cache(&server, "3/day", Duration::from_millis(50)),
        limiter_with_cache(&server, "3/day", NEVER),
    );
    // The server refuses both subscriptions and messages.
    server.command(&["ACL", "SETUSER", "default", "-subscribe", "-publish"]);
    let _ = other.charge(Request::new("user").cost(3)).unwrap();
    assert_eq!(here.check("user").unwrap().source(), Source::Store);
    assert_eq!(here.check("user").unwrap().source(), Source::DenialCache);
    let _ = other.reset("user").unwrap();
    until_allowed(&here, b"user");
    until_subscribed(&server, &channel_of(b"user"), 0);
}

#[test]
fn lost_subscription_is_renewed_and_clears_the_cache() {
    let server = Server::start(Kind::Redis, &[]);
    let (here, other) =
        (limiter_with_cache(&server, "3/day", LONG), limiter_with_cache(&server, "3/day", NEVER));
    let _ = other.charge(Request::new("user").cost(3)).unwrap();
    assert!(!here.check("user").unwrap().allowed());
    until_subscribed(&server, &channel_of(b"user"), 1);
    assert!(!here.check("user").unwrap().allowed());
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    // Messages are lost meanwhile. They do not matter, since the new subscription clears the cache.
    let _ = other.reset("user").unwrap();
    until_allowed(&here, b"user");
    until_subscribed(&server, &channel_of(b"user"), 1);
}

/// Before the server's message can have arrived. Which is first is chance, so there are many rounds.
#[test]
fn own_refund_invalidates_the_denial_at_once() {
    let server = Server::start(Kind::Redis, &[]);
    let here = limiter_with_cache(&server, "3/day", LONG);
    for round in 0..200 {
        let key = format!("user{round}");
        let _ = here.charge(Request::new(&key).cost(3)).unwrap();
        until_cached(&here, Request::new(&key));
        let _ = here.refund(Request::new(&key)).unwrap();
        let decision = here.check(&key).unwrap();
        assert!(decision.allowed(), "{round}: {decision:?}");
    }
}

/// Checks until the cache answers: it is cleared once, when the subscription is established.
fn until_cached(limiter: &polylimit::blocking::Limiter, request: Request<'_>) {
    let start = Instant::now();
    while limiter.check(request).unwrap().source() != Source::DenialCache {
        assert!(start.elapsed() < Duration::from_secs(10), "{request:?}");
    }
}

#[test]
fn check_under_any_of_many_policies_is_answered_by_the_cache() {
    let server = Server::start(Kind::Redis, &[]);
    let names: Vec<_> = (0..8).map(|number| format!("p{number}")).collect();
    let options = polylimit::redis::RedisOptions::parse(&server.url()).unwrap();
    let options = options.deadline(Duration::from_secs(30)).denial_cache_max(LONG);
    let policies = names.iter().map(|name| Policy::parse(name, "1/day").unwrap());
    let builder = policies.fold(Limiter::builder().redis(options), LimiterBuilder::policy);
    let limiter = builder.build().unwrap().blocking();
    for name in &names {
        until_cached(&limiter, Request::new("user").policy(name));
    }
    until_cached(&limiter, Request::new("user").policy("2/day"));
}

/// A request that the cache denies by one policy is denied by the store where another one counts denials.
#[test]
fn denials_are_counted_when_the_cache_denies_another_part_of_the_request() {
    let server = Server::start(Kind::Redis, &[]);
    let numbers = |cache: Duration, user: &str| {
        let options = polylimit::redis::RedisOptions::parse(&server.url()).unwrap();
        let options = options.deadline(Duration::from_secs(30)).denial_cache_max(cache);
        let builder = Limiter::builder().redis(options).policy(Policy::parse("full", "1/day").unwrap());
        let counting = builder.policy(Policy::parse("counting", "8/day fixed_window count_denied").unwrap());
        let limiter = counting.build().unwrap().blocking();
        let full = Request::new(user).policy("full");
        let _ = limiter.charge(full).unwrap();
        if cache > Duration::ZERO {
            until_cached(&limiter, full);
        }
        let counting = Request::new(user).policy("counting");
        let _ = limiter.charge(counting.cost(8)).unwrap();
        let decisions = limiter.check_together(&[full, counting.cost(2)]).unwrap();
        assert!(decisions.iter().all(|decision| !decision.allowed()), "{decisions:?}");
        // Ten are in use, of which two were denied.
        limiter.refund(counting.cost(2)).unwrap().remaining()
    };
    assert_eq!((numbers(Duration::ZERO, "uncached"), numbers(LONG, "cached")), (0, 0));
}

/// A reserve that repeats an id needs no slot, which a peek of the other policy would not show.
#[test]
fn repeated_reserve_is_admitted_when_the_cache_denies_another_part_of_the_request() {
    let server = Server::start(Kind::Redis, &[]);
    let options = polylimit::redis::RedisOptions::parse(&server.url()).unwrap();
    let options = options.deadline(Duration::from_secs(30)).denial_cache_max(LONG);
    let builder = Limiter::builder().redis(options).policy(Policy::parse("full", "1/day").unwrap());
    let limiter = builder.policy(Policy::parse("slots", "1 concurrent").unwrap()).build().unwrap().blocking();
    let terms = ReserveOptions::default().id(ReservationId::new("first").unwrap()).terms().unwrap();
    let [full, slots] = ["full", "slots"].map(|policy| Request::new("user").policy(policy));
    assert!(limiter.reserve_together(&[slots], &terms).unwrap()[0].allowed());
    let _ = limiter.charge(full).unwrap();
    until_cached(&limiter, full);
    let decisions = limiter.reserve_together(&[full, slots], &terms).unwrap();
    let allowed: Vec<_> = decisions.iter().map(polylimit::Decision::allowed).collect();
    assert_eq!(allowed, [false, true], "{decisions:?}");
}

#[test]
fn submitted_and_deferred_checks_do_not_ask_the_cache_again() {
    let server = Server::start(Kind::Redis, &[]);
    let blocking = limiter_with_cache(&server, "3/day", LONG);
    let limiter = blocking.asynchronous();
    let _ = blocking.charge(Request::new("user").cost(3)).unwrap();
    until_cached(&blocking, Request::new("user"));
    let user_channel = &*channel_of(b"user");
    until_subscribed(&server, user_channel, 1);
    // The reply to SUBSCRIBE, which clears the cache, comes before this message.
    server.command(&["PUBLISH", user_channel, "nothing"]);
    until_received(&blocking, 1);
    until_cached(&blocking, Request::new("user"));
    let check = Call::Check(Request::new("user"));
    let answer = limiter.raw().try_call(&check).unwrap().unwrap();
    assert!(matches!(answer, Answer::Decision(decision) if decision.source() == Source::DenialCache));
    let hits = limiter.stats().denial_cache;
    let (wake, woken) = channel();
    let completions = Completions::new(move || _ = wake.send(()));
    let mut answers = Vec::from_iter(completions.submit(limiter, &check, ()));
    assert!([(); 2].iter().all(|()| completions.defer(limiter, &check, ()).is_none()));
    completions.flush();
    while answers.len() < 3 {
        woken.recv_timeout(Duration::from_secs(30)).unwrap();
        completions.drain(|(), answer| answers.push(answer));
    }
    for answer in answers {
        let Ok(Answer::Decision(decision)) = answer else { panic!("{answer:?}") };
        assert_eq!((decision.allowed(), decision.source()), (false, Source::Store));
    }
    assert_eq!(limiter.stats().denial_cache, hits);
}

#[test]
fn checks_of_a_denied_key_send_no_commands() {
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter_with_cache(&server, "3/day", LONG);
    let allowed = (0..4).filter(|_| limiter.check("user").unwrap().allowed()).count();
    assert_eq!(allowed, 3);
    let user_channel = &*channel_of(b"user");
    until_subscribed(&server, user_channel, 1);
    // The reply to SUBSCRIBE may still be under way. A message comes after it.
    server.command(&["PUBLISH", user_channel, "nothing"]);
    let start = Instant::now();
    while limiter.asynchronous().stats().invalidations == 0 {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    assert!(!limiter.check("user").unwrap().allowed());
    let hits = limiter.asynchronous().stats().denial_cache;
    let commands = || server.info("total_commands_processed").parse::<u64>().unwrap();
    let (first, before) = (commands(), commands());
    for _ in 0..100_000 {
        let decision = limiter.check("user").unwrap();
        assert_eq!((decision.allowed(), decision.source()), (false, Source::DenialCache));
    }
    // The query itself counts as many commands each time.
    assert_eq!(commands() - before, before - first);
    assert_eq!(limiter.asynchronous().stats().denial_cache - hits, 100_000);
    Row::new("S6", "a denied key").decisions(100_000).measured("no command reached Redis").record();
}

/// The decisions of a candidate are compared with those of the store, and not with what is known in front of it.
#[test]
fn candidate_is_compared_with_every_decision_on_a_request() {
    let server = Server::start(Kind::Redis, &[]);
    let document = r#"{"polylimit": 1,
        "policies": {"p": {"quotas": "1/day", "candidate": {"quotas": "100/day", "compare": 1000}}, "q": {"quotas": "100/day"}},
        "rules": [{"match": {"path": "/one"}, "apply": [{"policy": "p", "key": "{user}"}]},
            {"match": {"path": "/two"}, "apply": [{"policy": "p", "key": "{user}"}, {"policy": "q", "key": "{user}"}]}]}"#;
    let url = format!("{}?denial_cache_max=1h&deadline=30s", server.url());
    let limiter = Limiter::builder().store(&url).document(document).build().unwrap().blocking();
    let terms = ReserveOptions::default().terms().unwrap();
    for (path, user) in [("/one", "alice"), ("/two", "bob")] {
        let request = RequestAttributes::new().path(path).attribute("user", user);
        let allowed = (0..10).filter(|_| limiter.decide(&request, &terms).unwrap().allowed).count();
        assert_eq!(allowed, 1);
    }
    let counts = limiter.admin().candidate_counts("p").unwrap();
    assert_eq!((counts.both_allow, counts.only_live_denies), (2, 18));
}
