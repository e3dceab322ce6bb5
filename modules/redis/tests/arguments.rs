//! Commands with arguments and values of every kind: each is decided or refused, and none ends the server.
#![allow(clippy::unwrap_used, reason = "a list that is not empty has an element")]

use std::collections::BTreeMap;
use std::ops::Range;

use fastrand::Rng;
use polylimit_redis::by_hand;
use polylimit_redis::call::Call;
use polylimit_redis::keyspace::{Change, Effect, Found, Keyspace};
use polylimit_redis::policies::Policies;
use polylimit_rules::units::MAX_US;

const POLICIES: [&str; 13] = [
    "10/s token_bucket",
    "1000000000000/366d token_bucket burst=1000000000000",
    "10/minute token_bucket step=5; 7/h",
    "5/m fixed_window aligned count_denied; 9/day leaky_bucket",
    "3 concurrent; 20/m token_bucket",
    "5/s\npenalty 2 1000000 60000000 3600000000 5000000",
    "999983/day token_bucket\npast 1790000000000000 10/day token_bucket\npast 1790000000000001 0/day token_bucket",
    "10/m token_bucket step=2; 0/s\nnow",
    "5/month; 9/day zone=Europe/Berlin count_denied\nwindow 1788220800000000 1790812800000000\nwindow 1789941600000000 1790028000000000",
    "20/week from=sunday; 7/h sliding_log",
    "5/s sliding_log",
    "300/day sliding_log count_denied; 7/m; 0/h sliding_log; 1000000000000/h sliding_log excess=50%\nlogs 1000 5000000",
    "3 concurrent; 20/m sliding_log\npenalty 2 1000000 60000000 3600000000 5000000\nlogs 9",
];

/// The most keys of an entry, where most values are changed.
const MOST_KEYS: usize = 6;

/// The keys of a server, of which one has another type.
#[derive(Default)]
struct Memory {
    values: BTreeMap<usize, Vec<u8>>,
    foreign: Option<usize>,
}

impl Memory {
    fn found(&self, key: usize) -> Found<'_> {
        match self.values.get(&key) {
            _ if self.foreign == Some(key) => Found::Foreign,
            Some(value) => Found::String(value),
            None => Found::Nothing,
        }
    }

    fn apply(&mut self, key: usize, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Delete => drop(self.values.remove(&key)),
            Change::Overwrite(bytes) => {
                assert_eq!(self.values.get(&key).map(Vec::len), Some(bytes.len()));
                self.values.insert(key, bytes.into_vec());
            }
            Change::Set(bytes, _) => drop(self.values.insert(key, bytes.into_vec())),
            Change::Write(at, bytes, _) => {
                let value = self.values.get_mut(&key).unwrap();
                assert!(at <= value.len());
                value.resize(value.len().max(at + bytes.len()), 0);
                value[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }
}

impl Keyspace for Memory {
    fn update(&mut self, key: usize, decide: &mut dyn FnMut(Found<'_>) -> Effect) {
        let change = decide(self.found(key)).change;
        self.apply(key, change);
    }

    fn update_together(&mut self, keys: Range<usize>, decide: &mut dyn FnMut(&[Found<'_>]) -> Vec<Effect>) {
        let found: Vec<_> = keys.clone().map(|key| self.found(key)).collect();
        let effects = decide(&found);
        // Nothing happens, or something to each.
        assert!(effects.is_empty() || effects.len() == found.len());
        for (key, Effect { change, .. }) in keys.zip(effects) {
            self.apply(key, change);
        }
    }
}

fn bytes(random: &mut Rng, longest: usize) -> Vec<u8> {
    (0..random.usize(..=longest)).map(|_| random.u8(..)).collect()
}

/// The arguments of a call that a client may send, for this number of keys.
fn call(random: &mut Rng, keys: usize) -> (Vec<u8>, Vec<u8>) {
    let number = |number: u64, bytes: usize| number.to_be_bytes()[8 - bytes..].to_vec();
    let mut call = [b"nonce1".to_vec(), number(0, 7)].concat();
    let mut holds = Vec::new();
    if keys == 1 && random.bool() {
        call.push(0);
        call.extend(number(random.u64(..20), 5));
        return (call, holds);
    }
    let range = 1 << random.u32(10..45);
    let now_us = 1_790_000_000_000_000 + random.u64(..range);
    call.push(1);
    call.extend(number(if random.bool() { now_us } else { u64::MAX }, 7));
    call.push(random.u8(..8));
    call.extend(number(keys as u64, 2));
    for _ in 0..keys {
        let (code, headroom) = (random.u8(..=10), random.u8(..100));
        let has_headroom = random.u8(..4) == 0;
        let cost = random.u64(..=1_000_000_000_000) >> random.u32(..41);
        let count = if code == 0 { random.u16(1..20) } else { 1 };
        call.push(code + if has_headroom { 16 } else { 0 });
        call.extend(number(cost, 5));
        call.extend(number(
            u64::from(if has_headroom { u16::from(headroom) << 9 | count } else { count }),
            2,
        ));
        if code >= 6 {
            let id = vec![b'x'; random.usize(1..=64)];
            holds.extend(number(random.u64(..86_400_000_000) >> random.u32(..40), 6));
            holds.extend(number(random.u64(..1_000_000_000) >> random.u32(..30), 5));
            holds.extend(number(id.len() as u64, 1));
            holds.extend(id);
        }
    }
    (call, holds)
}

fn change(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.usize(..3) {
        let at = random.usize(..=bytes.len());
        match random.u8(..3) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.u8(..)),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.u8(..)),
        }
    }
}

#[test]
fn calls_of_any_bytes_are_decided_or_refused() {
    let mut random = Rng::with_seed(17);
    let mut policies = Policies::default();
    let (mut decided, mut refused) = (0, 0);
    let mut memory = Memory::default();
    for _ in 0..30_000 {
        if random.u8(..20) == 0 {
            memory =
                Memory { foreign: random.bool().then(|| random.usize(..MOST_KEYS)), ..Memory::default() };
        }
        let entries = random.usize(1..=4);
        let mut text = random.choice(POLICIES).unwrap().as_bytes().to_vec();
        let (mut call, mut holds) = call(&mut random, entries);
        match random.u8(..8) {
            0 => change(&mut random, &mut text),
            1 => change(&mut random, &mut call),
            2 => change(&mut random, &mut holds),
            3 => {
                let key = random.usize(..MOST_KEYS);
                let mut value = memory.values.remove(&key).unwrap_or_else(|| bytes(&mut random, 80));
                change(&mut random, &mut value);
                memory.values.insert(key, value);
            }
            4 if random.u8(..4) == 0 => call = bytes(&mut random, 60),
            _ => {}
        }
        let Ok(policy) = policies.named(&text) else {
            refused += 1;
            continue;
        };
        let Ok(call) = Call::read(&call, &holds, entries) else {
            refused += 1;
            continue;
        };
        let mut reply = Vec::new();
        let server_us = if random.u8(..10) == 0 { random.u64(..=MAX_US) } else { 1_790_000_000_000_000 };
        call.decide(&policy, server_us, &mut memory, &mut reply);
        assert!((14..400_000).contains(&reply.len()), "{}", reply.len());
        decided += 1;
    }
    assert!(decided > 15_000 && refused > 1_500, "{decided} {refused}");
}

#[test]
fn commands_of_people_with_any_arguments_are_decided_or_refused() {
    let mut random = Rng::with_seed(18);
    let mut policies = Policies::default();
    let (mut decided, mut memory) = (0, Memory::default());
    let texts =
        ["0", "1", "2", "15", "60", "31622400", "999999999999", "1000000000000", "-1", "x", "", "1e3", "٣"];
    for _ in 0..30_000 {
        let now_us = random.u64(..=MAX_US);
        let mut argument = || {
            let mut text = random.choice(texts).unwrap().as_bytes().to_vec();
            if random.u8(..20) == 0 {
                change(&mut random, &mut text);
            }
            text
        };
        let (numbers, quantity) = ([argument(), argument(), argument()], argument());
        let quantity = random.bool().then_some(&quantity[..]);
        let numbers = [&numbers[0][..], &numbers[1], &numbers[2]];
        let throttled = by_hand::throttle(&mut policies, numbers, quantity, now_us, &mut memory);
        let quotas = random.choice(POLICIES).unwrap();
        let checked = by_hand::check(&mut policies, quotas.as_bytes(), quantity, now_us, &mut memory);
        decided += usize::from(throttled.is_ok()) + usize::from(checked.is_ok());
        if random.u8(..10) == 0 {
            memory.values.insert(0, bytes(&mut random, 40));
        } else if random.u8(..4) == 0 {
            memory = Memory { foreign: (random.u8(..10) == 0).then_some(0), ..Memory::default() };
        }
    }
    assert!(decided > 2_500, "{decided}");
}
