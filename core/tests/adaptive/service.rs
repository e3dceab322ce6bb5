//! A model of a service: workers, one queue, and clients that have gone when the answer is late.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use polylimit::adaptive::{AdaptiveLimit, Call};
use polylimit::clock::ManualClock;

/// Answers that take longer are useless; the service does the work nevertheless, because it does not see that the client has gone.
pub(crate) const DEADLINE_US: u64 = 500_000;
/// The work of a request takes 50 to 150 ms, evenly distributed.
const WORK_US: (u64, u64) = (50_000, 150_000);
pub(crate) const SECONDS: u64 = 120;

const SECOND_US: u64 = 1_000_000;
const START_US: u64 = 1_700_000_000_000_000;

/// The requests, and the workers at a time in seconds.
pub(crate) struct Scenario {
    pub(crate) requests_a_second: u64,
    pub(crate) workers: fn(u64) -> usize,
}

/// What the clients saw.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) answers: u64,
    pub(crate) in_time: u64,
    latencies_us: Vec<u64>,
    /// The lowest and the highest limit in the second half of the time.
    pub(crate) limits: Option<(u32, u32)>,
}

impl Outcome {
    /// The latency that 99 % of the answers have at most.
    pub(crate) fn p99_ms(&self) -> u64 {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() * 99).div_ceil(100) - 1] / 1000
    }
}

/// Numbers of xorshift64*: the same in every run, and integers, which are the same on every machine.
struct Random(u64);

impl Random {
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) % (most + 1)
    }
}

struct Waiting {
    arrived_us: u64,
    call: Option<Call>,
}

/// Plays the scenario with the limit that a function makes for the clock, or without one.
pub(crate) fn play(
    scenario: &Scenario,
    limit: impl FnOnce(&ManualClock) -> Option<AdaptiveLimit>,
) -> Outcome {
    let clock = ManualClock::new(START_US).unwrap();
    let limit = limit(&clock);
    let mut outcome = Outcome::default();
    let (mut arrivals, mut work) = (Random(0x9E37_79B9_7F4A_7C15), Random(0xD1B5_4A32_D192_ED03));
    // Gaps are 0 to twice their mean, evenly distributed.
    let longest_gap_us = 2 * SECOND_US / scenario.requests_a_second;
    let mut next_us = arrivals.up_to(longest_gap_us);
    let mut queue = VecDeque::new();
    let mut running = BinaryHeap::new();
    let mut calls = Vec::new();
    loop {
        let ends_us = running.peek().map(|Reverse((end_us, _))| *end_us);
        let now_us = ends_us.map_or(next_us, |ends_us: u64| ends_us.min(next_us));
        if now_us >= SECONDS * SECOND_US {
            return outcome;
        }
        clock.set(START_US + now_us).unwrap();
        if ends_us == Some(now_us) {
            let Some(Reverse((_, at))) = running.pop() else { return outcome };
            let Waiting { arrived_us, call } = Option::take(&mut calls[at]).unwrap();
            let latency_us = now_us - arrived_us;
            outcome.answers += 1;
            outcome.in_time += u64::from(latency_us <= DEADLINE_US);
            outcome.latencies_us.push(latency_us);
            match call {
                Some(call) if latency_us <= DEADLINE_US => call.succeeded(),
                Some(call) => call.failed(),
                None => {}
            }
        } else {
            next_us += arrivals.up_to(longest_gap_us);
            outcome.requests += 1;
            let call = limit.as_ref().map(AdaptiveLimit::try_begin);
            match call {
                Some(None) => outcome.refused += 1,
                call => queue.push_back(Waiting { arrived_us: now_us, call: call.flatten() }),
            }
        }
        while running.len() < (scenario.workers)(now_us / SECOND_US)
            && let Some(next) = queue.pop_front()
        {
            let work_us = WORK_US.0 + work.up_to(WORK_US.1 - WORK_US.0);
            running.push(Reverse((now_us + work_us, calls.len())));
            calls.push(Some(next));
        }
        if let Some(limit) = &limit
            && now_us >= SECONDS * SECOND_US / 2
        {
            let n = limit.limit();
            let (low, high) = outcome.limits.unwrap_or((n, n));
            outcome.limits = Some((low.min(n), high.max(n)));
        }
    }
}
