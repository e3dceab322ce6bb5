//! Leases: never more than the quota, nearly all of it, and what is not spent comes back.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polylimit::{ErrorKind, Lease, Limiter, ManualClock, Outage, Policy, Request, Source};
use polylimit_test_servers::{FaultProxy, Kind, Server};

const LIMIT: u64 = 4_000;
const PROCESSES: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);

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
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn processes_at_ten_times_the_limit_get_it_and_no_more() {
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

/// A moment at which everything that was used has come back: with what is leased from before, no more is admitted than without.
#[test]
fn units_that_were_taken_before_are_not_spent_on_top_of_new_ones() {
    let pass = Duration::from_millis(2_400);
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
        until_nothing_is_taken(&server);
        clock.advance(pass).unwrap();
        let ask = |limiter: &Limiter| u64::from(limiter.blocking().check("key").unwrap().allowed());
        let admitted: u64 = (0..1_500).map(|_| ask(&one) + ask(&other)).sum();
        assert!(admitted <= 1_000, "{quota}: {admitted} at once");
        assert!(admitted >= 900, "{quota}: {admitted} at once");
        assert!(one.stats().leased > 0 && other.stats().leased > 0);
    }
}

#[test]
fn a_log_is_not_leased() {
    let server = Server::start(Kind::Redis, &[]);
    let policy = Policy::parse("leased", "1000/2s sliding_log").unwrap();
    let builder = Limiter::builder().store(&url(&server)).policy(policy).lease("leased", Lease::auto());
    let refused = builder.build().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.message().contains("a sliding_window can be leased"), "{refused}");
    // Nor is one that a policy becomes.
    let leased = limiter(&server, "1000/2s token_bucket", Some(Lease::auto()));
    leased.set_policy(Policy::parse("leased", "1000/2s sliding_log").unwrap()).unwrap();
    let admitted = (0..1_200).filter(|_| leased.blocking().check("key").unwrap().allowed()).count();
    assert_eq!(leased.stats().leased, 0);
    assert!(admitted >= 1_000);
}

#[test]
fn a_killed_process_takes_only_its_lease_along() {
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
    // Two leases at most: one that is spent and one that was just taken.
    assert!((admitted..=admitted + 200).contains(&used), "{used} used, {admitted} admitted");
}

#[test]
fn what_is_not_spent_comes_back() {
    for quota in ["100000/52w token_bucket", "100000/52w fixed_window", "100000/52w buckets=1"] {
        let server = Server::start(Kind::Redis, &[]);
        let leased = limiter(&server, quota, Some(Lease::new(1_000, Duration::from_secs(60)).unwrap()));
        let plain = limiter(&server, quota, None).blocking();
        let blocking = leased.blocking();
        let mut asked = 0;
        while leased.stats().lease_units_held <= 10 {
            assert!(blocking.check("key").unwrap().allowed());
            asked += 1;
        }
        assert!(leased.stats().leased > 0);
        leased.close();
        let stats = leased.stats();
        assert_eq!((stats.lease_units_held, stats.lease_units_lost), (0, 0), "{stats:?}");
        assert!(stats.lease_units_returned > 0, "{stats:?}");
        assert_eq!(used(&plain), asked, "{quota}");
    }
}

#[test]
fn what_many_keys_do_not_spend_comes_back_from_afar() {
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
    // One after the other they would take many times as long as closing may.
    proxy.set_latency(Duration::from_millis(20), Duration::ZERO);
    limiter.close();
    let stats = limiter.stats();
    assert_eq!((stats.lease_units_held, stats.lease_units_lost), (0, 0), "{stats:?}");
    assert!(stats.lease_units_returned >= 1_000, "{stats:?}");
}

#[test]
fn who_looks_sees_what_can_be_spent_here() {
    let server = Server::start(Kind::Redis, &[]);
    let quota = "100000/52w token_bucket";
    let leased = limiter(&server, quota, Some(Lease::new(1_000, Duration::from_secs(60)).unwrap()));
    let blocking = leased.blocking();
    let mut asked = 0;
    for _ in 0..50 {
        for _ in 0..100 {
            assert!(blocking.check("key").unwrap().allowed());
            asked += 1;
        }
        // Units that are being taken at the moment are neither here nor there.
        let remaining = blocking.peek("key").unwrap().remaining();
        assert!(
            (100_000 - asked - 1_000..=100_000 - asked).contains(&remaining),
            "{remaining} after {asked}"
        );
    }
    assert!(leased.stats().lease_units_returned > 0);
}

fn used(plain: &polylimit::blocking::Limiter) -> u64 {
    100_000 - plain.peek("key").unwrap().remaining()
}

#[test]
fn an_idle_key_gives_its_units_back() {
    let quota = "100000/52w token_bucket";
    let server = Server::start(Kind::Redis, &[]);
    let leased = limiter(&server, quota, Some(Lease::new(1_000, Duration::from_millis(100)).unwrap()));
    let blocking = leased.blocking();
    let mut asked = 0;
    while leased.stats().lease_units_held < 10 {
        assert!(blocking.check("key").unwrap().allowed());
        asked += 1;
    }
    until("all is given back", || leased.stats().lease_units_held == 0);
    let plain = limiter(&server, quota, None).blocking();
    until("all has arrived", || used(&plain) == asked);
}

#[test]
fn nobody_is_denied_what_is_held_here() {
    let quota = "500/52w token_bucket";
    let server = Server::start(Kind::Redis, &[]);
    let leased = limiter(&server, quota, Some(Lease::new(100, Duration::from_secs(60)).unwrap()));
    let blocking = leased.blocking();
    let mut asked = 0;
    while leased.stats().lease_units_held < 10 {
        assert!(blocking.check("key").unwrap().allowed());
        asked += 1;
    }
    // More than the lease, and more than the store has beside it.
    let decision = blocking.check(Request::new("key").cost(500 - asked)).unwrap();
    assert_eq!((decision.allowed(), decision.source()), (true, Source::Store));
    assert!(!blocking.check("key").unwrap().allowed());
}

#[test]
fn a_reset_leaves_nothing_to_spend_twice() {
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

/// As many threads as there are keys, each of which asks for its own.
fn while_others_take<T>(
    limiter: &polylimit::blocking::Limiter,
    others: usize,
    look: impl FnOnce() -> T,
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
        let seen = look();
        stop.store(true, Ordering::Relaxed);
        seen
    })
}

#[test]
fn what_is_taken_of_other_keys_keeps_nobody_waiting() {
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
    let sources = while_others_take(&blocking, 60, || {
        std::thread::sleep(Duration::from_secs(2));
        [(); 3].map(|()| {
            while blocking.check("key").unwrap().source() != Source::Lease {}
            blocking.peek("key").unwrap().source()
        })
    });
    assert_eq!(sources, [Source::Store; 3]);
}

/// Waits until the server has not been asked for a while: what is being taken when the numbers change is written under the ones
/// before, which others' new quotas do not outlive.
fn until_nothing_is_taken(server: &Server) {
    let calls = || {
        let text: String = server.query(&["INFO", "commandstats"]);
        text.lines().find(|line| line.starts_with("cmdstat_evalsha:")).map(str::to_owned)
    };
    until("nothing is taken", || {
        let before = calls();
        std::thread::sleep(Duration::from_millis(50));
        calls() == before
    });
}

#[test]
fn what_was_taken_under_other_numbers_is_not_spent() {
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
        until_nothing_is_taken(&server);
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
fn a_limit_of_nothing_holds_at_once() {
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
fn a_changed_limit_loses_nothing_that_can_be_given_back() {
    let server = Server::start(Kind::Redis, &[]);
    let lease = Lease::new(1_000, Duration::from_secs(60)).unwrap();
    let leased = limiter(&server, "90000/52w fixed_window", Some(lease));
    let blocking = leased.blocking();
    let mut asked = 0;
    while leased.stats().lease_units_held < 10 {
        assert!(blocking.check("key").unwrap().allowed());
        asked += 1;
    }
    leased.set_policy(Policy::parse("leased", "100000/52w fixed_window").unwrap()).unwrap();
    let plain = limiter(&server, "100000/52w fixed_window", None).blocking();
    until("all has arrived", || used(&plain) == asked + leased.stats().lease_units_lost);
    // It is counted once the reply is there.
    until("it is counted", || leased.stats().lease_units_returned > 0);
}
