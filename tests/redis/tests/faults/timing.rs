//! A network that is slow, and a server whose clock is set, while the store is in use.

use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::clock::ManualClock;
use polylimit::decision::Source;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy, Quota};
use polylimit_redis_tests::{
    COUNTER_QUOTA, Load, LoadReport, limiter, options, repeated_if_noisy, total_stored_units, uncached,
};
use polylimit_test_servers::{Direction, FaultProxy, Kind, Server};

const DEADLINE: Duration = Duration::from_millis(50);
/// How often the circuit breakers of the tasks' and the threads' connection may open together during these tests.
const MAX_OPENINGS: u64 = 12;

/// The least and the largest latency of each direction, and the duration of the phase, in milliseconds.
type Phase = (u64, u64, u64);

fn run_phases(case: &str, deadline: Duration, phases: &[Phase]) -> (LoadReport, u64) {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    // The first decisions have the same deadline as all others.
    let options = options(&server.url_at(proxy.port())).deadline(deadline).first_connect_max(Duration::ZERO);
    let limiter = limiter(options, COUNTER_QUOTA, Outage::Fallback);
    let load = Load::new(&limiter, 4);
    let ms = Duration::from_millis;
    let (report, passed) = load.run(Duration::ZERO, |start| {
        for &(from, to, span) in phases {
            proxy.set_latency(ms(from), ms(to - from));
            sleep(ms(span));
        }
        proxy.pass();
        let passed = start.elapsed();
        sleep(ms(1_100));
        passed
    });
    report.assert_deadlines(deadline);
    report.assert_reasons();
    let recovered = report.recovered_at(passed);
    assert!(recovered < passed + ms(1_050) + report.noise, "{recovered:?} {passed:?} {}", report.summary());
    let counters = limiter.stats();
    let stored = total_stored_units(&server.url(), COUNTER_QUOTA, load.keys());
    report.assert_stored(stored, counters.unknown);
    println!("{counters:?}");
    assert!(counters.breaker_opened <= MAX_OPENINGS, "{counters:?} {}", report.summary());
    report
        .row("F26", case, deadline)
        .stored(stored, report.admitted_by_store())
        .unknown(counters.unknown)
        .recovered(recovered.saturating_sub(passed))
        .measured(format!("circuit breakers opened {} times", counters.breaker_opened))
        .record();
    (report, counters.breaker_opened)
}

#[test]
fn latency_within_the_deadline_degrades_no_decision() {
    repeated_if_noisy(|| {
        let (report, opened) = run_phases(
            "latency within the deadline",
            10 * DEADLINE,
            &[(0, 5, 300), (5, 15, 300), (60, 100, 600), (0, 1, 300)],
        );
        assert_eq!(opened, 0, "{}", report.summary());
        report.assert_healthy();
    });
}

/// The round trip rises to 200 ms and falls again.
#[test]
fn circuit_breaker_opens_seldom_while_latency_rises_and_falls() {
    repeated_if_noisy(|| {
        let phases = [
            (0, 0, 200),
            (5, 15, 300),
            (10, 30, 400),
            (30, 60, 300),
            (60, 100, 400),
            (10, 30, 400),
            (0, 10, 300),
        ];
        let (report, opened) = run_phases("latency rises and falls", DEADLINE, &phases);
        assert!(opened > 0, "{}", report.summary());
    });
}

/// Every other reply misses the deadline.
#[test]
fn circuit_breaker_opens_seldom_with_latency_around_the_deadline() {
    repeated_if_noisy(|| {
        run_phases("latency around the deadline", DEADLINE, &[(15, 35, 2_000)]);
    });
}

/// So long that on a busy machine only a change of the clock makes a decision late.
const CLOCK_DEADLINE: Duration = Duration::from_secs(1);
const HOUR_US: i64 = 3_600_000_000;
const QUOTAS: [&str; 6] = [
    "40/4s token_bucket",
    "40/4s token_bucket step=4",
    "40/4s leaky_bucket burst=20",
    "40/4s fixed_window",
    "40/4s buckets=10",
    "40/4s sliding_log",
];

/// Sets the clock of the server to each of these offsets in turn while a load runs.
fn set_clock(case: &str, quotas: &str, offsets_us: &[i64]) {
    let quota: Quota = quotas.parse().unwrap();
    let server = Server::options(Kind::Redis).fake_clock().start();
    let limiter = limiter(uncached(&server.url()).deadline(CLOCK_DEADLINE), quotas, Outage::Deny);
    let load = Load::new(&limiter, 2);
    let start = Instant::now();
    let (report, ()) = load.run(Duration::ZERO, |_| {
        for &offset_us in offsets_us {
            sleep(Duration::from_millis(100));
            server.set_clock_offset_us(offset_us);
        }
        sleep(Duration::from_millis(100));
    });
    let span = start.elapsed();
    let forward = offsets_us.iter().scan(0, |at, &offset| Some(offset - std::mem::replace(at, offset)));
    let forward = forward.filter(|step| *step > 0).count() as u64;
    report.assert_deadlines(CLOCK_DEADLINE);
    // When the clock is set forward, a pending request looks late to the server. The limiter notices that at once.
    assert_eq!(limiter.stats().unknown, 0, "{}", report.summary());
    let degraded = report.count(|seen| seen.source != Source::Store);
    assert!(degraded <= forward, "{}", report.summary());
    assert_admitted(&report, &quota, span, forward);
    assert_waits(&limiter, &quota);
    report
        .row("F32", format!("{case}, {quotas}"), CLOCK_DEADLINE)
        .bound(report.most_admitted() as u64, most_admitted(&quota, span, forward))
        .unknown(limiter.stats().unknown)
        .record();
}

/// Each step forward refills the quota, since an hour is longer than that takes.
fn most_admitted(quota: &Quota, span: Duration, forward: u64) -> u64 {
    quota.most_admitted(span) + forward * quota.capacity()
}

fn assert_admitted(report: &LoadReport, quota: &Quota, span: Duration, forward: u64) {
    for key in 0..2 {
        let most = most_admitted(quota, span, forward);
        let admitted = report.admitted_of(key);
        assert!(admitted <= most, "{admitted} of {most} under {quota}: {}", report.summary());
        let requested = report.count(|seen| seen.key() == key);
        assert!(
            admitted >= quota.capacity().min(requested),
            "{admitted} under {quota}: {}",
            report.summary()
        );
    }
}

/// `retry_after` and `reset_after` do not include the hour by which the clock went back.
fn assert_waits(limiter: &Limiter, quota: &Quota) {
    for key in ["k0", "k1"] {
        let decision = limiter.blocking().check(key).unwrap();
        let (wait, all) = (decision.retry_after().unwrap_or_default(), decision.reset_after());
        let filled = 2 * quota.period();
        assert!(wait <= quota.period() && all <= filled, "{decision:?} under {quota}");
    }
}

#[test]
fn clock_set_back_an_hour_delays_no_refill() {
    repeated_if_noisy(|| {
        for quotas in QUOTAS {
            set_clock("back an hour", quotas, &[-HOUR_US]);
        }
    });
}

#[test]
fn clock_set_forward_an_hour_refills_each_quota_once() {
    repeated_if_noisy(|| {
        for quotas in QUOTAS {
            set_clock("forward an hour", quotas, &[HOUR_US]);
        }
    });
}

#[test]
fn clock_set_forward_and_back_repeatedly_keeps_the_bounds() {
    repeated_if_noisy(|| {
        for quotas in QUOTAS {
            set_clock("back and forth", quotas, &[HOUR_US, -HOUR_US, 0, -HOUR_US, 500_000, 0]);
        }
    });
}

#[test]
fn acquire_counts_its_wait_from_the_time_at_which_it_asked() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let limiter = Limiter::builder()
        .store(&format!("{}?deadline=60s&denial_cache_max=0", server.url_at(proxy.port())))
        .clock(clock.clone())
        .policy(Policy::parse("p", "1/minute fixed_window").unwrap())
        .build()
        .unwrap()
        .blocking();
    assert!(limiter.check("key").unwrap().allowed());
    let until = |what: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !what() && start.elapsed() < Duration::from_secs(30) {
            sleep(Duration::from_millis(1));
        }
        what()
    };
    proxy.set_stalled_direction(Direction::Replies, true);
    let before = proxy.bytes(Direction::Requests);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| limiter.acquire("key", Duration::from_secs(3_600)).unwrap().allowed());
        let has_asked = until(&|| proxy.bytes(Direction::Requests) > before);
        // The next window begins before the answer arrives that the one before is full.
        clock.advance(Duration::from_secs(60)).unwrap();
        proxy.pass();
        let is_admitted = until(&|| waiting.is_finished());
        clock.advance(Duration::from_secs(3_600)).unwrap();
        assert!(has_asked && is_admitted && waiting.join().unwrap());
    });
}
