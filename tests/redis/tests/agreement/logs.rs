//! Sliding logs that are longer than those of the random operations elsewhere, and malformed ones: scripts, and scripts and module that take
//! turns, give the same answers and leave the same bytes.

use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy, Request, blocking};
use polylimit_test_servers::{Kind, Server};

use super::generators::Random;
use super::servers::generous;

const NOW_US: u64 = 1_790_000_000_000_000;
const LOG: &str = "polylimit:1:logged:{user}:log:10000000";

struct Pair {
    scripts: Server,
    module: Server,
    clock: ManualClock,
    /// Of scripts alone, and those that take turns.
    limiters: [Vec<blocking::Limiter>; 2],
    random: Random,
}

fn policy(limit: u64) -> Policy {
    Policy::parse(
        "logged",
        &format!("{limit}/10s sliding_log count_denied; 9_999_999/h; 2_000/9s sliding_log"),
    )
    .unwrap()
}

impl Pair {
    fn start(seed: u64) -> Self {
        let (scripts, module) =
            (Server::start(Kind::Redis, &[]), Server::options(Kind::Redis).module().start());
        let clock = ManualClock::new(NOW_US).unwrap();
        let limiter = |server: &Server, module: bool| {
            let url = format!("{}&module={module}", generous(&server.url()));
            let builder = Limiter::builder().store(&url).clock(clock.clone()).policy(policy(1_500));
            builder.outage("logged", Outage::Deny).build().unwrap().blocking()
        };
        let limiters =
            [vec![limiter(&scripts, false)], vec![limiter(&module, true), limiter(&module, false)]];
        Self { scripts, module, clock, limiters, random: Random::new(seed) }
    }

    /// Performs an operation everywhere. Returns whether a check was admitted.
    fn perform(&mut self, operation: u64, cost: u64) -> bool {
        let request = Request::new("user").cost(cost);
        let answer = |limiter: &blocking::Limiter| match operation {
            0 => (limiter.refund(request).ok(), None),
            1 => (limiter.charge(request).ok(), None),
            2 => (limiter.take(request).ok(), None),
            3 => (None, limiter.peek(request).ok()),
            _ => (None, limiter.check(request).ok()),
        };
        let turn = usize::from(self.random.once_in(2));
        let [expected, found] = [answer(&self.limiters[0][0]), answer(&self.limiters[1][turn])];
        assert_eq!(found, expected, "operation {operation} of {cost} with limiter {turn}");
        expected.1.is_some_and(|decision| decision.allowed())
    }

    fn logs(&self) -> [Option<Vec<u8>>; 2] {
        [&self.scripts, &self.module].map(|server| server.query(&["GET", LOG]))
    }

    fn assert_same(&self) -> usize {
        let [scripts, module] = self.logs();
        assert!(scripts == module, "scripts have left {scripts:02x?}, with the module it is {module:02x?}");
        scripts.map_or(0, |value| value.len())
    }

    fn store(&self, log: &[u8]) {
        for server in [&self.scripts, &self.module] {
            server.command(&[b"SET", LOG.as_bytes(), log]);
        }
    }

    fn change(&self, limit: u64) {
        for limiter in self.limiters.iter().flatten() {
            limiter.asynchronous().set_policy(policy(limit)).unwrap();
        }
    }
}

/// A log with entries of one unit, the newest of which is from now; some may have expired.
fn log(entries: usize, width: usize, now_us: u64, random: &mut Random) -> Vec<u8> {
    let bytes = |number: u64, length: usize| number.to_be_bytes()[8 - length..].to_vec();
    let gap_us = random.pick(&[10_u64, 5_000, 9_000_000]);
    let origin_us = now_us - gap_us * entries as u64;
    let before = random.pick(&[0, 7, u64::MAX]);
    let mut value = [bytes(origin_us, 7), bytes(width as u64, 1), bytes(before, width)].concat();
    for at in 1..=entries as u64 {
        value.extend([bytes(at * gap_us, 6), bytes(before.wrapping_add(at), width)].concat());
    }
    value
}

#[test]
fn long_logs_have_the_same_bytes_with_scripts_and_module() {
    let mut pair = Pair::start(1);
    let (mut longest, mut admitted) = (0, 0);
    for step in 0..1_500_usize {
        if step % 150 == 0 {
            // Totals get more bytes with the largest limit.
            pair.change([2_000, 400_000_000, 1_200, 20][step / 150 % 4]);
            let value = log(900, 4, pair.clock.now_us(), &mut pair.random);
            pair.store(&value);
        }
        let operation = if pair.random.once_in(8) { pair.random.below(4) } else { 4 };
        let cost = pair.random.pick(&[0, 1, 1, 1, 1, 1, 1, 2, 3]);
        admitted += u64::from(pair.perform(operation, cost));
        let now_us = pair.clock.now_us();
        let next_us = match pair.random.below(100) {
            0 => now_us - pair.random.pick(&[1, 30_000, 2_000_000]),
            1 => now_us + pair.random.pick(&[1_000_000, 4_000_000]),
            2..30 => now_us,
            _ => now_us + pair.random.pick(&[1, 4_000, 5_000]),
        };
        pair.clock.set(next_us).unwrap();
        longest = longest.max(pair.assert_same());
    }
    assert!(longest > 2 * 4_096 && admitted > 500, "{longest} {admitted}");
    let modules: u64 =
        pair.limiters[1].iter().map(|limiter| limiter.asynchronous().stats().module_calls).sum();
    assert!(modules > 500, "{modules}");
}

#[test]
fn malformed_logs_are_replaced_by_the_same_bytes() {
    let mut pair = Pair::start(2);
    for _ in 0..400 {
        let (entries, width) = (pair.random.pick(&[1, 3, 20, 500]), pair.random.pick(&[4, 6]));
        let mut value = log(entries, width, pair.clock.now_us(), &mut pair.random);
        match pair.random.below(5) {
            0 => value.truncate(1 + pair.random.index(value.len())),
            1 => value.push(7),
            _ => {
                for _ in 0..=pair.random.below(2) {
                    let within = if pair.random.once_in(2) { 12 } else { value.len() };
                    let at = pair.random.index(within);
                    value[at] = pair.random.pick(&[0, 1, 4, 6, 127, 255]);
                }
            }
        }
        pair.store(&value);
        for _ in 0..3 {
            let (operation, cost) = (pair.random.below(6), pair.random.pick(&[0, 1, 5, 900]));
            pair.perform(operation, cost);
            pair.assert_same();
            pair.clock.advance(Duration::from_micros(pair.random.pick(&[0, 1, 3_000]))).unwrap();
        }
    }
    let healed = pair.limiters[0][0].asynchronous().stats().healed;
    assert!(healed > 60, "{healed}");
}
