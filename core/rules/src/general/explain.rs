//! The explanation of the general transition.

use smallvec::SmallVec;

use super::decide::{HeldBeside, Outcome as Decided};
use super::{KeyOperation, KeyParts, kept};
use crate::algorithm::{Explanation, Outcome, QuotaRules, Rules, State};
use crate::decision::{Decision, Degradation, QuotaUsage, Several, Source, Waits};
use crate::reservation::list::{Held, Reservations};
use crate::transition::{Operation, PolicyRules, QuotaNumbers};

/// What a key sets aside now, and how long it is blocked.
#[derive(Clone, Copy)]
struct Beside {
    /// How long until the last reservation ends.
    ends_after_us: u64,
    blocked_for_us: u64,
}

impl PolicyRules {
    /// What the states of a key leave at some time.
    #[cold]
    pub(crate) fn view_general(&self, states: &[State], now_us: u64) -> Decision {
        let parts = KeyParts::of(states, self.quotas.len());
        let request = KeyOperation { now_us, operation: Operation::Charge, cost: 0, headroom: 0, hold: None };
        self.explain_general(&parts, request, &Decided::nothing(true), None)
    }

    pub(super) fn explain_general(
        &self,
        key: &KeyParts<'_>,
        request: KeyOperation<'_>,
        decided: &Decided,
        degraded: Option<Degradation>,
    ) -> Decision {
        let KeyOperation { now_us, headroom, .. } = request;
        let none = Reservations::default();
        let reservations = key.reservations.unwrap_or(&none);
        let held = self.held(reservations, now_us);
        let beside = Beside {
            ends_after_us: reservations.reset_after_us(now_us),
            blocked_for_us: key.record.map_or(0, |record| record.blocked_for_us(now_us)),
        };
        let mut delay_us = 0;
        let each = self.quotas.iter().zip(key.quotas).map(|(quota, state)| {
            if quota.rules.counts_slots() {
                let remaining = self.free_slots(key.quotas, reservations, now_us, headroom);
                return beside.limit(QuotaUsage {
                    limit: quota.limit,
                    remaining,
                    reset_after_us: 0,
                    over: 0,
                });
            }
            let applied = decided.applied;
            let outcome = if applied.allowed && request.cost > 0 {
                Outcome::Admitted { spent: applied.spent }
            } else {
                Outcome::Adjusted
            };
            let Explanation { remaining, reset_after_us, wait_us } =
                quota.rules.explain(state, now_us, outcome);
            delay_us = delay_us.max(wait_us);
            let left = match &held {
                HeldBeside { of_groups: Some(_), .. } => quota.left_beside(state, now_us, &held),
                HeldBeside { all, .. } => remaining.saturating_sub(all.units),
            };
            beside.limit(QuotaUsage {
                limit: quota.limit,
                remaining: left.saturating_sub(kept(quota.capacity, headroom)),
                reset_after_us,
                over: if quota.limit == 0 { 0 } else { quota.excess.saturating_sub(left) },
            })
        });
        let each: SmallVec<[QuotaUsage; 4]> = each.collect();
        let (of_all, several) = match &*each {
            [only] => (*only, None),
            _ => Several::of(each.iter().copied()),
        };
        let crossed = each.iter().any(|usage| usage.crossed(decided.units));
        let decision = Decision {
            total: self.total(&each, of_all, self.free_slots(key.quotas, reservations, now_us, headroom)),
            several,
            wait_us: 0,
            allowed: decided.applied.allowed,
            source: Source::Store,
            degraded,
            cause: decided.cause,
            crossed,
            elastic: false,
            shadowed: false,
            repeated: decided.repeated,
        };
        let is_asked = matches!(request.operation, Operation::Check | Operation::Peek | Operation::Reserve);
        match decision.allowed {
            true => Decision { wait_us: delay_us, ..decision },
            false if is_asked => self.with_denial(decision, key.quotas, reservations, request, beside),
            false => decision,
        }
    }

    /// The usage of all quotas together. Slots limit what remains only when none is free, or when nothing else does.
    fn total(&self, each: &[QuotaUsage], of_all: QuotaUsage, free_slots: u64) -> QuotaUsage {
        let rates = self.quotas.iter().zip(each);
        let rates = rates.filter(|(quota, _)| !quota.rules.counts_slots());
        let total = rates.map(|(_, usage)| *usage).reduce(QuotaUsage::and).unwrap_or(of_all);
        let has_no_slot = self.slots.is_some() && free_slots == 0;
        QuotaUsage { remaining: if has_no_slot { 0 } else { total.remaining }, ..total }
    }

    /// The slots that a request may still have.
    fn free_slots(&self, states: &[State], reservations: &Reservations, now_us: u64, headroom: u8) -> u64 {
        match self.slots_beside(states, reservations, now_us) {
            Some((left, capacity)) => left.saturating_sub(kept(capacity, headroom)),
            None => self.most_reservations(headroom).saturating_sub(reservations.held(now_us).alive),
        }
    }

    /// The denial with the waits: the key is admitted when the last of its quotas admits it in addition to what is set aside by then, a
    /// reservation finds its place, and no block is left. What admits does not deny again, since nothing is spent meanwhile.
    fn with_denial(
        &self,
        decision: Decision,
        states: &[State],
        reservations: &Reservations,
        request: KeyOperation<'_>,
        beside: Beside,
    ) -> Decision {
        let steps = reservations.walk(request.now_us);
        let quotas = || self.quotas.iter().zip(states);
        let places_us = self.slots_of(request).map_or(0, |slots| {
            let grouped =
                quotas().find_map(|(quota, state)| quota.grouped_slot_after_us(state, request, reservations));
            grouped.unwrap_or_else(|| free_after_us(slots, &steps))
        });
        let each_us: Waits = quotas()
            .map(|(quota, state)| match &quota.rules {
                rules if rules.counts_slots() => places_us,
                _ => quota.fits_after_us(state, request, reservations, &steps),
            })
            .collect();
        let longest_us = each_us.iter().copied().max().unwrap_or(0);
        let wait_us = longest_us.max(places_us).max(beside.blocked_for_us);
        Decision { wait_us, ..decision }.with_waits(&each_us)
    }
}

/// How long until less than this many reservations count.
fn free_after_us(slots: u64, steps: &[Held]) -> u64 {
    let now_us = steps.first().map_or(0, |step| step.from_us);
    // The last step has no reservation, so only no slots at all are never free.
    steps.iter().find(|step| step.alive < slots).map_or(Decision::NEVER, |step| step.from_us - now_us)
}

impl QuotaNumbers {
    /// How long until a slot is free for the group of a request, if this is the quota of concurrency that groups share.
    pub(super) fn grouped_slot_after_us(
        &self,
        state: &State,
        request: KeyOperation<'_>,
        reservations: &Reservations,
    ) -> Option<u64> {
        let (QuotaRules::GroupedSlots(slots), State::Grouped(state)) = (&self.rules, state) else {
            return None;
        };
        let wanted = 1 + kept(slots.capacity(), request.headroom);
        if wanted > slots.capacity() {
            return Some(Decision::NEVER);
        }
        Some(slots.free_after_us(state, request.now_us, wanted, reservations))
    }

    /// How long until this quota of units admits a request in addition to what is set aside by then: the first of the steps in which that
    /// happens.
    pub(super) fn fits_after_us(
        &self,
        state: &State,
        request: KeyOperation<'_>,
        reservations: &Reservations,
        steps: &[Held],
    ) -> u64 {
        let KeyOperation { now_us, cost, headroom, .. } = request;
        if cost == 0 {
            return 0;
        }
        let least = cost + kept(self.capacity, headroom);
        if let (QuotaRules::GroupedBucket(bucket), State::Grouped(state)) = (&self.rules, state) {
            if least > self.capacity {
                return Decision::NEVER;
            }
            return bucket.fits_after_us(state, now_us, least, reservations);
        }
        let remaining = self.rules.remaining(state, now_us);
        for (at, step) in steps.iter().enumerate() {
            let wanted = least + step.units;
            if wanted > self.capacity {
                continue;
            }
            let fits_after_us =
                if wanted > remaining { self.rules.retry_after_us(state, now_us, wanted) } else { 0 };
            let admits_us = now_us.saturating_add(fits_after_us).max(step.from_us);
            if steps.get(at + 1).is_none_or(|next| admits_us < next.from_us) {
                return admits_us - now_us;
            }
        }
        // The last step has nothing set aside, so it admits every cost that is ever admitted.
        Decision::NEVER
    }
}

impl Beside {
    /// The usage of a quota that belongs to it.
    fn limit(self, usage: QuotaUsage) -> QuotaUsage {
        QuotaUsage {
            remaining: if self.blocked_for_us > 0 { 0 } else { usage.remaining },
            reset_after_us: usage.reset_after_us.max(self.ends_after_us).max(self.blocked_for_us),
            ..usage
        }
    }
}
