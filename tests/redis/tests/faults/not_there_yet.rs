//! A limiter that is made before its server exists.

use std::time::{Duration, Instant};

use polylimit::{Degradation, ErrorKind, Outage, Source};
use polylimit_redis_tests::{COUNTING, Load, limiter, options, used};
use polylimit_test_servers::{Dataset, Kind, Server};

const DEADLINE: Duration = Duration::from_millis(50);

/// It is made at once, answers by its outage policy, and uses the store as soon as there is one.
#[test]
fn the_store_is_used_as_soon_as_it_appears() {
    for (outage, source) in
        [(Outage::Fallback, Source::Fallback), (Outage::Allow, Source::Allow), (Outage::Deny, Source::Deny)]
    {
        let server = Server::options(Kind::Redis).reserve();
        let began = Instant::now();
        let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTING, outage);
        assert!(began.elapsed() < Duration::from_millis(250), "{:?}", began.elapsed());

        let error = limiter.blocking().ready(Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable);

        let (story, (launched, ready)) = Load::on(&limiter, 1).run(Duration::from_millis(1_000), |start| {
            std::thread::sleep(Duration::from_millis(300));
            let launched = start.elapsed();
            server.restart(Dataset::Empty);
            (launched, start.elapsed())
        });
        story.assert_in_time(DEADLINE);
        story.assert_explained();
        let before: Vec<_> =
            story.asked.iter().filter(|asked| asked.at() + asked.took() < launched).collect();
        assert!(before.len() > 100, "{}", story.told());
        for asked in before {
            assert_eq!((asked.source, asked.degraded), (source, Some(Degradation::Unreachable)));
            assert_eq!(asked.allowed, outage != Outage::Deny);
        }
        let back = story.back_after(launched);
        assert!(
            back <= ready + Duration::from_millis(250) + story.noise,
            "{back:?} {ready:?} {}",
            story.told()
        );
        limiter.blocking().ready(Duration::from_secs(5)).unwrap();
        let held = used(&server.url(), COUNTING, "k0");
        let unknown = limiter.stats().unknown;
        let admitted = story.admitted_by_store();
        assert!((admitted..=admitted + unknown).contains(&held), "{held} {unknown} {}", story.told());
    }
}
