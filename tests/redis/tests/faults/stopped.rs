//! The server's process is stopped for a while: its system takes what is sent, and nothing is answered.

use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::{Limiter, Outage};
use polylimit_redis_tests::{COUNTING, Flood, Flooded, held, limiter, options};
use polylimit_test_servers::{Kind, Server, until};

use crate::alone::{alone, resident};

const DEADLINE: Duration = Duration::from_millis(50);
const KEYS: usize = 16;
const MOST_GROWTH: u64 = 32 << 20;
/// When the store is asked again at the latest after the server went on.
const BACK: Duration = Duration::from_secs(1);
/// So many decisions a second are asked for at least, however busy the machine is.
const LEAST_OFFERED: u64 = 5_000;

fn start() -> (Server, Limiter, Flood) {
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTING, Outage::Fallback);
    let flood = Flood::on(&limiter, KEYS);
    sleep(Duration::from_millis(400));
    assert!(flood.sound() > 500);
    (server, limiter, flood)
}

/// Watches the memory for so long; says how much it grew at most.
fn growth(span: Duration) -> u64 {
    let (began, before) = (Instant::now(), resident());
    let mut most = before;
    while began.elapsed() < span {
        most = most.max(resident());
        sleep(Duration::from_millis(5));
    }
    most - before
}

fn await_store(flood: &Flood) {
    let before = flood.sound();
    // More than those that were waiting for this moment.
    until("the store decides again", 2 * BACK, || (flood.sound() > before + 1_000).then_some(()));
}

fn check(flooded: &Flooded, grown: u64) {
    let most = DEADLINE + Duration::from_millis(5) + flooded.noise;
    assert!(flooded.slowest <= most, "{flooded:?}");
    assert!(grown <= MOST_GROWTH, "{grown} bytes more; {flooded:?}");
}

/// All are asked for as if nothing had happened.
fn stop_under_load(span: Duration) {
    let (server, limiter, flood) = start();
    let (asked, began) = (flood.asked(), Instant::now());
    server.stop();
    let grown = growth(span);
    server.cont();
    let offered = (flood.asked() - asked) * 1_000 / u64::try_from(began.elapsed().as_millis()).unwrap();
    let went_on = Instant::now();
    await_store(&flood);
    let back = went_on.elapsed();
    let grown = grown.max(growth(Duration::from_millis(200)));
    let keys = flood.keys().to_vec();
    let flooded = flood.end();
    let (held, counters) = (held(&server.url(), COUNTING, &keys), limiter.stats());
    println!("{offered} a second, back after {back:?}, {grown} bytes more, {held} held, {counters:?}");
    check(&flooded, grown);
    assert!(offered > LEAST_OFFERED, "{offered} a second");
    assert!(back <= BACK + flooded.noise, "{back:?} {flooded:?}");
    // What was in the server's hands when it stopped is unknown. What came later has not run, or it would be more.
    let most = flooded.admitted + counters.unknown;
    assert!((flooded.admitted..=most).contains(&held), "{held} {flooded:?} {counters:?}");
    assert!(counters.applied + counters.not_applied + counters.unknown == flooded.asked, "{counters:?}");
}

#[test]
fn for_50_ms_under_load() {
    alone("stopped::for_50_ms_under_load", || stop_under_load(Duration::from_millis(50)));
}

#[test]
fn for_500_ms_under_load() {
    alone("stopped::for_500_ms_under_load", || stop_under_load(Duration::from_millis(500)));
}

#[test]
fn for_2_s_under_load() {
    alone("stopped::for_2_s_under_load", || stop_under_load(Duration::from_secs(2)));
}

/// Nobody asks when the server stops and when it goes on, so that nothing is on the way: it must hold what it held.
#[test]
fn nothing_that_was_sent_meanwhile_is_applied() {
    alone("stopped::nothing_that_was_sent_meanwhile_is_applied", || {
        let (server, limiter, flood) = start();
        flood.set_open(false);
        sleep(4 * DEADLINE);
        let before = held(&server.url(), COUNTING, flood.keys());
        let unknown = limiter.stats().unknown;
        server.stop();
        flood.set_open(true);
        let grown = growth(Duration::from_millis(600));
        flood.set_open(false);
        sleep(4 * DEADLINE);
        server.cont();
        server.wait_until_ready();
        sleep(Duration::from_millis(100));
        assert_eq!(held(&server.url(), COUNTING, flood.keys()), before);
        // Some of it was sent.
        assert!(limiter.stats().unknown > unknown);
        flood.set_open(true);
        await_store(&flood);
        check(&flood.end(), grown);
    });
}
