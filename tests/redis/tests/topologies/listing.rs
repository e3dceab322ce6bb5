//! Lists of keys by SCAN, resets of listed keys, and explanations that leave caches and leases alone.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use polylimit::admin::{KeyFilter, KeyName, KeyPage, ListBudget};
use polylimit::clock::ManualClock;
use polylimit::decision::{Cause, Source};
use polylimit::raw::{Answer, Call};
use polylimit::redis::Lease;
use polylimit::reservation::ReserveOptions;
use polylimit::{Error, ErrorKind, Limiter, Policy, Request};
use polylimit_redis_tests::with;
use polylimit_test_servers::{Cluster, Dataset, Kind, MigrationStage, Server, until};

use super::support::{keys_of_third, runtime, shared, slot};

/// A budget for everything, without pauses.
fn budget() -> ListBudget {
    ListBudget::default().entries(10_000).pace_percent(100)
}

fn policy(name: &str, quotas: &str) -> Policy {
    Policy::parse(name, quotas).unwrap()
}

fn built(url: &str) -> Limiter {
    let builder = Limiter::builder().store(&with(url, "deadline=5s&doctor_after=0&key_secret=secret"));
    let builder =
        builder.policy(policy("a", "10/hour token_bucket")).policy(policy("log", "10/day sliding_log"));
    builder.policy(policy("both", "10/hour fixed_window; 5/hour sliding_log")).build().unwrap()
}

/// All pages of a list: the policies and keys with the used units of each quota, and in how many pages each key is.
fn all(
    limiter: &Limiter,
    filter: &KeyFilter<'_>,
    budget: &ListBudget,
) -> BTreeMap<(String, KeyName), (Vec<u64>, usize)> {
    let (mut listed, mut cursor): (BTreeMap<_, (Vec<u64>, usize)>, Option<String>) = (BTreeMap::new(), None);
    loop {
        let page = runtime().block_on(limiter.admin().list(filter, budget, cursor.as_deref())).unwrap();
        for key in page.keys {
            let used = key.quotas.iter().map(|quota| quota.used).collect();
            let (_, pages) = listed.entry((key.policy.to_string(), key.key)).or_insert((used, 0));
            *pages += 1;
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return listed;
        }
    }
}

/// Uses keys of every form and policy; returns how many keys that are.
fn use_keys(limiter: &Limiter) -> usize {
    let long = "long:".to_owned() + &"x".repeat(200);
    let short: Vec<String> = (0..300).map(|key| format!("user:{key}")).collect();
    let keys = short.iter().map(String::as_str).chain(["", "a*b[c]^?\\{d} e", "\0\n", &long]);
    let keys: Vec<&str> = keys.collect();
    for policy in ["a", "log", "both", "20/day token_bucket burst=30"] {
        let requests = keys.iter().map(|key| Request::new(*key).policy(policy));
        for decision in runtime().block_on(limiter.check_many(requests)) {
            let decision = decision.unwrap();
            assert!(decision.allowed() && decision.source() == Source::Store, "{decision:?}");
        }
    }
    4 * keys.len()
}

fn assert_lists_everything(limiter: &Limiter, reader: &Limiter) {
    let count = use_keys(limiter);
    for entries in [10, 1_000] {
        let listed = all(reader, &KeyFilter::default(), &budget().entries(entries));
        assert_eq!(listed.len(), count);
        for ((policy, key), (used, _)) in &listed {
            assert_eq!(used, if policy == "both" { &[1, 1][..] } else { &[1] }, "{policy} {key:?}");
        }
        let digests = listed.keys().filter(|(_, key)| key.bytes().is_none()).count();
        assert_eq!(digests, 4);
        assert!(listed.keys().any(|(_, key)| key.bytes() == Some(b"a*b[c]^?\\{d} e")));
    }
    let by_prefix = |prefix: &str| {
        let filter = KeyFilter::default().policy("log").key_prefix(prefix);
        all(reader, &filter, &budget()).len()
    };
    assert_eq!(
        (by_prefix("user:1"), by_prefix("user:29"), by_prefix("a*b["), by_prefix("a?b")),
        (111, 11, 1, 0)
    );
    assert_eq!((by_prefix("long:"), by_prefix("\0")), (0, 1));
    let one_off = KeyFilter::default().policy("20/d token_bucket burst=30").key_prefix("user:29");
    assert_eq!(all(reader, &one_off, &budget()).len(), 11);
    assert!(all(reader, &KeyFilter::default().at_least_used(21), &budget()).is_empty());
    assert_eq!(all(reader, &KeyFilter::default().at_least_used(20), &budget()).len(), count / 4);
}

#[test]
fn every_key_of_every_server_is_listed() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        // Keys of other programs, of other prefixes and of other types are no keys of limiters.
        for name in
            ["other", "polylimit:1:a", "polylimit:1:a:{x", "polylimit:1:{configuration}", "shop:1:a:{x}"]
        {
            server.command(&["SET", name, "1"]);
        }
        server.command(&["RPUSH", "polylimit:1:a:{list}", "1"]);
        let limiter = built(&server.url());
        assert_lists_everything(&limiter, &built(&server.url()));
    }
}

#[test]
fn every_key_of_every_primary_is_listed() {
    let _shared = shared();
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 3, 0);
        let limiter = built(&cluster.url());
        assert_lists_everything(&limiter, &built(&cluster.url()));
    }
}

#[test]
fn list_of_unknown_policies_has_names_and_times() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = built(&server.url());
    let _ = use_keys(&limiter);
    let reader = Limiter::builder().store(&with(&server.url(), "deadline=5s")).build().unwrap();
    let page =
        runtime().block_on(reader.admin().list(&KeyFilter::default().policy("a"), &budget(), None)).unwrap();
    assert_eq!(page.keys.len(), 304);
    for key in &page.keys {
        assert!(key.quotas.is_empty() && key.expires_after_us.is_some_and(|us| us > 60_000_000), "{key:?}");
    }
    let one_off = runtime().block_on(reader.admin().list(
        &KeyFilter::default().policy("20/day token_bucket burst=30").key_prefix("user:7"),
        &budget(),
        None,
    ));
    assert!(one_off.unwrap().keys.iter().all(|key| key.quotas[0].used == 1));
    assert!(reader.policies().is_empty());
}

#[test]
fn listed_keys_are_reset_with_their_logs() {
    let _shared = shared();
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 2, 0);
        let limiter = built(&cluster.url());
        let count = use_keys(&limiter);
        let (mut cursor, mut reset): (Option<String>, _) = (None, 0);
        let filter = KeyFilter::default().policy("both").key_prefix("user:");
        loop {
            let page = limiter
                .blocking()
                .admin()
                .reset_listed(&filter, &budget().entries(50), cursor.as_deref())
                .unwrap();
            reset += page.reset;
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(reset, 300);
        assert_eq!(all(&limiter, &KeyFilter::default(), &budget()).len(), count - 300);
        let others = limiter
            .blocking()
            .admin()
            .reset_listed(&KeyFilter::default(), &budget().entries(10_000), None)
            .unwrap();
        assert_eq!((others.reset, others.unknown, others.cursor), (count as u64 - 300, 0, None));
        for node in 0..2 {
            assert_eq!(cluster.node(node).query::<usize>(&["DBSIZE"]), 0);
        }
    }
}

#[test]
fn list_needs_the_right_to_scan() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let _ = use_keys(&built(&server.url()));
    let url = server.url().replacen("//", "//limits:word@", 1);
    let allow = |rights: &[&str]| {
        let start = ["ACL", "SETUSER", "limits", "reset", "on", ">word", "~*", "&*", "-@all"];
        server.command(&[&start[..], rights].concat());
    };
    let decisions = [
        "+evalsha",
        "+eval",
        "+time",
        "+get",
        "+mget",
        "+set",
        "+setrange",
        "+del",
        "+getrange",
        "+strlen",
        "+append",
        "+pexpireat",
    ];
    let list = |limiter: &Limiter| limiter.blocking().admin().list(&KeyFilter::default(), &budget(), None);
    allow(&decisions);
    let error = list(&built(&url)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed);
    assert!(error.lacks_right() && error.message().contains("+scan"), "{error}");
    allow(&[&decisions[..], &["+scan"]].concat());
    assert_eq!(list(&built(&url)).unwrap().keys.len(), 1_216);
    // Without the right to ask for times, they are not reported.
    let stranger = Limiter::builder().store(&with(&url, "deadline=5s")).build().unwrap();
    let page = stranger.blocking().admin().list(&KeyFilter::default().policy("a"), &budget(), None).unwrap();
    assert!(page.keys.len() == 304 && page.keys.iter().all(|key| key.expires_after_us.is_none()));
    allow(&[&decisions[..], &["+scan", "+pttl"]].concat());
    let page = stranger.blocking().admin().list(&KeyFilter::default().policy("a"), &budget(), None).unwrap();
    assert!(page.keys.iter().all(|key| key.expires_after_us.is_some()));
}

#[test]
fn page_ends_by_its_budget_and_is_paced() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = built(&server.url());
    let _ = use_keys(&limiter);
    let scans = || -> u64 {
        let text: String = server.query(&["INFO", "commandstats"]);
        let calls = text.lines().find_map(|line| line.strip_prefix("cmdstat_scan:calls="));
        calls.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    };
    let page = |budget: ListBudget| {
        runtime().block_on(limiter.admin().list(&KeyFilter::default(), &budget, None)).unwrap()
    };
    let first = page(budget().examined(100));
    assert!((100..200).contains(&first.examined) && first.cursor.is_some(), "{}", first.examined);
    let before = scans();
    let small = page(budget().entries(20));
    assert!((20..200).contains(&small.keys.len()) && small.cursor.is_some());
    assert!((1..4).contains(&(scans() - before)));
    let whole = page(budget());
    assert_eq!((whole.keys.len(), whole.cursor), (1_216, None));
    // At 5 % each call is followed by a pause of 19 times its duration. The caller measures a duration that contains the server's time,
    // so the whole takes at least 20 times the server's time, however slow the machine is.
    let busy_us = || -> u64 {
        let text: String = server.query(&["INFO", "commandstats"]);
        let of = |command: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
            let us = line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix("usec=")));
            us.map_or(0, |us| us.parse().unwrap())
        };
        of("scan") + of("evalsha") + of("eval")
    };
    let (busy_before_us, started) = (busy_us(), Instant::now());
    let paced = page(ListBudget::default().pace_percent(5).entries(200));
    let elapsed = started.elapsed();
    let call_time = Duration::from_micros(busy_us() - busy_before_us);
    assert!(paced.keys.len() >= 200 && !call_time.is_zero(), "{} keys in {call_time:?}", paced.keys.len());
    assert!(elapsed >= 20 * call_time, "{elapsed:?} with {call_time:?} of the server");
    let keys = server.query::<String>(&["INFO", "commandstats"]);
    assert!(!keys.contains("cmdstat_keys:"), "a list asks for KEYS");
}

#[test]
fn node_with_other_slots_is_listed_again() {
    let _shared = shared();
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let limiter = built(&cluster.url());
    let keys: Vec<String> = (0..3).flat_map(|third| keys_of_third(third, 100)).collect();
    for decision in
        runtime().block_on(limiter.check_many(keys.iter().map(|key| Request::new(key).policy("a"))))
    {
        assert!(decision.unwrap().allowed());
    }
    // A key of the last node moves to the first after that has been listed.
    let moving = slot(&keys_of_third(2, 1)[0]);
    let (mut listed, mut cursor): (HashSet<KeyName>, Option<String>) = (HashSet::new(), None);
    let mut has_moved = false;
    loop {
        let page: KeyPage = runtime()
            .block_on(limiter.admin().list(&KeyFilter::default(), &budget().entries(10), cursor.as_deref()))
            .unwrap();
        listed.extend(page.keys.into_iter().map(|key| key.key));
        cursor = page.cursor;
        if listed.len() > 150 && !has_moved {
            let from = cluster.owner_of(moving);
            cluster.migrate_slot(moving, from, (from + 1) % 3, |_: MigrationStage| {});
            until("every node knows the new owner", Duration::from_secs(10), || {
                (cluster.owner_of(moving) == (from + 1) % 3).then_some(())
            });
            has_moved = true;
        }
        if cursor.is_none() {
            break;
        }
    }
    assert!(has_moved && listed.len() == keys.len(), "{} of {}", listed.len(), keys.len());
}

#[test]
fn server_that_restarted_is_listed_again() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &["appendonly yes", "appendfsync always"]);
    let limiter = built(&server.url());
    let count = use_keys(&limiter);
    let first = runtime()
        .block_on(limiter.admin().list(&KeyFilter::default(), &budget().entries(200), None))
        .unwrap();
    assert!(first.cursor.is_some());
    server.restart(Dataset::Kept);
    server.wait_until_ready();
    let whole = budget().entries(10_000);
    let again = runtime()
        .block_on(limiter.admin().list(&KeyFilter::default(), &whole, first.cursor.as_deref()))
        .unwrap();
    assert_eq!((again.keys.len(), again.cursor), (count, None));
    server.kill();
    let error: Error =
        runtime().block_on(limiter.admin().list(&KeyFilter::default(), &whole, None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    let error = runtime().block_on(limiter.admin().explain(Request::new("user").policy("a"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
}

#[test]
fn explanation_is_that_of_the_store_and_changes_nothing() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let clock = ManualClock::new(1_800_000_000_000_000).unwrap();
        let quotas = "10/minute token_bucket; 20/hour; 7/m sliding_log; 30/h leaky_bucket; 50/d token_bucket step=5; 9/d fixed_window";
        let of = |url: Option<String>| {
            let builder = Limiter::builder().clock(clock.clone()).policy(policy("p", quotas));
            let builder = builder.policy(policy("r", "2 concurrent; 100/hour token_bucket"));
            match url {
                Some(url) => builder.store(&with(&url, "deadline=5s&denial_cache_max=0")).build().unwrap(),
                None => builder.build().unwrap(),
            }
        };
        let (redis, memory) = (of(Some(server.url())).blocking(), of(None).blocking());
        let explain = |request: Request<'_>| {
            let (there, here) =
                (redis.admin().explain(request).unwrap(), memory.admin().explain(request).unwrap());
            assert_eq!(there, here);
            there
        };
        for step in 0..60_u64 {
            for limiter in [&redis, &memory] {
                let _ = limiter.charge(Request::new("user").policy("p").cost(step % 5)).unwrap();
            }
            clock.advance(Duration::from_micros(step * 917_003)).unwrap();
            for (cost, headroom) in [(0, 0), (1, 0), (4, 0), (2, 40), (10, 0)] {
                let _ = explain(Request::new("user").policy("p").cost(cost).headroom(headroom));
            }
        }
        let held: Vec<_> = [&redis, &memory]
            .iter()
            .map(|limiter| {
                limiter.reserve(Request::new("user").policy("r").cost(60), ReserveOptions::default())
            })
            .collect();
        let explained = explain(Request::new("user").policy("r").cost(50));
        assert_eq!((explained.reservations, explained.cause), (1, Some(Cause::Quota)));
        for reservation in held {
            reservation.unwrap().cancel_blocking().unwrap();
        }
        for limiter in [&redis, &memory] {
            let _ = limiter.admin().block(Request::new("user").policy("p"), Duration::from_secs(70)).unwrap();
        }
        assert_eq!(explain(Request::new("user").policy("p")).blocked_for_us, 70_000_000);
        let long = "x".repeat(300);
        let _ = redis.charge(Request::new(&long).policy("p").cost(3)).unwrap();
        assert_eq!(redis.admin().explain(Request::new(&long).policy("p")).unwrap().quotas[0].used, 3);
        server.command(&["RPUSH", "polylimit:1:p:{list}", "1"]);
        assert_eq!(
            redis.admin().explain(Request::new("list").policy("p")).unwrap_err().kind(),
            ErrorKind::StoreFailed
        );
    }
}

#[test]
fn explanation_tells_leases_and_known_denials_and_leaves_them() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = Limiter::builder()
        .store(&with(&server.url(), "deadline=5s&denial_cache_max=1h"))
        .policy(policy("leased", "100000/day token_bucket"))
        .lease("leased", Lease::new(100, Duration::from_secs(60)).unwrap())
        .policy(policy("plain", "1/day"))
        .build()
        .unwrap();
    let blocking = limiter.blocking();
    let leased = Request::new("busy").policy("leased");
    until("units are leased", Duration::from_secs(10), || {
        let _ = blocking.check(leased).unwrap();
        (limiter.stats().lease_units_held > 0).then_some(())
    });
    let explained = blocking.admin().explain(leased).unwrap();
    assert!(explained.leased_units > 0, "{explained:?}");
    assert_eq!(limiter.stats().lease_units_returned, 0);
    let plain = Request::new("denied").policy("plain");
    assert!(blocking.check(plain).unwrap().allowed());
    assert!(!blocking.admin().explain(plain).unwrap().denial_cached);
    // A denial is forgotten once when the subscription to its channel begins.
    let explained = until("the denial is cached", Duration::from_secs(10), || {
        assert!(!blocking.check(plain).unwrap().allowed());
        std::thread::sleep(Duration::from_millis(50));
        Some(blocking.admin().explain(plain).unwrap()).filter(|explained| explained.denial_cached)
    });
    let answered = limiter.stats().denial_cache;
    assert!(!explained.allowed);
    assert_eq!(limiter.stats().denial_cache, answered);
    // As an answer to an event loop of another language.
    let started = limiter.start(&Call::Explain(plain));
    let Ok(Answer::Explanation(explained)) = runtime().block_on(started) else { panic!("no explanation") };
    assert!(explained.denial_cached);
    let listed = limiter.start(&Call::List(KeyFilter::default(), budget(), None));
    let Ok(Answer::Keys(page)) = runtime().block_on(listed) else { panic!("no page") };
    assert_eq!(page.keys.len(), 2);
}
