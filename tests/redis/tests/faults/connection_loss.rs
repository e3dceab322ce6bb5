//! Connections that break while a decision is pending, or whose other end is gone without closing them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Barrier;
use std::task::Poll;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use polylimit::decision::{Degradation, Source};
use polylimit::storage::Outage;
use polylimit::{Decision, Limiter};
use polylimit_redis_tests::{
    COUNTER_QUOTA, GENEROUS_DEADLINE, Load, assert_from_store, check, current_thread_runtime, limiter,
    options, repeated_if_noisy, stored_units, total_stored_units, uncached,
};
use polylimit_test_servers::{ClientCertificates, Direction, FaultProxy, Kind, Server, until};

const DEADLINE: Duration = Duration::from_millis(50);

fn one_worker() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn lose_silently(callers: &str, load: impl FnOnce(Load) -> Load, outage: Outage) {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let limiter = limiter(options(&server.url_at(proxy.port())).deadline(DEADLINE), COUNTER_QUOTA, outage);
    let load = load(Load::new(&limiter, 2));
    let (report, (lost, open)) = load.run(Duration::from_millis(1_500), |start| {
        sleep(Duration::from_millis(300));
        let open = proxy.connections();
        let lost = start.elapsed();
        proxy.half_open();
        (lost, open)
    });
    report.assert_deadlines(DEADLINE);
    report.assert_reasons();
    let recovered = report.recovered_at(lost + Duration::from_millis(5));
    let latest = lost + 2 * DEADLINE + Duration::from_secs(1) + report.noise;
    assert!(recovered <= latest, "recovered {recovered:?}, lost {lost:?}, {}", report.summary());
    // Each connection was replaced once, after two calls without a reply.
    let (made, counters) = (proxy.connections() - open, limiter.stats());
    assert!(counters.connections_lost == made && made >= open, "{counters:?}");
    // On a busy machine calls time out for other reasons as well.
    assert!(made == open || report.noise > DEADLINE / 2, "{counters:?} {}", report.summary());
    assert!(report.with_reason(Degradation::Timeout) >= 2 * open, "{}", report.summary());
    let stored = total_stored_units(&server.url(), COUNTER_QUOTA, load.keys());
    report.assert_stored(stored, counters.unknown);
    report
        .row("F21", format!("{callers}, outage policy {outage:?}"), DEADLINE)
        .stored(stored, report.admitted_by_store())
        .unknown(counters.unknown)
        .recovered(recovered.saturating_sub(lost))
        .measured(format!("{made} connections of {open} were replaced"))
        .record();
}

#[test]
fn half_open_connection_is_replaced_after_two_timeouts_under_load() {
    repeated_if_noisy(|| {
        lose_silently("tasks and threads", |load| load, Outage::Fallback);
    });
}

#[test]
fn half_open_connection_is_replaced_after_two_timeouts_of_a_single_task() {
    repeated_if_noisy(|| {
        lose_silently("one task", |load| load.callers(1, 0), Outage::Deny);
    });
}

#[test]
fn half_open_connection_is_replaced_after_two_timeouts_of_a_single_thread() {
    repeated_if_noisy(|| {
        lose_silently("one thread", |load| load.callers(0, 1), Outage::Allow);
    });
}

/// One timeout does not make a connection suspect. When it reaches its maximum age it is replaced without waiting for the
/// missing reply.
#[test]
fn connection_at_its_maximum_age_is_replaced_though_a_reply_is_missing() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let options = options(&server.url_at(proxy.port())).deadline(DEADLINE);
    let limiter = limiter(options.max_connection_age(Duration::from_secs(1)), COUNTER_QUOTA, Outage::Deny);
    let runtime = one_worker();
    let check_k = || runtime.block_on(limiter.check("k")).unwrap();
    until("the store answers", Duration::from_secs(5), || {
        (check_k().source() == Source::Store).then_some(())
    });
    proxy.half_open();
    assert_eq!(check_k().degraded(), Some(Degradation::Timeout));
    sleep(Duration::from_secs(1));
    until("the store answers again", Duration::from_secs(2), || {
        (check_k().source() == Source::Store).then_some(())
    });
}

/// The system knows that the connection is lost, and the runtime, which has not run since, does not.
#[test]
fn connection_lost_while_the_process_was_suspended_degrades_no_decision() {
    let server = Server::start(Kind::Redis, &[]);
    let secure = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let ca = secure.certificates().unwrap().ca.display().to_string();
    for (server, url) in [(&server, server.url()), (&secure, format!("{}?tls_ca={ca}", secure.url()))] {
        let options = uncached(&url).deadline(GENEROUS_DEADLINE);
        let limiter = limiter(options, COUNTER_QUOTA, Outage::Deny);
        let runtime = current_thread_runtime();
        let lose = || {
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            // The end of the connection arrives, and the connection has been silent for longer than a busy one is.
            sleep(Duration::from_millis(20));
        };
        for _ in 0..10 {
            assert_from_store(&runtime.block_on(limiter.check("k")).unwrap());
            lose();
        }
        // Threads that block send commands themselves, and nothing reads between their calls. Two come at the same time.
        for _ in 0..50 {
            let both = Barrier::new(2);
            scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        both.wait();
                        assert_from_store(&limiter.blocking().check("k").unwrap());
                    });
                }
            });
            lose();
        }
        // A command in flight was answered before.
        for _ in 0..10 {
            runtime.block_on(async {
                let sent = limiter.stats().calls;
                let mut first = pin!(limiter.check("k"));
                assert!(poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await);
                while limiter.stats().calls == sent {
                    tokio::task::yield_now().await;
                }
                sleep(Duration::from_millis(20));
                lose();
                assert_from_store(&limiter.check("k").await.unwrap());
                assert_from_store(&first.await.unwrap());
            });
        }
        assert_eq!(stored_units(&url, COUNTER_QUOTA, "k"), 130);
    }
}

/// The server accepts no further connections.
#[test]
fn connection_at_its_maximum_age_stays_in_use_until_another_is_open() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let options = uncached(&server.url_at(proxy.port())).deadline(GENEROUS_DEADLINE);
    let limiter = limiter(options.max_connection_age(Duration::from_secs(1)), COUNTER_QUOTA, Outage::Deny);
    let runtime = one_worker();
    let check_k = || assert_from_store(&runtime.block_on(limiter.check("k")).unwrap());
    check_k();
    proxy.set_refusing(true);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        check_k();
    }
    assert_eq!(proxy.open_connections(), 1);
    proxy.set_refusing(false);
    let connections = limiter.stats().connections;
    until("another connection is open", Duration::from_secs(30), || {
        check_k();
        (limiter.stats().connections > connections).then_some(())
    });
    check_k();
    assert_eq!(limiter.stats().connections_lost, 0);
}

/// Nothing drives the connections of callers that block while none of them does.
#[test]
fn connection_of_a_rare_blocking_caller_is_replaced() {
    let server = Server::start(Kind::Redis, &[]);
    let options = uncached(&server.url()).deadline(GENEROUS_DEADLINE);
    let limiter = limiter(options.max_connection_age(Duration::from_secs(1)), COUNTER_QUOTA, Outage::Deny);
    let check_k = || assert_from_store(&limiter.blocking().check("k").unwrap());
    check_k();
    let connections = limiter.stats().connections;
    until("the connection is replaced", Duration::from_secs(30), || {
        sleep(Duration::from_millis(2_500));
        check_k();
        (limiter.stats().connections > connections).then_some(())
    });
}

#[test]
fn closed_limiter_closes_a_connection_though_a_reply_is_missing() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let limiter =
        limiter(options(&server.url_at(proxy.port())).deadline(DEADLINE), COUNTER_QUOTA, Outage::Deny);
    let runtime = one_worker();
    let check_k = || runtime.block_on(limiter.check("k")).unwrap();
    until("the store answers", Duration::from_secs(5), || {
        (check_k().source() == Source::Store).then_some(())
    });
    proxy.set_stalled(true);
    assert_eq!(check_k().degraded(), Some(Degradation::Timeout));
    limiter.close();
    until("the connection ends", Duration::from_secs(2), || (proxy.open_connections() == 0).then_some(()));
}

/// A deadline that the test of a reset connection never reaches.
const LONG_DEADLINE: Duration = Duration::from_secs(30);

/// Makes a decision, and resets the connection after the request is sent.
fn decide_while_connection_breaks(
    server: &Server,
    proxy: &FaultProxy,
    limiter: &Limiter,
    decide: impl FnOnce() -> Decision + Send,
) -> Decision {
    until("the store answers", Duration::from_secs(10), || {
        (check(limiter, "before").source() == Source::Store).then_some(())
    });
    server.stop();
    let sent = proxy.bytes(Direction::Requests);
    let start = Instant::now();
    let decision = scope(|scope| {
        let decision = scope.spawn(decide);
        until("the request is sent", Duration::from_secs(10), || {
            (proxy.bytes(Direction::Requests) > sent).then_some(())
        });
        proxy.reset();
        decision.join().unwrap()
    });
    server.cont();
    assert!(start.elapsed() < LONG_DEADLINE / 2, "{:?}", start.elapsed());
    decision
}

/// The reason is not `timeout`, since operators look for the cause of a timeout elsewhere.
#[test]
fn pending_decision_is_degraded_with_connection_lost_when_the_connection_breaks() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let options = || options(&server.url_at(proxy.port())).deadline(LONG_DEADLINE);

    let blocking = limiter(options(), COUNTER_QUOTA, Outage::Deny);
    let by_thread = decide_while_connection_breaks(&server, &proxy, &blocking, || check(&blocking, "k"));

    let asynchronous = limiter(options(), COUNTER_QUOTA, Outage::Deny);
    let runtime = one_worker();
    drop(runtime.block_on(asynchronous.check("before")).unwrap());
    let by_task = decide_while_connection_breaks(&server, &proxy, &asynchronous, || {
        runtime.block_on(asynchronous.check("k")).unwrap()
    });

    for (decision, limiter) in [(by_thread, blocking), (by_task, asynchronous)] {
        assert_eq!(decision.source(), Source::Deny, "{decision:?}");
        assert_eq!(decision.degraded(), Some(Degradation::ConnectionLost));
        assert_eq!(Degradation::ConnectionLost.name(), "connection_lost");
        // The server may have counted the request.
        assert_eq!(limiter.stats().unknown, 1);
        until("the store answers again", Duration::from_secs(10), || {
            (check(&limiter, "after").source() == Source::Store).then_some(())
        });
    }
}
