//! Counts decisions and other operations, of every store, by policy.
//!
//! A thread writes counts of its own: a load, an addition and a store, none of which another thread's processor waits
//! for, and none is lost. Reading adds the counts of all threads up. docs/internals/metrics.md has the cost of a count.

pub(crate) mod counts;
pub(crate) mod totals;

use std::sync::OnceLock;

use crate::limiter::tally::counts::{OperationKind, PolicyCounts, RareCounts, Stripe, Writer};
use crate::limiter::tally::totals::Totals;
use polylimit_rules::decision::{Cause, Decision, Degradation, QuotaUsage, Several, Source};
use polylimit_runtime::thread_slot::{SLOTS, ThreadSlots};
use polylimit_store::charge::PolicyId;

/// The counts of a limiter.
#[derive(Debug)]
pub(crate) struct Tally {
    slots: ThreadSlots,
    /// The counts of the thread with each number, allocated when it counts first; a later thread with that number continues them.
    stripes: [OnceLock<Box<Stripe>>; SLOTS],
    /// The counts of all threads without a number.
    shared: OnceLock<Box<Stripe>>,
}

/// The facts of a decision that are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) cost: u64,
    pub(crate) allowed: bool,
    pub(crate) source: Source,
    pub(crate) cause: Option<Cause>,
    pub(crate) degraded: Option<Degradation>,
    pub(crate) elastic: bool,
    pub(crate) shadowed: bool,
    /// The remaining units of the only quota, or of all together.
    pub(crate) remaining: u64,
    pub(crate) several: Option<&'a Several>,
}

impl<'a> Facts<'a> {
    /// The usage of the only quota, as far as it is reported.
    pub(crate) fn only_usage(&self) -> QuotaUsage {
        QuotaUsage { limit: 0, remaining: self.remaining, reset_after_us: 0, over: 0 }
    }

    /// Of a decision that may be in registers: nothing refers to it.
    #[expect(clippy::inline_always, reason = "it is part of `check_known`")]
    #[inline(always)]
    pub(crate) fn of(decision: &'a Decision, cost: u64) -> Self {
        let &Decision { allowed, source, cause, degraded, elastic, shadowed, ref several, .. } = decision;
        let (remaining, several) = (decision.total.remaining, several.as_deref());
        Self { cost, allowed, source, cause, degraded, elastic, shadowed, remaining, several }
    }
}

impl Tally {
    /// The counts of this process.
    pub(crate) fn new() -> Self {
        Self {
            slots: ThreadSlots::here(),
            stripes: [const { OnceLock::new() }; SLOTS],
            shared: OnceLock::new(),
        }
    }

    /// This thread's counts of one of the first policies, if it has counted before: the shortest path.
    #[expect(clippy::inline_always, reason = "it is part of `check_known`")]
    #[inline(always)]
    pub(crate) fn own(&self, id: PolicyId) -> Option<&PolicyCounts> {
        self.stripes.get(self.slots.mine())?.get()?.first(id)
    }

    /// This thread's stripe, or the shared one.
    fn stripe(&self) -> (&Stripe, Writer) {
        match self.stripes.get(self.slots.take()) {
            Some(own) => (own.get_or_init(Box::default), Writer::Sole),
            None => (self.shared.get_or_init(Box::default), Writer::Several),
        }
    }

    /// Counts a decision, and whether it left little of a quota.
    pub(crate) fn count(&self, id: PolicyId, facts: Facts<'_>, is_near: bool) {
        let (stripe, writer) = self.stripe();
        let counts = stripe.of(id);
        counts.by(facts.source, facts.allowed).add(facts.cost, writer);
        if is_near {
            counts.near.add(1, writer);
        }
        if let Some(reason) = facts.degraded {
            counts.rare().degraded[reason as usize].add(1, writer);
        }
        if facts.allowed {
            if facts.elastic || facts.shadowed {
                let rare = counts.rare();
                if facts.shadowed { &rare.shadowed } else { &rare.elastic }.add(1, writer);
            }
            return;
        }
        match (facts.cause, facts.several) {
            // Denials by the only quota are not counted: they are the total less all others.
            (Some(Cause::Quota), None) => {}
            (Some(cause @ (Cause::Quota | Cause::Concurrency)), several) => {
                count_denying(counts.rare(), cause, several, writer);
            }
            (cause, _) => counts.rare().causes[RareCounts::place_of(cause)].add(1, writer),
        }
    }

    /// Counts an operation other than a check that has decided.
    pub(crate) fn count_decider(&self, id: PolicyId, kind: OperationKind) {
        let (stripe, writer) = self.stripe();
        stripe.of(id).rare().operations[kind as usize].operations.add(1, writer);
    }

    /// Counts an operation, and the units that it has spent or given back.
    pub(crate) fn count_operation(
        &self,
        id: PolicyId,
        kind: OperationKind,
        units: u64,
        asked_store: bool,
        degraded: Option<Degradation>,
    ) {
        let (stripe, writer) = self.stripe();
        let rare = stripe.of(id).rare();
        let counts = &rare.operations[kind as usize];
        counts.operations.add(1, writer);
        counts.units.add(units, writer);
        if !asked_store {
            rare.without_store.add(1, writer);
        }
        if let Some(reason) = degraded {
            rare.degraded[reason as usize].add(1, writer);
        }
    }

    /// Counts a decision about a request by the rules of a configuration.
    pub(crate) fn count_request(&self, allowed: bool, cause: Option<Cause>) {
        let (stripe, writer) = self.stripe();
        stripe.requests[usize::from(allowed)][RareCounts::place_of(cause)].add(1, writer);
    }

    /// The counts of all threads.
    pub(crate) fn read(&self) -> Totals {
        let mut totals = Totals::default();
        for stripe in self.stripes.iter().chain([&self.shared]).filter_map(OnceLock::get) {
            totals.add(stripe);
        }
        totals
    }
}

/// Counts the quotas that deny a request, where there may be several, or where they do not count units.
pub(crate) fn count_denying(rare: &RareCounts, cause: Cause, several: Option<&Several>, writer: Writer) {
    if cause != Cause::Quota {
        rare.causes[RareCounts::place_of(Some(cause))].add(1, writer);
    }
    let Some(several) = several else { return };
    rare.by_quotas.add(1, writer);
    for (denies, counted) in several.denying().zip(&rare.quotas) {
        if denies {
            counted.add(1, writer);
        }
    }
}
