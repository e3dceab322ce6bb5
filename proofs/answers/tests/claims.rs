//! Cases that contradict what comments and pages claimed until it was to be proved. `docs/proofs.md` lists what holds instead.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use polylimit_rules::algorithm::{QuotaRules, Rules, State};
use polylimit_rules::transition::PolicyRules;
use polylimit_rules::{Policy, Quota};

struct Key {
    quota: Quota,
    rules: QuotaRules,
    state: State,
}

impl Key {
    fn new(text: &str) -> Self {
        let quota: Quota = text.parse().unwrap();
        let policy = Policy::new("claims", [quota.clone()]).unwrap();
        let rules = PolicyRules::new(&policy).quotas[0].rules.clone();
        Self { state: State::fresh(&quota), rules, quota }
    }

    /// Spends all that remains, and returns how much that was.
    fn spend_all(&mut self, now_us: u64) -> u64 {
        let units = self.rules.remaining(&self.state, now_us);
        self.rules.spend(&mut self.state, now_us, units);
        units
    }

    /// B + floor(W * L / P), with W in microseconds.
    fn of_microseconds(&self, span_us: u64) -> u64 {
        let refilled = u128::from(span_us) * u128::from(self.quota.limit()) / self.quota.period().as_micros();
        self.quota.capacity() + u64::try_from(refilled).unwrap()
    }
}

/// The longest wait of this quota is less than 2^63 us, and 2^63 + 24,192 us in whole ticks of 100,000 us.
#[test]
fn bucket_whose_longest_wait_exceeds_63_bits_in_ticks_is_refused() {
    assert!("11/32700ms token_bucket burst=387832922039".parse::<Quota>().is_err());
    let mut key = Key::new("11/32700ms token_bucket burst=387832922000");
    let room = key.rules.room(&key.state, 0);
    key.rules.spend(&mut key.state, 0, room);
    assert_eq!(key.quota.tick_us(), 100_000);
    assert!(key.rules.reset_after_us(&key.state, 0) < 1 << 63);
}

/// With a step, a whole step may arrive within the span.
#[test]
fn a_stepped_bucket_admits_a_step_more() {
    let mut key = Key::new("10/s token_bucket step=5");
    key.rules.spend(&mut key.state, 0, 1);
    let admitted = key.spend_all(499_999) + key.spend_all(500_000);
    assert_eq!((admitted, key.of_microseconds(2)), (14, 10));
    assert!(admitted <= key.quota.most_admitted(Duration::from_micros(2)));
}

/// Where a tick is longer than a microsecond, the span counts in whole ticks begun.
#[test]
fn a_coarse_bucket_admits_a_tick_more() {
    let mut key = Key::new("999999999989/day token_bucket");
    let tick_us = key.quota.tick_us();
    assert_eq!(tick_us, 100_000_000);
    let admitted = key.spend_all(tick_us - 1) + key.spend_all(tick_us);
    assert_eq!((admitted, key.of_microseconds(2)), (999_999_999_989 + 1_157_407_407, 999_999_999_989 + 23));
    assert!(admitted <= key.quota.most_admitted(Duration::from_micros(2)));
}

/// A log admits its capacity in any span of P, which includes the excess.
#[test]
fn an_excess_is_admitted_as_well() {
    let mut key = Key::new("10/s sliding_log excess=10%");
    assert_eq!(key.spend_all(0), 11);
}

/// The builder admits an excess of up to 10^12 units, whatever the limit is.
#[test]
fn an_excess_may_be_beyond_the_limit() {
    assert_eq!(Key::new("1/s sliding_log excess=5").spend_all(0), 6);
}

/// Departures are rounded up to a tick, so two of them may be closer than `period / limit`.
#[test]
fn departures_are_a_fraction_of_a_tick_closer() {
    let mut key = Key::new("3/s leaky_bucket");
    let delays: Vec<u64> = (0..3)
        .map(|_| {
            key.rules.spend(&mut key.state, 0, 1);
            key.rules.delay_us(&key.state, 0, 1)
        })
        .collect();
    assert_eq!(delays, [0, 333_334, 666_667]);
    assert!(3 * (delays[2] - delays[1]) < 1_000_000);
}

/// `retry_after` is exact for states that are not ahead of the clock. After a clock that went back this needs an operation that writes, as a check does: a peek
/// does not move the state back, so it repeats the same wait.
#[test]
fn peeks_alone_do_not_bring_back_a_state_that_is_ahead_of_the_clock() {
    let mut key = Key::new("1/s token_bucket");
    key.rules.spend(&mut key.state, 10_000_000, 1);
    assert_eq!(key.rules.retry_after_us(&key.state, 5_000_000, 1), 1_000_000);
    assert_eq!(key.rules.retry_after_us(&key.state, 6_000_000, 1), 1_000_000);
    assert!(key.rules.rewind(&mut key.state, 5_000_000));
    assert_eq!(key.rules.remaining(&key.state, 6_000_000), 1);
}
