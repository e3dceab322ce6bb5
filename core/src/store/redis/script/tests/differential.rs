//! Random operations on the memory store and on the script, which have to answer the same.

use crate::rules::transition::Operation;
use crate::store::redis::call::Entry;
use crate::store::redis::script::tests::policies::{changed, random_policy};
use crate::store::redis::script::tests::random::Random;
use crate::store::redis::script::tests::server::{Connection, Server};
use crate::store::redis::script::tests::session::{Session, ask};
use crate::store::request::Action;
use crate::{Limiter, ManualClock, Policy, Request, blocking};

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
    /// One for each key, so that none is cleaned up while another is used: what has run out counts again when the clock
    /// goes back, as long as it is kept.
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
        let policy = random_policy(&mut random);
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
        let period = self.random.pick(&quotas.iter().collect::<Vec<_>>()).period_us();
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
        let quotas: Vec<_> = self.policy.quotas().iter().collect();
        let capacity = self.random.pick(&quotas).capacity();
        let least = quotas.iter().map(|quota| quota.capacity()).min().unwrap();
        let large = if operation == Operation::Charge { 5 * capacity + 1 } else { least };
        self.random.pick(&[
            0,
            1,
            1,
            1,
            2,
            3,
            capacity / 2,
            capacity,
            capacity + 1,
            capacity / 3,
            large,
            least / 2,
        ])
    }

    fn step(&mut self) -> usize {
        self.move_clock();
        let entries = if self.random.once_in(3) { 1 + self.random.below(6) } else { 1 };
        let chosen: Vec<(&str, Action, u64, u16)> = (0..entries)
            .map(|_| {
                let operation = self.random.pick(&OPERATIONS);
                let action = if self.random.once_in(40) { Action::Reset } else { Action::Apply(operation) };
                let counts = action == Action::Apply(Operation::Check)
                    && self.redis.call.counts()
                    && self.random.once_in(3);
                let count = if counts { 1 + self.random.below(12) } else { 1 };
                (self.random.pick(&KEYS), action, self.cost(operation), u16::try_from(count).unwrap())
            })
            .collect();
        self.apply(&chosen)
    }

    fn apply(&mut self, chosen: &[(&str, Action, u64, u16)]) -> usize {
        let now_us = self.clock.now_us();
        self.log.push(format!("{now_us} {chosen:?}"));
        let keys: Vec<Vec<u8>> = chosen.iter().map(|(key, ..)| self.key(key)).collect();
        let entries: Vec<Entry<'_>> = keys
            .iter()
            .zip(chosen)
            .map(|(key, &(_, action, cost, count))| Entry { key, action, cost, count })
            .collect();
        let got = self.redis.run(Some(now_us), &entries);
        let mut expected = Vec::new();
        for &(key, action, cost, count) in chosen {
            let memory = &self.memory[KEYS.iter().position(|known| *known == key).unwrap()];
            for _ in 0..count {
                expected.push(ask(memory, Request::new(key).cost(cost), action));
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
    fn change(&mut self, known: &mut Vec<crate::store::redis::script::tests::policies::Identity>) {
        let policy = changed(&self.policy, known, &mut self.random);
        let now_us = self.clock.now_us();
        self.log.push(format!("{now_us} change to {policy}"));
        for memory in &self.memory {
            memory.asynchronous().set_policy(policy.clone()).unwrap();
        }
        self.redis.change(&policy, now_us);
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
fn the_script_answers_as_the_memory_store() {
    let (operations, mut seed) =
        (number("POLYLIMIT_DIFFERENTIAL_OPERATIONS", 20_000), number("POLYLIMIT_DIFFERENTIAL_SEED", 1));
    let server = Server::start();
    let mut connection = server.connect();
    let mut done = 0;
    while done < operations {
        done += run(&mut connection, seed) as u64;
        seed += 1;
        if seed.is_multiple_of(500) {
            connection.command(&[b"FLUSHALL"]);
        }
    }
}
