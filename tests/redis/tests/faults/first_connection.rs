//! The first decisions of a limiter: no connection stands yet, and the server may be far away, silent, or not started.

use std::thread::scope;
use std::time::{Duration, Instant};

use polylimit::decision::{Degradation, Source};
use polylimit::storage::Outage;
use polylimit::{Decision, ErrorKind};
use polylimit_redis_tests::{
    COUNTER_QUOTA, GENEROUS_DEADLINE, Load, assert_from_store, check, current_thread_runtime, limiter,
    options, repeated_if_noisy, stored_units, with,
};
use polylimit_test_servers::{Dataset, FaultProxy, Kind, Server};

/// The connection, the handshake and the first script take four round trips, and the deadline allows for two.
#[test]
fn first_decisions_wait_for_the_connection_to_a_distant_server() {
    for round_trip_ms in [30, 60, 100] {
        let server = Server::start(Kind::Redis, &[]);
        let proxy = FaultProxy::start(server.address());
        proxy.set_latency(Duration::from_millis(round_trip_ms / 2), Duration::ZERO);
        let options = || {
            let deadline = Duration::from_millis(2 * round_trip_ms);
            options(&server.url_at(proxy.port())).deadline(deadline).first_connect_max(GENEROUS_DEADLINE)
        };
        let blocking = limiter(options(), COUNTER_QUOTA, Outage::Fallback);
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_from_store(&check(&blocking, "k")));
            }
        });
        let asynchronous = limiter(options(), COUNTER_QUOTA, Outage::Fallback);
        current_thread_runtime().block_on(async {
            for decision in asynchronous.check_many(["k"; 4]).await {
                assert_from_store(&decision.unwrap());
            }
        });
        assert_eq!((blocking.stats().applied, asynchronous.stats().applied), (4, 4));
    }
}

/// The server has never answered, and each process admits its share of every quota.
#[test]
fn fallback_of_each_process_admits_its_share() {
    let server = Server::options(Kind::Redis).reserve();
    for (share, quotas, expected) in [
        ("0.25", "40/day", 10),
        ("0.25", "40/52w token_bucket burst=60", 15),
        ("0.25", "1000/day; 40/52w leaky_bucket burst=16", 4),
        ("0.01", "40/day sliding_log", 0),
        ("1", "40/day fixed_window", 40),
    ] {
        let url = with(&with(&server.url(), "first_connect_max=0"), &format!("fallback_share={share}"));
        let limiter = limiter(options(&url), quotas, Outage::Fallback);
        let decisions: Vec<Decision> = (0..100).map(|_| check(&limiter, "k")).collect();
        assert!(
            decisions.iter().all(|decision| decision.source() == Source::Fallback),
            "{share} of {quotas}"
        );
        let admitted = decisions.iter().filter(|decision| decision.allowed()).count();
        assert_eq!(admitted, expected, "{share} of {quotas}");
    }
}

#[test]
fn first_connect_max_of_zero_turns_the_default_wait_off() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    proxy.set_latency(Duration::from_millis(15), Duration::ZERO);
    let url = server.url_at(proxy.port());
    let first = |options| check(&limiter(options, COUNTER_QUOTA, Outage::Fallback), "k").source();
    assert_eq!(first(options(&url)), Source::Store);
    assert_eq!(first(options(&url).first_connect_max(Duration::ZERO)), Source::Fallback);
}

/// The server accepts connections and never replies.
#[test]
fn silent_server_is_waited_for_once_and_no_longer_than_first_connect_max() {
    let first_connect_max = Duration::from_secs(2);
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    proxy.set_stalled(true);
    let options = options(&server.url_at(proxy.port())).first_connect_max(first_connect_max);
    let limiter = limiter(options, COUNTER_QUOTA, Outage::Deny);
    let first = Instant::now();
    assert_eq!(check(&limiter, "k").degraded(), Some(Degradation::Unreachable));
    assert!(first.elapsed() >= first_connect_max, "{:?}", first.elapsed());
    // Later decisions do not wait, and neither does the first one on another runtime.
    for decide in [&(|| check(&limiter, "k")) as &dyn Fn() -> Decision, &|| {
        current_thread_runtime().block_on(limiter.check("k")).unwrap()
    }] {
        let next = Instant::now();
        assert_eq!(decide().source(), Source::Deny);
        assert!(next.elapsed() < first_connect_max, "{:?}", next.elapsed());
    }
}

#[test]
fn refused_connection_is_not_waited_for() {
    let first_connect_max = Duration::from_secs(20);
    let server = Server::options(Kind::Redis).reserve();
    let options = options(&server.url()).first_connect_max(first_connect_max);
    // The circuit breaker stays closed during this test.
    let limiter = limiter(options.breaker_failures(1_000), COUNTER_QUOTA, Outage::Deny);
    for _ in 0..3 {
        let start = Instant::now();
        assert_eq!(check(&limiter, "k").degraded(), Some(Degradation::Unreachable));
        assert!(start.elapsed() < first_connect_max / 2, "{:?}", start.elapsed());
    }
}

const DEADLINE: Duration = Duration::from_millis(50);

/// The limiter is built before its server is started, and the outage policy answers until then.
#[test]
fn limiter_uses_a_server_as_soon_as_it_is_started() {
    repeated_if_noisy(|| {
        for (outage, source) in [
            (Outage::Fallback, Source::Fallback),
            (Outage::Allow, Source::Allow),
            (Outage::Deny, Source::Deny),
        ] {
            let server = Server::options(Kind::Redis).reserve();
            let start = Instant::now();
            let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTER_QUOTA, outage);
            assert!(start.elapsed() < Duration::from_millis(250), "{:?}", start.elapsed());

            let error = limiter.blocking().ready(Duration::from_millis(20)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreUnavailable);

            let (report, (launched, ready)) =
                Load::new(&limiter, 1).run(Duration::from_millis(1_000), |start| {
                    std::thread::sleep(Duration::from_millis(300));
                    let launched = start.elapsed();
                    server.restart(Dataset::Empty);
                    let ready = start.elapsed();
                    // On a busy machine the server may take longer to start than the load lasts otherwise.
                    std::thread::sleep(Duration::from_millis(500));
                    (launched, ready)
                });
            report.assert_deadlines(DEADLINE);
            report.assert_reasons();
            let before = report.between(Duration::ZERO, launched);
            assert!(before.len() > 100, "{}", report.summary());
            for seen in before {
                assert_eq!((seen.source, seen.degraded), (source, Some(Degradation::Unreachable)));
                assert_eq!(seen.allowed, outage != Outage::Deny);
            }
            let recovered = report.recovered_at(launched);
            assert!(
                recovered <= ready + Duration::from_millis(250) + report.noise,
                "{recovered:?} {ready:?} {}",
                report.summary()
            );
            limiter.blocking().ready(Duration::from_secs(5)).unwrap();
            let (stored, unknown) =
                (stored_units(&server.url(), COUNTER_QUOTA, "k0"), limiter.stats().unknown);
            report.assert_stored(stored, unknown);
            report
                .row("F4", format!("outage policy {outage:?}"), DEADLINE)
                .stored(stored, report.admitted_by_store())
                .unknown(unknown)
                .recovered(recovered.saturating_sub(ready))
                .record();
        }
    });
}
