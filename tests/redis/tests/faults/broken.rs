//! A connection that breaks while a decision is under way.

use std::thread::scope;
use std::time::{Duration, Instant};

use polylimit::{Decision, Degradation, Limiter, Outage, Source};
use polylimit_redis_tests::{COUNTING, ask, limiter, options};
use polylimit_test_servers::{Direction, FaultProxy, Kind, Server, until};

/// So long that no test waits for it.
const DEADLINE: Duration = Duration::from_secs(30);

/// The decision that was under way when the connection broke.
fn decision_of(
    server: &Server,
    proxy: &FaultProxy,
    limiter: &Limiter,
    decide: impl FnOnce() -> Decision + Send,
) -> Decision {
    until("the store answers", Duration::from_secs(10), || {
        (ask(limiter, "before").source() == Source::Store).then_some(())
    });
    server.stop();
    let sent = proxy.bytes(Direction::Requests);
    let began = Instant::now();
    let decision = scope(|scope| {
        let decision = scope.spawn(decide);
        until("the question is sent", Duration::from_secs(10), || {
            (proxy.bytes(Direction::Requests) > sent).then_some(())
        });
        proxy.reset();
        decision.join().unwrap()
    });
    server.cont();
    assert!(began.elapsed() < DEADLINE / 2, "{:?}", began.elapsed());
    decision
}

/// It is not said to have timed out: that is another fault, which operators look for elsewhere.
#[test]
fn what_was_under_way_is_told_that_the_connection_was_lost() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let options = || options(&server.url_at(proxy.port())).deadline(DEADLINE);

    let waiting = limiter(options(), COUNTING, Outage::Deny);
    let by_thread = decision_of(&server, &proxy, &waiting, || ask(&waiting, "k"));

    let awaiting = limiter(options(), COUNTING, Outage::Deny);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    drop(runtime.block_on(awaiting.check("before")).unwrap());
    let by_task = decision_of(&server, &proxy, &awaiting, || runtime.block_on(awaiting.check("k")).unwrap());

    for (decision, limiter) in [(by_thread, waiting), (by_task, awaiting)] {
        assert_eq!(decision.source(), Source::Deny, "{decision:?}");
        assert_eq!(decision.degraded(), Some(Degradation::ConnectionLost));
        assert_eq!(Degradation::ConnectionLost.name(), "connection_lost");
        // It may have been counted.
        assert_eq!(limiter.stats().unknown, 1);
        until("the store answers again", Duration::from_secs(10), || {
            (ask(&limiter, "after").source() == Source::Store).then_some(())
        });
    }
}
