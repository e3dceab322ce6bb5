//! The first decisions of a process, which find no connection yet.

use std::thread::scope;
use std::time::{Duration, Instant};

use polylimit::{Decision, Degradation, Outage, Source};
use polylimit_redis_tests::{COUNTING, LONG, ask, limiter, options};
use polylimit_test_servers::{FaultProxy, Kind, Server};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// To connect, to be greeted and to send a script takes four round trips; there is time for two.
#[test]
fn they_wait_for_it_where_the_server_is_far() {
    for round_trip_ms in [30, 60, 100] {
        let server = Server::start(Kind::Redis, &[]);
        let proxy = FaultProxy::start(server.address());
        proxy.set_latency(Duration::from_millis(round_trip_ms / 2), Duration::ZERO);
        let options = || {
            let deadline = Duration::from_millis(2 * round_trip_ms);
            options(&server.url_at(proxy.port())).deadline(deadline).first_connect_max(LONG)
        };
        let by_the_store = |decision: &Decision| {
            let told = (decision.source(), decision.degraded());
            assert_eq!(told, (Source::Store, None), "round trip of {round_trip_ms} ms");
        };
        let waiting = limiter(options(), COUNTING, Outage::Fallback);
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| by_the_store(&ask(&waiting, "k")));
            }
        });
        let awaiting = limiter(options(), COUNTING, Outage::Fallback);
        runtime().block_on(async {
            for decision in awaiting.check_many(["k"; 4]).await {
                by_the_store(&decision.unwrap());
            }
        });
        assert_eq!((waiting.stats().applied, awaiting.stats().applied), (4, 4));
    }
}

/// That needs no option.
#[test]
fn they_wait_for_it_unless_told_otherwise() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    proxy.set_latency(Duration::from_millis(15), Duration::ZERO);
    let url = server.url_at(proxy.port());
    let first = |options| ask(&limiter(options, COUNTING, Outage::Fallback), "k").source();
    assert_eq!(first(options(&url)), Source::Store);
    assert_eq!(first(options(&url).first_connect_max(Duration::ZERO)), Source::Fallback);
}

/// A server that takes connections and says nothing is waited for once.
#[test]
fn they_wait_no_longer_than_that_and_not_again() {
    let first_connect_max = Duration::from_secs(2);
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    proxy.set_stalled(true);
    let options = options(&server.url_at(proxy.port())).first_connect_max(first_connect_max);
    let limiter = limiter(options, COUNTING, Outage::Deny);
    let first = Instant::now();
    assert_eq!(ask(&limiter, "k").degraded(), Some(Degradation::Unreachable));
    assert!(first.elapsed() >= first_connect_max, "{:?}", first.elapsed());
    // Neither here nor on another runtime, whose first connection it would be.
    for decide in [&(|| ask(&limiter, "k")) as &dyn Fn() -> Decision, &|| {
        runtime().block_on(limiter.check("k")).unwrap()
    }] {
        let next = Instant::now();
        assert_eq!(decide().source(), Source::Deny);
        assert!(next.elapsed() < first_connect_max, "{:?}", next.elapsed());
    }
}

/// A server that refuses is no reason to wait.
#[test]
fn they_do_not_wait_for_a_server_that_refuses() {
    let first_connect_max = Duration::from_secs(20);
    let server = Server::options(Kind::Redis).reserve();
    let options = options(&server.url()).first_connect_max(first_connect_max);
    // The breaker would need longer to open.
    let limiter = limiter(options.breaker_failures(1_000), COUNTING, Outage::Deny);
    for _ in 0..3 {
        let asked = Instant::now();
        assert_eq!(ask(&limiter, "k").degraded(), Some(Degradation::Unreachable));
        assert!(asked.elapsed() < first_connect_max / 2, "{:?}", asked.elapsed());
    }
}
