//! Leases: processes together admit at most the quota and nearly all of it, and units that are not spent are returned.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polylimit::clock::ManualClock;
use polylimit::decision::{Cause, Source};
use polylimit::redis::Lease;
use polylimit::storage::Outage;
use polylimit::testing::script::invalidation_channel;
use polylimit::{ErrorKind, Limiter, Policy, Request};
use polylimit_test_servers::{FaultProxy, Kind, Server};

use super::denial_cache::until_subscribed;

const LIMIT: u64 = 4_000;
const PROCESSES: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(60);

fn url(server: &Server) -> String {
    format!("{}?deadline=30s", server.url())
}

fn limiter(server: &Server, quota: &str, lease: Option<Lease>) -> Limiter {
    let policy = Policy::parse("leased", quota).unwrap();
    let builder = Limiter::builder().store(&url(server)).policy(policy).outage("leased", Outage::Deny);
    lease.into_iter().fold(builder, |builder, lease| builder.lease("leased", lease)).build().unwrap()
}

fn lessee(server: &Server, quota: &str, requests: u64) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylimit-lessee"));
    let requests = requests.to_string();
    command.args([&url(server), quota, "100/500ms", &requests]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// How many requests a process admitted until it ended.
fn admitted(mut child: Child) -> u64 {
    let mut dots = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut dots).unwrap();
    child.wait().unwrap();
    dots.len() as u64
}

fn until(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn processes_requesting_ten_times_the_limit_get_at_least_99_percent_and_no_more() {
    for quota in ["4000/52w fixed_window", "4000/52w token_bucket"] {
        let server = Server::start(Kind::Redis, &[]);
        let mut children: Vec<_> =
            (0..PROCESSES).map(|_| lessee(&server, quota, 10 * LIMIT / PROCESSES as u64)).collect();
        for child in &mut children {
            writeln!(child.stdin.as_mut().unwrap()).unwrap();
        }
        let admitted: u64 = children.into_iter().map(admitted).sum();
        assert!(admitted <= LIMIT && admitted * 100 >= LIMIT * 99, "{quota}: {admitted}");
    }
}

/// At a moment at which all used units are refilled, units that were leased before do not raise what is admitted.
#[test]
fn leased_units_are_not_spent_on_top_of_refilled_ones() {
    let refill = Duration::from_millis(2_400);
    for quota in ["1000/2s token_bucket", "1000/2s fixed_window", "1000/2s", "1000/2s token_bucket step=100"]
    {
        let server = Server::start(Kind::Redis, &[]);
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let lease = Lease::new(1_000, Duration::from_secs(60)).unwrap();
        let [one, other] = [(); 2].map(|()| {
            let policy = Policy::parse("leased", quota).unwrap();
            let builder = Limiter::builder().store(&url(&server)).policy(policy).clock(clock.clone());
            builder.lease("leased", lease).outage("leased", Outage::Deny).build().unwrap()
        });
        for limiter in [&one, &other] {
            while limiter.stats().lease_units_held < 10 {
                assert!(limiter.blocking().check("key").unwrap().allowed(), "{quota}");
            }
        }
        until_no_lease_is_under_way(&server);
        clock.advance(refill).unwrap();
        let check = |limiter: &Limiter| u64::from(limiter.blocking().check("key").unwrap().allowed());
        let admitted: u64 = (0..1_500).map(|_| check(&one) + check(&other)).sum();
        assert!(admitted <= 1_000, "{quota}: {admitted} at once");
        assert!(admitted >= 900, "{quota}: {admitted} at once");
        assert!(one.stats().leased > 0 && other.stats().leased > 0);
    }
}

#[test]
fn sliding_log_cannot_be_leased() {
    let server = Server::start(Kind::Redis, &[]);
    let policy = Policy::parse("leased", "1000/2s sliding_log").unwrap();
    let builder = Limiter::builder().store(&url(&server)).policy(policy).lease("leased", Lease::auto());
    let refused = builder.build().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.message().contains("a sliding_window can be leased"), "{refused}");
    // A changed policy is not leased either.
    let leased = limiter(&server, "1000/2s token_bucket", Some(Lease::auto()));
    leased.set_policy(Policy::parse("leased", "1000/2s sliding_log").unwrap()).unwrap();
    let admitted = (0..1_200).filter(|_| leased.blocking().check("key").unwrap().allowed()).count();
    assert_eq!(leased.stats().leased, 0);
    assert!(admitted >= 1_000);
}

#[test]
fn killed_process_loses_at_most_its_leases() {
    let quota = "1000000/52w fixed_window";
    let server = Server::start(Kind::Redis, &[]);
    let mut killed = lessee(&server, quota, 1_000_000);
    let mut other = lessee(&server, quota, 20_000);
    for child in [&mut killed, &mut other] {
        writeln!(child.stdin.as_mut().unwrap()).unwrap();
    }
    let mut dots = vec![0; 5_000];
    killed.stdout.as_mut().unwrap().read_exact(&mut dots).unwrap();
    killed.kill().unwrap();
    let admitted = dots.len() as u64 + admitted(killed) + admitted(other);
    let decision = limiter(&server, quota, None).blocking().peek("key").unwrap();
    let used = 1_000_000 - decision.remaining();
    // It has two leases at most: one that it spends, and one that it has just taken.
    assert!((admitted..=admitted + 200).contains(&used), "{used} used, {admitted} admitted");
}

#[test]
fn closed_limiter_returns_unspent_units() {
    for quota in ["100000/52w token_bucket", "100000/52w fixed_window", "100000/52w buckets=1"] {
        let server = Server::start(Kind::Redis, &[]);
        let leased = limiter(&server, quota, Some(Lease::new(1_000, Duration::from_secs(60)).unwrap()));
        let plain = limiter(&server, quota, None).blocking();
        let blocking = leased.blocking();
        let mut admitted = 0;
        while leased.stats().lease_units_held <= 10 {
            assert!(blocking.check("key").unwrap().allowed());
            admitted += 1;
        }
        assert!(leased.stats().leased > 0);
        leased.close();
        let stats = leased.stats();
        assert_eq!((stats.lease_units_held, stats.lease_units_lost), (0, 0), "{stats:?}");
        assert!(stats.lease_units_returned > 0, "{stats:?}");
        assert_eq!(used_units(&plain), admitted, "{quota}");
    }
}

#[test]
fn closed_limiter_returns_units_of_many_keys_over_a_slow_network() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let limiter = Limiter::builder()
        .store(&format!("{}?deadline=1s", server.url_at(proxy.port())))
        .policy(Policy::parse("leased", "100000/52w token_bucket").unwrap())
        .outage("leased", Outage::Deny)
        .lease("leased", Lease::new(1_000, Duration::from_secs(60)).unwrap())
        .build()
        .unwrap();
    let keys: Vec<String> = (0..200).map(|key| format!("key{key}")).collect();
    until("every key is leased", || {
        for decision in limiter.blocking().check_many(keys.iter().map(Request::new)) {
            assert!(decision.unwrap().allowed());
        }
        limiter.stats().lease_units_held >= 1_000
    });
    // Returning one key after the other would take many times as long as closing may.
    proxy.set_latency(Duration::from_millis(20), Duration::ZERO);
    limiter.close();
    let stats = limiter.stats();
    assert_eq!((stats.lease_units_held, stats.lease_units_lost), (0, 0), "{stats:?}");
    assert!(stats.lease_units_returned >= 1_000, "{stats:?}");
}

#[test]
fn peek_counts_leased_units_as_remaining() {
    let server = Server::start(Kind::Redis, &[]);
    let quota = "100000/52w token_bucket";
    let leased = limiter(&server, quota, Some(Lease::new(1_000, Duration::from_secs(60)).unwrap()));
    let blocking = leased.blocking();
    let mut admitted = 0;
    for _ in 0..50 {
        for _ in 0..100 {
            assert!(blocking.check("key").unwrap().allowed());
            admitted += 1;
        }
        // Units of a lease request that is under way are counted as used.
        let remaining = blocking.peek("key").unwrap().remaining();
        assert!(
            (100_000 - admitted - 1_000..=100_000 - admitted).contains(&remaining),
            "{remaining} after {admitted}"
        );
    }
    assert!(leased.stats().lease_units_returned > 0);
}

fn used_units(plain: &polylimit::blocking::Limiter) -> u64 {
    100_000 - plain.peek("key").unwrap().remaining()
}

#[test]
fn idle_key_returns_its_lease() {
    let quota = "100000/52w token_bucket";
    let server = Server::start(Kind::Redis, &[]);
    let leased = limiter(&server, quota, Some(Lease::new(1_000, Duration::from_millis(100)).unwrap()));
    let blocking = leased.blocking();
    let mut admitted = 0;
    while leased.stats().lease_units_held < 10 {
        assert!(blocking.check("key").unwrap().allowed());
        admitted += 1;
    }
    until("all units are returned", || leased.stats().lease_units_held == 0);
    let plain = limiter(&server, quota, None).blocking();
    until("the store has counted the units", || used_units(&plain) == admitted);
}

#[test]
fn request_larger_than_the_lease_is_admitted_by_the_store() {
    let quota = "500/52w token_bucket";
    let server = Server::start(Kind::Redis, &[]);
    let leased = limiter(&server, quota, Some(Lease::new(100, Duration::from_secs(60)).unwrap()));
    let blocking = leased.blocking();
    let mut admitted = 0;
    while leased.stats().lease_units_held < 10 {
        assert!(blocking.check("key").unwrap().allowed());
        admitted += 1;
    }
    // This is more than the lease, and more than the store has left in addition.
    let decision = blocking.check(Request::new("key").cost(500 - admitted)).unwrap();
    assert_eq!((decision.allowed(), decision.source()), (true, Source::Store));
    assert!(!blocking.check("key").unwrap().allowed());
}

#[test]
fn reset_drops_leased_units() {
    let quota = "500/52w fixed_window";
    let server = Server::start(Kind::Redis, &[]);
    let leased = limiter(&server, quota, Some(Lease::new(100, Duration::from_secs(60)).unwrap()));
    let blocking = leased.blocking();
    while leased.stats().lease_units_held < 10 {
        assert!(blocking.check("key").unwrap().allowed());
    }
    let _ = blocking.reset("key").unwrap();
    let admitted = (0..1_000).filter(|_| blocking.check("key").unwrap().allowed()).count();
    assert_eq!(admitted, 500);
}

/// Runs `act` while one thread for each of this number of other keys checks its key.
fn while_other_keys_are_leased<T>(
    limiter: &polylimit::blocking::Limiter,
    others: usize,
    act: impl FnOnce() -> T,
) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for other in 0..others {
            let (stop, key) = (&stop, format!("other{other}"));
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = limiter.check(&key).unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let result = act();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn leases_of_other_keys_do_not_delay_a_peek() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    proxy.set_latency(Duration::from_millis(15), Duration::ZERO);
    let policy = Policy::parse("leased", "100000000/52w token_bucket").unwrap();
    let limiter = Limiter::builder()
        .store(&format!("{}?deadline=1s", server.url_at(proxy.port())))
        .policy(policy)
        .outage("leased", Outage::Deny)
        .lease("leased", Lease::new(1_000, Duration::from_secs(60)).unwrap())
        .build()
        .unwrap();
    let blocking = limiter.blocking();
    while limiter.stats().lease_units_held < 10 {
        assert!(blocking.check("key").unwrap().allowed());
    }
    let sources = while_other_keys_are_leased(&blocking, 60, || {
        std::thread::sleep(Duration::from_secs(2));
        [(); 3].map(|()| {
            while blocking.check("key").unwrap().source() != Source::Lease {}
            blocking.peek("key").unwrap().source()
        })
    });
    assert_eq!(sources, [Source::Store; 3]);
}

/// Waits until the server has not been called for a while. A lease request that is still under way when the policy
/// changes would be written under the old numbers, and disturb the counts of limiters with the new policy.
fn until_no_lease_is_under_way(server: &Server) {
    let calls = || {
        let text: String = server.query(&["INFO", "commandstats"]);
        text.lines().find(|line| line.starts_with("cmdstat_evalsha:")).map(str::to_owned)
    };
    until("no lease is under way", || {
        let before = calls();
        std::thread::sleep(Duration::from_millis(50));
        calls() == before
    });
}

#[test]
fn units_leased_under_an_old_policy_are_not_spent() {
    for (quota, changed) in [
        ("100000/52w token_bucket", "20/51w token_bucket"),
        ("100000/52w token_bucket", "20/52w token_bucket"),
        ("100000/52w fixed_window", "20/52w token_bucket"),
        ("100000/52w fixed_window", "20/52w fixed_window; 20/52w token_bucket"),
    ] {
        let server = Server::start(Kind::Redis, &[]);
        let leased = limiter(&server, quota, Some(Lease::new(1_000, Duration::from_secs(60)).unwrap()));
        let blocking = leased.blocking();
        while leased.stats().lease_units_held < 10 {
            assert!(blocking.check("key").unwrap().allowed());
        }
        until_no_lease_is_under_way(&server);
        leased.set_policy(Policy::parse("leased", changed).unwrap()).unwrap();
        let others = limiter(&server, changed, None).blocking();
        let left = others.peek("key").unwrap().remaining();
        let of_others = (0..40).filter(|_| others.check("key").unwrap().allowed()).count();
        assert_eq!(of_others as u64, left, "{quota} {changed}");
        let here = (0..40).filter(|_| blocking.check("key").unwrap().allowed()).count();
        assert_eq!(here, 0, "{quota} {changed}");
        let _ = blocking.peek("key").unwrap();
        assert!(!others.check("key").unwrap().allowed(), "{quota} {changed}");
    }
}

#[test]
fn limit_of_zero_denies_despite_a_lease() {
    let server = Server::start(Kind::Redis, &[]);
    let lease = Lease::new(1_000, Duration::from_secs(60)).unwrap();
    let leased = limiter(&server, "100000/52w fixed_window", Some(lease));
    let blocking = leased.blocking();
    while leased.stats().lease_units_held < 10 {
        assert!(blocking.check("key").unwrap().allowed());
    }
    leased.set_policy(Policy::parse("leased", "0/52w fixed_window").unwrap()).unwrap();
    assert!(!blocking.check("key").unwrap().allowed());
}

#[test]
fn changed_limit_returns_leased_units_or_counts_them_as_lost() {
    let server = Server::start(Kind::Redis, &[]);
    let lease = Lease::new(1_000, Duration::from_secs(60)).unwrap();
    let leased = limiter(&server, "90000/52w fixed_window", Some(lease));
    let blocking = leased.blocking();
    let mut admitted = 0;
    while leased.stats().lease_units_held < 10 {
        assert!(blocking.check("key").unwrap().allowed());
        admitted += 1;
    }
    leased.set_policy(Policy::parse("leased", "100000/52w fixed_window").unwrap()).unwrap();
    let plain = limiter(&server, "100000/52w fixed_window", None).blocking();
    until("the store has counted the units", || {
        used_units(&plain) == admitted + leased.stats().lease_units_lost
    });
    // Returned units are counted when the reply has arrived.
    until("returned units are counted", || leased.stats().lease_units_returned > 0);
}

#[test]
fn lease_admits_nothing_while_the_key_is_blocked() {
    for by_other in [false, true] {
        let server = Server::start(Kind::Redis, &[]);
        let lease = Lease::new(1_000, Duration::from_secs(60)).unwrap();
        let leased = limiter(&server, "100000/52w fixed_window", Some(lease));
        let blocking = leased.blocking();
        while leased.stats().lease_units_held < 10 {
            assert!(blocking.check("key").unwrap().allowed());
        }
        until_subscribed(&server, &invalidation_channel("polylimit", "leased", b"key"), 1);
        let other = limiter(&server, "100000/52w fixed_window", None);
        let blocker = if by_other { other.blocking() } else { blocking.clone() };
        assert!(blocker.admin().block("key", Duration::from_secs(3_600)).is_ok());
        if by_other {
            until("the lease has ended", || leased.stats().lease_units_held == 0);
        }
        for _ in 0..100 {
            assert_eq!(blocking.check("key").unwrap().cause(), Some(Cause::Blocked));
        }
        assert!(blocker.admin().block("key", Duration::ZERO).is_ok());
        until("the key is admitted again", || blocking.check("key").unwrap().allowed());
    }
}
