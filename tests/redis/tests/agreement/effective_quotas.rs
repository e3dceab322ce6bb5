//! Keys of one policy that are decided by changing quotas get identical answers from the memory store and every kind of server.

use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::quota::Algorithm;
use polylimit::raw::{Answer, Call, ReservationTerms};
use polylimit::reservation::ReservationId;
use polylimit::storage::Outage;
use polylimit::testing::limiter::KeyQuotas;
use polylimit::{Limiter, Policy, Request, blocking};

use super::generators::{
    Identity, Random, change_policy, random_headroom, random_policy, with_random_penalty,
};
use super::servers::Servers;

const KEYS: [&str; 2] = ["a", "b"];
const STORES: [&str; 3] = ["Redis", "Valkey", "the cluster"];
const STEPS: usize = 100;

/// A limiter with all sets of quotas of its policy, as its store has prepared them.
struct Prepared {
    limiter: blocking::Limiter,
    prepared: Vec<KeyQuotas>,
}

impl Prepared {
    fn new(limiter: &Limiter, sets: &[Policy]) -> Self {
        let limiter = limiter.blocking();
        let prepared = sets.iter().map(|set| limiter.prepare_quotas(set, sets).unwrap()).collect();
        Self { limiter, prepared }
    }

    fn answer(&self, call: &Call<'_>, set: usize) -> Answer {
        self.limiter.call_by(call, &self.prepared[set]).unwrap().unwrap()
    }
}

/// Several sets of quotas of one policy, which share quotas but for their limits.
fn random_sets(random: &mut Random) -> Vec<Policy> {
    let mut known: Vec<Identity> = Vec::new();
    let mut sets = vec![random_policy("p", random)];
    while sets.len() < 4 {
        let set = change_policy(&random.pick(sets.as_slice()), &mut known, random);
        sets.push(set);
    }
    // The memory store forgets under which limit a stepped bucket was written that a limit of 0 has kept since.
    let is_kept = |set: &Policy| {
        let mut quotas = set.quotas().iter();
        !quotas.any(|quota| quota.step().is_some() && quota.limit() == 0)
    };
    if !sets.iter().all(is_kept) {
        return random_sets(random);
    }
    // All sets of a policy have its penalty.
    let seed = random.below(u64::MAX);
    sets.into_iter().map(|set| with_random_penalty(set, &mut Random::new(seed))).collect()
}

fn random_call(random: &mut Random, set: &Policy, key: &'static str) -> Call<'static> {
    let capacity = random.pick(set.quotas()).capacity();
    let cost = random.pick(&[0, 1, 1, 1, 2, 3, capacity / 3, capacity, capacity + 1]).min(Request::MAX_COST);
    let request = Request::new(key).policy("p").cost(cost).headroom(random_headroom(random));
    let id = ReservationId::new(random.pick(&["x", "y", "z"])).unwrap();
    let ttl = random.pick(&[Duration::from_millis(1), Duration::from_secs(1), Duration::from_secs(3_600)]);
    let remember = random.pick(&[Duration::ZERO, Duration::from_secs(1)]);
    let terms = ReservationTerms { id, ttl, timeout: Duration::ZERO, remember };
    let is_queue = set.quotas().iter().any(|quota| quota.algorithm() == Algorithm::LeakyBucket);
    match random.below(24) {
        0 => Call::Reset(request),
        1 => Call::Block(request, random.pick(&[Duration::ZERO, Duration::from_secs(1)])),
        2 | 3 => Call::Peek(request),
        4..=6 => Call::Take(request),
        7 => Call::Charge(request),
        8 | 9 => Call::Refund(request),
        10..=12 if !is_queue => Call::Reserve(request, terms),
        13 if !is_queue => Call::Commit(request, id, random.pick(&[None, Some(1)])),
        14 if !is_queue => Call::Cancel(request, id),
        _ => Call::Check(request),
    }
}

fn run(servers: &Servers, seed: u64) {
    let mut random = Random::new(seed);
    let sets = random_sets(&mut random);
    let clock = ManualClock::new(1_700_000_000_000_000 + random.below(1 << 43)).unwrap();
    let builder = || {
        // Reservations of the policy are refused only where its own quotas have a queue.
        Limiter::builder().clock(clock.clone()).policy(Policy::parse("p", "1/s").unwrap())
    };
    let memory = KEYS.map(|_| Prepared::new(&builder().max_keys(1_000).build().unwrap(), &sets));
    let stores = servers.urls().map(|url| {
        let builder = builder().store(&format!("{url}&prefix=numbers{seed}")).outage("p", Outage::Deny);
        Prepared::new(&builder.build().unwrap(), &sets)
    });
    let mut log: Vec<String> = sets.iter().map(|set| format!("{set:?}")).collect();
    for _ in 0..STEPS {
        let now_us = clock.now_us();
        let (key, set) = (random.pick(&[0, 1]), random.pick(&[0, 1, 2, 3]));
        let period_us = u64::try_from(random.pick(sets[set].quotas()).period().as_micros()).unwrap();
        let then_us = match random.below(12) {
            0 => now_us + period_us / random.pick(&[2, 3, 7, 10, 97]),
            1 => now_us + period_us,
            2 => now_us + random.below(2 * period_us),
            3 => now_us - random.pick(&[1, 5, period_us / 7, period_us]).min(1 << 40),
            4 => {
                let peek = Call::Peek(Request::new(KEYS[key]).policy("p"));
                let Answer::Decision(decision) = memory[key].answer(&peek, set) else { unreachable!() };
                now_us + decision.retry_after_us().unwrap_or(0)
            }
            _ => now_us,
        };
        clock.set(then_us.min(ManualClock::MAX_US)).unwrap();
        let call = random_call(&mut random, &sets[set], KEYS[key]);
        log.push(format!("{then_us} set {set} of {key}: {call:?}"));
        let expected = memory[key].answer(&call, set);
        for (store, name) in stores.iter().zip(STORES) {
            let answer = store.answer(&call, set);
            assert!(
                answer == expected,
                "case {seed}: {name} answers {answer:#?}, expected is {expected:#?}, after {log:#?}"
            );
        }
    }
    for store in &stores {
        let counters = store.limiter.asynchronous().stats();
        assert_eq!((counters.healed, counters.unknown, counters.permanent), (0, 0, 0));
    }
}

#[test]
fn keys_with_changing_numbers_get_identical_answers() {
    let servers = Servers::start();
    let seed = std::env::var("POLYLIMIT_AGREEMENT_SEED").map_or(1, |text| text.parse().unwrap());
    let cases = std::env::var("POLYLIMIT_NUMBERS_CASES").map_or(120, |text| text.parse().unwrap());
    for case in seed..seed + cases {
        run(&servers, case);
        if case.is_multiple_of(50) {
            servers.flush();
        }
    }
}
