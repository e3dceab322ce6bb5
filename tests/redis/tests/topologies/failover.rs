//! Fail-over: Sentinel promotes another server, or a primary becomes a replica and keeps its sockets.

use std::net::TcpListener;
use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::Limiter;
use polylimit::decision::{Degradation, Source};
use polylimit_redis_tests::{Load, Observation, RunningLoad, repeated_if_noisy, with};
use polylimit_test_servers::{FaultProxy, Kind, Sentinels, Server, until};

use super::support::{exclusive, keys, limiter, runtime, shared};

const DEADLINE: Duration = Duration::from_millis(50);
const LIMIT: usize = 300;

fn quotas() -> String {
    format!("{LIMIT}/hour fixed_window")
}

#[test]
fn primary_is_found_though_sentinels_are_dead_or_suspended() {
    let _shared = shared();
    let sentinels = Sentinels::start(Kind::Valkey);
    // One sentinel is killed and one does not reply.
    sentinels.sentinel(0).kill();
    sentinels.sentinel(1).stop();
    let limiter = limiter(&with(&sentinels.url(), "deadline=2s"), &quotas());
    let decision = runtime().block_on(limiter.check("user")).unwrap();
    assert_eq!(decision.source(), Source::Store, "{decision:?}");
    assert_eq!(sentinels.server(0).query::<u64>(&["DBSIZE"]), 1);
    sentinels.sentinel(1).cont();
}

#[test]
fn last_known_primary_stays_in_use_though_all_sentinels_are_gone() {
    let _shared = shared();
    let sentinels = Sentinels::start(Kind::Redis);
    let url = with(&sentinels.url(), "deadline=5s&max_connection_age=1s");
    let (limiter, runtime) = (limiter(&url, &quotas()), runtime());
    let check = || {
        let decision = runtime.block_on(limiter.check("user")).unwrap();
        assert_eq!(decision.source(), Source::Store, "{decision:?}");
    };
    check();
    (0..3).for_each(|i| sentinels.sentinel(i).kill());
    let connections = limiter.stats().connections;
    until("connections reach their maximum age", Duration::from_secs(30), || {
        check();
        (limiter.stats().connections >= connections + 2).then_some(())
    });
    // A lost connection is made again to the last known primary.
    sentinels.server(0).command(&["CLIENT", "KILL", "TYPE", "normal"]);
    // Within a millisecond of a reply a connection is not checked, and a command that was sent over it is lost with it.
    std::thread::sleep(Duration::from_millis(50));
    check();
    let findings = runtime.block_on(limiter.admin().doctor()).unwrap();
    let named: Vec<_> = findings.iter().filter(|finding| finding.subject == "sentinels").collect();
    assert!(matches!(&named[..], [one] if one.message.contains("last known")), "{findings:?}");
}

#[test]
fn hanging_sentinels_leave_time_for_one_that_replies() {
    let _shared = shared();
    let sentinels = Sentinels::start(Kind::Redis);
    // These accept connections and never reply. Waiting for one after the other would exceed the time limit for connecting.
    let hanging: [TcpListener; 8] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses: Vec<String> =
        hanging.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    let url = sentinels.url().replacen("://", &format!("://{},", addresses.join(",")), 1);
    let limiter = limiter(&with(&url, "deadline=5s"), &quotas());
    let start = Instant::now();
    let decision = runtime().block_on(limiter.check("user")).unwrap();
    assert_eq!(decision.source(), Source::Store, "{decision:?} after {:?}", start.elapsed());
}

#[test]
fn killed_primary_is_replaced_and_the_bound_holds() {
    repeated_if_noisy(|| {
        let _shared = shared();
        let sentinels = Sentinels::start(Kind::Redis);
        let limiter = limiter(&sentinels.url(), &quotas());
        let load = Load::of_keys(&limiter, &keys(40)).callers(4, 0).start();
        load.until_stored(Duration::from_secs(5));
        let new = sentinels.failover();
        let sentinels_agreed = Instant::now();
        let took = load.until_stored(Duration::from_secs(10)) - sentinels_agreed;
        // Until then the units that were lost with the old primary are spent again.
        until("a limit is reached", Duration::from_secs(20), || {
            let recent = |seen: &Observation| seen.source == Source::Store && !seen.allowed;
            load.observations().iter().rev().take(40).any(recent).then_some(())
        });
        let report = load.finish();
        println!("recovered {took:?} after the sentinels agreed");
        assert!(took < Duration::from_secs(1) + report.noise, "recovered after {took:?}");
        report.assert_deadlines(DEADLINE);
        // One failover loses at most the units that were used before it.
        let most = report.most_admitted();
        assert!((LIMIT / 2..=2 * LIMIT).contains(&most), "{most} admitted of {LIMIT}");
        for seen in report.observations.iter().filter(|seen| seen.source != Source::Store) {
            assert!(!seen.allowed && seen.degraded.is_some(), "{seen:?}");
        }
        assert!(sentinels.server(new).query::<u64>(&["DBSIZE"]) >= 40);
        report
            .row("F6", "primary killed", DEADLINE)
            .bound(most as u64, 2 * LIMIT as u64)
            .unknown(limiter.stats().unknown)
            .recovered(took)
            .record();
    });
}

#[test]
fn planned_failover_is_followed() {
    repeated_if_noisy(|| {
        let _shared = shared();
        let sentinels = Sentinels::start(Kind::Redis);
        let limiter = limiter(&sentinels.url(), &quotas());
        let load = Load::of_keys(&limiter, &keys(40)).callers(4, 0).start();
        load.until_stored(Duration::from_secs(5));
        let new = sentinels.planned_failover();
        until("the old primary follows", Duration::from_secs(10), || {
            (sentinels.server(1 - new).info("role") == "slave").then_some(())
        });
        load.until_stored(Duration::from_secs(5));
        let report = load.finish();
        let gap = report.longest_gap();
        println!("without the store for {gap:?}");
        assert!(gap <= DEADLINE + Duration::from_millis(250) + report.noise, "without the store for {gap:?}");
        report.assert_deadlines(DEADLINE);
        assert!(report.most_admitted() <= 2 * LIMIT);
        // The new primary answers.
        assert!(runtime().block_on(limiter.check("afterwards")).unwrap().allowed());
        let exists = sentinels.server(new).query::<u64>(&["EXISTS", "polylimit:1:p:{afterwards}"]);
        assert_eq!(exists, 1);
        report
            .row("F6", "planned failover", DEADLINE)
            .bound(report.most_admitted() as u64, 2 * LIMIT as u64)
            .unknown(limiter.stats().unknown)
            .recovered(gap)
            .record();
    });
}

/// The old primary accepts writes until a sentinel demotes it, which takes seconds more.
#[test]
fn planned_failover_splits_no_limit_between_two_primaries() {
    let _shared = shared();
    let sentinels = Sentinels::start(Kind::Redis);
    let url = with(&sentinels.url(), "deadline=1s");
    // Different client names give each limiter connections of its own, as if it were in another process.
    let named = |name| limiter(&with(&url, &format!("client_name={name}")), "1000000/hour fixed_window");
    let [asynchronous, blocking] = ["asynchronous", "blocking"].map(named);
    let runtime = runtime();
    let check = |limiter: &Limiter, key: &str| limiter.blocking().check(key).unwrap();
    let load = Load::of_keys(&asynchronous, &keys(4)).callers(2, 0).start();
    load.until_stored(Duration::from_secs(5));
    assert_eq!(check(&blocking, "before").source(), Source::Store);
    // A limiter that makes no requests meanwhile has to learn of the failover, too.
    until("both limiters have subscribed to the sentinels", Duration::from_secs(5), || {
        let clients = |i| sentinels.sentinel(i).query::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        (0..3).all(|i| clients(i).lines().count() == 2).then_some(())
    });
    let new = sentinels.planned_failover();
    let later = named("later");
    sleep(Duration::from_secs(1));
    let is_primary_still = sentinels.server(1 - new).info("role") == "master";
    for spent in 0..3 {
        for (at, limiter) in [&asynchronous, &blocking, &later].into_iter().enumerate() {
            let decision = check(limiter, "after");
            assert_eq!(decision.source(), Source::Store, "{decision:?}");
            let counted = decision.limit() - decision.remaining();
            assert_eq!(counted, 3 * spent + at as u64 + 1, "limiter {at}");
        }
        let decision = runtime.block_on(asynchronous.peek("after")).unwrap();
        assert_eq!(decision.limit() - decision.remaining(), 3 * (spent + 1));
    }
    drop(load.finish());
    let exists = |server: usize| sentinels.server(server).query::<u64>(&["EXISTS", "polylimit:1:p:{after}"]);
    assert_eq!(exists(new), 1);
    assert!(is_primary_still, "the old primary was demoted before the test could check it");
}

#[test]
fn sentinels_are_queried_again_at_the_refresh_interval() {
    let _shared = shared();
    let sentinels = Sentinels::start(Kind::Redis);
    let url = with(&with(&sentinels.url(), "topology_refresh=1s"), "deadline=1s");
    let limiter = limiter(&url, "1000000/hour fixed_window");
    let load = Load::of_keys(&limiter, &keys(4)).callers(2, 0).start();
    load.until_stored(Duration::from_secs(5));
    // The service moves to another server, while the old one keeps its connections and its role.
    let other = Server::start(Kind::Redis, &[]);
    let port = other.port().to_string();
    for i in 0..3 {
        sentinels.sentinel(i).command(&["SENTINEL", "REMOVE", "main"]);
        sentinels.sentinel(i).command(&["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "2"]);
    }
    until("the other server has the keys", Duration::from_secs(4), || {
        (other.query::<u64>(&["DBSIZE"]) == 4).then_some(())
    });
    for seen in load.finish().observations {
        assert_eq!(seen.source, Source::Store, "{seen:?}");
    }
}

/// Asserts that the replica refused the request. A busy machine may miss the deadline instead; any other reason is wrong.
fn assert_read_only(seen: &Observation) {
    let is_late = matches!(seen.degraded, Some(Degradation::Timeout | Degradation::Late));
    let is_read_only = seen.degraded == Some(Degradation::ReadOnly);
    assert!(is_read_only || is_late && seen.took() >= DEADLINE, "{seen:?}");
}

#[test]
fn connection_to_a_demoted_primary_is_replaced() {
    repeated_if_noisy(|| {
        for kind in Kind::ALL {
            let _exclusive = exclusive();
            let old = Server::start(kind, &[]);
            let new = Server::start(kind, &[&format!("replicaof 127.0.0.1 {}", old.port())]);
            until("the replica has its data", Duration::from_secs(10), || {
                (new.info("master_link_status") == "up").then_some(())
            });
            let proxy = FaultProxy::start(old.address());
            let limiter = limiter(&old.url_at(proxy.port()), "1000000/hour fixed_window");
            let load = Load::of_keys(&limiter, &keys(20)).callers(4, 0).start();
            load.until_stored(Duration::from_secs(5));

            new.command(&["REPLICAOF", "NO", "ONE"]);
            proxy.set_upstream(new.address());
            let before = proxy.connections();
            let start = Instant::now();
            old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
            let took = load.until_stored(Duration::from_secs(5)) - start;
            until("all keys are there", Duration::from_secs(5), || {
                (new.query::<u64>(&["DBSIZE"]) >= 20).then_some(())
            });
            let report = load.finish();

            println!("{kind:?}: recovered after {took:?}");
            assert!(took <= DEADLINE + Duration::from_millis(250) + report.noise, "recovered after {took:?}");
            assert_eq!(proxy.connections(), before + 1);
            report.assert_deadlines(DEADLINE);
            for seen in report.observations.iter().filter(|seen| seen.source != Source::Store) {
                assert!(!seen.allowed, "{seen:?}");
                assert_read_only(seen);
            }
            report
                .row("F5", format!("{kind:?}"), DEADLINE)
                .unknown(limiter.stats().unknown)
                .recovered(took)
                .measured("one connection was replaced")
                .record();
        }
    });
}

/// A server under load that has just become a replica of an absent primary.
fn demoted_server_under_load() -> (Server, Limiter, RunningLoad) {
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter(&server.url(), "1000000/hour fixed_window");
    let load = Load::of_keys(&limiter, &keys(4)).callers(2, 0).start();
    load.until_stored(Duration::from_secs(5));
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    (server, limiter, load)
}

#[test]
fn refusal_of_a_replica_is_reported_as_read_only() {
    let _shared = shared();
    let (server, _limiter, load) = demoted_server_under_load();
    until("the replica refuses", Duration::from_secs(5), || {
        load.observations().iter().find(|seen| seen.degraded == Some(Degradation::ReadOnly)).copied()
    });
    server.command(&["REPLICAOF", "NO", "ONE"]);
    load.until_stored(Duration::from_secs(5));
    for seen in load.finish().observations.iter().filter(|seen| seen.source != Source::Store) {
        assert_read_only(seen);
    }
}

/// The first connection has worked and is replaced at once. Later ones are refused, and replaced after increasing delays.
#[test]
fn connections_to_a_replica_are_limited_by_backoff() {
    let _shared = shared();
    let (server, limiter, load) = demoted_server_under_load();
    sleep(Duration::from_secs(1));
    let made = limiter.stats().connections;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    load.until_stored(Duration::from_secs(5));
    assert!(made > 3, "{made}");
    assert!(made < 100, "{made} connections within a second");
}

/// A denial writes nothing, so a replica could decide it from the states that it has.
#[test]
fn replica_does_not_answer_denied_requests() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let limiter = limiter(&with(&server.url(), "deadline=1s"), "1/hour");
        let check = || limiter.blocking().check("k").unwrap();
        assert!(check().allowed());
        let denied = check();
        assert_eq!((denied.allowed(), denied.source()), (false, Source::Store));
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        let refused = check();
        assert_eq!((refused.source(), refused.degraded()), (Source::Deny, Some(Degradation::ReadOnly)));
    }
}
