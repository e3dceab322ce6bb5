//! Clients that know the quota and try to get more of it than the documentation says.

use std::time::Duration;

use polylimit::{Limiter, ManualClock, Outage, Policy, Quota, Request, Source, blocking};
use polylimit_test_servers::{Kind, Server};

use super::policies::random_quota;
use super::random::Random;
use super::servers::patient;

const KEY: &str = "greedy";
/// What each tries.
const TRIES: usize = 60;

struct Client {
    quota: Quota,
    clock: ManualClock,
    limiter: blocking::Limiter,
    random: Random,
}

impl Client {
    fn new(url: &str, quota: Quota, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let clock = ManualClock::new(1_700_000_000_000_000 + random.below(1 << 43)).unwrap();
        let policy = Policy::new(&format!("p{seed}"), [quota.clone()]).unwrap();
        let builder = Limiter::builder().store(url).clock(clock.clone()).outage(policy.name(), Outage::Deny);
        let limiter = builder.policy(policy).build().unwrap().blocking();
        Self { quota, clock, limiter, random }
    }

    /// Waits for what looks promising: the next window, what was told, a moment, nothing.
    fn wait(&mut self, cost: u64) {
        let now_us = self.clock.now_us();
        let period_us = u64::try_from(self.quota.period().as_micros()).unwrap();
        let width_us = period_us / u64::from(self.quota.buckets().unwrap_or(1));
        let told = |cost| self.limiter.peek(Request::new(KEY).cost(cost)).unwrap();
        let before = self.random.below(2);
        let ahead_us = match self.random.below(16) {
            0..=2 => 0,
            3 | 4 => 1,
            5..=9 => told(cost).retry_after_us().unwrap_or(0),
            10..=12 => (width_us - now_us % width_us).saturating_sub(before),
            13 => told(0).reset_after_us().saturating_sub(before),
            _ => self.random.below(period_us),
        };
        // What the clock cannot show, nobody waits for.
        let _ = self.clock.set(now_us.saturating_add(ahead_us));
    }

    /// Asks for all of it or for as much as there is, and says how much that was.
    fn get(&mut self, cost: u64) -> u64 {
        let request = Request::new(KEY).cost(cost);
        if self.random.once_in(3) {
            let usage = self.limiter.take(request).unwrap();
            assert_eq!(usage.source(), Source::Store);
            return usage.taken();
        }
        // Several at once now and then, with the same key again and again.
        let requests = vec![request; usize::try_from(self.random.pick(&[1, 1, 1, 7])).unwrap()];
        let decisions = self.limiter.check_many(requests).into_iter().map(Result::unwrap);
        decisions
            .map(|decision| {
                assert!(!decision.source().is_outage());
                if decision.allowed() { cost } else { 0 }
            })
            .sum()
    }

    /// Tries, and compares every span with what may be admitted in it.
    fn be_greedy(&mut self) {
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for _ in 0..TRIES {
            let capacity = self.quota.capacity();
            let cost = self.random.pick(&[1, 1, capacity, capacity / 2, capacity / 7, capacity / 100]).max(1);
            self.wait(cost);
            let units = self.get(cost);
            admitted.push((self.clock.now_us(), units));
        }
        for (at, (first_us, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (last_us, units) in &admitted[at..] {
                sum += units;
                // Spans are half-open.
                let span = Duration::from_micros(last_us - first_us + 1);
                let most = self.quota.most_admitted(span);
                assert!(sum <= most, "{}: {sum} in {span:?}, and {most} are the most", self.quota);
            }
        }
        assert!(admitted.iter().any(|(_, units)| *units > 0), "{}: nothing was admitted", self.quota);
    }
}

#[test]
fn nobody_gets_more_than_is_said() {
    let server = Server::start(Kind::Redis, &[]);
    let url = patient(&server.url());
    // Each algorithm in the numbers that people use, then any.
    let known = [
        "10/s token_bucket burst=20",
        "100/minute token_bucket step=10",
        "7/s leaky_bucket",
        "10/s fixed_window",
        "10/s fixed_window aligned",
        "100/minute",
        "100/minute buckets=1",
        "5/15m sliding_log",
    ];
    for (seed, quota) in known.into_iter().cycle().take(4 * known.len()).enumerate() {
        Client::new(&url, quota.parse().unwrap(), seed as u64).be_greedy();
    }
    let mut random = Random::new(7);
    let mut tried = 0;
    while tried < 60 {
        let quota = random_quota(&mut random);
        // What is counted while denied is not admitted.
        if quota.limit() > 0 && !quota.count_denied() {
            tried += 1;
            Client::new(&url, quota, 1_000 + tried).be_greedy();
        }
    }
}
