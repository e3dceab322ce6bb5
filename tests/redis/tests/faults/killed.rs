//! The server's process is killed and comes back with nothing.

use std::thread::sleep;
use std::time::Duration;

use polylimit::Outage;
use polylimit_redis_tests::{Load, limiter, options, used};
use polylimit_test_servers::{Dataset, Kind, Server};

const DEADLINE: Duration = Duration::from_millis(50);
const DOWN: Duration = Duration::from_secs(1);
const KEYS: usize = 8;
/// What a key may spend; next to nothing of it comes back during the test.
const CAPACITY: u64 = 200;
const QUOTA: &str = "200/day token_bucket";

fn kill_and_restart(kind: Kind, outage: Outage) {
    let server = Server::start(kind, &[]);
    let limiter = limiter(options(&server.url()).deadline(DEADLINE), QUOTA, outage);
    let load = Load::on(&limiter, KEYS);
    let (story, (killed, ready)) = load.run(Duration::from_millis(2_500), |start| {
        sleep(Duration::from_millis(150));
        let killed = start.elapsed();
        server.kill();
        sleep(DOWN);
        server.restart(Dataset::Empty);
        (killed, start.elapsed())
    });
    story.assert_in_time(DEADLINE);
    story.assert_explained();
    let back = story.back_after(killed + DOWN);
    let soon = ready.max(killed + DOWN) + Duration::from_millis(250) + story.noise;
    assert!(back <= soon, "back {back:?}, ready {ready:?}, killed {killed:?}, {}", story.told());
    let counters = limiter.stats();
    for key in 0..KEYS {
        // All of it was lost once.
        let admitted = story.admitted_of(key);
        assert!(admitted <= 2 * CAPACITY, "{admitted} of key {key}: {}", story.told());
        let held = used(&server.url(), QUOTA, &load.keys()[key]);
        let after = story.count(|asked| {
            asked.key() == key && asked.allowed && asked.is_sound() && asked.at() > killed + DOWN
        });
        assert!((after..=after + counters.unknown).contains(&held), "{held} {after} {counters:?}");
    }
}

#[test]
fn with_a_limiter_in_this_process_meanwhile() {
    kill_and_restart(Kind::Redis, Outage::Fallback);
}

#[test]
fn with_denials_meanwhile() {
    kill_and_restart(Kind::Valkey, Outage::Deny);
}
