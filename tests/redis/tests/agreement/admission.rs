//! Clients admit no more than the quota allows: neither one that picks its requests to get the most, nor many processes
//! that contend for one key.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use polylimit::clock::ManualClock;
use polylimit::decision::Source;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy, Quota, Request, blocking};
use polylimit_test_servers::{Kind, Row, Server};

use super::generators::{Random, random_quota};
use super::servers::generous;

const KEY: &str = "client";
/// Requests of each client.
const REQUESTS: usize = 60;

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

    /// Advances the clock to a moment at which more may be admitted: the next window, `retry_after`, `reset_after`, or any.
    fn wait(&mut self, cost: u64) {
        let now_us = self.clock.now_us();
        let period_us = u64::try_from(self.quota.period().as_micros()).unwrap();
        let width_us = period_us / u64::from(self.quota.buckets().unwrap_or(1));
        let peek = |cost| self.limiter.peek(Request::new(KEY).cost(cost)).unwrap();
        let before = self.random.below(2);
        let ahead_us = match self.random.below(16) {
            0..=2 => 0,
            3 | 4 => 1,
            5..=9 => peek(cost).retry_after_us().unwrap_or(0),
            10..=12 => (width_us - now_us % width_us).saturating_sub(before),
            13 => peek(0).reset_after_us().saturating_sub(before),
            _ => self.random.below(period_us),
        };
        // Times beyond the range of the clock are skipped.
        let _ = self.clock.set(now_us.saturating_add(ahead_us));
    }

    /// Requests these units, all or as many as are left, and returns how many were admitted.
    fn request(&mut self, cost: u64) -> u64 {
        let request = Request::new(KEY).cost(cost);
        if self.random.once_in(3) {
            let usage = self.limiter.take(request).unwrap();
            assert_eq!(usage.source(), Source::Store);
            return usage.taken();
        }
        // Sometimes several requests of one key in a batch.
        let requests = vec![request; usize::try_from(self.random.pick(&[1, 1, 1, 7])).unwrap()];
        let decisions = self.limiter.check_many(requests).into_iter().map(Result::unwrap);
        decisions
            .map(|decision| {
                assert!(!decision.source().is_outage());
                if decision.allowed() { cost } else { 0 }
            })
            .sum()
    }

    /// Makes the requests, and compares the units admitted in every span of time with the documented bound. Returns both for
    /// the span that came closest to it.
    fn check_bound(&mut self) -> (u64, u64) {
        let mut closest = (0, 1);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for _ in 0..REQUESTS {
            let capacity = self.quota.capacity();
            let cost = self.random.pick(&[1, 1, capacity, capacity / 2, capacity / 7, capacity / 100]).max(1);
            self.wait(cost);
            let units = self.request(cost);
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
                closest = closer(closest, (sum, most));
            }
        }
        assert!(admitted.iter().any(|(_, units)| *units > 0), "{}: nothing was admitted", self.quota);
        closest
    }
}

/// Of two numbers of units admitted, each with its bound, the one that is the larger part of its bound.
fn closer(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    if u128::from(one.0) * u128::from(other.1) < u128::from(other.0) * u128::from(one.1) {
        other
    } else {
        one
    }
}

#[test]
fn adversarial_client_gets_at_most_the_documented_bound() {
    let server = Server::start(Kind::Redis, &[]);
    let url = generous(&server.url());
    // Each algorithm with typical numbers, then with random ones.
    let typical = [
        "10/s token_bucket burst=20",
        "100/minute token_bucket step=10",
        "7/s leaky_bucket",
        "10/s fixed_window",
        "10/s fixed_window aligned",
        "100/minute",
        "100/minute buckets=1",
        "5/15m sliding_log",
    ];
    let mut closest = (0, 1);
    for (seed, quota) in typical.into_iter().cycle().take(4 * typical.len()).enumerate() {
        closest = closer(closest, Client::new(&url, quota.parse().unwrap(), seed as u64).check_bound());
    }
    let mut random = Random::new(7);
    let mut tried = 0;
    let all = if Row::is_long() { 1_000 } else { 60 };
    while tried < all {
        let quota = random_quota(&mut random);
        // With `count_denied` denied requests use up units, and a limit of 0 admits nothing.
        if quota.limit() > 0 && !quota.count_denied() {
            tried += 1;
            closest = closer(closest, Client::new(&url, quota, 1_000 + tried).check_bound());
        }
    }
    let clients = 4 * typical.len() as u64 + tried;
    Row::new("F51", "clients that pick their requests")
        .bound(closest.0, closest.1)
        .measured(format!("{clients} clients; the numbers are of the span that came closest to its bound"))
        .record();
}

const PROCESSES: usize = 8;
/// Each process has 64 callers.
const LIMIT: usize = 100;
const ROUNDS: usize = 1_000;
/// Rounds that have not begun by then are left out in the short form.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// A slow machine runs at least these.
const MIN_ROUNDS: usize = 50;

/// A process whose callers contend for the key of a round.
struct Contender {
    child: Child,
    rounds: Option<ChildStdin>,
    counts: BufReader<ChildStdout>,
}

impl Contender {
    fn start(url: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_polylimit-contender"))
            .args([url, &LIMIT.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let rounds = child.stdin.take();
        let counts = BufReader::new(child.stdout.take().unwrap());
        Self { child, rounds, counts }
    }

    fn start_round(&mut self, round: usize) {
        writeln!(self.rounds.as_mut().unwrap(), "{round}").unwrap();
    }

    /// How many of its callers were admitted.
    fn admitted(&mut self) -> usize {
        let mut line = String::new();
        self.counts.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("a contender printed {line:?}"))
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // A contender ends at the end of its input.
        drop(self.rounds.take());
        let _ = self.child.wait();
    }
}

#[test]
fn concurrent_processes_get_exactly_the_limit() {
    let server = Server::start(Kind::Redis, &[]);
    let url = generous(&server.url());
    let mut contenders: Vec<Contender> = (0..PROCESSES).map(|_| Contender::start(&url)).collect();
    let start = Instant::now();
    let mut rounds = 0;
    let is_over = || start.elapsed() >= TIME_LIMIT && !Row::is_long();
    while rounds < ROUNDS && (!is_over() || rounds < MIN_ROUNDS) {
        for contender in &mut contenders {
            contender.start_round(rounds);
        }
        let each: Vec<usize> = contenders.iter_mut().map(Contender::admitted).collect();
        assert_eq!(each.iter().sum::<usize>(), LIMIT, "round {rounds}: {each:?}");
        rounds += 1;
    }
    println!("{rounds} rounds in {:?}", start.elapsed());
    Row::new("F50", "8 processes in Rust of 64 callers")
        .decisions((PROCESSES * 64 * rounds) as u64)
        .admitted((LIMIT * rounds) as u64)
        .bound(LIMIT as u64, LIMIT as u64)
        .measured(format!("exactly {LIMIT} admitted in each of {rounds} rounds"))
        .record();
}
