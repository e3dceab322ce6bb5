//! The bound on what is admitted: A(W) <= base(W) + E*R + S*min(B, D*L/P) + U*c + G(W).

use std::collections::BTreeMap;

use polylimit::storage::Outage;
use tokio::time::Instant;

use crate::policies::{KEYS, LEASE_MAX_AGE, ROWS, bounds};

/// What lets the server admit more.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The server lost state.
    Loss,
    /// Its clock was set by this number of microseconds.
    Step(i64),
}

/// Units by policy and key, with when.
type Units = BTreeMap<(usize, usize), Vec<(Instant, u64)>>;

/// What was admitted.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// What callers have received: from the server, a lease or the fallback.
    told: Units,
    /// What the server debited, whether or not its reply arrived.
    debited: Units,
    refunded: Units,
    /// What a fallback's own limiter refunded, whatever the server did.
    refunded_by_fallbacks: Units,
    pub(super) events: Vec<(Instant, Event)>,
}

impl Admissions {
    /// A caller received the admission of its check, by units that were debited or admitted then.
    pub(super) fn tell(&mut self, policy: usize, key: usize, at: Instant, units: u64) {
        self.told.entry((policy, key)).or_default().push((at, units));
    }

    /// The server debited units for a check or a lease.
    pub(super) fn debit(&mut self, policy: usize, key: usize, units: u64) {
        self.debited.entry((policy, key)).or_default().push((Instant::now(), units));
    }

    /// The server refunded units.
    pub(super) fn refund(&mut self, policy: usize, key: usize, units: u64) {
        self.refunded.entry((policy, key)).or_default().push((Instant::now(), units));
    }

    /// A process's fallback refunded units.
    pub(super) fn refund_by_fallback(&mut self, policy: usize, key: usize, units: u64) {
        self.refunded_by_fallbacks.entry((policy, key)).or_default().push((Instant::now(), units));
    }

    /// What exceeds the bound. The server's own debits have the bound without U*c and G(W), so an operation whose outcome is unknown is
    /// part of it: where an outage policy admits it once more, this adds its cost and no more.
    pub(super) fn check(&mut self, processes: u64) -> Vec<String> {
        let mut failures = Vec::new();
        let of = |units: &Units, of: &(usize, usize)| units.get(of).cloned().unwrap_or_default();
        for (row, debited) in &mut self.debited {
            let refunded = of(&self.refunded, row);
            check_spans(&mut failures, *row, debited, &refunded, &self.events, 1, "debited");
        }
        for (row, told) in &mut self.told {
            let limiters = if ROWS[row.0].outage == Outage::Fallback { 1 + processes } else { 1 };
            let mut refunded = of(&self.refunded, row);
            refunded.extend(of(&self.refunded_by_fallbacks, row));
            check_spans(&mut failures, *row, told, &refunded, &self.events, limiters, "admitted");
        }
        failures
    }
}

/// Checks every span from one admission to another.
fn check_spans(
    failures: &mut Vec<String>,
    (policy, key): (usize, usize),
    admitted: &mut [(Instant, u64)],
    refunded: &[(Instant, u64)],
    events: &[(Instant, Event)],
    limiters: u64,
    what: &str,
) {
    admitted.sort_unstable();
    let (bound, is_leased) = (bounds()[policy], ROWS[policy].lease.is_some());
    for (place, (from, _)) in admitted.iter().enumerate() {
        let mut units = 0;
        for (to, cost) in &admitted[place..] {
            units += cost;
            if units <= bound.capacity {
                continue;
            }
            let is_in = |at: &Instant| from <= at && at <= to;
            // Leased units are spent up to their maximum age after they were debited.
            let concerns = |at: &Instant| *from <= *at + LEASE_MAX_AGE && at <= to;
            let extra = events.iter().filter(|(at, _)| if is_leased { concerns(at) } else { is_in(at) }).map(
                |(_, event)| match event {
                    Event::Loss => bound.capacity,
                    Event::Step(us) => bound.added_by_step(*us),
                },
            );
            let back: u64 = refunded.iter().filter(|(at, _)| is_in(at)).map(|(_, units)| units).sum();
            let span_us = (*to - *from).as_micros() as u64;
            let most = limiters * bound.base(span_us) + back + extra.sum::<u64>();
            if units > most {
                let (name, key) = (ROWS[policy].name, KEYS[key]);
                failures.push(format!("{name} {key}: {units} units {what} in {span_us} us, at most {most}"));
            }
        }
    }
}
