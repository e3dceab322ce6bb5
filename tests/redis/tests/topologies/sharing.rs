//! Limiters of one process with the same settings share connections and threads, but no state that decisions depend on.
//! Closed limiters release everything.

use std::fs::read_dir;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use polylimit::decision::Source;
use polylimit::raw::{Answer, Call, Completions};
use polylimit::redis::Lease;
use polylimit::{ErrorKind, Limiter, Policy, Request};
use polylimit_redis_tests::{current_thread_runtime, with};
use polylimit_test_servers::{Cluster, Kind, Row, Server, until};

use super::support::{connections, exclusive, limiter, runtime, shared};

const QUOTAS: &str = "1/hour";
/// The most threads or descriptors that many limiters may use together: far fewer than one for each.
const MAX_SHARED: usize = 40;

fn count(folder: &str) -> usize {
    read_dir(format!("/proc/self/{folder}")).unwrap().count()
}

#[test]
fn two_thousand_limiters_share_threads_and_descriptors() {
    let _exclusive = exclusive();
    let server = Server::start(Kind::Redis, &[]);
    let (threads, descriptors) = (count("task"), count("fd"));
    let url = with(&server.url(), "deadline=20s&doctor_after=0");
    let limiters: Vec<_> = (0..2_000)
        .map(|at| {
            let policy = Policy::parse(&format!("p{at}"), QUOTAS).unwrap();
            let limiter = Limiter::builder().store(&url).policy(policy).build().unwrap();
            // The second request is denied, so that the limiter subscribes to invalidations.
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
    assert!(count("task") <= threads + MAX_SHARED && count("fd") <= descriptors + MAX_SHARED);
    assert!(connections(&server) <= 4);
    // Each limiter has its own counters.
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
    until("all resources are released", Duration::from_secs(20), || {
        let is_released = count("task") <= threads && count("fd") <= descriptors && connections(&server) == 0;
        is_released.then_some(())
    });
    assert_eq!(limiters[0].stats().connections, 1);
}

/// The findings are about the server, so that one run of the doctor is enough.
#[test]
fn automatic_doctor_runs_once_for_limiters_that_share_connections() {
    let _exclusive = exclusive();
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
    until("the doctor has run", Duration::from_secs(20), || {
        limiters.iter().any(|limiter| limiter.raw().has_events()).then_some(())
    });
    // Further runs would have begun by now.
    thread::sleep(Duration::from_millis(200));
    limiters.iter().for_each(check);
    let events: Vec<_> = limiters.iter().flat_map(|limiter| limiter.raw().take_events()).collect();
    assert_eq!(events.iter().map(polylimit::metrics::DegradedEvent::name).collect::<Vec<_>>(), ["finding"]);
    assert!(most_threads <= threads + 2, "{most_threads} threads");
    // The connections of the limiters, and one of the doctor.
    let since = |before: &str| {
        let now: u64 = server.info("total_connections_received").parse().unwrap();
        now - before.parse::<u64>().unwrap()
    };
    assert!(since(&received) <= 4, "{} connections", since(&received));
}

#[test]
fn closed_limiters_that_stay_referenced_hold_no_resources() {
    let _exclusive = exclusive();
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
fn close_ends_pending_checks_of_its_limiter_only() {
    let _shared = shared();
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
        assert!(completions.defer(&closing, &check, tag).is_none());
    }
    completions.flush();
    thread::scope(|scope| {
        let blocks = |limiter: &Limiter| {
            let blocking = limiter.blocking();
            scope.spawn(move || blocking.check("user").map(|decision| decision.source()))
        };
        let blocked = blocks(&closing);
        let of_other = [blocks(&other), blocks(&other)];
        let task = closing.clone();
        let polled = scope.spawn(move || {
            let runtime = current_thread_runtime();
            runtime.block_on(task.check("user")).map(|decision| decision.source())
        });
        thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        closing.close();
        for ended in [blocked, polled] {
            assert_eq!(ended.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        }
        let mut closed = 0;
        while closed < 3 {
            woken.recv_timeout(Duration::from_secs(10)).unwrap();
            completions.drain(|_, answer: Result<Answer, _>| {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed);
                closed += 1;
            });
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert!(of_other.iter().all(|check| !check.is_finished()));
        server.cont();
        for check in of_other {
            assert_eq!(check.join().unwrap().unwrap(), Source::Store);
        }
    });
}

#[test]
fn close_waits_one_deadline_for_leases_that_cannot_be_returned() {
    let _shared = shared();
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
fn new_credentials_apply_to_one_limiter_only() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).password("old").start();
    let url = with(&server.url(), "deadline=2s");
    let (renewed, other) = (limiter(&url, "9/hour"), limiter(&url, "9/hour"));
    let source = |limiter: &Limiter| limiter.blocking().check("user").unwrap().source();
    assert_eq!([source(&renewed), source(&other)], [Source::Store; 2]);
    assert_eq!(connections(&server), 1);
    server.command(&["CONFIG", "SET", "requirepass", "new"]);
    renewed.admin().set_credentials(None, "new").unwrap();
    server.command(&["CLIENT", "KILL", "USER", "default"]);
    until("the new password is accepted", Duration::from_secs(10), || {
        (source(&renewed) == Source::Store).then_some(())
    });
    assert_eq!(source(&other), Source::Deny);
    other.admin().set_credentials(None, "new").unwrap();
    until("the new password is accepted for the other limiter", Duration::from_secs(10), || {
        (source(&other) == Source::Store).then_some(())
    });
    assert_eq!(connections(&server), 1);
    renewed.close();
    assert_eq!(source(&other), Source::Store);
}

/// How many limiters are made and dropped, in the short and in the long form.
const LIMITERS: [usize; 2] = [500, 10_000];
/// Memory that the allocator may retain.
const RETAINED_KIB: usize = 8 << 10;

/// Runs a process that makes and drops limiters, and compares its threads, descriptors and memory before and after.
fn churn(case: &str, url: &str, servers: &[&Server]) {
    let count = LIMITERS[usize::from(Row::is_long())];
    let mut child = Command::new(env!("CARGO_BIN_EXE_polylimit-churn"))
        .args([url, &count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    println!("threads, descriptors, KiB before and after: {line}");
    let numbers: Vec<usize> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [threads, descriptors, kib, threads_after, descriptors_after, kib_after] = numbers.as_slice() else {
        panic!("expected six numbers: {line}")
    };
    assert!(threads_after <= threads && descriptors_after <= descriptors, "{line}");
    assert!(*kib_after <= kib + RETAINED_KIB, "{line}");
    // The process is still running.
    until("all connections are closed", Duration::from_secs(5), || {
        let list =
            |server: &&Server| server.query::<String>(&["CLIENT", "LIST"]).contains(" name=polylimit ");
        (!servers.iter().any(list)).then_some(())
    });
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    Row::new("F69", format!("Rust, {case}"))
        .decisions(count as u64 * 4 / 5)
        .measured(format!("{count} limiters; threads, descriptors and KiB before and after: {}", line.trim()))
        .record();
}

#[test]
fn dropped_limiters_of_one_server_leave_no_threads_descriptors_or_memory() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    churn("one server", &format!("{}?deadline=20s", server.url()), &[&server]);
}

#[test]
fn dropped_limiters_of_a_cluster_leave_no_threads_descriptors_or_memory() {
    let _shared = shared();
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let nodes = [cluster.node(0), cluster.node(1), cluster.node(2)];
    churn("a cluster", &format!("{}?deadline=20s", cluster.url()), &nodes);
}
