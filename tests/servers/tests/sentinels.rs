//! Sentinels fail over.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails here is a failed test"
)]

use std::time::{Duration, Instant};

use polylimit_test_servers::{Dataset, Kind, Sentinels, until};

#[test]
fn replica_replaces_a_killed_primary() {
    for kind in Kind::ALL {
        let start = Instant::now();
        let sentinels = Sentinels::start(kind);
        let up = start.elapsed();
        assert_eq!(sentinels.current_primary(), 0);
        assert_eq!(sentinels.failover(), 1);
        let took = start.elapsed().checked_sub(up).unwrap();
        println!("{kind:?}: up in {up:?}, failed over in {took:?}");
        assert!(took < Duration::from_secs(8), "{kind:?} took {took:?}");
        assert_eq!(sentinels.current_primary(), 1);
        sentinels.server(1).command(&["SET", "key", "value"]);
    }
}

#[test]
fn planned_failover_demotes_the_running_primary() {
    let sentinels = Sentinels::start(Kind::Redis);
    let pid = sentinels.server(0).pid();
    assert_eq!(sentinels.planned_failover(), 1);
    until("the old primary follows", Duration::from_secs(10), || {
        (sentinels.server(0).info("role") == "slave").then_some(())
    });
    assert_eq!(sentinels.server(0).pid(), pid);
    let error = sentinels.server(0).try_command(&["SET", "key", "value"]).unwrap_err();
    assert_eq!(error.code(), Some("READONLY"));
    // A server that was down in the meantime is demoted as well.
    assert_eq!(sentinels.failover(), 0);
    sentinels.server(1).restart(Dataset::Empty);
    until("the old primary follows", Duration::from_secs(20), || {
        (sentinels.server(1).info("role") == "slave").then_some(())
    });
}

#[test]
fn servers_and_sentinels_have_passwords_of_their_own() {
    let sentinels = Sentinels::start_with_passwords(Kind::Valkey, Some("data"), Some("watch"));
    let addresses: Vec<String> = sentinels.addresses().iter().map(ToString::to_string).collect();
    let url = format!("redis-sentinel://:data@{}/main/0?sentinel_password=watch", addresses.join(","));
    assert_eq!(sentinels.url(), url);
    assert_eq!(sentinels.failover(), 1);
}
