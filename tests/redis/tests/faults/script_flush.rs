//! The server forgets its scripts, again and again.

use std::thread::sleep;
use std::time::Duration;

use polylimit::Outage;
use polylimit_redis_tests::{COUNTING, LONG, Load, held, limiter, options};
use polylimit_test_servers::{FaultProxy, Kind, Server};

const FLUSHES: u64 = 30;

/// Every decision is the store's, and each takes at most one more round trip.
#[test]
fn forgotten_scripts_are_sent_again_and_nobody_notices() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let proxy = FaultProxy::start(server.address());
        let limiter = limiter(options(&server.url_at(proxy.port())).deadline(LONG), COUNTING, Outage::Deny);
        let load = Load::on(&limiter, 10);
        let (story, ()) = load.run(Duration::ZERO, |_| {
            for _ in 0..FLUSHES {
                sleep(Duration::from_millis(50));
                server.command(&["SCRIPT", "FLUSH", "SYNC"]);
            }
        });
        story.assert_sound();
        let counters = limiter.stats();
        assert_eq!((counters.unknown, counters.not_applied, counters.permanent), (0, 0, 0));
        assert_eq!(counters.applied, story.asked.len() as u64);
        assert_eq!(held(&server.url(), COUNTING, load.keys()), story.admitted());
        // Each batch that was refused went once more, with the source.
        assert!(counters.scripts_sent >= FLUSHES / 2, "{counters:?}");
        assert_eq!(proxy.commands("EVAL"), counters.scripts_sent);
        assert_eq!(proxy.commands("EVALSHA") + proxy.commands("EVAL"), counters.calls);
        assert!(counters.calls - counters.scripts_sent <= counters.applied, "{counters:?}");
    }
}
