//! Redis Cluster: requests reach the owner of their slot, also while slots are migrated and after a primary has failed.

use std::time::{Duration, Instant};

use polylimit::decision::{Degradation, Source};
use polylimit::redis::RedisOptions;
use polylimit::{Limiter, Policy, Request};
use polylimit_redis_tests::{Load, assert_from_store, repeated_if_noisy, with};
use polylimit_test_servers::{Cluster, Kind, MigrationStage, Row, Server, until};

use super::support::{
    RunQueue, exclusive, keys, keys_of_one_slot, keys_of_third, limiter, runtime, shared, slot,
};

/// The default deadline.
const DEADLINE: Duration = Duration::from_millis(50);

/// How many error replies with this code a node has sent.
fn errors(node: &Server, code: &str) -> u64 {
    let text: String = node.query(&["INFO", "errorstats"]);
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("errorstat_")?.strip_prefix(code)?.strip_prefix(":count="));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

/// Waits until the limiter has stopped reading the slot table, so that it learns of the next change by a redirection.
fn until_slot_table_is_read(cluster: &Cluster) {
    const IDLE: Duration = Duration::from_millis(500);
    let reads = || -> u64 {
        let calls_of = |node: &Server| {
            let text: String = node.query(&["INFO", "commandstats"]);
            let calls = text.lines().find_map(|line| line.strip_prefix("cmdstat_cluster|slots:calls="));
            calls.map_or(0, |rest| rest.split(',').next().unwrap().parse::<u64>().unwrap())
        };
        (0..3).map(|node| calls_of(cluster.node(node))).sum()
    };
    let mut seen = (reads(), Instant::now());
    until("the limiter has read the slot table", Duration::from_secs(10), || {
        let now = reads();
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        (seen.1.elapsed() > IDLE).then_some(())
    });
}

/// How many units of a key are used, under one quota of a million.
fn used_units(limiter: &Limiter, key: &str) -> usize {
    let remaining = runtime().block_on(limiter.peek(key)).unwrap();
    assert_eq!(remaining.source(), Source::Store, "{remaining:?}");
    1_000_000 - usize::try_from(remaining.remaining()).unwrap()
}

#[test]
fn every_shard_decides_for_its_keys() {
    let _shared = shared();
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 3, 0);
        assert_eq!(cluster.slot_of("user:7"), slot("user:7"));
        let keys = keys(300);
        let one_seed = cluster.urls()[2].replace("redis://", "redis-cluster://");
        for (url, remaining) in [(cluster.url(), 8), (one_seed, 5)] {
            let limiter = limiter(&with(&url, "deadline=2s"), "10/hour fixed_window; 20/day sliding_log");
            runtime().block_on(async {
                for key in &keys {
                    let decision = limiter.check(key).await.unwrap();
                    assert_from_store(&decision);
                }
                let together = limiter.check_many(keys.iter().map(|key| Request::new(key).cost(2))).await;
                for decision in together {
                    let decision = decision.unwrap();
                    assert!(decision.source() == Source::Store && decision.allowed(), "{decision:?}");
                    assert_eq!(decision.remaining(), remaining - 1);
                }
            });
            // One connection to each node, opened on first use.
            assert!(limiter.stats().connections <= 3);
        }
        let sizes: Vec<usize> = (0..3).map(|i| cluster.node(i).query(&["DBSIZE"])).collect();
        assert!(sizes.iter().all(|size| *size > 0) && sizes.iter().sum::<usize>() == 600, "{sizes:?}");
    }
}

#[test]
fn refund_at_any_node_invalidates_the_denial_cache() {
    let _shared = shared();
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 3, 0);
        let here = RedisOptions::parse(&with(&cluster.url(), "deadline=2s&denial_cache_max=1h")).unwrap();
        let here = Limiter::builder().redis(here).policy(Policy::parse("p", "1/day").unwrap()).build();
        let (here, other) =
            (here.unwrap().blocking(), limiter(&with(&cluster.url(), "deadline=2s"), "1/day").blocking());
        // Keys of every node. The limiter subscribes at one node only.
        for key in keys(20) {
            let _ = other.charge(key.as_str()).unwrap();
            assert!(!here.check(key.as_str()).unwrap().allowed());
            let _ = other.reset(key.as_str()).unwrap();
            until("the key is admitted again", Duration::from_secs(10), || {
                here.check(key.as_str()).unwrap().allowed().then_some(())
            });
        }
    }
}

#[test]
fn migration_of_a_slot_degrades_no_decision() {
    let _shared = shared();
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let key = keys(1);
    // The policy has two keys in Redis. While only one of them has moved, the source replies TRYAGAIN.
    let limiter =
        limiter(&with(&cluster.url(), "deadline=2s"), "1000000/hour fixed_window; 1000000/day sliding_log");
    let mut slots = vec![];
    let load = Load::of_keys(&limiter, &key).callers(8, 0).start();
    load.until_stored(Duration::from_secs(5));
    let from = cluster.owner_of(slot(&key[0]));
    for (from, to) in [(from, (from + 1) % 3), ((from + 1) % 3, (from + 2) % 3)] {
        let source = cluster.node(from);
        let seen = |code: &str| errors(source, code);
        until_slot_table_is_read(&cluster);
        let before = ["MOVED", "ASK", "TRYAGAIN"].map(seen);
        cluster.migrate_slot(slot(&key[0]), from, to, |stage| match stage {
            // More often than the circuit breaker lets a server refuse.
            MigrationStage::KeyMoved { remaining: 1.. } => {
                until("the source replies TRYAGAIN", Duration::from_secs(2), || {
                    (seen("TRYAGAIN") >= before[2] + 8).then_some(())
                });
            }
            MigrationStage::KeyMoved { remaining: 0 } => {
                until("the source redirects to the target", Duration::from_secs(5), || {
                    (seen("ASK") >= before[1] + 20).then_some(())
                });
                load.until_stored(Duration::from_secs(5));
            }
            MigrationStage::Importing
            | MigrationStage::Migrating
            | MigrationStage::TargetOwns
            | MigrationStage::SourceKnows => {
                load.until_stored(Duration::from_secs(5));
            }
        });
        let after = ["MOVED", "ASK", "TRYAGAIN"].map(seen);
        assert!(after[0] > before[0], "the source never replied MOVED");
        slots.push(to);
    }
    let report = load.finish();
    report.assert_healthy();
    assert_eq!(report.admitted(), report.observations.len() as u64);
    let counters = limiter.stats();
    assert_eq!((counters.unknown, counters.not_applied, counters.permanent), (0, 0, 0));
    assert_eq!(used_units(&limiter, &key[0]), report.observations.len());
    assert_eq!(cluster.owner_of(slot(&key[0])), slots[1]);
    let stored = used_units(&limiter, &key[0]) as u64;
    report
        .row("F40", "a slot migrated twice under load", Duration::from_secs(2))
        .stored(stored, report.admitted())
        .unknown(counters.unknown)
        .record();
}

#[test]
fn keys_of_a_partly_migrated_slot_are_decided_at_the_node_that_has_them() {
    let _shared = shared();
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let keys = keys_of_one_slot(12);
    let limiter = limiter(&with(&cluster.url(), "deadline=1s"), "1000000/hour fixed_window");
    // `check_many` sends them in one call while that is possible.
    let check_together = || {
        let decisions = runtime().block_on(limiter.check_many(&keys));
        for decision in decisions {
            let decision = decision.unwrap();
            assert!(decision.source() == Source::Store && decision.allowed(), "{decision:?}");
        }
    };
    check_together();
    let from = cluster.owner_of(slot(&keys[0]));
    let mut stages = 0;
    cluster.migrate_slot(slot(&keys[0]), from, (from + 1) % 3, |_| {
        check_together();
        stages += 1;
    });
    assert_eq!(stages, keys.len() + 4);
    assert!(errors(cluster.node(from), "TRYAGAIN") > 0 && errors(cluster.node(from), "ASK") > 0);
    for key in &keys {
        assert_eq!(used_units(&limiter, key), stages + 1, "{key}");
    }
}

#[test]
fn failed_shard_recovers_with_its_replica() {
    repeated_if_noisy(|| {
        let _shared = shared();
        let cluster = Cluster::start(Kind::Redis, 3, 1);
        let limiter = limiter(&cluster.url(), "400/hour fixed_window");
        let other_keys = [keys_of_third(0, 10), keys_of_third(2, 10)].concat();
        let of_failed = Load::of_keys(&limiter, &keys_of_third(1, 20)).callers(2, 0).start();
        let of_others = Load::of_keys(&limiter, &other_keys).callers(2, 0).start();
        of_failed.until_stored(Duration::from_secs(5));
        cluster.kill_primary(1);
        cluster.wait_until_ok();
        let cluster_recovered = Instant::now();
        let took = of_failed.until_stored(Duration::from_secs(5)) - cluster_recovered;
        let (of_failed, of_others) = (of_failed.finish(), of_others.finish());
        println!("the shard recovered {took:?} after the cluster, noise {:?}", of_failed.noise);
        assert!(took < Duration::from_secs(1) + of_failed.noise, "recovered after {took:?}");
        for report in [&of_failed, &of_others] {
            report.assert_deadlines(DEADLINE);
            assert!(report.most_admitted() <= 800);
        }
        assert!(of_failed.observations.iter().any(|seen| seen.source == Source::Deny));
        // On a busy machine deadlines pass, after which an open breaker answers at once with the same reason. Any other reason,
        // or a timeout while the machine is idle, would be an effect of the failed shard.
        for seen in of_others.observations.iter().filter(|seen| seen.source != Source::Store) {
            assert_eq!(seen.degraded, Some(Degradation::Timeout), "{seen:?}");
            assert!(of_others.noise >= DEADLINE / 2, "{seen:?} with a noise of {:?}", of_others.noise);
        }
    });
}

/// A cluster with a limiter, and a task that keeps requesting keys of the second primary.
struct Shards {
    cluster: Cluster,
    limiter: Limiter,
    /// Keys of the other two primaries.
    others: Vec<String>,
    run_queue: RunQueue,
    times: Vec<Duration>,
}

impl Shards {
    fn start(runtime: &tokio::runtime::Runtime) -> Self {
        let cluster = Cluster::start(Kind::Redis, 3, 0);
        let limiter = limiter(&with(&cluster.url(), "deadline=500ms"), "1000000/hour fixed_window");
        let (failing, of_task) = (keys_of_third(1, 10), limiter.clone());
        runtime.spawn(async move {
            for key in failing.iter().cycle() {
                let _ = of_task.check(key).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let others = [keys_of_third(0, 10), keys_of_third(2, 10)].concat();
        let run_queue = RunQueue::of(&[cluster.node(0).pid(), cluster.node(2).pid()]);
        Self { cluster, limiter, others, run_queue, times: Vec::new() }
    }

    /// Measures one decision for each of the other keys, without the time for which the threads involved waited in a run
    /// queue.
    async fn measure(&mut self) {
        for key in &self.others {
            let waited = self.run_queue.waited();
            let start = Instant::now();
            let decision = self.limiter.check(key).await.unwrap();
            let took = start.elapsed();
            self.times.push(took.saturating_sub(self.run_queue.waited().saturating_sub(waited)));
            assert_eq!(decision.source(), Source::Store, "{decision:?}");
        }
    }

    fn p99(&mut self) -> Duration {
        self.times.sort_unstable();
        self.times[self.times.len() * 99 / 100]
    }
}

/// Two clusters take turns of some milliseconds, one intact and one without a primary, so that other load of the machine
/// affects both alike. The measurement is repeated while they could differ for another reason: an effect of the failed primary would
/// appear in each.
#[test]
fn failed_primary_slows_no_other_shard() {
    const ATTEMPTS: usize = 6;
    const ROUNDS: usize = 200;
    const WARM_UP: usize = 100;
    let _exclusive = exclusive();
    let runtime = runtime();
    let (mut intact, mut failed) = (Shards::start(&runtime), Shards::start(&runtime));
    failed.cluster.kill_primary(1);
    let mut measure = |rounds| {
        intact.times.clear();
        failed.times.clear();
        runtime.block_on(async {
            for _ in 0..rounds {
                intact.measure().await;
                failed.measure().await;
            }
        });
        (intact.p99(), failed.p99(), failed.times.len())
    };
    measure(WARM_UP);
    let mut measured = Vec::new();
    let is_as_fast = (0..ATTEMPTS).any(|_| {
        let (before, after, decisions) = measure(ROUNDS);
        println!("the other shards' p99: {after:?}, and {before:?} in a cluster without a failure");
        measured.push((before, after, decisions));
        after <= before.mul_f64(1.10)
    });
    assert!(is_as_fast, "{measured:?}");
    let (before, after, decisions) = measured[measured.len() - 1];
    Row::new("F41", "one primary of three killed")
        .decisions(decisions as u64)
        .measured(format!("p99 of the other shards {after:?}, of an intact cluster {before:?}"))
        .record();
}

/// Such a node announces only its port. The host is the one that the limiter has connected to.
#[test]
fn node_with_an_unknown_endpoint_is_reached_at_the_queried_host() {
    let _shared = shared();
    let lines = ["cluster-preferred-endpoint-type unknown-endpoint"];
    let cluster = Cluster::start_with(Kind::Redis, 2, 0, &lines);
    let limiter = limiter(&with(&cluster.url(), "deadline=2s"), "10/hour fixed_window");
    let check = || {
        assert_from_store(&runtime().block_on(limiter.check("user")).unwrap());
    };
    check();
    let slot = slot("user");
    let from = cluster.owner_of(slot);
    cluster.migrate_slot(slot, from, 1 - from, |_| check());
    check();
}
