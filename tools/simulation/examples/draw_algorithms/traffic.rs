//! One client's requests, and the decisions on them under a quota.

use polylimit::clock::ManualClock;
use polylimit::{Error, Limiter, Policy};

/// Requests arrive in slots of half a second, evenly within each slot.
pub(crate) const SLOT_US: u64 = 500_000;
pub(crate) const SLOTS: usize = 80;

/// Slots, and how many requests arrive in each: a few, a burst around the end of a window, more than the rate for a
/// while, and a burst after a pause.
const TRAFFIC: [(std::ops::Range<usize>, u64); 8] =
    [(0..1, 1), (7..8, 1), (17..19, 5), (21..23, 6), (30..31, 3), (38..56, 2), (61..62, 12), (68..69, 4)];

/// The decisions on the requests.
pub(crate) struct Outcome {
    /// How many were admitted and denied in each slot.
    pub(crate) slots: [(u64, u64); SLOTS],
    /// When each admitted request may proceed, in microseconds from the start: in a leaky bucket after its arrival.
    pub(crate) proceeds_us: Vec<u64>,
}

/// How many requests arrive in a slot.
pub(crate) fn arrivals(slot: usize) -> u64 {
    TRAFFIC.iter().find(|(slots, _)| slots.contains(&slot)).map_or(0, |(_, count)| *count)
}

/// Decides each request.
pub(crate) fn decide(quota: &str) -> Result<Outcome, Error> {
    const START_US: u64 = 1_700_000_000_000_000;
    let clock = ManualClock::new(START_US)?;
    let policy = Policy::parse("drawn", quota)?;
    let limiter = Limiter::builder().policy(policy).clock(clock.clone()).build()?.blocking();
    let mut outcome = Outcome { slots: [(0, 0); SLOTS], proceeds_us: Vec::new() };
    let mut slot_us = 0;
    for (slot, (admitted, denied)) in outcome.slots.iter_mut().enumerate() {
        let count = arrivals(slot);
        for request in 0..count {
            let now_us = slot_us + request * SLOT_US / count;
            clock.set(START_US + now_us)?;
            let decision = limiter.check("client")?;
            if decision.allowed() {
                *admitted += 1;
                outcome.proceeds_us.push(now_us + decision.delay_us());
            } else {
                *denied += 1;
            }
        }
        slot_us += SLOT_US;
    }
    Ok(outcome)
}

impl Outcome {
    /// How many requests were admitted.
    pub(crate) fn admitted(&self) -> usize {
        self.proceeds_us.len()
    }

    /// The most requests that proceed in any span of `span_us`, its end excluded.
    pub(crate) fn most_in(&self, span_us: u64) -> usize {
        let starts = self.proceeds_us.iter();
        let in_span = |start: &u64| {
            let within = |time: &&u64| (*start..start + span_us).contains(*time);
            self.proceeds_us.iter().filter(within).count()
        };
        starts.map(in_span).max().unwrap_or(0)
    }
}
