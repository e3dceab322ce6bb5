//! What is counted, and when: a decision once it is final, every other operation once the store has answered it.
//!
//! Decisions are counted per operation of a caller: an acquire counts as one, however often it calls the store.
//!
//! With `polylimit_uncounted`, which `UNCOUNTED=1 benches/compare` sets, no decision is counted: the difference is the
//! cost of counting.

use crate::limiter::near_limit::is_near;
use crate::limiter::operations::Shared;
use crate::limiter::tally::counts::{OperationKind, PolicyCounts, Writer};
use crate::limiter::tally::{Facts, count_denying};
use polylimit_rules::decision::{Cause, Decision, Several, Source};
use polylimit_rules::policy::Policy;
use polylimit_rules::reservation::list::AS_RESERVED;
use polylimit_store::charge::{Action, Charge, PolicyId, StoreAnswer};

impl Shared {
    /// Counts a check that the shortest path has answered, with the decision in registers.
    #[expect(clippy::inline_always, reason = "it is part of `check_known`")]
    #[inline(always)]
    pub(crate) fn count_known(&self, id: PolicyId, key: &[u8], cost: u64, decision: &Decision) {
        self.trace(id, decision);
        if self.observed.is_some() {
            self.observe(id, key, decision.allowed);
        }
        if cfg!(polylimit_uncounted) {
            return;
        }
        let is_denied_by_quotas = decision.cause == Some(Cause::Quota);
        let is_plain = decision.degraded.is_none() && (decision.allowed || is_denied_by_quotas);
        if is_plain && let Some(counts) = self.tally.own(id) {
            counts.by(decision.source, decision.allowed).add_sole(cost);
            if let Some(several) = &decision.several {
                self.count_several(id, counts, decision.allowed, several);
            } else if decision.allowed && decision.total.remaining < self.registry.near.of_first(id) {
                counts.near.add_sole(1);
            }
        } else {
            self.count_facts(id, Facts::of(decision, cost));
        }
    }

    /// Counts the verdicts of several quotas, for the only thread that writes these counts.
    #[inline]
    fn count_several(&self, id: PolicyId, counts: &PolicyCounts, allowed: bool, several: &Several) {
        if !allowed {
            count_denying(counts.rare(), Cause::Quota, Some(several), Writer::Sole);
        } else if self.registry.near.is_near(id, several.usages()) == Some(true) {
            counts.near.add_sole(1);
        }
    }

    /// Counts a decision by the quotas of its policy.
    #[inline(never)]
    fn count_facts(&self, id: PolicyId, facts: Facts<'_>) {
        if cfg!(polylimit_uncounted) {
            return;
        }
        let is_near = knows_what_is_left(&facts) && {
            let only = [facts.only_usage()];
            let usages = facts.several.map_or(&only[..], |several| several.usages());
            let by_bounds = self.registry.near.is_near(id, usages);
            by_bounds.unwrap_or_else(|| self.registry.with_policy(id, |policy| is_near(policy, usages)))
        };
        self.tally.count(id, facts, is_near);
    }

    /// Counts the decision of a check or a reserve; any other operation is counted where the store [answers](Self::answered).
    #[inline]
    pub(crate) fn count_decision(&self, charge: &Charge<'_>, (decision, _): &StoreAnswer) {
        match OperationKind::of(charge.action) {
            None => {}
            Some(OperationKind::Reserve) => self.tally.count_decider(charge.id, OperationKind::Reserve),
            Some(_) => return,
        }
        self.trace(charge.id, decision);
        if self.observed.is_some() {
            self.observe(charge.id, charge.key, decision.allowed);
        }
        self.count_facts(charge.id, Facts::of(decision, charge.cost));
    }

    /// Counts a decision by these quotas. `kind` is that of an operation other than a check.
    pub(crate) fn count_by_quotas(
        &self,
        (id, key): (PolicyId, &[u8]),
        kind: Option<OperationKind>,
        cost: u64,
        decision: &Decision,
        effective: &Policy,
    ) {
        if let Some(kind) = kind {
            self.tally.count_decider(id, kind);
        }
        self.trace(id, decision);
        if self.observed.is_some() {
            self.observe(id, key, decision.allowed);
        }
        let facts = Facts::of(decision, cost);
        let is_near = knows_what_is_left(&facts) && is_near(effective, decision.quotas());
        self.tally.count(id, facts, is_near);
    }

    /// Counts the key of a decision, for a limiter that counts keys.
    #[cold]
    #[inline(never)]
    fn observe(&self, id: PolicyId, key: &[u8], allowed: bool) {
        if let Some(observed) = &self.observed {
            observed.observe(id, key, allowed);
        }
    }

    /// Records a decision in the caller's span, with the feature `tracing`.
    #[inline]
    fn trace(&self, id: PolicyId, decision: &Decision) {
        #[cfg(feature = "tracing")]
        if crate::limiter::spans::are_enabled() {
            self.trace_decision(id, decision.allowed, decision.source, decision.retry_after_us());
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (self, id, decision);
    }

    /// Counts an operation other than those that decide.
    #[inline]
    pub(crate) fn count_operation(&self, id: PolicyId, action: Action, cost: u64, answer: &StoreAnswer) {
        if let Some(kind) = OperationKind::of(action).filter(|kind| *kind != OperationKind::Reserve) {
            self.count_other(id, kind, cost, answer);
        }
    }

    fn count_other(&self, id: PolicyId, kind: OperationKind, cost: u64, (decision, spent): &StoreAnswer) {
        let units = match kind {
            OperationKind::Take => *spent,
            OperationKind::Commit if cost == AS_RESERVED => 0,
            OperationKind::Charge | OperationKind::Refund | OperationKind::Commit => cost,
            _ => 0,
        };
        let by_store = decision.source == Source::Store;
        self.tally.count_operation(id, kind, units, by_store, decision.degraded);
    }
}

/// Whether this is an admission based on what its quotas have left.
fn knows_what_is_left(facts: &Facts<'_>) -> bool {
    let is_reported = matches!(facts.source, Source::Store | Source::Lease | Source::Fallback);
    facts.allowed && !facts.elastic && !facts.shadowed && is_reported
}
