//! Requests over several policies: every store decides as single operations in the order of the definition do, to the microsecond.

use std::time::Duration;

use super::generators::{Random, random_headroom, random_policy, with_random_penalty, with_slots};
use super::servers::Servers;
use polylimit::clock::ManualClock;
use polylimit::raw::ReservationTerms;
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::storage::Outage;
use polylimit::{Decision, Limiter, Policy, Request, blocking};
use tokio::runtime::Runtime;

const POLICIES: [&str; 4] = ["a", "b", "c", "d"];
const KEYS: [&str; 2] = ["user", "other"];
const CASES: u64 = 40;
const REQUESTS: u64 = 60;
/// How many callers request at once.
const CROWD: usize = 24;

#[derive(Clone, Copy)]
enum Asked {
    Check,
    Peek,
    Reserve,
}

struct Case {
    random: Random,
    clock: ManualClock,
    /// Decides each charge by itself.
    model: blocking::Limiter,
    stores: Vec<(String, blocking::Limiter)>,
    policies: Vec<Policy>,
    log: Vec<String>,
}

impl Case {
    fn new(urls: &[String], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let policies: Vec<_> = POLICIES
            .iter()
            .map(|name| {
                let policy = random_policy(name, &mut random);
                let policy = if random.once_in(4) { with_slots(policy, &mut random) } else { policy };
                if random.once_in(4) { with_random_penalty(policy, &mut random) } else { policy }
            })
            .collect();
        let clock = ManualClock::new(1_700_000_000_000_000 + random.below(1 << 43)).unwrap();
        let start = |url: &str| {
            let builder = Limiter::builder().clock(clock.clone()).store(url);
            let builder = policies.iter().fold(builder, |builder, policy| builder.policy(policy.clone()));
            // What the store does not answer must not look as if it did.
            let names = POLICIES.iter().filter(|_| url.starts_with("redis"));
            names
                .fold(builder, |builder, name| builder.outage(name, Outage::Deny))
                .build()
                .unwrap()
                .blocking()
        };
        let stores = urls.iter().map(|url| {
            let url =
                if url.starts_with("redis") { format!("{url}&prefix=requests{seed}") } else { url.clone() };
            (url.clone(), start(&url))
        });
        let log = policies.iter().map(|policy| format!("{policy:?}")).collect();
        Self { model: start("memory:"), stores: stores.collect(), random, clock, policies, log }
    }

    fn is_only_reserved(&self, policy: usize) -> bool {
        self.policies[policy]
            .quotas()
            .iter()
            .any(|quota| quota.algorithm() == polylimit::quota::Algorithm::Concurrency)
    }

    /// The decisions by the definition: all charges are tried, and then applied, or only those that are denied.
    fn expected(
        &self,
        charges: &[(usize, Request<'static>)],
        asked: Asked,
        options: ReserveOptions,
    ) -> Vec<Decision> {
        // Charges of one policy and key are one of their sum.
        let mut merged: Vec<(usize, Request<'static>)> = Vec::new();
        let mut places = Vec::new();
        for (policy, request) in charges {
            let same = |(of, other): &(usize, Request<'static>)| of == policy && other.key() == request.key();
            let place = merged.iter().position(same);
            match place {
                Some(place) => {
                    let (_, sum) = &mut merged[place];
                    *sum = sum
                        .cost(sum.units() + request.units())
                        .headroom(sum.headroom_percent().max(request.headroom_percent()));
                }
                None => merged.push((*policy, *request)),
            }
            places.push(place.unwrap_or(merged.len() - 1));
        }
        let peeks: Vec<_> = merged.iter().map(|(_, request)| self.model.peek(*request).unwrap()).collect();
        let admitted = peeks.iter().all(Decision::allowed);
        let applies = |peeked: &Decision| match asked {
            Asked::Peek => false,
            Asked::Check | Asked::Reserve => admitted || !peeked.allowed(),
        };
        let made: Vec<_> = merged
            .iter()
            .zip(peeks)
            .map(|((policy, request), peeked)| {
                if !applies(&peeked) {
                    return peeked;
                }
                if self.is_only_reserved(*policy) {
                    let reservation = self.model.reserve(*request, options).unwrap();
                    let decision = reservation.decision().clone();
                    reservation.detach();
                    decision
                } else {
                    self.model.check(*request).unwrap()
                }
            })
            .collect();
        places.into_iter().map(|place| made[place].clone()).collect()
    }

    fn step(&mut self, number: u64) {
        let random = &mut self.random;
        let moved = random.pick(&[0, 0, 0, 1, 500, 1_000_000, 60_000_000, 3_600_000_000]);
        let back = if random.once_in(20) { 5_000_000 } else { 0 };
        let now_us = (self.clock.now_us() + moved).min(ManualClock::MAX_US) - back;
        self.clock.set(now_us).unwrap();
        let key = random.pick(&KEYS);
        let asked = random.pick(&[Asked::Check, Asked::Check, Asked::Check, Asked::Peek, Asked::Reserve]);
        let mut charges = Vec::new();
        for _ in 0..random.pick(&[1, 2, 2, 3, 3, 4, 5]) {
            let policy = random.pick(&[0, 1, 2, 3]);
            let cost = random.pick(&[0, 1, 1, 1, 2, 3, 10, 97, 1_000]);
            let headroom = random_headroom(random);
            charges.push((policy, Request::new(key).policy(POLICIES[policy]).cost(cost).headroom(headroom)));
        }
        if let Asked::Check = asked {
            charges.retain(|(policy, _)| !self.is_only_reserved(*policy));
        }
        if charges.is_empty() {
            return;
        }
        let id = ReservationId::new(format!("job-{number}")).unwrap();
        let ttl = Duration::from_secs(self.random.pick(&[1, 60, 3_600]));
        let options = ReserveOptions::default().id(id).ttl(ttl).max_age(Duration::ZERO);
        let terms: ReservationTerms = options.terms().unwrap();
        let requests: Vec<_> = charges.iter().map(|(_, request)| *request).collect();
        let expected = self.expected(&charges, asked, options);
        self.log.push(format!("{now_us}: {requests:?}"));
        for (url, store) in &self.stores {
            let got = match asked {
                Asked::Check => store.check_together(&requests),
                Asked::Peek => store.peek_together(&requests),
                Asked::Reserve => store.reserve_together(&requests, &terms),
            };
            let got = got.unwrap();
            assert_eq!(got, expected, "{url}, after {:#?}", self.log);
        }
        // Slots come free, or stay taken until they end.
        if let Asked::Reserve = asked
            && expected.iter().all(Decision::allowed)
            && self.random.once_in(2)
        {
            for (policy, request) in charges {
                if self.is_only_reserved(policy) {
                    let request = Request::new(request.key()).policy(POLICIES[policy]);
                    let of_model = self.model.cancel(request, id).unwrap();
                    for (url, store) in &self.stores {
                        assert_eq!(store.cancel(request, id).unwrap(), of_model, "{url}");
                    }
                }
            }
        }
    }
}

impl Case {
    /// Requests of many callers at once, which share calls on Redis, are decided in the order of their arrival.
    fn crowd(&mut self, runtime: &Runtime) {
        let random = &mut self.random;
        let moved = random.pick(&[0, 1, 500, 1_000_000, 60_000_000]);
        self.clock.set((self.clock.now_us() + moved).min(ManualClock::MAX_US)).unwrap();
        let asked = random.pick(&[Asked::Check, Asked::Check, Asked::Peek]);
        let first = random.pick(&[0, 1, 2, 3]);
        let count = random.pick(&[2, 3, 4]);
        let mut policies: Vec<usize> = (0..count).map(|at| (first + at) % POLICIES.len()).collect();
        policies.retain(|policy| !self.is_only_reserved(*policy));
        let are_alike = self.random.once_in(2);
        let mut cost = 1;
        let crowd: Vec<Vec<(usize, Request<'static>)>> = (0..CROWD)
            .map(|_| {
                let key = self.random.pick(&KEYS);
                if !are_alike {
                    cost = self.random.pick(&[0, 1, 1, 2, 10]);
                }
                let headroom = if are_alike { 0 } else { random_headroom(&mut self.random) };
                let request =
                    |policy: usize| Request::new(key).policy(POLICIES[policy]).cost(cost).headroom(headroom);
                policies.iter().map(|policy| (*policy, request(*policy))).collect()
            })
            .collect();
        if policies.len() < 2 {
            return;
        }
        let options = ReserveOptions::default();
        let expected: Vec<_> = crowd.iter().map(|charges| self.expected(charges, asked, options)).collect();
        self.log.push(format!("at once: {crowd:?}"));
        for (url, store) in &self.stores {
            let limiter = store.asynchronous();
            let got = runtime.block_on(async {
                let ask = |charges: &Vec<(usize, Request<'static>)>| {
                    let (limiter, charges) = (limiter.clone(), charges.clone());
                    tokio::spawn(async move {
                        let requests: Vec<_> = charges.iter().map(|(_, request)| *request).collect();
                        match asked {
                            Asked::Peek => limiter.peek_together(&requests).await,
                            Asked::Check | Asked::Reserve => limiter.check_together(&requests).await,
                        }
                    })
                };
                let mut got = Vec::new();
                for task in crowd.iter().map(ask).collect::<Vec<_>>() {
                    got.push(task.await.unwrap().unwrap());
                }
                got
            });
            assert_eq!(got, expected, "{url}, after {:#?}", self.log);
        }
    }
}

#[test]
fn requests_over_several_policies_are_decided_alike_everywhere() {
    let servers = Servers::start();
    let folder = tempfile::tempdir().unwrap();
    // Its one thread polls tasks in the order in which they were spawned.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut urls = vec!["memory:".to_owned()];
    urls.extend(servers.urls());
    for seed in 0..CASES {
        let mut urls = urls.clone();
        urls.push(format!("file://{}/{seed}?size=1MiB", folder.path().display()));
        let mut case = Case::new(&urls, seed);
        for number in 0..REQUESTS {
            case.step(number);
            if number % 10 == 0 {
                case.crowd(&runtime);
            }
        }
    }
}

/// Lua bounds the variables of a function, of which each quota of the fast path takes its share.
#[test]
fn request_with_as_many_quotas_as_the_fast_path_takes_is_decided() {
    let servers = Servers::start();
    for quotas in [
        "100/s; 1000/m",
        "100/s token_bucket; 1000/s token_bucket step=10",
        "100/s fixed_window; 9/year zone=UTC",
    ] {
        let policies = ["a", "b", "c"].map(|name| Policy::parse(name, quotas).unwrap());
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let start = |url: &str| {
            let builder = Limiter::builder().clock(clock.clone()).store(url);
            let builder = policies.iter().fold(builder, |builder, policy| builder.policy(policy.clone()));
            let names = POLICIES[..3].iter().filter(|_| url.starts_with("redis"));
            let builder = names.fold(builder, |builder, name| builder.outage(name, Outage::Deny));
            builder.build().unwrap().blocking()
        };
        let requests = ["a", "b", "c"].map(|name| Request::new(quotas).policy(name));
        let model = start("memory:");
        let stores = servers.urls().map(|url| start(&url));
        for _ in 0..12 {
            let expected = model.check_together(&requests).unwrap();
            for store in &stores {
                assert_eq!(store.check_together(&requests).unwrap(), expected, "{quotas}");
            }
        }
    }
}
