//! Clusters start, migrate slots and fail over.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails here is a failed test"
)]

use std::time::{Duration, Instant};

use polylimit_test_servers::{Cluster, Dataset, Kind, MigrationStage, SLOTS};

fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn cluster_starts_with_all_slots_and_leaves_no_process() {
    for kind in Kind::ALL {
        let start = Instant::now();
        let cluster = Cluster::start(kind, 3, 0);
        assert!(start.elapsed() < Duration::from_secs(5), "{kind:?} took {:?}", start.elapsed());
        assert_eq!(cluster.primaries(), [0, 1, 2]);
        assert_eq!([0, 8000, SLOTS - 1].map(|slot| cluster.owner_of(slot)), [0, 1, 2]);
        assert_eq!(cluster.slot_of("a{user:1}b"), cluster.slot_of("user:1"));
        let pids: Vec<u32> = (0..cluster.len()).map(|i| cluster.node(i).pid()).collect();
        drop(cluster);
        assert!(pids.into_iter().all(|pid| !exists(pid)));
    }
}

#[test]
fn slot_migration_passes_through_every_stage() {
    let cluster = Cluster::start(Kind::Redis, 2, 0);
    let keys = ["{tag}:1", "{tag}:2"];
    let slot = cluster.slot_of("tag");
    let from = cluster.owner_of(slot);
    let (source, target) = (cluster.node(from), cluster.node(1 - from));
    source.command(&["MSET", keys[0], "1", keys[1], "2"]);
    // The error code that a client receives; empty for a reply without an error.
    let code = |node: &polylimit_test_servers::Server, arguments: &[&str]| {
        let reply = node.try_command(arguments);
        reply.err().and_then(|error| error.code().map(str::to_owned)).unwrap_or_default()
    };
    let mut stages = Vec::new();
    cluster.migrate_slot(slot, from, 1 - from, |stage| {
        stages.push(stage);
        let (here, absent) = (code(source, &["MGET", keys[0], keys[1]]), code(source, &["GET", "{tag}:new"]));
        let there = code(target, &["GET", keys[0]]);
        let expected = match stage {
            MigrationStage::Importing => ["", "", "MOVED"],
            MigrationStage::Migrating => ["", "ASK", "MOVED"],
            MigrationStage::KeyMoved { remaining: 1 } => ["TRYAGAIN", "ASK", "MOVED"],
            MigrationStage::KeyMoved { .. } => ["ASK", "ASK", "MOVED"],
            MigrationStage::TargetOwns => ["", "", ""],
            MigrationStage::SourceKnows => ["MOVED", "MOVED", ""],
        };
        if stage == MigrationStage::TargetOwns {
            // The source may already know the new owner.
            assert_eq!(there, "");
        } else {
            assert_eq!([here.as_str(), &absent, &there], expected, "{stage:?}");
        }
    });
    assert_eq!(stages.len(), 6);
    assert_eq!(cluster.owner_of(slot), 1 - from);
    assert_eq!(target.query::<(u8, u8)>(&["MGET", keys[0], keys[1]]), (1, 2));
}

#[test]
fn replica_replaces_a_killed_primary() {
    for kind in Kind::ALL {
        let start = Instant::now();
        let cluster = Cluster::start(kind, 3, 1);
        let up = start.elapsed();
        assert!(up < Duration::from_secs(5), "{kind:?} took {up:?}");
        cluster.kill_primary(1);
        cluster.wait_until_ok();
        println!("{kind:?}: up in {up:?}, failed over in {:?}", start.elapsed().checked_sub(up).unwrap());
        assert_eq!(cluster.owner_of(8000), 4);
        cluster.node(1).restart(Dataset::Empty);
        cluster.wait_until_ok();
        assert_eq!(cluster.primaries(), [0, 2, 4]);
    }
}
