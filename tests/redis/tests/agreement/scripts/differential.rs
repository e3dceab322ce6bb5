//! Random operations on the memory store and on the script, which have to answer the same.
//!
//! `POLYLIMIT_DIFFERENTIAL_OPERATIONS` sets the number of operations, `POLYLIMIT_DIFFERENTIAL_SEED` the first case.

use polylimit::clock::ManualClock;
use polylimit::testing::script::{Item, Operation};
use polylimit::{Limiter, Policy, Quota, Request, blocking};
use polylimit_test_servers::redis::Connection;
use polylimit_test_servers::{Kind, Server};

use super::session::{Session, ask, connect};
use crate::generators::{Identity, Random, change_policy, random_policy};

/// Mostly checks.
const OPERATIONS: [Operation; 10] = [
    Operation::Check,
    Operation::Check,
    Operation::Check,
    Operation::Check,
    Operation::Peek,
    Operation::Take,
    Operation::Take,
    Operation::Charge,
    Operation::Refund,
    Operation::Refund,
];

const KEYS: [&str; 3] = ["a", "b", "c"];

struct Case<'a> {
    seed: u64,
    random: Random,
    clock: ManualClock,
    /// One for each key: a limiter of several keys may drop a state that has run out, which would count again when the
    /// clock goes back.
    memory: [blocking::Limiter; KEYS.len()],
    redis: Session<'a>,
    policy: Policy,
    /// The clock goes back no further.
    floor_us: u64,
    log: Vec<String>,
}

impl<'a> Case<'a> {
    fn new(connection: &'a mut Connection, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let policy = random_policy("p", &mut random);
        let near_epoch = random.once_in(20);
        let now_us = if near_epoch {
            random.below(10_000_000)
        } else {
            1_789_948_800_000_000 + random.below(10_u64.pow(13))
        };
        let clock = ManualClock::new(now_us).unwrap();
        let limiter =
            || Limiter::builder().max_keys(1_000).clock(clock.clone()).policy(policy.clone()).build();
        let memory = KEYS.map(|_| limiter().unwrap().blocking());
        let redis = Session::new(connection, &policy);
        let log = vec![policy.to_string()];
        Self { seed, random, clock, memory, redis, policy, floor_us: 0, log }
    }

    fn key(&self, key: &str) -> Vec<u8> {
        format!("d{}:{{{key}}}", self.seed).into_bytes()
    }

    fn move_clock(&mut self) {
        let quotas = self.policy.quotas();
        let period = u64::try_from(self.random.pick(quotas).period().as_micros()).unwrap();
        let now = self.clock.now_us();
        let part = self.random.pick(&[0, 0, 0, 1, period / 97, period / 10, period / 3, period, period + 1]);
        let mut then = now + if self.random.once_in(12) { self.random.below(period * 2) } else { part };
        if self.random.once_in(12) {
            let back = self.random.pick(&[1, 5, period / 7, period, 3 * period, 3_600_000_000]);
            then = now.saturating_sub(back).max(self.floor_us);
        }
        self.clock.set(then.min(ManualClock::MAX_US)).unwrap();
    }

    fn cost(&mut self, operation: Operation) -> u64 {
        let quotas = self.policy.quotas();
        let capacity = self.random.pick(quotas).capacity();
        let least = quotas.iter().map(Quota::capacity).min().unwrap();
        let large = if operation == Operation::Charge { 5 * capacity + 1 } else { least };
        let costs = [0, 1, 1, 1, 2, 3, capacity / 2, capacity, capacity + 1, capacity / 3, large, least / 2];
        self.random.pick(&costs).min(Request::MAX_COST)
    }

    fn step(&mut self) -> usize {
        self.move_clock();
        let entries = if self.random.once_in(3) { 1 + self.random.below(6) } else { 1 };
        let chosen: Vec<(&str, Operation, u64, u16)> = (0..entries)
            .map(|_| {
                let operation = self.random.pick(&OPERATIONS);
                let operation = if self.random.once_in(40) { Operation::Reset } else { operation };
                let coalesces = operation == Operation::Check
                    && self.redis.script.can_coalesce()
                    && self.random.once_in(3);
                let count = if coalesces { 1 + self.random.below(12) } else { 1 };
                (self.random.pick(&KEYS), operation, self.cost(operation), u16::try_from(count).unwrap())
            })
            .collect();
        self.apply(&chosen)
    }

    fn apply(&mut self, chosen: &[(&str, Operation, u64, u16)]) -> usize {
        let now_us = self.clock.now_us();
        self.log.push(format!("{now_us} {chosen:?}"));
        let keys: Vec<Vec<u8>> = chosen.iter().map(|(key, ..)| self.key(key)).collect();
        let items: Vec<Item<'_>> = keys
            .iter()
            .zip(chosen)
            .map(|(key, &(_, operation, cost, count))| (key.as_slice(), operation, cost, count))
            .collect();
        let (_, got) = self.redis.run(Some(now_us), &items);
        let mut expected = Vec::new();
        for &(key, operation, cost, count) in chosen {
            let memory = &self.memory[KEYS.iter().position(|known| *known == key).unwrap()];
            for _ in 0..count {
                expected.push(ask(memory, Request::new(key).cost(cost), operation));
            }
        }
        assert!(
            got == expected,
            "seed {}: got {got:?}\nexpected {expected:?}\nafter {:#?}",
            self.seed,
            self.log
        );
        assert_eq!(self.redis.healed, 0, "seed {}", self.seed);
        expected.len()
    }

    /// Changes the numbers.
    fn change(&mut self, known: &mut Vec<Identity>) {
        let policy = change_policy(&self.policy, known, &mut self.random);
        let now_us = self.clock.now_us();
        self.log.push(format!("{now_us} change to {policy}"));
        for memory in &self.memory {
            memory.asynchronous().set_policy(policy.clone()).unwrap();
        }
        self.redis.script.change(&policy, now_us);
        self.policy = policy;
        self.floor_us = now_us;
    }
}

fn run(connection: &mut Connection, seed: u64) -> usize {
    let mut case = Case::new(connection, seed);
    let steps = case.random.pick(&[20, 40, 80]);
    let changes = !seed.is_multiple_of(3);
    let (mut done, mut known) = (0, Vec::new());
    for _ in 0..steps {
        if changes && case.random.once_in(10) {
            case.change(&mut known);
        }
        done += case.step();
    }
    done
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn script_answers_random_operations_as_memory_store_does() {
    let (operations, mut seed) =
        (number("POLYLIMIT_DIFFERENTIAL_OPERATIONS", 20_000), number("POLYLIMIT_DIFFERENTIAL_SEED", 1));
    let server = Server::start(Kind::Redis, &[]);
    let mut connection = connect(&server);
    let mut done = 0;
    while done < operations {
        done += run(&mut connection, seed) as u64;
        seed += 1;
        if seed.is_multiple_of(500) {
            server.command(&["FLUSHALL"]);
        }
    }
}
