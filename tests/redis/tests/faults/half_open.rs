//! A connection whose other end is gone without a word.

use std::thread::sleep;
use std::time::Duration;

use polylimit::{Degradation, Outage, Source};
use polylimit_redis_tests::{COUNTING, Load, held, limiter, options};
use polylimit_test_servers::{FaultProxy, Kind, Server, until};

const DEADLINE: Duration = Duration::from_millis(50);

fn lose(load: impl FnOnce(Load) -> Load, outage: Outage) {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let limiter = limiter(options(&server.url_at(proxy.port())).deadline(DEADLINE), COUNTING, outage);
    let load = load(Load::on(&limiter, 2));
    let (story, (lost, links)) = load.run(Duration::from_millis(1_500), |start| {
        sleep(Duration::from_millis(300));
        let links = proxy.connections();
        let lost = start.elapsed();
        proxy.half_open();
        (lost, links)
    });
    story.assert_in_time(DEADLINE);
    story.assert_explained();
    let back = story.back_after(lost + Duration::from_millis(5));
    let soon = lost + 2 * DEADLINE + Duration::from_secs(1) + story.noise;
    assert!(back <= soon, "back {back:?}, lost {lost:?}, {}", story.told());
    // Each connection was replaced once, after it had been silent for two calls.
    let (made, counters) = (proxy.connections() - links, limiter.stats());
    assert!(counters.connections_lost == made && made >= links, "{counters:?}");
    // On a busy machine there are timeouts for other reasons as well.
    assert!(made == links || story.noise > DEADLINE / 2, "{counters:?} {}", story.told());
    assert!(story.with_reason(Degradation::Timeout) >= 2 * links, "{}", story.told());
    let (held, admitted) = (held(&server.url(), COUNTING, load.keys()), story.admitted_by_store());
    assert!((admitted..=admitted + counters.unknown).contains(&held), "{held} {counters:?} {}", story.told());
}

#[test]
fn under_load_it_is_replaced_after_two_timeouts() {
    lose(|load| load, Outage::Fallback);
}

#[test]
fn a_lone_task_has_it_replaced_after_two_timeouts() {
    lose(|load| load.callers(1, 0), Outage::Deny);
}

#[test]
fn a_lone_thread_has_it_replaced_after_two_timeouts() {
    lose(|load| load.callers(0, 1), Outage::Allow);
}

/// One timeout does not make it suspect; then it has reached its age, and waits for no reply that never comes.
#[test]
fn it_is_replaced_at_its_age_though_a_reply_is_missing() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let options = options(&server.url_at(proxy.port())).deadline(DEADLINE);
    let limiter = limiter(options.max_connection_age(Duration::from_secs(1)), COUNTING, Outage::Deny);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ask = || runtime.block_on(limiter.check("k")).unwrap();
    until("the store answers", Duration::from_secs(5), || (ask().source() == Source::Store).then_some(()));
    proxy.half_open();
    assert_eq!(ask().degraded(), Some(Degradation::Timeout));
    sleep(Duration::from_secs(1));
    until("the store answers again", Duration::from_secs(2), || {
        (ask().source() == Source::Store).then_some(())
    });
}

#[test]
fn it_is_closed_along_with_the_limiter_though_a_reply_is_missing() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let limiter = limiter(options(&server.url_at(proxy.port())).deadline(DEADLINE), COUNTING, Outage::Deny);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ask = || runtime.block_on(limiter.check("k")).unwrap();
    until("the store answers", Duration::from_secs(5), || (ask().source() == Source::Store).then_some(()));
    proxy.set_stalled(true);
    assert_eq!(ask().degraded(), Some(Degradation::Timeout));
    limiter.close();
    until("the connection ends", Duration::from_secs(2), || (proxy.open_connections() == 0).then_some(()));
}
