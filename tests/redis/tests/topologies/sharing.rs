//! Limiters of one process that have the same settings share connections, and nothing of what they decide by.

use std::fs::read_dir;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use polylimit::{Answer, Call, Completions, ErrorKind, Lease, Limiter, Policy, Request, Source};
use polylimit_test_servers::{Kind, Server, until};

use super::{limiter, quiet, runtime, with};

const QUOTAS: &str = "1/hour";
/// What many limiters may take together: more than one of them does, and far less than two for each.
const FEW: usize = 40;

fn count(what: &str) -> usize {
    read_dir(format!("/proc/self/{what}")).unwrap().count()
}

fn connections(server: &Server) -> usize {
    let list: String = server.query(&["CLIENT", "LIST"]);
    list.lines().filter(|line| line.contains(" name=polylimit ")).count()
}

#[test]
fn two_thousand_limiters_have_the_threads_and_descriptors_of_few() {
    let _alone = quiet::alone();
    let server = Server::start(Kind::Redis, &[]);
    let (threads, descriptors) = (count("task"), count("fd"));
    let url = with(&server.url(), "deadline=20s&doctor_after=0");
    let limiters: Vec<_> = (0..2_000)
        .map(|at| {
            let policy = Policy::parse(&format!("p{at}"), QUOTAS).unwrap();
            let limiter = Limiter::builder().store(&url).policy(policy).build().unwrap();
            // The second one is denied, so that somebody listens.
            for expected in [true, false] {
                let decision = limiter.blocking().check("user").unwrap();
                assert_eq!((decision.allowed(), decision.source()), (expected, Source::Store));
            }
            limiter
        })
        .collect();
    let completions = Completions::new(|| {});
    for limiter in &limiters {
        completions.submit(limiter, &Call::Ready(Duration::from_secs(1)), ());
    }
    assert!(count("task") <= threads + FEW && count("fd") <= descriptors + FEW);
    assert!(connections(&server) <= 4);
    // What is counted and what is known is each one's own.
    let (first, last) = (limiters[0].stats(), limiters[1_999].stats());
    assert_eq!((first.applied, last.applied), (2, 2));
    assert_eq!((first.connections, last.connections), (1, 0));
    drop(completions);
    for limiter in &limiters[1..] {
        limiter.close();
        assert_eq!(limiter.blocking().check("user").unwrap_err().kind(), ErrorKind::Closed);
    }
    assert!(!limiters[0].blocking().check("user").unwrap().allowed());
    limiters[0].close();
    until("all is given back", Duration::from_secs(20), || {
        let is_back = count("task") <= threads && count("fd") <= descriptors && connections(&server) == 0;
        is_back.then_some(())
    });
    assert_eq!(limiters[0].stats().connections, 1);
}

/// What the doctor finds is of the server, so one look is enough; two thousand would take two thousand threads.
#[test]
fn one_of_many_limiters_has_the_server_looked_at() {
    let _alone = quiet::alone();
    let server = Server::start(Kind::Redis, &["maxmemory 100mb", "maxmemory-policy allkeys-lru"]);
    let url = with(&server.url(), "deadline=20s&doctor_after=1ms");
    let made = || Limiter::builder().store(&url).policy(Policy::parse("p", "1000000/hour").unwrap()).build();
    let limiters: Vec<_> = (0..200).map(|_| made().unwrap()).collect();
    let check = |limiter: &Limiter| {
        assert_eq!(limiter.blocking().check("user").unwrap().source(), Source::Store);
    };
    let (threads, received) = (count("task"), server.info("total_connections_received"));
    limiters.iter().for_each(check);
    thread::sleep(Duration::from_millis(2));
    let mut most_threads = 0;
    for limiter in &limiters {
        check(limiter);
        most_threads = most_threads.max(count("task"));
    }
    until("the server is looked at", Duration::from_secs(20), || {
        limiters.iter().any(Limiter::has_events).then_some(())
    });
    // Others would have begun by now.
    thread::sleep(Duration::from_millis(200));
    limiters.iter().for_each(check);
    let told: Vec<_> = limiters.iter().flat_map(Limiter::take_events).collect();
    assert_eq!(told.iter().map(polylimit::DegradedEvent::name).collect::<Vec<_>>(), ["finding"]);
    assert!(most_threads <= threads + 2, "{most_threads} threads");
    // Those of the limiters, and that of the doctor.
    let since = |before: &str| {
        let now: u64 = server.info("total_connections_received").parse().unwrap();
        now - before.parse::<u64>().unwrap()
    };
    assert!(since(&received) <= 4, "{} connections", since(&received));
}

#[test]
fn thousands_that_come_and_go_and_stay_referenced_leave_nothing_open() {
    let _alone = quiet::alone();
    let server = Server::start(Kind::Redis, &[]);
    let url = with(&server.url(), "deadline=20s");
    let open_and_close = |_| {
        let limiter = limiter(&url, QUOTAS);
        let decision = limiter.blocking().check("user").unwrap();
        assert_eq!(decision.source(), Source::Store);
        limiter.close();
        limiter
    };
    let (threads, descriptors) = (count("task"), count("fd"));
    let closed: Vec<_> = (0..3_000).map(open_and_close).collect();
    assert!(count("task") <= threads + 2 && count("fd") <= descriptors + 2);
    until("all connections are closed", Duration::from_secs(10), || {
        (connections(&server) == 0).then_some(())
    });
    drop(closed);
}

#[test]
fn closing_ends_checks_that_wait_and_leaves_others_waiting() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let url = with(&server.url(), "deadline=30s");
    let (closing, other) = (limiter(&url, "9/hour"), limiter(&url, "9/hour"));
    let runtime = runtime();
    for limiter in [&closing, &other] {
        assert_eq!(limiter.blocking().check("user").unwrap().source(), Source::Store);
        assert_eq!(runtime.block_on(limiter.check("user")).unwrap().source(), Source::Store);
    }
    server.stop();
    let (wake, woken) = channel();
    let completions = Completions::new(move || _ = wake.send(()));
    let check = Call::Check(Request::new("user"));
    assert!(completions.submit(&closing, &check, 1).is_none());
    for tag in 2..4 {
        assert!(completions.hold(&closing, &check, tag).is_none());
    }
    completions.start_held();
    thread::scope(|scope| {
        let blocks = |limiter: &Limiter| {
            let blocking = limiter.blocking();
            scope.spawn(move || blocking.check("user").map(|decision| decision.source()))
        };
        let (waits, [outlasts, also]) = (blocks(&closing), [blocks(&other), blocks(&other)]);
        let task = closing.clone();
        let polls = scope.spawn(move || {
            let runtime = super::runtime();
            runtime.block_on(task.check("user")).map(|decision| decision.source())
        });
        thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        closing.close();
        for ended in [waits, polls] {
            assert_eq!(ended.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        }
        let mut told = 0;
        while told < 3 {
            woken.recv_timeout(Duration::from_secs(10)).unwrap();
            completions.drain(|_, answer: Result<Answer, _>| {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed);
                told += 1;
            });
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert!(!outlasts.is_finished() && !also.is_finished());
        server.cont();
        for outlasts in [outlasts, also] {
            assert_eq!(outlasts.join().unwrap().unwrap(), Source::Store);
        }
    });
}

#[test]
fn closing_waits_one_deadline_for_leases_that_cannot_be_given_back() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = Limiter::builder()
        .store(&with(&server.url(), "deadline=4s"))
        .policy(Policy::parse("leased", "100000/52w token_bucket").unwrap())
        .lease("leased", Lease::new(1_000, Duration::from_secs(60)).unwrap())
        .build()
        .unwrap();
    until("units are leased", Duration::from_secs(20), || {
        assert!(limiter.blocking().check("key").unwrap().allowed());
        (limiter.stats().lease_units_held > 10).then_some(())
    });
    server.stop();
    let began = Instant::now();
    limiter.close();
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    assert_eq!(limiter.stats().lease_units_held, 0);
    server.cont();
}

#[test]
fn other_credentials_are_of_one_limiter_alone() {
    let _shared = quiet::shared();
    let server = Server::options(Kind::Redis).password("old").start();
    let url = with(&server.url(), "deadline=2s");
    let (renewed, left) = (limiter(&url, "9/hour"), limiter(&url, "9/hour"));
    let source = |limiter: &Limiter| limiter.blocking().check("user").unwrap().source();
    assert_eq!([source(&renewed), source(&left)], [Source::Store; 2]);
    assert_eq!(connections(&server), 1);
    server.command(&["CONFIG", "SET", "requirepass", "new"]);
    renewed.set_credentials(None, "new").unwrap();
    server.command(&["CLIENT", "KILL", "USER", "default"]);
    until("the new password opens the door", Duration::from_secs(10), || {
        (source(&renewed) == Source::Store).then_some(())
    });
    assert_eq!(source(&left), Source::Deny);
    left.set_credentials(None, "new").unwrap();
    until("for the other one as well", Duration::from_secs(10), || {
        (source(&left) == Source::Store).then_some(())
    });
    assert_eq!(connections(&server), 1);
    renewed.close();
    assert_eq!(source(&left), Source::Store);
}
