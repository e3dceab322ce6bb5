//! A primary that becomes a replica keeps its sockets, and is no use any more.

use std::time::{Duration, Instant};

use polylimit::{Degradation, Limiter, Source};
use polylimit_test_servers::{FaultProxy, Kind, Server, until};

use super::load::{Load, slowest};
use super::noise::Noise;
use super::{keys, limiter, quiet, with};

const DEADLINE: Duration = Duration::from_millis(50);

#[test]
fn a_connection_to_a_replica_is_replaced_by_one_to_the_primary() {
    for kind in Kind::ALL {
        let _alone = quiet::alone();
        let old = Server::start(kind, &[]);
        let new = Server::start(kind, &[&format!("replicaof 127.0.0.1 {}", old.port())]);
        until("the replica has its data", Duration::from_secs(10), || {
            (new.info("master_link_status") == "up").then_some(())
        });
        let proxy = FaultProxy::start(old.address());
        let limiter = limiter(&old.url_at(proxy.port()), "1000000/hour fixed_window");
        let (noise, load) = (Noise::watch(), Load::start(&limiter, &keys(20), 4));
        load.until_stored(Duration::from_secs(5), |_| true);

        new.command(&["REPLICAOF", "NO", "ONE"]);
        proxy.set_upstream(new.address());
        let before = proxy.connections();
        let start = Instant::now();
        old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        let back = load.until_stored(Duration::from_secs(5), |_| true);
        until("all keys are there", Duration::from_secs(5), || {
            (new.query::<u64>(&["DBSIZE"]) >= 20).then_some(())
        });
        let (made, noise) = (load.end(), noise.worst());

        let took = back - start;
        println!("{kind:?}: back after {took:?}, noise {noise:?}");
        assert!(took <= DEADLINE + Duration::from_millis(250) + noise, "back after {took:?}");
        assert_eq!(proxy.connections(), before + 1);
        assert!(slowest(&made) <= DEADLINE + Duration::from_millis(5) + noise, "{:?}", slowest(&made));
        for made in made.iter().filter(|made| made.source != Source::Store) {
            assert_eq!((made.allowed, made.degraded), (false, Some(Degradation::ReadOnly)), "{made:?}");
        }
    }
}

/// A server under load that has just become a replica, of nobody.
fn of_a_replica() -> (Server, Limiter, Load) {
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter(&server.url(), "1000000/hour fixed_window");
    let load = Load::start(&limiter, &keys(4), 2);
    load.until_stored(Duration::from_secs(5), |_| true);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    (server, limiter, load)
}

#[test]
fn as_long_as_there_is_only_the_replica_its_refusal_is_the_reason() {
    let _shared = quiet::shared();
    let (server, _limiter, load) = of_a_replica();
    until("the replica refuses", Duration::from_secs(5), || {
        load.made().into_iter().find(|made| made.degraded == Some(Degradation::ReadOnly))
    });
    server.command(&["REPLICAOF", "NO", "ONE"]);
    load.until_stored(Duration::from_secs(5), |_| true);
    for made in load.end().iter().filter(|made| made.source != Source::Store) {
        // A late answer is the machine's; anything else would be another reason than the true one.
        let is_late = matches!(made.degraded, Some(Degradation::Timeout | Degradation::Late));
        let is_true = made.degraded == Some(Degradation::ReadOnly);
        assert!(is_true || is_late && made.took() >= DEADLINE, "{made:?}");
    }
}

/// The first connection has worked and is replaced at once; those after it only to be refused, ever less often.
#[test]
fn a_replica_is_not_flooded_with_connections() {
    let _shared = quiet::shared();
    let (server, limiter, load) = of_a_replica();
    std::thread::sleep(Duration::from_secs(1));
    let made = limiter.stats().connections;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    load.until_stored(Duration::from_secs(5), |_| true);
    assert!(made > 3, "{made}");
    assert!(made < 100, "{made} connections within a second");
}

/// Nothing is written for who is denied, so a replica could go on denying by what it knew.
#[test]
fn who_is_denied_is_not_answered_by_a_replica() {
    let _shared = quiet::shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let limiter = limiter(&with(&server.url(), "deadline=1s"), "1/hour");
        let asked = || limiter.blocking().check("k").unwrap();
        assert!(asked().allowed());
        let denied = asked();
        assert_eq!((denied.allowed(), denied.source()), (false, Source::Store));
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        let refused = asked();
        assert_eq!((refused.source(), refused.degraded()), (Source::Deny, Some(Degradation::ReadOnly)));
    }
}
