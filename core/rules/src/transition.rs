//! The transition of a whole policy: changes the states of all quotas or of none.
//!
//! It runs where the states are, atomically. [`crate::explanation`] explains its result.

use std::ops::Range;

use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::{QuotaRules, Rules, State};
use crate::groups::Groups;
use crate::penalty::Penalty;
use crate::policy::Policy;
use crate::quota::{Algorithm, Quota};

/// An operation on a key. A reset is not among them: it removes the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Spends the cost from every quota if all admit it.
    Check,
    /// Decides like a check, without any effect.
    Peek,
    /// Spends as much of the cost as every quota admits.
    Take,
    /// Spends the cost whether it fits or not, up to saturation.
    Charge,
    /// Gives back up to the units that are used.
    Refund,
    /// Decides like a check and, when it admits, sets the cost aside.
    Reserve,
    /// Ends a reservation and charges a cost.
    Commit,
    /// Ends a reservation.
    Cancel,
    /// Makes a reservation last longer.
    Renew,
    /// Blocks the key for the time of its hold: 1 ms to 366 days, or 0 to forget its record of blocks.
    Block,
}

/// A policy's numbers, prepared for the arithmetic.
#[derive(Clone, Debug)]
pub struct PolicyRules {
    pub quotas: Box<[QuotaNumbers]>,
    /// The limit of the quota of concurrent reservations, if there is one.
    pub slots: Option<u64>,
    pub(crate) penalty: Option<Penalty>,
    /// The groups that share the quotas.
    pub(crate) groups: Option<Groups>,
}

#[derive(Clone, Debug)]
pub struct QuotaNumbers {
    pub rules: QuotaRules,
    pub(crate) limit: u64,
    pub capacity: u64,
    pub(crate) excess: u64,
    pub(crate) count_denied: bool,
    /// Whether a denial may write: it is counted by the quota, or by the policy's penalty.
    pub(crate) denial_writes: bool,
}

/// The result of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Whether every quota admits the request; true for operations that cannot be denied. For a commit, a cancel and a renew:
    /// whether the reservation was there.
    pub allowed: bool,
    /// The units that a check or take has spent from every quota.
    pub spent: u64,
    /// Whether any state was written.
    pub written: bool,
}

impl PolicyRules {
    pub fn new(policy: &Policy) -> Self {
        let numbers = policy.quotas().iter().map(|quota| {
            let rules = QuotaRules::new(quota, policy.groups());
            let capacity = match &rules {
                // Slots are counted by reservations, whatever their units.
                rules if rules.counts_slots() => u64::MAX,
                QuotaRules::GroupedBucket(bucket) => bucket.capacity(),
                _ => quota.capacity(),
            };
            QuotaNumbers {
                rules,
                limit: quota.limit(),
                capacity,
                excess: quota.excess(),
                count_denied: quota.count_denied(),
                denial_writes: quota.count_denied()
                    || policy.penalty().is_some()
                    || policy.groups().is_some(),
            }
        });
        let concurrency = policy.quotas().iter().find(|quota| quota.algorithm() == Algorithm::Concurrency);
        Self {
            quotas: numbers.collect(),
            slots: concurrency.map(Quota::limit),
            penalty: policy.penalty().copied(),
            groups: policy.groups().cloned(),
        }
    }

    /// Sets the windows of a policy's quotas by the calendar, in their order: every decision has to be in them.
    pub fn set_windows(&mut self, policy: &Policy, windows_us: &[Range<u64>]) {
        let quotas = policy.quotas().iter().zip(&mut self.quotas);
        let by_calendar = quotas.filter(|(quota, _)| quota.calendar().is_some());
        for ((quota, numbers), window_us) in by_calendar.zip(windows_us) {
            if let QuotaRules::FixedWindow(rules) = &mut numbers.rules {
                *rules = FixedWindow::within(quota, window_us.clone());
            }
        }
    }

    /// Applies an operation to the states of one key, which are in the order of the quotas.
    #[inline]
    pub(crate) fn apply(
        &self,
        states: &mut [State],
        now_us: u64,
        operation: Operation,
        cost: u64,
    ) -> Applied {
        debug_assert_eq!(states.len(), self.quotas.len());
        if cost == 0 {
            let written = operation != Operation::Peek && self.rewind(states, now_us);
            return Applied { allowed: true, spent: 0, written };
        }
        match operation {
            Operation::Check => self.check(states, now_us, cost),
            Operation::Peek => {
                Applied { allowed: self.admits(states, now_us, cost), spent: 0, written: false }
            }
            Operation::Take => self.take(states, now_us, cost),
            Operation::Charge => {
                let written = self.charge(states, now_us, cost, |_| true);
                Applied { allowed: true, spent: 0, written }
            }
            Operation::Refund => {
                for (quota, state) in self.quotas.iter().zip(states) {
                    quota.rules.refund(state, now_us, cost);
                }
                Applied { allowed: true, spent: 0, written: true }
            }
            Operation::Reserve
            | Operation::Commit
            | Operation::Cancel
            | Operation::Renew
            | Operation::Block => {
                debug_assert!(false, "an operation with a hold takes the general transition");
                Applied { allowed: false, spent: 0, written: false }
            }
        }
    }

    #[inline]
    fn check(&self, states: &mut [State], now_us: u64, cost: u64) -> Applied {
        // A request that can never be admitted is not counted either.
        if self.never_admits(cost) {
            return Applied { allowed: false, spent: 0, written: self.rewind(states, now_us) };
        }
        if self.admits(states, now_us, cost) {
            self.spend(states, now_us, cost);
            return Applied { allowed: true, spent: cost, written: true };
        }
        let written = self.charge(states, now_us, cost, |quota| quota.count_denied);
        Applied { allowed: false, spent: 0, written }
    }

    /// Whether the cost is more than a quota can ever admit.
    #[inline]
    pub(crate) fn never_admits(&self, cost: u64) -> bool {
        self.quotas.iter().any(|quota| cost > quota.capacity)
    }

    fn take(&self, states: &mut [State], now_us: u64, cost: u64) -> Applied {
        let remaining =
            self.quotas.iter().zip(&*states).map(|(quota, state)| quota.rules.remaining(state, now_us));
        let spent = remaining.fold(cost, u64::min);
        let written = if spent == 0 {
            self.rewind(states, now_us)
        } else {
            self.spend(states, now_us, spent);
            true
        };
        Applied { allowed: true, spent, written }
    }

    #[inline]
    pub fn admits(&self, states: &[State], now_us: u64, cost: u64) -> bool {
        self.quotas.iter().zip(states).all(|(quota, state)| cost <= quota.rules.remaining(state, now_us))
    }

    #[inline]
    pub(super) fn spend(&self, states: &mut [State], now_us: u64, units: u64) {
        for (quota, state) in self.quotas.iter().zip(states) {
            quota.rules.spend(state, now_us, units);
        }
    }

    /// Moves the states back if the clock went back. Returns whether it wrote anything.
    pub(super) fn rewind(&self, states: &mut [State], now_us: u64) -> bool {
        self.charge(states, now_us, 0, |_| false)
    }

    /// Charges the quotas with `count_denied` and moves the states of the others back if the clock went back. Returns
    /// whether it wrote anything.
    pub(crate) fn charge(
        &self,
        states: &mut [State],
        now_us: u64,
        cost: u64,
        counts: impl Fn(&QuotaNumbers) -> bool,
    ) -> bool {
        let mut written = false;
        for (quota, state) in self.quotas.iter().zip(states) {
            if counts(quota) {
                let units = cost.min(quota.rules.room(state, now_us));
                quota.rules.spend(state, now_us, units);
                written = true;
            } else {
                written |= quota.rules.rewind(state, now_us);
            }
        }
        written
    }
}
