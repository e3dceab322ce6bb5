//! Random operations on the memory store and on every kind of server give identical answers, to the microsecond.
//!
//! `POLYLIMIT_AGREEMENT_OPERATIONS` is the number of operations, `POLYLIMIT_AGREEMENT_SEED` the number of the first case.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::decision::Usage;
use polylimit::quota::Algorithm;
use polylimit::raw::{Call, ReservationTerms};
use polylimit::reservation::ReservationId;
use polylimit::storage::Outage;
use polylimit::{Decision, Limiter, Policy, Quota, Request, blocking};
use polylimit_test_servers::Row;
use tokio::runtime::Runtime;

use super::generators::{
    Identity, Random, change_policy, random_headroom, random_policy, with_random_penalty, with_slots,
};
use super::servers::Servers;

const KEYS: [&str; 3] = ["a", "b", "c"];
/// One policy whose numbers change, and one that stays as it is.
const POLICIES: [&str; 2] = ["changing", "staying"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
    /// Also how long after its commit the id is remembered, in microseconds.
    Reserve(Terms, u64),
    Commit(u8, bool),
    Cancel(u8),
    Renew(Terms),
    /// For a time in microseconds.
    Block(u64),
}

/// The number of an id, and the time to live of a reservation in microseconds.
type Terms = (u8, u64);

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Decision(Decision),
    Usage(Usage),
}

/// The number of the key, the number of the policy, the cost, and the headroom.
type Arguments = (usize, usize, u64, u8);

fn request(&(key, policy, cost, headroom): &Arguments) -> Request<'static> {
    Request::new(KEYS[key]).policy(POLICIES[policy]).cost(cost).headroom(headroom)
}

struct Case<'a> {
    servers: &'a Servers,
    seed: u64,
    random: Random,
    clock: ManualClock,
    /// One limiter for each key and policy. In a shared one, another key would evict an expired state, which would count
    /// again if the clock went back.
    memory: [[blocking::Limiter; POLICIES.len()]; KEYS.len()],
    /// The limiters of each store, which take turns.
    stores: Vec<Vec<Limiter>>,
    runtime: &'a Runtime,
    policies: [Policy; 2],
    /// Whether the policies may have penalties.
    has_penalties: bool,
    known: Vec<Identity>,
    /// The numbers that the changing policy had before.
    past: Vec<Policy>,
    /// The clock never goes back beyond this time.
    floor_us: u64,
    log: Vec<String>,
}

impl<'a> Case<'a> {
    fn new(servers: &'a Servers, runtime: &'a Runtime, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let has_penalties = random.once_in(2);
        let policies = POLICIES.map(|name| {
            let policy = random_policy(name, &mut random);
            let policy = if random.once_in(4) { with_slots(policy, &mut random) } else { policy };
            if has_penalties { with_random_penalty(policy, &mut random) } else { policy }
        });
        let near_epoch = random.once_in(20);
        let now_us =
            if near_epoch { random.below(10_000_000) } else { 1_700_000_000_000_000 + random.below(1 << 43) };
        let clock = ManualClock::new(now_us).unwrap();
        let builder = || {
            let builder = Limiter::builder().clock(clock.clone());
            policies.iter().fold(builder, |builder, policy| builder.policy(policy.clone()))
        };
        let limiter = |url: &str, module: bool| {
            let url = format!("{url}&prefix=case{seed}&module={module}");
            let names = policies.iter().map(Policy::name);
            let builder = builder().store(&url);
            names.fold(builder, |builder, name| builder.outage(name, Outage::Deny)).build().unwrap()
        };
        let [redis, valkey, cluster, with_module] = servers.urls();
        let mut stores = [redis, valkey, cluster].map(|url| vec![limiter(&url, true)]).to_vec();
        stores.push(vec![limiter(&with_module, true), limiter(&with_module, false)]);
        Self {
            memory: KEYS.map(|_| POLICIES.map(|_| builder().max_keys(1_000).build().unwrap().blocking())),
            stores,
            servers,
            seed,
            log: policies.iter().map(|policy| format!("{policy:?}")).collect(),
            has_penalties,
            clock,
            random,
            runtime,
            policies,
            known: Vec::new(),
            past: Vec::new(),
            floor_us: 0,
        }
    }

    /// Moves the clock, mostly to a moment at which a decision changes, sometimes back.
    fn move_clock(&mut self) {
        let now_us = self.clock.now_us();
        let (key, policy) = (self.random.pick(&[0, 1, 2]), self.random.pick(&[0, 1]));
        let quota = self.random.pick(self.policies[policy].quotas());
        // Concurrency has no period; its reservations have.
        let period_us = u64::try_from(quota.period().as_micros()).unwrap().max(1_000_000);
        let peek =
            || self.memory[key][policy].peek(Request::new(KEYS[key]).policy(POLICIES[policy])).unwrap();
        let before = self.random.below(2);
        let then_us = match self.random.below(16) {
            0..=5 | 14 => now_us,
            6 => now_us + 1,
            7 => now_us + period_us / self.random.pick(&[2, 3, 7, 10, 97]),
            8 => now_us + period_us - before,
            9 => now_us + self.random.below(2 * period_us),
            10 | 11 => now_us.saturating_add(peek().retry_after_us().unwrap_or(0)).saturating_sub(before),
            12 => now_us.saturating_add(peek().reset_after_us()).saturating_sub(before),
            13 => {
                let width_us = period_us / u64::from(quota.buckets().unwrap_or(1));
                (now_us / width_us + 1) * width_us - before
            }
            _ => now_us.saturating_sub(self.random.pick(&[1, 5, period_us / 7, period_us, 3 * period_us])),
        };
        self.clock.set(then_us.clamp(self.floor_us, ManualClock::MAX_US)).unwrap();
    }

    fn arguments(&mut self, largest: u64) -> Arguments {
        let (key, policy) = (self.random.pick(&[0, 1, 2]), self.random.pick(&[0, 0, 1]));
        self.arguments_of(key, policy, largest)
    }

    fn arguments_of(&mut self, key: usize, policy: usize, largest: u64) -> Arguments {
        let quotas = self.policies[policy].quotas();
        let least = quotas.iter().map(polylimit::Quota::capacity).min().unwrap();
        let capacity = self.random.pick(quotas).capacity();
        let left = self.memory[key][policy]
            .peek(Request::new(KEYS[key]).policy(POLICIES[policy]))
            .unwrap()
            .remaining();
        let costs = [
            0,
            1,
            1,
            1,
            2,
            3,
            capacity / 3,
            capacity,
            capacity + 1,
            least,
            least / 2,
            left,
            left + 1,
            largest * capacity,
        ];
        let cost = self.random.pick(&costs).min(Request::MAX_COST);
        (key, policy, cost, random_headroom(&mut self.random))
    }

    /// An operation that the policy allows: slots are only ever reserved, and a leaky bucket cannot be.
    fn operation(&mut self, policy: usize) -> Operation {
        use Operation::{Block, Cancel, Charge, Check, Commit, Peek, Refund, Renew, Reserve, Reset, Take};
        if self.random.once_in(30) {
            return Reset;
        }
        if self.random.once_in(20) {
            return Block(self.random.pick(&[0, 1_000, 1_000_000, 60_000_000, 31_622_400_000_000]));
        }
        let has =
            |algorithm| self.policies[policy].quotas().iter().any(|quota| quota.algorithm() == algorithm);
        let (has_slots, has_queue) = (has(Algorithm::Concurrency), has(Algorithm::LeakyBucket));
        if has_slots || (!has_queue && self.random.once_in(3)) {
            let id = u8::try_from(self.random.below(6)).unwrap();
            let ttl_us = self.random.pick(&[1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]);
            let commits = self.random.once_in(3);
            let remember_us = self.random.pick(&[0, 0, 1_000, 60_000_000, 3_600_000_000]);
            let (reserve, renew) = (Reserve((id, ttl_us), remember_us), Renew((id, ttl_us)));
            return self.random.pick(&[
                reserve,
                reserve,
                reserve,
                reserve,
                Commit(id, commits),
                Commit(id, commits),
                Cancel(id),
                renew,
                Peek,
                Charge,
                Refund,
            ]);
        }
        self.random.pick(&[Check, Check, Check, Check, Peek, Take, Take, Charge, Refund, Refund])
    }

    /// An operation with its arguments.
    fn chosen(&mut self) -> (Operation, Arguments) {
        let (key, policy, ..) = self.arguments(1);
        let operation = self.operation(policy);
        let arguments = self.arguments_of(key, policy, if operation == Operation::Charge { 5 } else { 1 });
        (operation, arguments)
    }

    /// Moves the clock and performs operations; returns how many.
    fn step(&mut self) -> usize {
        self.move_clock();
        match self.random.below(4) {
            0 => {
                let chosen = self.chosen();
                self.perform(&[chosen])
            }
            1 => {
                let checks = 2 + self.random.below(40);
                let arguments: Vec<Arguments> = (0..checks).map(|_| self.arguments(1)).collect();
                let is_check = |(_, policy, ..): &Arguments| {
                    !self.policies[*policy]
                        .quotas()
                        .iter()
                        .any(|quota| quota.algorithm() == Algorithm::Concurrency)
                };
                let arguments: Vec<Arguments> = arguments.into_iter().filter(is_check).collect();
                self.check_many(&arguments)
            }
            _ => {
                // Concurrent operations have no order, so each has another key or policy.
                let mut performed: Vec<(Operation, Arguments)> = Vec::new();
                for _ in 0..8 {
                    let (operation, arguments) = self.chosen();
                    if !performed.iter().any(|(_, other)| (other.0, other.1) == (arguments.0, arguments.1)) {
                        performed.push((operation, arguments));
                    }
                }
                self.perform(&performed)
            }
        }
    }

    /// The limiter of each store whose turn it is.
    fn turns(&mut self) -> Vec<Limiter> {
        let Self { stores, random, .. } = self;
        stores.iter().map(|turns| random.pick(turns)).collect()
    }

    /// The values of all keys are the same with scripts alone and where they take turns with the module.
    fn assert_same_values(&self) {
        let [scripts, module] = self.servers.pair().map(|server| {
            let pattern = format!("case{}:*", self.seed);
            let mut keys: Vec<String> = server.query(&["KEYS", &pattern]);
            keys.sort_unstable();
            let value = |key: &String| server.query::<Option<Vec<u8>>>(&["GET", key]).map(canonical);
            keys.iter().map(|key| (key.clone(), value(key))).collect::<Vec<_>>()
        });
        assert!(
            scripts == module,
            "the scripts write {scripts:?}, with the module it is {module:?}, after {:#?}",
            self.log
        );
    }

    fn perform(&mut self, performed: &[(Operation, Arguments)]) -> usize {
        self.log.push(format!("{} {performed:?}", self.clock.now_us()));
        let expected: Vec<Answer> = performed
            .iter()
            .map(|(operation, arguments)| {
                blocking_answer(&self.memory[arguments.0][arguments.1], *operation, request(arguments))
            })
            .collect();
        if let [(operation, arguments)] = performed
            && self.random.once_in(2)
        {
            for (store, limiter) in self.turns().into_iter().enumerate() {
                let answer = blocking_answer(&limiter.blocking(), *operation, request(arguments));
                self.assert_same(store, &[answer], &expected);
            }
        } else {
            let turns = self.turns();
            let answers = turns.iter().flat_map(|limiter| {
                performed
                    .iter()
                    .map(move |(operation, arguments)| answer(limiter, *operation, request(arguments)))
            });
            let answers = self.runtime.block_on(all(answers));
            for (store, answers) in answers.chunks(performed.len()).enumerate() {
                self.assert_same(store, answers, &expected);
            }
        }
        performed.len()
    }

    fn check_many(&mut self, arguments: &[Arguments]) -> usize {
        self.log.push(format!("{} check_many {arguments:?}", self.clock.now_us()));
        let expected: Vec<Decision> = arguments
            .iter()
            .map(|arguments| self.memory[arguments.0][arguments.1].check(request(arguments)).unwrap())
            .collect();
        let blocking = self.random.once_in(2);
        let turns = self.turns();
        let answers = if blocking {
            let stores = turns.iter();
            stores.map(|limiter| limiter.blocking().check_many(arguments.iter().map(request))).collect()
        } else {
            let answers = turns.iter().map(|limiter| limiter.check_many(arguments.iter().map(request)));
            self.runtime.block_on(all(answers))
        };
        for (store, answers) in answers.into_iter().enumerate() {
            let answers: Vec<Decision> = answers.into_iter().map(Result::unwrap).collect();
            self.assert_same(store, &answers, &expected);
        }
        arguments.len()
    }

    fn assert_same<T: PartialEq + std::fmt::Debug>(&self, store: usize, answer: &[T], expected: &[T]) {
        let store = ["Redis", "Valkey", "the cluster", "Redis with the module"][store];
        assert!(
            answer == expected,
            "{store} answers {answer:#?}, expected is {expected:#?}, after {:#?}",
            self.log
        );
    }

    /// Changes the numbers of a policy.
    fn change(&mut self) {
        let policy = loop {
            let policy = change_policy(&self.policies[0], &mut self.known, &mut self.random);
            if !steps_return(&self.past, &self.policies[0], &policy) {
                break policy;
            }
        };
        let policy = if self.has_penalties { with_random_penalty(policy, &mut self.random) } else { policy };
        self.log.push(format!("{} change to {policy:?}", self.clock.now_us()));
        for limiter in self
            .memory
            .iter()
            .flatten()
            .map(blocking::Limiter::asynchronous)
            .chain(self.stores.iter().flatten())
        {
            limiter.set_policy(policy.clone()).unwrap();
        }
        self.past.push(std::mem::replace(&mut self.policies[0], policy));
        self.floor_us = self.clock.now_us();
    }
}

/// Whether a stepped bucket would get back a limit that it had before another one. A record in Redis names its limit alone, so it
/// cannot know that it ran out under the one in between (docs/limitations.md).
fn steps_return(past: &[Policy], before: &Policy, after: &Policy) -> bool {
    let has = |policy: &Policy, quota: &Quota| {
        policy.quotas().iter().any(|other| {
            (other.step(), other.period(), other.limit()) == (quota.step(), quota.period(), quota.limit())
        })
    };
    let mut stepped = after.quotas().iter().filter(|quota| quota.step().is_some());
    stepped.any(|quota| !has(before, quota) && past.iter().any(|policy| has(policy, quota)))
}

fn blocking_answer(limiter: &blocking::Limiter, operation: Operation, request: Request<'_>) -> Answer {
    match operation {
        Operation::Check => limiter.check(request).map(Answer::Decision),
        Operation::Peek => limiter.peek(request).map(Answer::Decision),
        Operation::Take => limiter.take(request).map(Answer::Usage),
        Operation::Charge => limiter.charge(request).map(Answer::Usage),
        Operation::Refund => limiter.refund(request).map(Answer::Usage),
        Operation::Reset => limiter.reset(request).map(Answer::Usage),
        _ => limiter.raw().call(&reservation_call(operation, request)).map(Answer::of),
    }
    .unwrap()
}

impl Answer {
    fn of(answer: polylimit::raw::Answer) -> Self {
        match answer {
            polylimit::raw::Answer::Decision(decision) => Self::Decision(decision),
            polylimit::raw::Answer::Usage(usage) => Self::Usage(usage),
            other => panic!("an operation on one key got {other:?}"),
        }
    }
}

/// A main key's value in the form that does not depend on the path that a script takes: counts have as few bytes as they need, and a quota
/// without any use has no record. Other values stay as they are.
fn canonical(value: Vec<u8>) -> Vec<u8> {
    let (mut rest, mut out) = (&value[..], Vec::new());
    while let Some(form) = rest.first() {
        let length = match form {
            1 => 17,
            2 => 25,
            3 => 23,
            4 => 18,
            5 if rest.len() > 7 => 20 + usize::from(rest[5]) * usize::from(rest[6]),
            6.. if rest.len() > 8 => 8 + usize::from(rest[6]) * 256 + usize::from(rest[7]),
            _ => return value,
        };
        let Some((record, after)) = rest.split_at_checked(length) else { return value };
        let is_used = |count: std::ops::Range<usize>| record[count].iter().any(|byte| *byte != 0);
        let is_used = match form {
            1 => is_used(12..17),
            2 => is_used(12..19),
            3 | 4 => is_used(5..11),
            5 => is_used(14..length),
            _ => true,
        };
        match record {
            _ if !is_used => {}
            // The counts of sub-windows have as few bytes as the largest needs, where the fast path leaves as many as it has found.
            [5, tag_1, tag_2, tag_3, tag_4, bytes, number, head @ ..] => {
                let (head, counts) = head.split_at(13);
                let counts = || counts.chunks(usize::from(*bytes));
                let leading = counts().map(|count| count.iter().take_while(|byte| **byte == 0).count());
                let unused = leading.min().unwrap_or(0).min(usize::from(*bytes) - 1);
                out.extend([
                    5,
                    *tag_1,
                    *tag_2,
                    *tag_3,
                    *tag_4,
                    *bytes - u8::try_from(unused).unwrap(),
                    *number,
                ]);
                out.extend_from_slice(head);
                counts().for_each(|count| out.extend_from_slice(&count[unused..]));
            }
            _ => out.extend_from_slice(record),
        }
        rest = after;
    }
    out
}

/// The call of an operation on a reservation, or of a block.
fn reservation_call(operation: Operation, request: Request<'_>) -> Call<'_> {
    // Ids of several lengths; in the bytes of some, others seem to stand with their lengths.
    let long = "x".repeat(64);
    let ids = ["x", "\u{1}x", "yy\u{1}x", "\u{2}\u{1}x", &long, "xxxxxxxxxxxx"];
    let id = |number: u8| ReservationId::new(ids[usize::from(number)]).unwrap();
    match operation {
        Operation::Reserve((number, ttl_us), remember_us) => {
            let (ttl, remember) = (Duration::from_micros(ttl_us), Duration::from_micros(remember_us));
            let terms = ReservationTerms { id: id(number), ttl, timeout: Duration::ZERO, remember };
            Call::Reserve(request, terms)
        }
        Operation::Commit(number, as_reserved) => {
            Call::Commit(request, id(number), (!as_reserved).then_some(request.units()))
        }
        Operation::Cancel(number) => Call::Cancel(request, id(number)),
        Operation::Block(for_us) => Call::Block(request, Duration::from_micros(for_us)),
        Operation::Renew((number, ttl_us)) => Call::Renew(request, id(number), Duration::from_micros(ttl_us)),
        other => panic!("{other:?} concerns no reservation"),
    }
}

async fn answer(limiter: &Limiter, operation: Operation, request: Request<'_>) -> Answer {
    match operation {
        Operation::Check => limiter.check(request).await.map(Answer::Decision),
        Operation::Peek => limiter.peek(request).await.map(Answer::Decision),
        Operation::Take => limiter.take(request).await.map(Answer::Usage),
        Operation::Charge => limiter.charge(request).await.map(Answer::Usage),
        Operation::Refund => limiter.refund(request).await.map(Answer::Usage),
        Operation::Reset => limiter.reset(request).await.map(Answer::Usage),
        _ => limiter.raw().call(&reservation_call(operation, request)).await.map(Answer::of),
    }
    .unwrap()
}

/// Polls all futures concurrently.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in &mut futures {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if futures.iter().all(|(_, output)| output.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

/// Runs a case; returns the number of its operations.
fn run(servers: &Servers, runtime: &Runtime, seed: u64) -> usize {
    let mut case = Case::new(servers, runtime, seed);
    let steps = case.random.pick(&[20, 60, 200]);
    let changes = !seed.is_multiple_of(3);
    let mut done = 0;
    for _ in 0..steps {
        if changes && case.random.once_in(10) {
            case.change();
        }
        done += case.step();
        case.assert_same_values();
    }
    for limiter in case.stores.iter().flatten() {
        let counters = limiter.stats();
        assert_eq!(
            (counters.healed, counters.unknown, counters.not_applied, counters.permanent),
            (0, 0, 0, 0)
        );
    }
    done
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a whole number"))
}

#[test]
fn stores_give_identical_answers() {
    let operations =
        number("POLYLIMIT_AGREEMENT_OPERATIONS", if Row::is_long() { 1_000_000 } else { 40_000 });
    let mut seed = number("POLYLIMIT_AGREEMENT_SEED", 1) as u64;
    let servers = Servers::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut done, mut cases) = (0, 0);
    while done < operations {
        println!("case {seed}");
        done += run(&servers, &runtime, seed);
        (seed, cases) = (seed + 1, cases + 1);
        if seed.is_multiple_of(50) {
            // States that were written with a manual clock do not expire.
            servers.flush();
        }
    }
    println!("no difference in {done} operations, {cases} cases");
    Row::new("F52", "memory, Redis, Valkey and a cluster")
        .decisions(done as u64)
        .measured(format!("no difference in {done} operations, {cases} cases"))
        .record();
}
