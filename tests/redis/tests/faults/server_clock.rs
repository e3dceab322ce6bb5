//! The server's clock is set while the store is in use.

use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::{Outage, Quota, Source};
use polylimit_redis_tests::{Load, Story, asked_each_time, limiter};
use polylimit_test_servers::{Kind, Server};

/// Long, so that on a busy machine nothing but the clock makes a decision late.
const DEADLINE: Duration = Duration::from_secs(1);
const HOUR_US: i64 = 3_600_000_000;
const QUOTAS: [&str; 6] = [
    "40/4s token_bucket",
    "40/4s token_bucket step=4",
    "40/4s leaky_bucket burst=20",
    "40/4s fixed_window",
    "40/4s buckets=10",
    "40/4s sliding_log",
];

/// Sets the clock to each of these offsets in turn, and says by how much it went forward how often.
fn set_clock(quotas: &str, offsets_us: &[i64]) {
    let quota: Quota = quotas.parse().unwrap();
    let server = Server::options(Kind::Redis).fake_clock().start();
    let limiter = limiter(asked_each_time(&server.url()).deadline(DEADLINE), quotas, Outage::Deny);
    let load = Load::on(&limiter, 2);
    let began = Instant::now();
    let (story, ()) = load.run(Duration::ZERO, |_| {
        for &offset_us in offsets_us {
            sleep(Duration::from_millis(100));
            server.set_clock_offset_us(offset_us);
        }
        sleep(Duration::from_millis(100));
    });
    let span = began.elapsed();
    let forward = offsets_us.iter().scan(0, |at, &offset| Some(offset - std::mem::replace(at, offset)));
    let forward = forward.filter(|step| *step > 0).count() as u64;
    story.assert_in_time(DEADLINE);
    // A clock that is set forward makes what is under way look late, which is seen at once.
    assert_eq!(limiter.stats().unknown, 0, "{}", story.told());
    let unsound = story.count(|asked| asked.source != Source::Store);
    assert!(unsound <= forward, "{}", story.told());
    check_admitted(&story, &quota, span, forward);
    check_waits(&limiter, &quota);
}

/// An hour is longer than it takes to fill up.
fn check_admitted(story: &Story, quota: &Quota, span: Duration, forward: u64) {
    for key in 0..2 {
        let most = quota.most_admitted(span) + forward * quota.capacity();
        let admitted = story.admitted_of(key);
        assert!(admitted <= most, "{admitted} of {most} under {quota}: {}", story.told());
        let asked = story.count(|asked| asked.key() == key);
        assert!(admitted >= quota.capacity().min(asked), "{admitted} under {quota}: {}", story.told());
    }
}

/// Nobody has to wait for the hour by which the clock went back.
fn check_waits(limiter: &polylimit::Limiter, quota: &Quota) {
    for key in ["k0", "k1"] {
        let decision = limiter.blocking().check(key).unwrap();
        let (wait, all) = (decision.retry_after().unwrap(), decision.reset_after());
        let filled = 2 * quota.period();
        assert!(wait <= quota.period() && all <= filled, "{decision:?} under {quota}");
    }
}

#[test]
fn an_hour_back() {
    for quotas in QUOTAS {
        set_clock(quotas, &[-HOUR_US]);
    }
}

#[test]
fn an_hour_forward() {
    for quotas in QUOTAS {
        set_clock(quotas, &[HOUR_US]);
    }
}

#[test]
fn to_and_fro() {
    for quotas in QUOTAS {
        set_clock(quotas, &[HOUR_US, -HOUR_US, 0, -HOUR_US, 500_000, 0]);
    }
}
