//! A network that is slow, and not evenly so.

use std::thread::sleep;
use std::time::Duration;

use polylimit::Outage;
use polylimit_redis_tests::{COUNTING, Load, Story, held, limiter, options};
use polylimit_test_servers::{FaultProxy, Kind, Server};

const DEADLINE: Duration = Duration::from_millis(50);
/// As many as the tasks' connection and the threads' may do in such a time.
const MOST_OPENINGS: u64 = 12;

/// The milliseconds that each way takes, from so many to so many, for so long.
type Phase = (u64, u64, u64);

fn go_through(deadline: Duration, phases: &[Phase]) -> (Story, u64) {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    // The first decisions have no longer than all others.
    let options = options(&server.url_at(proxy.port())).deadline(deadline).first_connect_max(Duration::ZERO);
    let limiter = limiter(options, COUNTING, Outage::Fallback);
    let load = Load::on(&limiter, 4);
    let ms = Duration::from_millis;
    let (story, passed) = load.run(Duration::ZERO, |start| {
        for &(from, to, span) in phases {
            proxy.set_latency(ms(from), ms(to - from));
            sleep(ms(span));
        }
        proxy.pass();
        let passed = start.elapsed();
        sleep(ms(1_100));
        passed
    });
    story.assert_in_time(deadline);
    story.assert_explained();
    let back = story.back_after(passed);
    assert!(back < passed + ms(1_050) + story.noise, "{back:?} {passed:?} {}", story.told());
    let counters = limiter.stats();
    let (held, admitted) = (held(&server.url(), COUNTING, load.keys()), story.admitted_by_store());
    assert!((admitted..=admitted + counters.unknown).contains(&held), "{held} {counters:?} {}", story.told());
    println!("{counters:?}");
    (story, counters.breaker_opened)
}

#[test]
fn within_the_deadline_nothing_is_lost() {
    let (story, opened) =
        go_through(10 * DEADLINE, &[(0, 5, 300), (5, 15, 300), (60, 100, 600), (0, 1, 300)]);
    assert_eq!(opened, 0, "{}", story.told());
    story.assert_sound();
}

/// Up to 200 ms there and back, and down again.
#[test]
fn up_and_down_the_breaker_opens_seldom() {
    let phases = [
        (0, 0, 200),
        (5, 15, 300),
        (10, 30, 400),
        (30, 60, 300),
        (60, 100, 400),
        (10, 30, 400),
        (0, 10, 300),
    ];
    let (story, opened) = go_through(DEADLINE, &phases);
    assert!((1..=MOST_OPENINGS).contains(&opened), "{opened} {}", story.told());
}

/// Every other reply comes too late.
#[test]
fn around_the_deadline_the_breaker_opens_seldom() {
    let (story, opened) = go_through(DEADLINE, &[(15, 35, 2_000)]);
    assert!(opened <= MOST_OPENINGS, "{opened} {}", story.told());
}
