//! A cluster: every shard decides, slots move, primaries die.

use std::time::{Duration, Instant};

use polylimit::{Limiter, Policy, RedisOptions, Request, Source};
use polylimit_test_servers::{Cluster, Dataset, Kind, MigrationStage, Server, until};

use super::load::{Load, Made, most_admitted, slowest};
use super::noise::Noise;
use super::run_queue::RunQueue;
use super::shards::{keys_of_one_slot, keys_of_third, slot};
use super::{keys, limiter, quiet, runtime, with};

/// How often a node has replied with an error of this code.
fn errors(node: &Server, code: &str) -> u64 {
    let text: String = node.query(&["INFO", "errorstats"]);
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("errorstat_")?.strip_prefix(code)?.strip_prefix(":count="));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

/// Waits until the client has read all that it wants of who serves what, so that it learns of a change only where it asks.
fn until_table_is_read(cluster: &Cluster) {
    const QUIET: Duration = Duration::from_millis(500);
    let reads = || -> u64 {
        let calls_of = |node: &Server| {
            let text: String = node.query(&["INFO", "commandstats"]);
            let calls = text.lines().find_map(|line| line.strip_prefix("cmdstat_cluster|slots:calls="));
            calls.map_or(0, |rest| rest.split(',').next().unwrap().parse::<u64>().unwrap())
        };
        (0..3).map(|node| calls_of(cluster.node(node))).sum()
    };
    let mut seen = (reads(), Instant::now());
    until("the client has read the table", Duration::from_secs(10), || {
        let now = reads();
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        (seen.1.elapsed() > QUIET).then_some(())
    });
}

fn all_stored(made: &[Made]) {
    for made in made {
        assert!(made.source == Source::Store && made.allowed, "{made:?}");
    }
}

/// The units of a key that are used in the store, under one quota of a million.
fn used(limiter: &Limiter, key: &str) -> usize {
    let remaining = runtime().block_on(limiter.peek(key)).unwrap();
    assert_eq!(remaining.source(), Source::Store, "{remaining:?}");
    1_000_000 - usize::try_from(remaining.remaining()).unwrap()
}

#[test]
fn every_shard_decides() {
    let _shared = quiet::shared();
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
                    assert_eq!(
                        (decision.source(), decision.degraded()),
                        (Source::Store, None),
                        "{decision:?}"
                    );
                }
                let together = limiter.check_many(keys.iter().map(|key| Request::new(key).cost(2))).await;
                for decision in together {
                    let decision = decision.unwrap();
                    assert!(decision.source() == Source::Store && decision.allowed(), "{decision:?}");
                    assert_eq!(decision.remaining(), remaining - 1);
                }
            });
            // One connection to each node, made when it was needed.
            assert!(limiter.stats().connections <= 3);
        }
        let sizes: Vec<usize> = (0..3).map(|i| cluster.node(i).query(&["DBSIZE"])).collect();
        assert!(sizes.iter().all(|size| *size > 0) && sizes.iter().sum::<usize>() == 600, "{sizes:?}");
    }
}

#[test]
fn what_is_given_back_at_any_node_is_heard() {
    let _shared = quiet::shared();
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 3, 0);
        let here = RedisOptions::parse(&with(&cluster.url(), "deadline=2s&denial_cache_max=1h")).unwrap();
        let here = Limiter::builder().redis(here).policy(Policy::parse("p", "1/day").unwrap()).build();
        let (here, other) =
            (here.unwrap().blocking(), limiter(&with(&cluster.url(), "deadline=2s"), "1/day").blocking());
        // Keys of every node, the first of which is the one that is listened to.
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
fn a_slot_that_moves_costs_no_decision() {
    let _shared = quiet::shared();
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let key = keys(1);
    // Two keys in Redis: between them, TRYAGAIN.
    let limiter =
        limiter(&with(&cluster.url(), "deadline=2s"), "1000000/hour fixed_window; 1000000/day sliding_log");
    let mut slots = vec![];
    let load = Load::start(&limiter, &vec![key[0].clone(); 8], 8);
    load.until_stored(Duration::from_secs(5), |_| true);
    let from = cluster.owner_of(slot(&key[0]));
    for (from, to) in [(from, (from + 1) % 3), ((from + 1) % 3, (from + 2) % 3)] {
        let source = cluster.node(from);
        let seen = |code: &str| errors(source, code);
        until_table_is_read(&cluster);
        let before = ["MOVED", "ASK", "TRYAGAIN"].map(seen);
        cluster.migrate_slot(slot(&key[0]), from, to, |stage| match stage {
            MigrationStage::Importing | MigrationStage::Migrating => {
                load.until_stored(Duration::from_secs(5), |_| true);
            }
            // More often than a server that refuses is asked before it is left alone.
            MigrationStage::KeyMoved { remaining: 1.. } => {
                until("the client is told to try again", Duration::from_secs(2), || {
                    (seen("TRYAGAIN") >= before[2] + 8).then_some(())
                });
            }
            MigrationStage::KeyMoved { remaining: 0 } => {
                until("the client is sent to the target", Duration::from_secs(5), || {
                    (seen("ASK") >= before[1] + 20).then_some(())
                });
                load.until_stored(Duration::from_secs(5), |_| true);
            }
            MigrationStage::TargetOwns | MigrationStage::SourceKnows => {
                load.until_stored(Duration::from_secs(5), |_| true);
            }
        });
        let after = ["MOVED", "ASK", "TRYAGAIN"].map(seen);
        assert!(after[0] > before[0], "the source never said MOVED");
        slots.push(to);
    }
    let made = load.end();
    all_stored(&made);
    let counters = limiter.stats();
    assert_eq!((counters.unknown, counters.not_applied, counters.permanent), (0, 0, 0));
    assert_eq!(used(&limiter, &key[0]), made.len());
    assert_eq!(cluster.owner_of(slot(&key[0])), slots[1]);
}

#[test]
fn keys_of_a_half_moved_slot_are_decided_where_each_is() {
    let _shared = quiet::shared();
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let keys = keys_of_one_slot(12);
    let limiter = limiter(&with(&cluster.url(), "deadline=1s"), "1000000/hour fixed_window");
    // Asked for together, they go together as long as they can.
    let together = || {
        let decisions = runtime().block_on(limiter.check_many(&keys));
        for decision in decisions {
            let decision = decision.unwrap();
            assert!(decision.source() == Source::Store && decision.allowed(), "{decision:?}");
        }
    };
    together();
    let from = cluster.owner_of(slot(&keys[0]));
    let mut stages = 0;
    cluster.migrate_slot(slot(&keys[0]), from, (from + 1) % 3, |_| {
        together();
        stages += 1;
    });
    assert_eq!(stages, keys.len() + 4);
    assert!(errors(cluster.node(from), "TRYAGAIN") > 0 && errors(cluster.node(from), "ASK") > 0);
    for key in &keys {
        assert_eq!(used(&limiter, key), stages + 1, "{key}");
    }
}

#[test]
fn a_shard_comes_back_with_its_replica() {
    let _shared = quiet::shared();
    let cluster = Cluster::start(Kind::Redis, 3, 1);
    let limiter = limiter(&cluster.url(), "400/hour fixed_window");
    let (here, elsewhere) = (keys_of_third(1, 20), [keys_of_third(0, 10), keys_of_third(2, 10)].concat());
    let (noise, load) =
        (Noise::watch(), Load::start(&limiter, &[here.clone(), elsewhere.clone()].concat(), 4));
    let is_here = |key: &str| here.iter().any(|known| known == key);
    load.until_stored(Duration::from_secs(5), is_here);
    cluster.kill_primary(1);
    cluster.wait_until_ok();
    let known = Instant::now();
    let back = load.until_stored(Duration::from_secs(5), is_here);
    let (made, noise) = (load.end(), noise.worst());
    let took = back - known;
    println!("back {took:?} after the cluster was, noise {noise:?}");
    assert!(took < Duration::from_secs(1) + noise, "back after {took:?}");
    let limit = Duration::from_millis(55) + noise;
    assert!(slowest(&made) <= limit, "slowest: {:?}", slowest(&made));
    assert!(most_admitted(&made) <= 800);
    let (here, elsewhere): (Vec<Made>, Vec<Made>) = made.into_iter().partition(|made| is_here(&made.key));
    assert!(here.iter().any(|made| made.source == Source::Deny));
    // A late answer is the machine's; anything else would be the dead shard's.
    for made in elsewhere.iter().filter(|made| made.source != Source::Store) {
        assert!(made.took() >= Duration::from_millis(50), "{made:?}");
    }
}

/// The 99th percentile of the times of a thousand decisions for these keys, one after the other, without the time for
/// which those who make them stood in line for a processor.
async fn p99(limiter: &Limiter, keys: &[String], line: &RunQueue) -> Duration {
    let mut times = Vec::with_capacity(1_000);
    for key in keys.iter().cycle().take(1_000) {
        let waited = line.waited();
        let start = Instant::now();
        let decision = limiter.check(key).await.unwrap();
        let took = start.elapsed();
        times.push(took.saturating_sub(line.waited().saturating_sub(waited)));
        assert_eq!(decision.source(), Source::Store, "{decision:?}");
    }
    times.sort_unstable();
    times[989]
}

#[test]
fn a_dead_primary_slows_no_other_shard() {
    const MOST_CYCLES: usize = 8;
    const ROUNDS: usize = 5;
    let _alone = quiet::alone();
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let limiter = limiter(&with(&cluster.url(), "deadline=500ms"), "1000000/hour fixed_window");
    let (dying, others) = (keys_of_third(1, 10), [keys_of_third(0, 10), keys_of_third(2, 10)].concat());
    let runtime = runtime();
    // On the same runtime, somebody keeps asking for what is gone.
    let asking = limiter.clone();
    runtime.spawn(async move {
        for key in dying.iter().cycle() {
            let _ = asking.check(key).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let line = RunQueue::of(&[cluster.node(0).pid(), cluster.node(2).pid()]);
    let measure = |rounds: &mut Vec<Duration>| {
        runtime.block_on(async {
            p99(&limiter, &others, &line).await;
            for _ in 0..ROUNDS {
                rounds.push(p99(&limiter, &others, &line).await);
            }
        });
    };
    // In turns, so that whatever else this machine does falls on both alike; and on, for as long as that could be the
    // reason. What a dead primary did to the others it would do in every turn.
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for cycle in 1..=MOST_CYCLES {
        measure(&mut before);
        cluster.kill_primary(1);
        measure(&mut after);
        if cycle > 1 && as_fast(&mut before, &mut after) {
            return;
        }
        cluster.node(1).restart(Dataset::Empty);
        cluster.wait_until_ok();
    }
    panic!("the other shards' p99 went up by more than 10 %");
}

/// Whether the times after are at most 10 % longer than those before, by their lower quartiles: the rounds in which the
/// machine did little else. How far the quartile before is from the median is noise.
fn as_fast(before: &mut [Duration], after: &mut [Duration]) -> bool {
    before.sort_unstable();
    after.sort_unstable();
    let quarter = before.len() / 4;
    let noise = before[2 * quarter].saturating_sub(before[quarter]);
    let (before, after) = (before[quarter], after[quarter]);
    println!("the other shards' p99: {before:?} before and {after:?} after, noise {noise:?}");
    after <= before.mul_f64(1.10) + noise
}

/// Then a node tells no host but its own port, and means the host that was asked.
#[test]
fn nodes_that_do_not_know_their_hosts() {
    let _shared = quiet::shared();
    let lines = ["cluster-preferred-endpoint-type unknown-endpoint"];
    let cluster = Cluster::start_with(Kind::Redis, 2, 0, &lines);
    let limiter = limiter(&with(&cluster.url(), "deadline=2s"), "10/hour fixed_window");
    let ask = || {
        let decision = runtime().block_on(limiter.check("user")).unwrap();
        assert_eq!((decision.source(), decision.degraded()), (Source::Store, None));
    };
    ask();
    let slot = slot("user");
    let from = cluster.owner_of(slot);
    cluster.migrate_slot(slot, from, 1 - from, |_| ask());
    ask();
}
