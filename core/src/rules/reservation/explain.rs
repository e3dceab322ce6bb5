//! The explanation of a key with reservations.

use smallvec::SmallVec;

use crate::rules::algorithm::{Explanation, Outcome, QuotaRules, Rules, State};
use crate::rules::decision::{Decision, Degradation, QuotaUsage, Several, Source};
use crate::rules::reservation::list::{Held, Reservations};
use crate::rules::transition::{Applied, Operation, PolicyRules};

/// A request to a key with reservations.
#[derive(Clone, Copy)]
pub(super) struct HeldRequest {
    pub(super) now_us: u64,
    pub(super) operation: Operation,
    pub(super) cost: u64,
}

impl PolicyRules {
    /// What the states and reservations of a key leave at some time.
    #[cold]
    pub(crate) fn view_with_reservations(&self, states: &[State], now_us: u64) -> Decision {
        let none = Reservations::default();
        let (states, reservations) = split_ref(states, self.quotas.len());
        let request = HeldRequest { now_us, operation: Operation::Charge, cost: 0 };
        let nothing = Applied { allowed: true, spent: 0, written: false };
        self.explain_with_reservations(states, reservations.unwrap_or(&none), request, nothing, None)
    }

    pub(super) fn explain_with_reservations(
        &self,
        states: &[State],
        reservations: &Reservations,
        request: HeldRequest,
        applied: Applied,
        degraded: Option<Degradation>,
    ) -> Decision {
        let HeldRequest { now_us, .. } = request;
        let held = reservations.held(now_us);
        let ends_after_us = reservations.reset_after_us(now_us);
        let each = self.quotas.iter().zip(states).map(|(quota, state)| {
            if matches!(quota.rules, QuotaRules::Slots) {
                let remaining = self.most_reservations().saturating_sub(held.alive);
                return QuotaUsage { limit: quota.limit, remaining, reset_after_us: ends_after_us, over: 0 };
            }
            let Explanation { remaining, reset_after_us, .. } =
                quota.rules.explain(state, now_us, Outcome::Adjusted);
            let remaining = remaining.saturating_sub(held.units);
            QuotaUsage {
                limit: quota.limit,
                remaining,
                reset_after_us: reset_after_us.max(ends_after_us),
                over: if quota.limit == 0 { 0 } else { quota.excess.saturating_sub(remaining) },
            }
        });
        let each: SmallVec<[QuotaUsage; 4]> = each.collect();
        let (of_all, several) = Several::of(each.iter().copied());
        let total = self.total(&each, of_all, held);
        let wait_us = match (request.operation, applied.allowed) {
            (Operation::Check | Operation::Peek | Operation::Reserve, false) => {
                self.retry_after_us(states, reservations, request)
            }
            _ => 0,
        };
        Decision { total, several, wait_us, allowed: applied.allowed, source: Source::Store, degraded }
    }

    /// The usage of all quotas together. Slots limit what remains only when none is free, or when nothing else does.
    fn total(&self, each: &[QuotaUsage], of_all: QuotaUsage, held: Held) -> QuotaUsage {
        let rates = self.quotas.iter().zip(each);
        let rates = rates.filter(|(quota, _)| !matches!(quota.rules, QuotaRules::Slots));
        let total = rates.map(|(_, usage)| *usage).reduce(QuotaUsage::and).unwrap_or(of_all);
        let has_no_slot = self.slots.is_some() && held.alive >= self.most_reservations();
        QuotaUsage { remaining: if has_no_slot { 0 } else { total.remaining }, ..total }
    }

    /// How long until every quota admits the request beside what is set aside by then: the first of the walk's steps in
    /// which that happens. No quota takes back within a step what it admits, since nothing is spent meanwhile.
    fn retry_after_us(&self, states: &[State], reservations: &Reservations, request: HeldRequest) -> u64 {
        if self.never_admits_beside(request) {
            return Decision::NEVER;
        }
        let HeldRequest { now_us, cost, .. } = request;
        let slots = self.slots_of(request).unwrap_or(u64::MAX);
        let steps = reservations.walk(now_us);
        for (at, step) in steps.iter().enumerate() {
            if step.alive >= slots {
                continue;
            }
            let Some(fits_after_us) = self.fits_after_us(states, now_us, cost, step.units) else { continue };
            let admits_us = (now_us.saturating_add(fits_after_us)).max(step.from_us);
            if steps.get(at + 1).is_none_or(|next| admits_us < next.from_us) {
                return admits_us - now_us;
            }
        }
        // The last step has nothing set aside, so it admits every cost that is ever admitted.
        Decision::NEVER
    }

    /// How long until all quotas admit a cost beside units that stay set aside; `None` when they never do.
    fn fits_after_us(&self, states: &[State], now_us: u64, cost: u64, held: u64) -> Option<u64> {
        if cost == 0 {
            return Some(0);
        }
        let wanted = cost + held;
        let mut longest_us = 0;
        for (quota, state) in self.rates(states) {
            if wanted > quota.capacity {
                return None;
            }
            if wanted > quota.rules.remaining(state, now_us) {
                longest_us = longest_us.max(quota.rules.retry_after_us(state, now_us, wanted));
            }
        }
        Some(longest_us)
    }
}

/// A key's states, cut into those of its quotas and its reservations.
fn split_ref(states: &[State], quotas: usize) -> (&[State], Option<&Reservations>) {
    let (states, rest) = states.split_at(quotas.min(states.len()));
    match rest {
        [State::Reservations(reservations)] => (states, Some(reservations)),
        _ => (states, None),
    }
}
