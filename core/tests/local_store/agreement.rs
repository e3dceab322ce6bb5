//! Random operations on the local store and the memory store give identical answers.

use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::decision::Usage;
use polylimit::{Decision, Error, Policy, Request, blocking};

use super::{Store, times};

/// Each row is a policy that changes between these quotas.
const POLICIES: [&[&str]; 7] = [
    &["5/m token_bucket", "7/m token_bucket burst=20", "999983/m token_bucket", "0/m token_bucket"],
    &["10/m token_bucket step=5", "20/m token_bucket step=5 burst=40", "5/m token_bucket step=5"],
    &["5/m fixed_window", "9/m fixed_window", "9/m fixed_window aligned", "0/m fixed_window"],
    &[
        "9/day zone=Europe/Berlin",
        "90/day zone=Europe/Berlin",
        "9/month from=31 count_denied",
        "9/week from=sunday zone=+05:30",
    ],
    &["6/m", "60/m", "0/m", "6/m count_denied", "1000000/m"],
    &["5/m sliding_log", "50/m sliding_log", "0/m sliding_log", "1000000000000/m sliding_log"],
    &[
        "5/m leaky_bucket; 7/h; 9/day fixed_window aligned; 4/m sliding_log; 6/h sliding_log",
        "5/m leaky_bucket; 70/h; 3/m sliding_log",
        "50/m leaky_bucket; 6/h sliding_log; 9/day fixed_window aligned",
    ],
];

#[derive(Debug, PartialEq)]
enum Answer {
    Decision(Decision),
    Usage(Usage),
}

/// xorshift64 (Marsaglia 2003).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn random_operations_agree_with_the_memory_store() {
    let operations = times("POLYLIMIT_LOCAL_OPERATIONS", 60_000);
    let mut random = Random(times("POLYLIMIT_LOCAL_SEED", 88_172_645_463_325_252));
    let store = Store::new();
    let each = operations / POLICIES.len() as u64;
    for (row, policies) in POLICIES.iter().enumerate() {
        let clock = ManualClock::new(1_790_000_000_000_000).unwrap();
        let name = format!("p{row}");
        let parse = |quotas: &str| Policy::parse(&name, quotas).unwrap();
        let local =
            store.builder("1/s").policy(parse(policies[0])).clock(clock.clone()).build().unwrap().blocking();
        let memory = polylimit::Limiter::builder().policy(Policy::parse("test", "1/s").unwrap());
        let memory = memory.policy(parse(policies[0])).clock(clock.clone()).build().unwrap().blocking();
        // A store may drop states that expired before a change or more than a second ago, so the clock goes back to neither.
        let mut floor_us = 0;
        for number in 0..each {
            advance(&clock, &mut random, floor_us);
            floor_us = floor_us.max(clock.now_us().saturating_sub(900_000));
            if random.below(200) == 0 {
                floor_us = clock.now_us();
                let policy = parse(policies[usize::try_from(random.below(policies.len() as u64)).unwrap()]);
                local.asynchronous().set_policy(policy.clone()).unwrap();
                memory.asynchronous().set_policy(policy).unwrap();
                // Every key is written after the change, since the stores differ in how they treat numbers that a key never had.
                for key in 0..KEYS {
                    let key = key_of(key);
                    let request = Request::new(&key).policy(&name);
                    assert_eq!(apply(&local, 12, request), apply(&memory, 12, request));
                }
            }
            let key = key_of(random.below(KEYS));
            let cost = [1, 1, 1, 2, 3, 5, 8, 40, 0][usize::try_from(random.below(9)).unwrap()];
            let request = Request::new(&key).policy(&name).cost(cost);
            let operation = random.below(16);
            let answers = [&local, &memory].map(|limiter| apply(limiter, operation, request));
            assert_eq!(answers[0], answers[1], "{name}, operation {number} ({operation}) of {cost} on {key}");
        }
    }
    println!("{operations} operations agree");
}

const KEYS: u64 = 40;

/// Some keys are long, so that the store keeps a digest.
fn key_of(number: u64) -> String {
    let key = number.to_string();
    if number.is_multiple_of(8) { key.repeat(100) } else { key }
}

fn apply(limiter: &blocking::Limiter, operation: u64, request: Request<'_>) -> Result<Answer, Error> {
    match operation {
        0..=8 => limiter.check(request).map(Answer::Decision),
        9 | 10 => limiter.peek(request).map(Answer::Decision),
        11 => limiter.take(request).map(Answer::Usage),
        12 => limiter.charge(request).map(Answer::Usage),
        13 | 14 => limiter.refund(request).map(Answer::Usage),
        _ => limiter.reset(request).map(Answer::Usage),
    }
}

fn advance(clock: &ManualClock, random: &mut Random, floor_us: u64) {
    match random.below(100) {
        0 => clock.set(clock.now_us().saturating_sub(random.below(1_000_000)).max(floor_us)).unwrap(),
        1 => clock.advance(Duration::from_secs(random.below(100_000))).unwrap(),
        2..40 => clock.advance(Duration::from_micros(random.below(2_000_000))).unwrap(),
        _ => {}
    }
}
