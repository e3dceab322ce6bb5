//! The general transition: every operation sees what is set aside, and what is kept for others, as if it were spent, and a blocked
//! key is denied.

use super::{Added, KeyOperation, KeyParts, KeyPartsMut, KeyStates, kept};
use crate::algorithm::grouped::GroupedSlots;
use crate::algorithm::{QuotaRules, Rules, State};
use crate::decision::{Cause, Decision, Degradation};
use crate::penalty::{BlockRecord, Penalty};
use crate::reservation::list::{
    AS_RESERVED, Held, HeldByGroups, Hold, MAX_RESERVATIONS, REPEATED, Reservation, Reservations, end_of,
};
use crate::transition::{Applied, Operation, PolicyRules, QuotaNumbers};

/// The result of the general transition.
pub(super) struct Outcome {
    pub(super) applied: Applied,
    pub(super) cause: Option<Cause>,
    /// The units that a check has spent, or a reserve has set aside.
    pub(super) units: u64,
    /// Whether a commit was one of an id that was committed before.
    pub(super) repeated: bool,
}

impl Outcome {
    const fn of(applied: Applied) -> Self {
        Self { applied, cause: None, units: 0, repeated: false }
    }

    pub(super) const fn nothing(allowed: bool) -> Self {
        Self::of(Applied { allowed, spent: 0, written: false })
    }

    const fn written(written: bool) -> Self {
        Self::of(Applied { allowed: true, spent: 0, written })
    }

    const fn denied(cause: Cause, written: bool) -> Self {
        Self { cause: Some(cause), ..Self::of(Applied { allowed: false, spent: 0, written }) }
    }
}

impl PolicyRules {
    /// Applies any operation to any key and explains the result. States that keys share in place of their own have no record of
    /// blocks: one key must not block the others.
    #[inline(never)]
    pub(crate) fn decide_general(
        &self,
        states: &mut impl KeyStates,
        request: KeyOperation<'_>,
        degraded: Option<Degradation>,
    ) -> (Decision, Applied) {
        let mut added = Added::default();
        let mut key = added.parts(states.as_mut_slice(), self.quotas.len());
        let is_shared = degraded.is_some();
        let repeated_hold;
        let request = match request.hold {
            Some(hold) if key.repeats(request, hold, self.groups.is_some()) => {
                repeated_hold = Hold { remember_us: REPEATED, ..*hold };
                KeyOperation { cost: 0, hold: Some(&repeated_hold), ..request }
            }
            _ => request,
        };
        let outcome = self.apply_general(&mut key, request, is_shared);
        let Outcome { applied, .. } = outcome;
        if applied.written {
            key.record.bring(request.now_us, self.penalty.as_ref());
            if key.record.says_nothing(request.now_us) {
                *key.record = BlockRecord::default();
            }
        }
        let KeyPartsMut { quotas, reservations, record, .. } = key;
        let parts = KeyParts { quotas, reservations: Some(reservations), record: Some(record) };
        let decision = self.explain_general(&parts, request, &outcome, degraded);
        added.add_to(states);
        if applied.written {
            states.drop_empty_after(self.quotas.len());
        }
        (decision, applied)
    }

    fn apply_general(
        &self,
        key: &mut KeyPartsMut<'_>,
        request: KeyOperation<'_>,
        is_shared: bool,
    ) -> Outcome {
        let KeyOperation { now_us, operation, hold, .. } = request;
        if operation == Operation::Peek {
            let is_blocked = key.record.blocked_for_us(now_us) > 0;
            let cause = self.denying(key, request, is_blocked);
            return Outcome { cause, ..Outcome::nothing(cause.is_none()) };
        }
        let rewound = key.record.rewind(now_us) | key.commits.rewind(now_us);
        let mut outcome = match (operation, hold) {
            (Operation::Check | Operation::Reserve, _) => self.decide_admission(key, request, is_shared),
            (Operation::Commit | Operation::Cancel | Operation::Renew, Some(hold)) => {
                self.change_reservation(key, request, hold, is_shared)
            }
            (Operation::Block, Some(hold)) => {
                let rewound = self.rewind_key(key, now_us);
                let before = *key.record;
                if !is_shared {
                    key.record.block(now_us, hold.ttl_us);
                }
                Outcome::written(rewound || before != *key.record)
            }
            (Operation::Take, _) => self.take_beside(key, request),
            (Operation::Charge | Operation::Refund, _) if request.cost > 0 => {
                key.reservations.bring(now_us);
                if operation == Operation::Charge && self.groups.is_some() {
                    self.spend_beside(key, now_us, request.cost);
                    return Outcome::written(true);
                }
                Outcome::of(self.apply(key.quotas, now_us, operation, request.cost))
            }
            // Nothing is spent; what is ahead of the clock is moved back to it all the same.
            _ => Outcome::written(self.rewind_key(key, now_us)),
        };
        outcome.applied.written |= rewound;
        outcome
    }

    /// Decides a check or a reserve, and counts its denial under a penalty.
    fn decide_admission(
        &self,
        key: &mut KeyPartsMut<'_>,
        request: KeyOperation<'_>,
        is_shared: bool,
    ) -> Outcome {
        let KeyOperation { now_us, operation, cost, .. } = request;
        let hold = request.hold.filter(|_| operation == Operation::Reserve);
        let in_groups = self.groups.is_some();
        if hold.is_some_and(|hold| key.reservations.find(&hold.id, in_groups, now_us).is_some()) {
            return Outcome { repeated: true, ..Outcome::written(self.rewind_key(key, now_us)) };
        }
        let is_blocked = key.record.blocked_for_us(now_us) > 0;
        if let Some(cause) = self.denying(key, request, is_blocked) {
            if self.never_admits_beside(request) {
                return Outcome::denied(cause, self.rewind_key(key, now_us));
            }
            let rewound = key.reservations.rewind(now_us) | self.wait(key, request, cause);
            let counts = |quota: &QuotaNumbers| quota.count_denied && cost > 0 && !is_blocked;
            let charged = self.charge(key.quotas, now_us, cost, counts);
            if cause != Cause::Quota || is_shared {
                return Outcome::denied(cause, rewound || charged);
            }
            return match &self.penalty {
                Some(penalty) => Outcome::denied(count(key.record, now_us, penalty), true),
                None => Outcome::denied(cause, rewound || charged),
            };
        }
        match hold {
            Some(hold) => {
                key.reservations.bring(now_us);
                self.set_aside(key, now_us, cost);
                let id = self.groups.as_ref().map_or(hold.id, |groups| hold.id.in_group(groups.tag()));
                key.reservations.add(id, cost, now_us, hold.ttl_us, hold.remember_us);
                Outcome { units: cost, ..Outcome::written(true) }
            }
            None if cost == 0 => Outcome::written(self.rewind_key(key, now_us)),
            None => {
                key.reservations.bring(now_us);
                self.spend_beside(key, now_us, cost);
                Outcome { units: cost, ..Outcome::of(Applied { allowed: true, spent: cost, written: true }) }
            }
        }
    }

    fn take_beside(&self, key: &mut KeyPartsMut<'_>, request: KeyOperation<'_>) -> Outcome {
        let KeyOperation { now_us, cost, .. } = request;
        let is_blocked = key.record.blocked_for_us(now_us) > 0;
        let left = || self.left_beside(key.quotas, key.reservations, 0, now_us);
        let spent = if is_blocked { 0 } else { left().min(cost) };
        if spent == 0 {
            return Outcome::written(self.rewind_key(key, now_us));
        }
        key.reservations.bring(now_us);
        self.spend_beside(key, now_us, spent);
        Outcome::of(Applied { allowed: true, spent, written: true })
    }

    /// Ends or renews a reservation. Everything is brought to the present, also when the reservation is not there.
    fn change_reservation(
        &self,
        key: &mut KeyPartsMut<'_>,
        request: KeyOperation<'_>,
        hold: &Hold,
        is_shared: bool,
    ) -> Outcome {
        let KeyOperation { now_us, operation, cost, .. } = request;
        let reservations = &mut *key.reservations;
        reservations.bring(now_us);
        self.bring(key.quotas, now_us);
        let in_groups = self.groups.is_some();
        let place = reservations.0.iter().position(|reservation| reservation.is(&hold.id, in_groups));
        let is_commit = operation == Operation::Commit;
        let mut repeated = is_commit && key.commits.find(&hold.id, in_groups, now_us).is_some();
        if let Some(place) = place {
            if operation == Operation::Renew {
                // The script appends it as well: so do stores that share its records.
                let renewed = reservations.0.remove(place);
                let ends_us = end_of(now_us, hold.ttl_us);
                reservations.0.push(Reservation { ends_us, ttl_us: hold.ttl_us, ..renewed });
            } else {
                let ended = reservations.0.remove(place);
                repeated = is_commit && ended.remember_us == REPEATED;
                if is_commit && !repeated {
                    let spent = if cost == AS_RESERVED { ended.units } else { cost };
                    self.settle(key.quotas, now_us, &ended, spent);
                    // Keys that share their states would meet each other's ids.
                    if ended.remember_us > 0 && !is_shared {
                        key.commits.bring(now_us);
                        key.commits.remember(&ended, now_us);
                    }
                }
            }
        }
        let applied = Applied { allowed: place.is_some(), spent: 0, written: true };
        Outcome { repeated, ..Outcome::of(applied) }
    }

    /// Why a check, a peek or a reserve is denied, in addition to what is set aside and what is kept for others; `None` when it is not.
    fn denying(&self, key: &KeyPartsMut<'_>, request: KeyOperation<'_>, is_blocked: bool) -> Option<Cause> {
        let KeyOperation { now_us, cost, headroom, .. } = request;
        let slots = self.slots_of(request);
        if cost == 0 && slots.is_none() {
            return None;
        }
        if is_blocked {
            return Some(Cause::Blocked);
        }
        if cost > self.left_beside(key.quotas, key.reservations, headroom, now_us) {
            return Some(Cause::Quota);
        }
        let slots = slots?;
        let lacks_slot = match self.slots_beside(key.quotas, key.reservations, now_us) {
            // The group's slots are all of them, with those that are kept for others.
            Some((left, capacity)) => left <= kept(capacity, headroom),
            None => key.reservations.held(now_us).alive >= slots,
        };
        lacks_slot.then_some(Cause::Concurrency)
    }

    /// How many reservations this request may have in addition to its own one; `None` for a request that needs no slot.
    pub(super) fn slots_of(&self, request: KeyOperation<'_>) -> Option<u64> {
        match request.operation {
            Operation::Reserve => Some(self.most_reservations(request.headroom)),
            Operation::Peek => self.slots.map(|_| self.most_reservations(request.headroom)),
            _ => None,
        }
    }

    /// The most reservations that a key may have at a time, in addition to the slots that are kept for others.
    pub(super) fn most_reservations(&self, headroom: u8) -> u64 {
        let slots = self.slots.unwrap_or(u64::MAX).min(MAX_RESERVATIONS as u64);
        slots - kept(slots, headroom)
    }

    /// Whether the request can never be admitted: its cost with what is kept for others is above a capacity, or there are no
    /// slots at all.
    fn never_admits_beside(&self, request: KeyOperation<'_>) -> bool {
        let KeyOperation { cost, headroom, .. } = request;
        // Slots are counted by reservations, whatever their units.
        let exceeds = |quota: &QuotaNumbers| {
            !quota.rules.counts_slots() && cost + kept(quota.capacity, headroom) > quota.capacity
        };
        let has_no_slots = match (self.slots_of(request), self.grouped_slots()) {
            (Some(_), Some(slots)) => kept(slots.capacity(), request.headroom) >= slots.capacity(),
            (slots, _) => slots == Some(0),
        };
        self.quotas.iter().any(exceeds) || has_no_slots
    }

    /// The units that every quota admits in addition to the units that are set aside and those that are kept for others; the largest cost
    /// where no quota counts units.
    fn left_beside(&self, states: &[State], reservations: &Reservations, headroom: u8, now_us: u64) -> u64 {
        let held = self.held(reservations, now_us);
        let left = self.rates(states).map(|(quota, state)| {
            quota.left_beside(state, now_us, &held).saturating_sub(kept(quota.capacity, headroom))
        });
        left.fold(u64::MAX, u64::min)
    }

    /// What is set aside at some time.
    pub(super) fn held(&self, reservations: &Reservations, now_us: u64) -> HeldBeside {
        HeldBeside {
            all: reservations.held(now_us),
            of_groups: self
                .groups
                .as_ref()
                .map(|groups| HeldByGroups::of(&groups.table, reservations, now_us)),
        }
    }

    /// The quota of concurrency that groups share.
    pub(super) fn grouped_slots(&self) -> Option<&GroupedSlots> {
        self.quotas.iter().find_map(|quota| match &quota.rules {
            QuotaRules::GroupedSlots(slots) => Some(&**slots),
            _ => None,
        })
    }

    /// The slots that are left to the request's group, and the most that it can have; `None` where no groups share slots.
    pub(super) fn slots_beside(
        &self,
        states: &[State],
        reservations: &Reservations,
        now_us: u64,
    ) -> Option<(u64, u64)> {
        let held = self.held(reservations, now_us).of_groups?;
        self.quotas.iter().zip(states).find_map(|(quota, state)| match (&quota.rules, state) {
            (QuotaRules::GroupedSlots(slots), State::Grouped(state)) => {
                Some((slots.left(state, now_us, &held), slots.capacity()))
            }
            _ => None,
        })
    }

    /// Spends units from every quota.
    fn spend_beside(&self, key: &mut KeyPartsMut<'_>, now_us: u64, units: u64) {
        let held = self.held(key.reservations, now_us).of_groups;
        for (quota, state) in self.quotas.iter().zip(&mut *key.quotas) {
            match (&quota.rules, state) {
                (QuotaRules::GroupedBucket(bucket), State::Grouped(state)) => {
                    bucket.spend_beside(state, now_us, units, held.as_ref());
                }
                (rules, state) => rules.spend(state, now_us, units),
            }
        }
    }

    /// Brings the states to the present for units that are set aside.
    fn set_aside(&self, key: &mut KeyPartsMut<'_>, now_us: u64, units: u64) {
        let held = self.held(key.reservations, now_us).of_groups;
        for (quota, state) in self.quotas.iter().zip(&mut *key.quotas) {
            match (&quota.rules, state, &held) {
                (QuotaRules::GroupedBucket(bucket), State::Grouped(state), Some(held)) => {
                    bucket.reserve(state, now_us, units, held);
                }
                (QuotaRules::GroupedSlots(slots), State::Grouped(state), _) => {
                    slots.set_claim(state, now_us, false);
                }
                (rules, state, _) => rules.spend(state, now_us, 0),
            }
        }
    }

    /// Charges what a reservation has spent.
    fn settle(&self, states: &mut [State], now_us: u64, ended: &Reservation, units: u64) {
        for (quota, state) in self.quotas.iter().zip(states) {
            match (&quota.rules, state) {
                (QuotaRules::GroupedBucket(bucket), State::Grouped(state)) => {
                    bucket.settle(state, now_us, ended.id.group().unwrap_or_default(), units);
                }
                (rules, state) => {
                    let units = units.min(rules.room(state, now_us));
                    rules.spend(state, now_us, units);
                }
            }
        }
    }

    /// The group of a request that is denied waits for what it was denied. Returns whether anything was written.
    fn wait(&self, key: &mut KeyPartsMut<'_>, request: KeyOperation<'_>, cause: Cause) -> bool {
        let KeyOperation { now_us, cost, .. } = request;
        let Some(held) = self.held(key.reservations, now_us).of_groups else { return false };
        let mut written = false;
        for (quota, state) in self.quotas.iter().zip(&mut *key.quotas) {
            match (&quota.rules, state, cause) {
                (QuotaRules::GroupedBucket(bucket), State::Grouped(state), Cause::Quota) => {
                    let left = bucket.left_beside(state, now_us, &held);
                    if left < cost + kept(quota.capacity, request.headroom) {
                        bucket.wait(state, now_us, cost, &held);
                        written = true;
                    }
                }
                (QuotaRules::GroupedSlots(slots), State::Grouped(state), Cause::Concurrency) => {
                    slots.set_claim(state, now_us, true);
                    written = true;
                }
                _ => {}
            }
        }
        written
    }

    /// The quotas that count units, with their states.
    pub(super) fn rates<'a>(
        &'a self,
        states: &'a [State],
    ) -> impl Iterator<Item = (&'a QuotaNumbers, &'a State)> {
        self.quotas.iter().zip(states).filter(|(quota, _)| !quota.rules.counts_slots())
    }

    /// Moves back what is ahead of the clock. Returns whether anything was.
    fn rewind_key(&self, key: &mut KeyPartsMut<'_>, now_us: u64) -> bool {
        key.reservations.rewind(now_us) | self.rewind(key.quotas, now_us)
    }

    /// Brings the states to the present without spending anything.
    fn bring(&self, states: &mut [State], now_us: u64) {
        for (quota, state) in self.quotas.iter().zip(states) {
            quota.rules.spend(state, now_us, 0);
        }
    }
}

/// What a key sets aside at some time.
pub(super) struct HeldBeside {
    pub(super) all: Held,
    /// By groups, where groups share the policy.
    pub(super) of_groups: Option<HeldByGroups>,
}

impl QuotaNumbers {
    /// The units that this quota leaves in addition to what is set aside.
    pub(super) fn left_beside(&self, state: &State, now_us: u64, held: &HeldBeside) -> u64 {
        match (&self.rules, state, &held.of_groups) {
            (QuotaRules::GroupedBucket(bucket), State::Grouped(state), Some(held)) => {
                bucket.left_beside(state, now_us, held)
            }
            (rules, state, _) => rules.remaining(state, now_us).saturating_sub(held.all.units),
        }
    }
}

/// Counts a denial by a quota. Returns its cause: it may block the key.
fn count(record: &mut BlockRecord, now_us: u64, penalty: &Penalty) -> Cause {
    record.count_denial(now_us, penalty);
    if record.blocked_for_us(now_us) > 0 { Cause::Blocked } else { Cause::Quota }
}
