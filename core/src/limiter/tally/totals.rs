//! The counts of all threads together.

use crate::limiter::tally::counts::{
    CAUSES, DecisionCounts, MAX_COUNTED, OperationKind, PolicyCounts, RareCounts, Stripe,
};
use polylimit_rules::decision::{Cause, Degradation, Source};
use polylimit_rules::policy::Policy;

/// The totals of a limiter's counts.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// By the policies' ids; the one at [`MAX_COUNTED`] stands for all from there on.
    policies: Vec<PolicyTotals>,
    /// Decisions about requests by rules: denials, admissions, each by cause.
    pub(crate) requests: [[u64; CAUSES]; 2],
}

/// The counts of one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyTotals {
    decisions: [[Decisions; 2]; Source::ALL.len()],
    pub(crate) near: u64,
    causes: [u64; CAUSES],
    by_quotas: u64,
    quotas: [u64; Policy::MAX_QUOTAS],
    pub(crate) degraded: [u64; Degradation::ALL.len()],
    operations: [Operations; OperationKind::ALL.len()],
    without_store: u64,
    pub(crate) shadowed: u64,
    pub(crate) elastic: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decisions {
    pub(crate) decisions: u64,
    pub(crate) units: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations {
    pub(crate) operations: u64,
    pub(crate) units: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, stripe: &Stripe) {
        for (id, counts) in stripe.policies() {
            if self.policies.len() <= id {
                self.policies.resize_with(id + 1, PolicyTotals::default);
            }
            self.policies[id].add(counts);
        }
        for (total, counts) in self.requests.iter_mut().flatten().zip(stripe.requests.iter().flatten()) {
            *total += counts.get();
        }
    }

    /// The counts of the policy with this id, below [`MAX_COUNTED`].
    pub(crate) fn of(&self, id: usize) -> PolicyTotals {
        self.policies.get(id).cloned().unwrap_or_default()
    }

    /// The counts of all policies from [`MAX_COUNTED`] on.
    pub(crate) fn others(&self) -> Option<&PolicyTotals> {
        self.policies.get(MAX_COUNTED)
    }

    /// The number of operations that the store has answered.
    pub(crate) fn answered_by_store(&self) -> u64 {
        self.policies.iter().map(PolicyTotals::answered_by_store).sum()
    }
}

impl PolicyTotals {
    fn add(&mut self, counts: &PolicyCounts) {
        for (source, totals) in Source::ALL.into_iter().zip(&mut self.decisions) {
            for (allowed, total) in [false, true].into_iter().zip(totals) {
                let DecisionCounts { decisions, more_units } = counts.by(source, allowed);
                let decisions = decisions.get();
                total.decisions += decisions;
                total.units = total.units.wrapping_add(decisions).wrapping_add(more_units.get());
            }
        }
        self.near += counts.near.get();
        let Some(rare) = counts.known_rare() else { return };
        let RareCounts { causes, by_quotas, quotas, degraded, operations, .. } = rare;
        let plain = [
            (&mut self.causes[..], &causes[..]),
            (&mut self.quotas[..], &quotas[..]),
            (&mut self.degraded[..], &degraded[..]),
        ];
        for (totals, counts) in plain {
            totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count.get());
        }
        for (total, counts) in self.operations.iter_mut().zip(operations) {
            total.operations += counts.operations.get();
            total.units += counts.units.get();
        }
        self.by_quotas += by_quotas.get();
        self.without_store += rare.without_store.get();
        self.shadowed += rare.shadowed.get();
        self.elastic += rare.elastic.get();
    }

    /// Whether anything was counted.
    pub(crate) fn has_any(&self) -> bool {
        self.all_decisions() > 0 || self.operations.iter().any(|counted| counted.operations > 0)
    }

    /// Adds the counts of another policy.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (total, more) in self.decisions.iter_mut().flatten().zip(other.decisions.iter().flatten()) {
            total.decisions += more.decisions;
            total.units = total.units.wrapping_add(more.units);
        }
        let plain = [
            (&mut self.causes[..], &other.causes[..]),
            (&mut self.quotas[..], &other.quotas[..]),
            (&mut self.degraded[..], &other.degraded[..]),
        ];
        for (totals, more) in plain {
            totals.iter_mut().zip(more).for_each(|(total, more)| *total += more);
        }
        for (total, more) in self.operations.iter_mut().zip(&other.operations) {
            total.operations += more.operations;
            total.units += more.units;
        }
        self.near += other.near;
        self.by_quotas += other.by_quotas;
        self.without_store += other.without_store;
        self.shadowed += other.shadowed;
        self.elastic += other.elastic;
    }

    pub(crate) fn decisions(&self, source: Source, allowed: bool) -> Decisions {
        let Decisions { decisions, units } = self.decisions[source as usize][usize::from(allowed)];
        // While other threads count requests that cost nothing, a decision may be missing.
        Decisions { decisions, units: if units > u64::MAX / 2 { 0 } else { units } }
    }

    fn all_decisions(&self) -> u64 {
        self.decisions.iter().flatten().map(|counted| counted.decisions).sum()
    }

    /// Denials by cause; the last are those without one.
    pub(crate) fn denials_by_cause(&self) -> [u64; CAUSES] {
        let denied: u64 = self.decisions.iter().map(|[denied, _]| denied.decisions).sum();
        let mut causes = self.causes;
        // While other threads count, the parts are not of the same moment.
        causes[Cause::Quota as usize] = denied.saturating_sub(self.causes.iter().sum());
        causes
    }

    /// The denials of each quota of a policy. Those of policies with one quota are not counted separately.
    pub(crate) fn denials_by_quota(&self) -> [u64; Policy::MAX_QUOTAS] {
        let causes = self.denials_by_cause();
        let by_any = causes[Cause::Quota as usize] + causes[Cause::Concurrency as usize];
        let mut quotas = self.quotas;
        quotas[0] += by_any.saturating_sub(self.by_quotas);
        quotas
    }

    /// How often each kind of operation was performed, and its units. Checks are counted as the decisions that they make.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (&'static str, Operations)> {
        let of = |kind: OperationKind| self.operations[kind as usize];
        let other = of(OperationKind::Reserve).operations + of(OperationKind::Acquire).operations;
        let checks = Operations { operations: self.all_decisions().saturating_sub(other), units: 0 };
        let others = OperationKind::ALL.into_iter().map(move |(kind, name)| (name, of(kind)));
        std::iter::once(("check", checks)).chain(others)
    }

    fn answered_by_store(&self) -> u64 {
        let decisions = self.decisions[Source::Store as usize].iter().map(|counted| counted.decisions);
        let decides = |kind| matches!(kind, OperationKind::Reserve | OperationKind::Acquire);
        let others = OperationKind::ALL.into_iter().filter(|(kind, _)| !decides(*kind));
        let others: u64 = others.map(|(kind, _)| self.operations[kind as usize].operations).sum();
        decisions.sum::<u64>() + others.saturating_sub(self.without_store)
    }
}
