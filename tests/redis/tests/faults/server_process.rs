//! The process of the server: suspended by a signal, killed and restarted without data, or robbed of its scripts.

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::Limiter;
use polylimit::storage::Outage;
use polylimit_redis_tests::{
    COUNTER_QUOTA, GENEROUS_DEADLINE, Load, OpenLoopLoad, OpenLoopReport, SLACK, limiter, options,
    repeated_if_noisy, stored_units, total_stored_units,
};
use polylimit_test_servers::{Dataset, FaultProxy, Kind, Row, Server, until};

const DEADLINE: Duration = Duration::from_millis(50);
const KEYS: usize = 16;
const MAX_MEMORY_GROWTH: u64 = 32 << 20;
/// The limiter asks the store again this long after the server was resumed, at the latest.
const RECOVERY: Duration = Duration::from_secs(1);
/// The callers request at least this number of decisions a second, however busy the machine is.
const MIN_OFFERED: u64 = 5_000;
/// The same in the long form, which is built with optimisations and runs while nothing else does, for a long stop.
const MIN_OFFERED_FOR_LONG: u64 = 45_000;

fn start() -> (Server, Limiter, OpenLoopLoad) {
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTER_QUOTA, Outage::Fallback);
    let load = OpenLoopLoad::start(&limiter, KEYS);
    sleep(Duration::from_millis(400));
    assert!(load.by_store() > 500);
    (server, limiter, load)
}

/// Measures the memory for so long; returns by how many bytes it grew at most.
fn memory_growth(span: Duration) -> u64 {
    let (start, before) = (Instant::now(), resident_bytes());
    let mut most = before;
    while start.elapsed() < span {
        most = most.max(resident_bytes());
        sleep(Duration::from_millis(5));
    }
    most - before
}

fn await_store(load: &OpenLoopLoad) {
    let before = load.by_store();
    // More decisions than were pending when the server resumed.
    until("the store decides again", 2 * RECOVERY, || (load.by_store() > before + 1_000).then_some(()));
}

fn assert_bounds(report: &OpenLoopReport, grown: u64) {
    let most = DEADLINE + SLACK + report.noise;
    assert!(report.slowest <= most, "{report:?}");
    assert!(grown <= MAX_MEMORY_GROWTH, "{grown} bytes more; {report:?}");
}

/// The callers make requests at the same rate while the server is suspended.
fn stop_under_load(span: Duration) {
    let (server, limiter, load) = start();
    let (requested, start) = (load.requested(), Instant::now());
    server.stop();
    let grown = memory_growth(span);
    server.cont();
    let offered =
        (load.requested() - requested) * 1_000 / u64::try_from(start.elapsed().as_millis()).unwrap();
    let resumed = Instant::now();
    await_store(&load);
    let recovered = resumed.elapsed();
    let grown = grown.max(memory_growth(Duration::from_millis(200)));
    let keys = load.keys().to_vec();
    let report = load.finish();
    let (held, counters) = (total_stored_units(&server.url(), COUNTER_QUOTA, &keys), limiter.stats());
    println!(
        "{offered} a second, recovered after {recovered:?}, {grown} bytes more, {held} held, {counters:?}"
    );
    assert_bounds(&report, grown);
    let is_long = Row::is_long() && span > Duration::from_secs(10);
    let least = if is_long { MIN_OFFERED_FOR_LONG } else { MIN_OFFERED };
    assert!(offered >= least, "{offered} a second, {least} are the least");
    assert!(recovered <= RECOVERY + report.noise, "{recovered:?} {report:?}");
    // Operations that the server had received when it was suspended are unknown. Later ones were not applied.
    let most = report.admitted + counters.unknown;
    assert!((report.admitted..=most).contains(&held), "{held} {report:?} {counters:?}");
    assert!(counters.applied + counters.not_applied + counters.unknown == report.requested, "{counters:?}");
    report
        .row("F20", format!("stopped for {span:?}"), DEADLINE)
        .stored(held, report.admitted)
        .unknown(counters.unknown)
        .recovered(recovered)
        .measured(format!("{offered} decisions offered a second; memory grew by {} KiB", grown >> 10))
        .record();
}

#[test]
fn server_stopped_for_50_ms_under_load_delays_no_decision_beyond_its_deadline() {
    in_own_process(
        "server_process::server_stopped_for_50_ms_under_load_delays_no_decision_beyond_its_deadline",
        || stop_under_load(Duration::from_millis(50)),
    );
}

#[test]
fn server_stopped_for_500_ms_under_load_delays_no_decision_beyond_its_deadline() {
    in_own_process(
        "server_process::server_stopped_for_500_ms_under_load_delays_no_decision_beyond_its_deadline",
        || stop_under_load(Duration::from_millis(500)),
    );
}

/// Two seconds, and a minute in the long form.
#[test]
fn server_stopped_for_long_under_load_delays_no_decision_beyond_its_deadline() {
    let span = Duration::from_secs(if Row::is_long() { 60 } else { 2 });
    in_own_process(
        "server_process::server_stopped_for_long_under_load_delays_no_decision_beyond_its_deadline",
        || stop_under_load(span),
    );
}

/// No requests are under way when the server is suspended and when it is resumed, so what it has stored must not change.
#[test]
fn stopped_server_applies_nothing_that_it_received_while_stopped() {
    in_own_process("server_process::stopped_server_applies_nothing_that_it_received_while_stopped", || {
        let (server, limiter, load) = start();
        load.set_open(false);
        sleep(4 * DEADLINE);
        let before = total_stored_units(&server.url(), COUNTER_QUOTA, load.keys());
        let unknown = limiter.stats().unknown;
        server.stop();
        load.set_open(true);
        let grown = memory_growth(Duration::from_millis(600));
        load.set_open(false);
        sleep(4 * DEADLINE);
        server.cont();
        server.wait_until_ready();
        sleep(Duration::from_millis(100));
        assert_eq!(total_stored_units(&server.url(), COUNTER_QUOTA, load.keys()), before);
        // Some operations were sent.
        assert!(limiter.stats().unknown > unknown);
        load.set_open(true);
        await_store(&load);
        let report = load.finish();
        assert_bounds(&report, grown);
        report
            .row("F20", "requests received while stopped", DEADLINE)
            .unknown(limiter.stats().unknown)
            .measured("none of them was applied")
            .record();
    });
}

const OWN_PROCESS: &str = "POLYLIMIT_TEST_OWN_PROCESS";

/// Runs the body of the test of this name in a process of its own, so that its memory is not that of other tests. One such
/// test runs at a time.
fn in_own_process(test: &str, body: impl Fn()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if std::env::var_os(OWN_PROCESS).is_some() {
        repeated_if_noisy(body);
        return;
    }
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(OWN_PROCESS, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("1 passed"), "{test} failed in a process of its own");
}

/// The resident memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kilobytes << 10
}

const KILL_TEST_KEYS: usize = 8;
const DOWNTIME: Duration = Duration::from_secs(1);
/// The units of a key, which are hardly refilled during the test.
const CAPACITY: u64 = 200;
const QUOTA: &str = "200/day token_bucket";

fn kill_and_restart(kind: Kind, outage: Outage) {
    let server = Server::start(kind, &[]);
    let limiter = limiter(options(&server.url()).deadline(DEADLINE), QUOTA, outage);
    let load = Load::new(&limiter, KILL_TEST_KEYS);
    let (report, (killed, ready)) = load.run(Duration::from_millis(2_500), |start| {
        sleep(Duration::from_millis(150));
        let killed = start.elapsed();
        server.kill();
        sleep(DOWNTIME);
        server.restart(Dataset::Empty);
        let ready = start.elapsed();
        // On a busy machine the server may take longer to start than the load lasts otherwise.
        sleep(Duration::from_millis(750));
        (killed, ready)
    });
    report.assert_deadlines(DEADLINE);
    report.assert_reasons();
    let recovered = report.recovered_at(killed + DOWNTIME);
    let latest = ready.max(killed + DOWNTIME) + Duration::from_millis(250) + report.noise;
    assert!(
        recovered <= latest,
        "recovered {recovered:?}, ready {ready:?}, killed {killed:?}, {}",
        report.summary()
    );
    let counters = limiter.stats();
    for key in 0..KILL_TEST_KEYS {
        // The server lost its data once.
        let admitted = report.admitted_of(key);
        assert!(admitted <= 2 * CAPACITY, "{admitted} of key {key}: {}", report.summary());
        let stored = stored_units(&server.url(), QUOTA, &load.keys()[key]);
        let after = report.count(|seen| {
            seen.key() == key && seen.allowed && seen.is_healthy() && seen.at() > killed + DOWNTIME
        });
        assert!((after..=after + counters.unknown).contains(&stored), "{stored} {after} {counters:?}");
    }
    report
        .row("F2", format!("{kind:?}, outage policy {outage:?}"), DEADLINE)
        .bound(report.most_admitted() as u64, 2 * CAPACITY)
        .unknown(counters.unknown)
        .recovered(recovered.saturating_sub(killed + DOWNTIME))
        .record();
}

#[test]
fn killed_server_returns_empty_and_the_fallback_limits_meanwhile() {
    repeated_if_noisy(|| {
        kill_and_restart(Kind::Redis, Outage::Fallback);
    });
}

#[test]
fn killed_server_returns_empty_and_requests_are_denied_meanwhile() {
    repeated_if_noisy(|| {
        kill_and_restart(Kind::Valkey, Outage::Deny);
    });
}

const FLUSHES: u64 = 30;

/// Each flush costs a decision at most one more round trip.
#[test]
fn flushed_scripts_are_sent_again_without_a_degraded_decision() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let proxy = FaultProxy::start(server.address());
        let limiter = limiter(
            options(&server.url_at(proxy.port())).deadline(GENEROUS_DEADLINE),
            COUNTER_QUOTA,
            Outage::Deny,
        );
        let load = Load::new(&limiter, 10);
        let (report, ()) = load.run(Duration::ZERO, |_| {
            for _ in 0..FLUSHES {
                sleep(Duration::from_millis(50));
                server.command(&["SCRIPT", "FLUSH", "SYNC"]);
            }
        });
        report.assert_healthy();
        let counters = limiter.stats();
        assert_eq!((counters.unknown, counters.not_applied, counters.permanent), (0, 0, 0));
        assert_eq!(counters.applied, report.observations.len() as u64);
        assert_eq!(total_stored_units(&server.url(), COUNTER_QUOTA, load.keys()), report.admitted());
        // Each refused batch was sent once more, with the source of the script.
        assert!(counters.scripts_sent >= FLUSHES / 2, "{counters:?}");
        assert_eq!(proxy.commands("EVAL"), counters.scripts_sent);
        assert_eq!(proxy.commands("EVALSHA") + proxy.commands("EVAL"), counters.calls);
        assert!(counters.calls - counters.scripts_sent <= counters.applied, "{counters:?}");
        report
            .row("F1", format!("{kind:?}"), GENEROUS_DEADLINE)
            .stored(report.admitted(), report.admitted())
            .unknown(counters.unknown)
            .measured(format!(
                "{FLUSHES} flushes; {} of {} calls were sent again with the script",
                counters.scripts_sent, counters.calls
            ))
            .record();
    }
}
