//! An algorithm consists of a transition and an explanation, both pure.
//!
//! - The **transition** changes a state: it spends, charges and refunds, and moves the state back when the clock went
//!   back. It runs where the state is.
//! - The **explanation** computes from a state how long it takes until a request would fit, until nothing counts as used
//!   any more, and how long an admitted request waits. It runs here, for every store.
//!
//! Both take the time as an argument, in microseconds since the Unix epoch; nothing here reads a clock or does I/O.
//! Reading a state at a given time does not write it: [`Rules::spend`], [`Rules::refund`] and [`Rules::rewind`] are the
//! only writers. So a peek and a denial have no effect.

mod divisor;
pub(crate) mod fixed_window;
pub mod grouped;
mod leaky_bucket;
pub mod sliding_log;
pub(crate) mod sliding_window;
pub(crate) mod stepped_bucket;
#[cfg(test)]
mod testing;
pub(crate) mod token_bucket;

use fixed_window::FixedWindow;
use grouped::{GroupedBucket, GroupedSlots};
use leaky_bucket::LeakyBucket;
use sliding_log::SlidingLog;
use sliding_window::SlidingWindow;
use stepped_bucket::SteppedBucket;
use token_bucket::TokenBucket;

use crate::groups::Groups;
use crate::penalty::BlockRecord;
use crate::quota::{Algorithm, Quota};
use crate::reservation::list::Reservations;

/// One quota's numbers, ready for the arithmetic of its algorithm.
pub trait Rules {
    /// The state of one key; fresh when nothing was used.
    type State;

    // The transition.

    /// Whole units that can be spent at `now_us`.
    fn remaining(&self, state: &Self::State, now_us: u64) -> u64;

    /// Whole units that can be spent or charged before the use saturates.
    fn room(&self, state: &Self::State, now_us: u64) -> u64;

    /// Spends units, at most [`room`](Self::room); the state is written even when there are none.
    fn spend(&self, state: &mut Self::State, now_us: u64, units: u64);

    /// Gives back up to what is used, the newest first.
    fn refund(&self, state: &mut Self::State, now_us: u64, units: u64);

    /// Moves the state back to the clock if it is ahead of it; nothing is refilled and nothing is lost. Returns whether
    /// the state was ahead.
    fn rewind(&self, state: &mut Self::State, now_us: u64) -> bool;

    // The explanation.

    /// How long until `cost` units fit if nothing else arrives; the cost is within the capacity and does not fit now.
    fn retry_after_us(&self, state: &Self::State, now_us: u64, cost: u64) -> u64;

    /// How long until nothing counts as used if nothing else arrives; 0 when nothing does.
    fn reset_after_us(&self, state: &Self::State, now_us: u64) -> u64;

    /// How long the request that has just spent `spent` units (0 for a peek) waits for its turn.
    #[inline]
    fn delay_us(&self, _state: &Self::State, _now_us: u64, _spent: u64) -> u64 {
        0
    }

    /// The whole explanation of one outcome.
    #[inline]
    fn explain(&self, state: &Self::State, now_us: u64, outcome: Outcome) -> Explanation {
        let remaining = self.remaining(state, now_us);
        let wait_us = match outcome {
            Outcome::Admitted { spent } => self.delay_us(state, now_us, spent),
            Outcome::Denied { cost } if cost > remaining => self.retry_after_us(state, now_us, cost),
            Outcome::Denied { .. } | Outcome::Adjusted => 0,
        };
        Explanation { remaining, reset_after_us: self.reset_after_us(state, now_us), wait_us }
    }

    // A transition and its explanation in one step: checks spend most of their time here.

    /// Spends a cost, at least one unit and at most the capacity, if it fits, and explains; otherwise writes nothing.
    #[inline]
    fn admit(&self, state: &mut Self::State, now_us: u64, cost: u64) -> Option<Explanation> {
        if cost > self.remaining(state, now_us) {
            return None;
        }
        self.spend(state, now_us, cost);
        Some(self.explain(state, now_us, Outcome::Admitted { spent: cost }))
    }

    /// Denies a request: writes the state only if the clock went back, and explains it. Also returns whether it wrote.
    #[inline]
    fn deny(&self, state: &mut Self::State, now_us: u64, cost: u64) -> (bool, Explanation) {
        let written = self.rewind(state, now_us);
        (written, self.explain(state, now_us, Outcome::Denied { cost }))
    }
}

/// The result of a transition, as the explanation needs it.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// The request is admitted and `spent` of its units were spent; 0 for a peek.
    Admitted { spent: u64 },
    /// The request is denied, and its cost is within the capacity.
    Denied { cost: u64 },
    /// The cost is 0 or can never be admitted, so there is no wait.
    Adjusted,
}

/// One quota's explanation of one key.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    pub(crate) remaining: u64,
    pub(crate) reset_after_us: u64,
    /// How long an admitted request waits for its turn, or a denied one until it fits.
    pub(crate) wait_us: u64,
}

/// The rules of a quota with any algorithm.
#[derive(Clone, Debug)]
pub enum QuotaRules {
    /// A limit of 0 neither reads nor writes state.
    Nothing,
    /// Concurrency has no state of its own: the key's reservations are counted.
    Slots,
    TokenBucket(TokenBucket),
    SteppedBucket(SteppedBucket),
    LeakyBucket(LeakyBucket),
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    /// A bucket that groups share; boxed, as it is rare and large.
    GroupedBucket(Box<GroupedBucket>),
    /// Concurrency that groups share. Its state has their claims.
    GroupedSlots(Box<GroupedSlots>),
}

/// The state of one key under one quota, or the reservations, the remembered commits or the record of blocks of a key, which stand
/// after the states of its quotas.
#[derive(Clone, Debug)]
pub enum State {
    TokenBucket(token_bucket::State),
    SteppedBucket(stepped_bucket::State),
    FixedWindow(fixed_window::State),
    SlidingWindow(sliding_window::State),
    /// The largest variant; boxed to keep the others small.
    SlidingLog(Box<sliding_log::State>),
    Grouped(Box<grouped::State>),
    Slots,
    Reservations(Box<Reservations>),
    Commits(Box<Reservations>),
    Block(Box<BlockRecord>),
}

/// Calls the rules with their state. A store keeps states by the quota's identity, so the two always match; on a
/// mismatch, which would be a defect, nothing counts as used.
macro_rules! dispatch {
    ($rules:expr, $state:expr, $otherwise:expr, |$r:ident, $s:ident| $call:expr) => {
        match ($rules, $state) {
            (QuotaRules::TokenBucket($r), State::TokenBucket($s)) => $call,
            (QuotaRules::SteppedBucket($r), State::SteppedBucket($s)) => $call,
            (QuotaRules::LeakyBucket($r), State::TokenBucket($s)) => $call,
            (QuotaRules::FixedWindow($r), State::FixedWindow($s)) => $call,
            (QuotaRules::SlidingWindow($r), State::SlidingWindow($s)) => $call,
            (QuotaRules::SlidingLog($r), State::SlidingLog($s)) => $call,
            (QuotaRules::GroupedBucket($r), State::Grouped($s)) => $call,
            (QuotaRules::Nothing | QuotaRules::Slots | QuotaRules::GroupedSlots(_), _) => $otherwise,
            _ => {
                debug_assert!(false, "a state of another algorithm");
                $otherwise
            }
        }
    };
}

/// The explanation of a limit of 0.
const NOTHING: Explanation = Explanation { remaining: 0, reset_after_us: 0, wait_us: 0 };

impl QuotaRules {
    pub(crate) fn new(quota: &Quota, groups: Option<&Groups>) -> Self {
        match (quota.algorithm(), groups) {
            (Algorithm::Concurrency, Some(groups)) => {
                return Self::GroupedSlots(Box::new(GroupedSlots::new(quota, groups)));
            }
            (Algorithm::TokenBucket, Some(groups)) if quota.limit() > 0 => {
                return Self::GroupedBucket(Box::new(GroupedBucket::new(quota, groups)));
            }
            _ => {}
        }
        match quota.algorithm() {
            Algorithm::Concurrency => Self::Slots,
            _ if quota.limit() == 0 => Self::Nothing,
            Algorithm::TokenBucket => match quota.step() {
                Some(step) => Self::SteppedBucket(SteppedBucket::new(quota, step)),
                None => Self::TokenBucket(TokenBucket::new(quota)),
            },
            Algorithm::LeakyBucket => Self::LeakyBucket(LeakyBucket::new(quota)),
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::new(quota)),
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::new(quota)),
            Algorithm::SlidingLog => Self::SlidingLog(SlidingLog::new(quota)),
        }
    }

    /// Whether it counts reservations and no units.
    pub(crate) const fn counts_slots(&self) -> bool {
        matches!(self, Self::Slots | Self::GroupedSlots(_))
    }
}

impl State {
    /// Whether the state holds no use at all, at any time and under any numbers.
    pub fn holds_nothing(&self) -> bool {
        match self {
            Self::TokenBucket(state) => state.debt == 0,
            Self::SteppedBucket(state) => state.used == 0,
            Self::FixedWindow(state) => state.count == 0,
            Self::SlidingWindow(state) => state.holds_nothing(),
            Self::SlidingLog(state) => state.holds_nothing(),
            Self::Grouped(state) => state.holds_nothing(),
            Self::Slots => true,
            Self::Reservations(list) | Self::Commits(list) => list.0.is_empty(),
            Self::Block(record) => **record == BlockRecord::default(),
        }
    }

    /// The state of a key that was never seen under a quota.
    pub fn fresh(quota: &Quota) -> Self {
        if quota.is_grouped() {
            return Self::Grouped(Box::default());
        }
        match (quota.algorithm(), quota.step()) {
            (Algorithm::TokenBucket, Some(_)) => Self::SteppedBucket(stepped_bucket::State::default()),
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, _) => {
                Self::TokenBucket(token_bucket::State::default())
            }
            (Algorithm::FixedWindow, _) => Self::FixedWindow(fixed_window::State::default()),
            (Algorithm::SlidingWindow, _) => Self::SlidingWindow(sliding_window::State::default()),
            (Algorithm::SlidingLog, _) => Self::SlidingLog(Box::default()),
            (Algorithm::Concurrency, _) => Self::Slots,
        }
    }
}

impl Rules for QuotaRules {
    type State = State;

    #[inline]
    fn remaining(&self, state: &State, now_us: u64) -> u64 {
        dispatch!(self, state, 0, |rules, state| rules.remaining(state, now_us))
    }

    #[inline]
    fn room(&self, state: &State, now_us: u64) -> u64 {
        dispatch!(self, state, 0, |rules, state| rules.room(state, now_us))
    }

    #[inline]
    fn spend(&self, state: &mut State, now_us: u64, units: u64) {
        if let (Self::GroupedSlots(slots), State::Grouped(state)) = (self, &mut *state) {
            return slots.bring(state, now_us);
        }
        dispatch!(self, state, (), |rules, state| rules.spend(state, now_us, units));
    }

    fn refund(&self, state: &mut State, now_us: u64, units: u64) {
        if let (Self::GroupedSlots(slots), State::Grouped(state)) = (self, &mut *state) {
            return slots.bring(state, now_us);
        }
        dispatch!(self, state, (), |rules, state| rules.refund(state, now_us, units));
    }

    #[inline]
    fn rewind(&self, state: &mut State, now_us: u64) -> bool {
        if let (Self::GroupedSlots(slots), State::Grouped(state)) = (self, &mut *state) {
            return slots.rewind(state, now_us);
        }
        dispatch!(self, state, false, |rules, state| rules.rewind(state, now_us))
    }

    #[inline]
    fn retry_after_us(&self, state: &State, now_us: u64, cost: u64) -> u64 {
        dispatch!(self, state, 0, |rules, state| rules.retry_after_us(state, now_us, cost))
    }

    #[inline]
    fn reset_after_us(&self, state: &State, now_us: u64) -> u64 {
        dispatch!(self, state, 0, |rules, state| rules.reset_after_us(state, now_us))
    }

    #[inline]
    fn delay_us(&self, state: &State, now_us: u64, spent: u64) -> u64 {
        dispatch!(self, state, 0, |rules, state| rules.delay_us(state, now_us, spent))
    }

    #[inline]
    fn explain(&self, state: &State, now_us: u64, outcome: Outcome) -> Explanation {
        dispatch!(self, state, NOTHING, |rules, state| rules.explain(state, now_us, outcome))
    }

    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than computing it"
    )]
    #[inline(always)]
    fn admit(&self, state: &mut State, now_us: u64, cost: u64) -> Option<Explanation> {
        dispatch!(self, state, None, |rules, state| rules.admit(state, now_us, cost))
    }

    #[expect(clippy::inline_always, reason = "as for `admit`")]
    #[inline(always)]
    fn deny(&self, state: &mut State, now_us: u64, cost: u64) -> (bool, Explanation) {
        dispatch!(self, state, (false, NOTHING), |rules, state| rules.deny(state, now_us, cost))
    }
}
