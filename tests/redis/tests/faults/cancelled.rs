//! Callers that stop waiting while Redis has their check, or in a leaky bucket's delay.

use std::time::{Duration, Instant};

use polylimit::raw::{Answer, Call, Completions};
use polylimit::reservation::ReserveOptions;
use polylimit::storage::Outage;
use polylimit::{Decision, Limiter, Policy, Request};
use polylimit_redis_tests::{COUNTER_QUOTA, GENEROUS_DEADLINE, limiter, options, stored_units};
use polylimit_test_servers::{Direction, FaultProxy, Kind, Server};

const KEY: &str = "user";
const LEAKY: &str = "100/hour leaky_bucket";

/// How the caller waits, and how it stops.
#[derive(Clone, Copy, Debug)]
enum Face {
    Task,
    Thread,
    EventLoop,
}

const FACES: [Face; 3] = [Face::Task, Face::Thread, Face::EventLoop];

/// Acquires one unit, once there is a connection and `prepare` was called, and stops waiting when `is_reached` returns true.
fn acquire_and_stop(limiter: &Limiter, face: Face, prepare: impl Fn(), is_reached: impl FnMut() -> bool) {
    let call = Call::Acquire(Request::new(KEY), Duration::from_secs(3600));
    call_and_stop(limiter, &call, face, prepare, is_reached);
}

fn call_and_stop(
    limiter: &Limiter,
    call: &Call<'static>,
    face: Face,
    prepare: impl Fn(),
    mut is_reached: impl FnMut() -> bool,
) {
    let start = Instant::now();
    let mut stop = || {
        assert!(
            start.elapsed() < 4 * GENEROUS_DEADLINE,
            "{face:?}: the test has not reached the moment of the cancellation"
        );
        is_reached()
    };
    match face {
        Face::Task => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.unwrap();
            let (limiter, call) = (limiter.clone(), *call);
            runtime.block_on(limiter.ready(GENEROUS_DEADLINE)).unwrap();
            prepare();
            let task = runtime.spawn(async move { drop(limiter.raw().call_store(&call).await) });
            while !stop() {
                std::thread::sleep(Duration::from_millis(1));
            }
            task.abort();
            assert!(runtime.block_on(task).unwrap_err().is_cancelled());
            // This runtime drives the connection, which the refund in the background may need.
            std::thread::spawn(move || {
                std::thread::sleep(GENEROUS_DEADLINE);
                drop(runtime);
            });
        }
        Face::Thread => {
            prepare();
            assert_eq!(limiter.blocking().raw().call_until(call, Duration::from_millis(1), stop), None);
        }
        Face::EventLoop => {
            let completions = Completions::new(|| {});
            prepare();
            assert_eq!(completions.submit(limiter, call, 1), None);
            while !stop() {
                std::thread::sleep(Duration::from_millis(1));
                completions.drain(|tag, answer: Result<Answer, _>| panic!("{tag}: {answer:?}"));
            }
            assert!(completions.cancel(&1));
        }
    }
}

fn until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < 2 * GENEROUS_DEADLINE, "the condition was not met in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Long enough for a second refund to show, had there been one.
fn assert_stays(units: u64, quotas: &str, server: &Server) {
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(stored_units(&server.url(), quotas, KEY), units);
}

#[test]
fn check_in_flight_is_refunded_once_after_its_caller_has_stopped() {
    for face in FACES {
        let server = Server::start(Kind::Redis, &[]);
        let proxy = FaultProxy::start(server.address());
        let limiter = limiter(
            options(&server.url_at(proxy.port())).deadline(2 * GENEROUS_DEADLINE),
            COUNTER_QUOTA,
            Outage::Deny,
        );
        // Units of other callers, which must not be given back.
        for _ in 0..5 {
            assert!(limiter.blocking().check(KEY).unwrap().allowed());
        }
        let stall = || proxy.set_stalled_direction(Direction::Replies, true);
        acquire_and_stop(&limiter, face, stall, || stored_units(&server.url(), COUNTER_QUOTA, KEY) == 6);
        assert_eq!(stored_units(&server.url(), COUNTER_QUOTA, KEY), 6, "{face:?}");
        proxy.pass();
        until(|| stored_units(&server.url(), COUNTER_QUOTA, KEY) == 5);
        assert_stays(5, COUNTER_QUOTA, &server);
    }
}

/// A request over several policies, of the program and of a document.
#[test]
fn reservations_in_flight_are_given_back_with_their_charges() {
    const DOCUMENT: &str = r#"{"polylimit": 1,
        "policies": {"wide": {"quotas": "100/hour"}, "slots": {"quotas": "5 concurrent"}},
        "rules": [{"apply": [{"policy": "wide", "key": "{user}"}, {"policy": "slots", "key": "{user}"}]}]}"#;
    let both: &'static [Request<'static>; 2] =
        Box::leak(Box::new(["wide", "slots"].map(|policy| Request::new(KEY).policy(policy))));
    for face in FACES {
        for is_by_document in [false, true] {
            let server = Server::start(Kind::Redis, &[]);
            let proxy = FaultProxy::start(server.address());
            let start = |port| {
                let builder =
                    Limiter::builder().redis(options(&server.url_at(port)).deadline(2 * GENEROUS_DEADLINE));
                if is_by_document {
                    return builder.document(DOCUMENT).build().unwrap();
                }
                let policy = |name, quotas| Policy::parse(name, quotas).unwrap();
                let builder = builder.policy(policy("wide", "100/hour"));
                builder.policy(policy("slots", "5 concurrent")).build().unwrap()
            };
            let limiter = start(proxy.port());
            let observer = start(server.address().port()).blocking();
            let left = || both.map(|request| observer.peek(request).unwrap().remaining());
            // With this the server has the script.
            let terms = || ReserveOptions::default().terms().unwrap();
            let earlier = terms();
            assert!(
                limiter.blocking().reserve_together(both, &earlier).unwrap().iter().all(Decision::allowed)
            );
            let _ = limiter.blocking().cancel(both[1], earlier.id).unwrap();
            assert_eq!(left(), [99, 5]);
            let call = Call::ReserveTogether(both, terms());
            let stall = || proxy.set_stalled_direction(Direction::Replies, true);
            call_and_stop(&limiter, &call, face, stall, || left() == [98, 4]);
            proxy.pass();
            until(|| left() == [99, 5]);
        }
    }
}

#[test]
fn check_without_an_answer_is_not_refunded() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let deadline = Duration::from_millis(500);
    let limiter =
        limiter(options(&server.url_at(proxy.port())).deadline(deadline), COUNTER_QUOTA, Outage::Deny);
    for _ in 0..5 {
        assert!(limiter.blocking().check(KEY).unwrap().allowed());
    }
    let start = Instant::now();
    let stall = || proxy.set_stalled_direction(Direction::Requests, true);
    acquire_and_stop(&limiter, Face::EventLoop, stall, || start.elapsed() > deadline / 5);
    std::thread::sleep(2 * deadline);
    proxy.cut();
    proxy.pass();
    // The store has never spent the unit: a refund would give back another caller's.
    assert_stays(5, COUNTER_QUOTA, &server);
}

#[test]
fn units_are_refunded_once_when_the_caller_stops_during_a_leaky_buckets_delay() {
    for face in FACES {
        let server = Server::start(Kind::Redis, &[]);
        let limiter = limiter(options(&server.url()).deadline(GENEROUS_DEADLINE), LEAKY, Outage::Deny);
        for _ in 0..3 {
            assert!(limiter.blocking().check(KEY).unwrap().allowed());
        }
        let mut stops = 0;
        acquire_and_stop(
            &limiter,
            face,
            || {},
            || {
                // Some time after the store has spent them, so that the answer has arrived.
                stops += u32::from(stored_units(&server.url(), LEAKY, KEY) == 4);
                stops == 20
            },
        );
        until(|| stored_units(&server.url(), LEAKY, KEY) == 3);
        assert_stays(3, LEAKY, &server);
    }
}
