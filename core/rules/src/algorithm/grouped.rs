//! A token bucket and a quota of concurrency whose units are divided among [groups](crate::groups).
//!
//! # A bucket
//!
//! Each group with a minimum has a bucket of its own, which is refilled at the minimum's rate. Half of the burst stands behind these buckets;
//! the rest is lent. A request spends from its group's own bucket first and borrows what is missing. What is borrowed is repaid at the rate that
//! the groups' own buckets leave, so that all of them together never get more than the quota's rate and burst:
//!
//! ```text
//! passed   = max(0, now - at)
//! repaid   = sum of min(own, rate * passed) over the groups;   own = max(0, own - rate * passed)
//! borrowed = max(0, borrowed - (limit * passed - repaid))
//! left     = units left of the group's own + units left of what is lent - units that are kept for groups before it
//! ```
//!
//! All are monotone while nothing else arrives, so the first microsecond at which a request fits is found by bisection.
//!
//! # The order
//!
//! Groups borrow in the order of start-time fair queueing (Goyal, Vin and Cheng, 1996): a unit that a group borrows moves it back by
//! `scale / weight`, and a group that was denied has a claim: until it has come back, what it wants is kept for it from the groups behind it.
//! The numbers count from the place of the group that was served last, where groups begin that have not waited.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::{Explanation, Rules};
use crate::groups::{GroupTable, GroupTag, Groups};
use crate::quota::Quota;
use crate::quota::shares::{MAX_PLACE, Share, shares_of, slots_of};
use crate::quota::tick::SATURATION;
use crate::reservation::list::{HeldByGroups, Reservations};
use crate::units::MAX_US;

/// How long a group may take to come back for what it has a claim to, after the time in which that is refilled.
const CLAIM_US: u64 = 1_000_000;
const MAX_PLACE_SIGNED: i64 = MAX_PLACE.cast_signed();

#[derive(Clone, Debug)]
pub struct GroupedBucket {
    limit: u64,
    /// The debt that a unit is worth: the ticks of a period.
    unit: u64,
    tick_us: u64,
    period_us: u64,
    burst: u64,
    /// The units that no minimum stands behind.
    lent: u64,
    scale: u64,
    table: Arc<GroupTable>,
    shares: Box<[Share]>,
    own: usize,
}

#[derive(Clone, Debug)]
pub struct GroupedSlots {
    limit: u64,
    lent: u64,
    scale: u64,
    table: Arc<GroupTable>,
    shares: Box<[Share]>,
    own: usize,
}

/// The state of a quota with groups, which says under which numbers it was written. In that of a quota of concurrency only claims are
/// used: its reservations are the key's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// In ticks since the epoch.
    pub(crate) at: u64,
    /// The power of ten of the tick.
    pub(crate) exponent: u8,
    pub(crate) limit: u64,
    pub(crate) scale: u64,
    pub(crate) borrowed: u64,
    /// Those of the groups that have a debt, a claim or another place than the group served last.
    pub(crate) parts: Vec<Part>,
}

/// A group's part of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) tag: GroupTag,
    pub(crate) rate: u64,
    pub(crate) top_rate: u64,
    pub(crate) debts: Debts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debts {
    /// The debt of the group's own units.
    pub(crate) own: u64,
    /// The debt towards the group's most.
    pub(crate) top: u64,
    /// The place in the order.
    pub(crate) place: i64,
    /// Units that the group was denied.
    pub(crate) claim: u64,
    /// Until when it waits for them.
    pub(crate) until_us: u64,
}

impl Debts {
    fn waits(&self, now_us: u64) -> bool {
        self.until_us > now_us
    }
}

impl State {
    pub(crate) fn holds_nothing(&self) -> bool {
        self.borrowed == 0 && self.parts.is_empty()
    }

    /// What a group has that waits for a slot.
    fn waiting(&self, tag: GroupTag, now_us: u64) -> Option<Debts> {
        let found = self.parts.iter().find(|part| part.tag == tag).map(|part| part.debts);
        found.filter(|debts| debts.waits(now_us))
    }

    /// How long the last claim lasts.
    pub(crate) fn claims_end_after_us(&self, now_us: u64) -> u64 {
        self.parts.iter().map(|part| part.debts.until_us.saturating_sub(now_us)).max().unwrap_or(0)
    }
}

/// A bucket at some time, with the debts of all groups.
#[derive(Clone, Debug)]
struct Present {
    at: u64,
    borrowed: u64,
    debts: SmallVec<[Debts; 8]>,
}

impl GroupedBucket {
    pub(crate) fn new(quota: &Quota, groups: &Groups) -> Self {
        let shares = shares_of(quota, &groups.table);
        let own: u64 = shares.iter().map(|share| share.burst).sum();
        Self {
            limit: quota.limit(),
            unit: quota.period_us() / quota.tick_us(),
            tick_us: quota.tick_us(),
            period_us: quota.period_us(),
            burst: quota.capacity(),
            lent: quota.capacity().saturating_sub(own),
            scale: groups.table.scale(),
            table: Arc::clone(&groups.table),
            shares,
            own: groups.own,
        }
    }

    /// The most units that the group can ever get at once.
    pub fn capacity(&self) -> u64 {
        let share = &self.shares[self.own];
        (share.burst + self.lent).min(share.top_burst)
    }

    /// The debt beyond which nothing is counted: at most 2^53.
    fn saturated(&self) -> u64 {
        SATURATION * self.burst * self.unit
    }

    /// How long a claim lasts, under a limit and a tick.
    fn claim_us(&self, units: u64, limit: u64, tick_us: u64) -> u64 {
        let debt = u128::from(units) * u128::from(self.period_us / tick_us);
        let refilled_us = debt.div_ceil(u128::from(limit.max(1))) * u128::from(tick_us);
        CLAIM_US + narrow(refilled_us).min(MAX_US)
    }

    /// Brings a state to the present by the numbers that it was written under, and then to today's numbers.
    fn bring(&self, state: &State, now_us: u64) -> Present {
        let written_tick_us = 10_u64.pow(state.exponent.into());
        let passed = u128::from((now_us / written_tick_us).saturating_sub(state.at));
        let mut repaid = 0;
        let mut borrowed = u128::from(state.borrowed);
        let mut debts: SmallVec<[Debts; 8]> = SmallVec::from_elem(Debts::default(), self.shares.len());
        // A debt is in units times ticks.
        let converted =
            |debt: u64| (u128::from(debt) * u128::from(written_tick_us)).div_ceil(u128::from(self.tick_us));
        let mut adopted = 0;
        for part in &state.parts {
            let own = u128::from(part.debts.own);
            let paid = own.min(u128::from(part.rate) * passed);
            repaid += paid;
            let own = narrow(own - paid);
            let top = u128::from(part.debts.top).saturating_sub(u128::from(part.top_rate) * passed);
            let Some(at) = self.shares.iter().position(|share| share.tag == part.tag) else {
                adopted += converted(own);
                continue;
            };
            let share = &self.shares[at];
            let is_own = share.rate > 0;
            if !is_own {
                adopted += converted(own);
            }
            let claim_us = self.claim_us(part.debts.claim, state.limit, written_tick_us);
            let until_us = part.debts.until_us.min(now_us.saturating_add(claim_us));
            let waits = until_us > now_us && state.scale == self.scale;
            debts[at] = Debts {
                own: if is_own { self.saturate(converted(own)) } else { 0 },
                top: if share.top_rate > 0 { self.saturate(converted(narrow(top))) } else { 0 },
                place: if state.scale == self.scale { part.debts.place } else { 0 },
                claim: if waits { part.debts.claim } else { 0 },
                until_us: if waits { until_us } else { 0 },
            };
        }
        borrowed = borrowed.saturating_sub((u128::from(state.limit) * passed).saturating_sub(repaid));
        let borrowed = self.saturate(converted(narrow(borrowed)) + adopted);
        let is_unused = |debts: &Debts| debts.own == 0 && debts.top == 0 && !debts.waits(now_us);
        if borrowed == 0 && debts.iter().all(is_unused) {
            debts.fill(Debts::default());
        }
        Present { at: now_us / self.tick_us, borrowed, debts }
    }

    fn saturate(&self, debt: u128) -> u64 {
        narrow(debt).min(self.saturated())
    }

    fn store(&self, present: &Present) -> State {
        let parts = self.shares.iter().zip(&present.debts);
        let parts = parts.filter(|(_, debts)| **debts != Debts::default());
        let part = |(share, debts): (&Share, &Debts)| Part {
            tag: share.tag,
            rate: share.rate,
            top_rate: share.top_rate,
            debts: *debts,
        };
        State {
            at: present.at,
            exponent: u8::try_from(self.tick_us.ilog10()).unwrap_or(0),
            limit: self.limit,
            scale: self.scale,
            borrowed: present.borrowed,
            parts: parts.map(part).collect(),
        }
    }

    /// Whether the clock went back behind the state.
    fn is_ahead(&self, state: &State, now_us: u64) -> bool {
        let tick_us = 10_u64.pow(state.exponent.into());
        let is_late = |part: &Part| {
            let claim_us = self.claim_us(part.debts.claim, state.limit, tick_us);
            part.debts.until_us > now_us.saturating_add(claim_us)
        };
        state.at > now_us / tick_us || state.parts.iter().any(is_late)
    }

    /// The bucket as it is seen at some time: what is set aside counts as used.
    fn seen(&self, state: &State, now_us: u64, held: Option<&HeldByGroups>) -> Present {
        let mut present = self.bring(state, now_us);
        for (group, units) in held.iter().flat_map(|held| held.units.iter().enumerate()) {
            self.debit(&mut present, group, *units);
        }
        present
    }

    fn own_left(&self, present: &Present, group: usize) -> u64 {
        (self.shares[group].burst * self.unit).saturating_sub(present.debts[group].own) / self.unit
    }

    fn left(&self, present: &Present, now_us: u64) -> u64 {
        let share = &self.shares[self.own];
        let lent = (self.lent * self.unit).saturating_sub(present.borrowed) / self.unit;
        let lent = lent.saturating_sub(self.ahead(present, now_us));
        let top = (share.top_burst * self.unit).saturating_sub(present.debts[self.own].top) / self.unit;
        (self.own_left(present, self.own) + lent).min(top).min(self.capacity())
    }

    /// The units that are kept for groups that wait and are before this one in the order.
    fn ahead(&self, present: &Present, now_us: u64) -> u64 {
        let place = present.debts[self.own].place;
        let most = self.lent / (2 * self.shares.len() as u64);
        let waiting = self.shares.iter().zip(&present.debts);
        let waiting = waiting.filter(|(_, debts)| debts.waits(now_us) && debts.place < place);
        let kept = waiting.map(|(share, debts)| {
            let behind = place.abs_diff(debts.place) * share.weight / self.scale;
            debts.claim.max(behind.min(most))
        });
        kept.fold(0, u64::saturating_add)
    }

    /// Adds units to what is used: to the group's own, and what does not fit there to what is borrowed, which it returns.
    fn debit(&self, present: &mut Present, group: usize, units: u64) -> u64 {
        let own = units.min(self.own_left(present, group));
        let most = self.saturated().saturating_sub(present.borrowed) / self.unit;
        let borrowed = (units - own).min(most);
        let debts = &mut present.debts[group];
        debts.own += own * self.unit;
        present.borrowed += borrowed * self.unit;
        if self.shares[group].top_rate > 0 {
            debts.top = (debts.top + (own + borrowed) * self.unit).min(self.saturated());
        }
        borrowed
    }

    /// The group has got what it asked for: it waits no more, and what it borrowed moves it back in the order.
    fn serve(&self, present: &mut Present, borrowed: u64, now_us: u64) {
        let served = &mut present.debts[self.own];
        served.claim = 0;
        served.until_us = served.until_us.min(now_us + CLAIM_US);
        if borrowed == 0 {
            return;
        }
        let start = served.place;
        // A quota whose capacity times the scale is above the farthest place is refused, and a state has at most eight capacities of debt.
        let step = borrowed * (self.scale / self.shares[self.own].weight);
        served.place += i64::try_from(step).unwrap_or(MAX_PLACE_SIGNED);
        for (group, debts) in present.debts.iter_mut().enumerate() {
            debts.place -= start.max(0);
            if group != self.own && !debts.waits(now_us) {
                debts.place = debts.place.max(0);
            }
            debts.place = debts.place.clamp(-MAX_PLACE_SIGNED, MAX_PLACE_SIGNED);
        }
    }

    /// The units that all groups use, rounded up.
    pub(crate) fn used(&self, state: &State, now_us: u64) -> u64 {
        let present = self.bring(state, now_us);
        let own: u64 = present.debts.iter().map(|debts| debts.own).sum();
        (own + present.borrowed).div_ceil(self.unit)
    }

    /// What is left to the group in addition to what is set aside.
    pub(crate) fn left_beside(&self, state: &State, now_us: u64, held: &HeldByGroups) -> u64 {
        self.left(&self.seen(state, now_us, Some(held)), now_us)
    }

    /// Spends units. What moves the group back in the order is what does not fit in addition to its own reservations.
    pub(crate) fn spend_beside(
        &self,
        state: &mut State,
        now_us: u64,
        units: u64,
        held: Option<&HeldByGroups>,
    ) {
        let borrowed = self.debit(&mut self.seen(state, now_us, held), self.own, units);
        let mut present = self.bring(state, now_us);
        self.debit(&mut present, self.own, units);
        self.serve(&mut present, borrowed, now_us);
        *state = self.store(&present);
    }

    /// Units are set aside for the group, which moves back in the order as if it had spent them.
    pub(crate) fn reserve(&self, state: &mut State, now_us: u64, units: u64, held: &HeldByGroups) {
        let borrowed = self.debit(&mut self.seen(state, now_us, Some(held)), self.own, units);
        let mut present = self.bring(state, now_us);
        if units > 0 {
            self.serve(&mut present, borrowed, now_us);
        }
        *state = self.store(&present);
    }

    /// Charges what a reservation of a group has spent.
    pub(crate) fn settle(&self, state: &mut State, now_us: u64, group: GroupTag, units: u64) {
        let mut present = self.bring(state, now_us);
        self.debit(&mut present, self.table.tagged(group), units);
        *state = self.store(&present);
    }

    /// The group was denied these units. What is above the group's most keeps nothing from others.
    pub(crate) fn wait(&self, state: &mut State, now_us: u64, units: u64, held: &HeldByGroups) {
        let seen = self.seen(state, now_us, Some(held));
        let mut present = self.bring(state, now_us);
        let share = &self.shares[self.own];
        let top = (share.top_burst * self.unit).saturating_sub(seen.debts[self.own].top);
        if units * self.unit <= top {
            let claim = units.saturating_sub(self.own_left(&seen, self.own));
            let debts = &mut present.debts[self.own];
            debts.claim = claim;
            debts.until_us =
                now_us.saturating_add(self.claim_us(claim, self.limit, self.tick_us)).min(MAX_US);
        }
        *state = self.store(&present);
    }

    /// How long until units fit in addition to what is set aside by then; they are within the capacity.
    pub(crate) fn fits_after_us(
        &self,
        state: &State,
        now_us: u64,
        units: u64,
        reservations: &Reservations,
    ) -> u64 {
        first(|after_us| {
            let at_us = now_us.saturating_add(after_us);
            let held = HeldByGroups::of(&self.table, reservations, at_us);
            units <= self.left_beside(state, at_us, &held)
        })
    }
}

impl Rules for GroupedBucket {
    type State = State;

    fn remaining(&self, state: &State, now_us: u64) -> u64 {
        self.left(&self.bring(state, now_us), now_us)
    }

    fn room(&self, state: &State, now_us: u64) -> u64 {
        let present = self.bring(state, now_us);
        self.own_left(&present, self.own) + self.saturated().saturating_sub(present.borrowed) / self.unit
    }

    fn spend(&self, state: &mut State, now_us: u64, units: u64) {
        if units == 0 {
            *state = self.store(&self.bring(state, now_us));
            return;
        }
        self.spend_beside(state, now_us, units, None);
    }

    fn refund(&self, state: &mut State, now_us: u64, units: u64) {
        let mut present = self.bring(state, now_us);
        let debt = self.saturate(u128::from(units) * u128::from(self.unit));
        let debts = &mut present.debts[self.own];
        debts.top = debts.top.saturating_sub(debt);
        let own = debt.min(debts.own);
        debts.own -= own;
        present.borrowed = present.borrowed.saturating_sub(debt - own);
        *state = self.store(&present);
    }

    fn rewind(&self, state: &mut State, now_us: u64) -> bool {
        let is_ahead = self.is_ahead(state, now_us);
        if is_ahead {
            *state = self.store(&self.bring(state, now_us));
        }
        is_ahead
    }

    fn retry_after_us(&self, state: &State, now_us: u64, cost: u64) -> u64 {
        self.fits_after_us(state, now_us, cost, &Reservations::default())
    }

    fn reset_after_us(&self, state: &State, now_us: u64) -> u64 {
        let present = self.bring(state, now_us);
        let is_unused = |passed: u64| {
            let passed = u128::from(passed);
            let mut repaid = 0;
            for (share, debts) in self.shares.iter().zip(&present.debts) {
                let (own, top) = (u128::from(debts.own), u128::from(debts.top));
                let paid = own.min(u128::from(share.rate) * passed);
                if paid < own || u128::from(share.top_rate) * passed < top {
                    return false;
                }
                repaid += paid;
            }
            u128::from(present.borrowed) <= (u128::from(self.limit) * passed).saturating_sub(repaid)
        };
        match first(is_unused) {
            0 => 0,
            ticks => present.at.saturating_add(ticks).saturating_mul(self.tick_us).saturating_sub(now_us),
        }
    }

    fn explain(&self, state: &State, now_us: u64, _: crate::algorithm::Outcome) -> Explanation {
        // The general transition, which decides every policy with groups, finds the waits itself.
        Explanation {
            remaining: self.remaining(state, now_us),
            reset_after_us: self.reset_after_us(state, now_us),
            wait_us: 0,
        }
    }
}

impl GroupedSlots {
    pub(crate) fn new(quota: &Quota, groups: &Groups) -> Self {
        let shares = shares_of(quota, &groups.table);
        let kept: u64 = shares.iter().map(|share| share.burst).sum();
        Self {
            limit: slots_of(quota),
            lent: slots_of(quota).saturating_sub(kept),
            scale: groups.table.scale(),
            table: Arc::clone(&groups.table),
            shares,
            own: groups.own,
        }
    }

    /// The most slots that the group can ever have.
    pub(crate) fn capacity(&self) -> u64 {
        let share = &self.shares[self.own];
        (share.burst + self.lent).min(share.top_burst)
    }

    /// The slots that are left to the group. A group that has less than its minimum is before all that have more.
    pub(crate) fn left(&self, state: &State, now_us: u64, held: &HeldByGroups) -> u64 {
        let place = |group: usize| {
            let share = &self.shares[group];
            let over = i128::from(held.alive[group]) - i128::from(share.minimum);
            over * i128::from(self.scale / share.weight)
        };
        let free = self.limit.saturating_sub(held.alive.iter().sum());
        let (mut kept, mut ahead) = (0, 0);
        for (group, share) in self.shares.iter().enumerate().filter(|(group, _)| *group != self.own) {
            let alive = held.alive[group];
            if alive < share.burst {
                kept += share.burst - alive;
            } else if let Some(debts) = state.waiting(share.tag, now_us)
                && place(group) < place(self.own)
            {
                ahead += debts.claim;
            }
        }
        let (share, alive) = (&self.shares[self.own], held.alive[self.own]);
        let own = share.burst.saturating_sub(alive).min(free);
        own.max(free.saturating_sub(kept + ahead)).min(share.top_burst.saturating_sub(alive))
    }

    /// Forgets claims that have ended; one holds no longer from now than when it was made.
    pub(crate) fn bring(&self, state: &mut State, now_us: u64) {
        for part in &mut state.parts {
            part.debts.until_us = part.debts.until_us.min(now_us.saturating_add(CLAIM_US));
        }
        state
            .parts
            .retain(|part| part.debts.waits(now_us) && self.shares.iter().any(|share| share.tag == part.tag));
    }

    /// The group has got a slot, or was denied one and waits for it.
    pub(crate) fn set_claim(&self, state: &mut State, now_us: u64, waits: bool) {
        self.bring(state, now_us);
        let own = self.shares[self.own].tag;
        state.parts.retain(|part| part.tag != own);
        if waits {
            let until_us = now_us.saturating_add(CLAIM_US).min(MAX_US);
            let debts = Debts { claim: 1, until_us, ..Debts::default() };
            state.parts.push(Part { tag: own, debts, ..Part::default() });
        }
    }

    /// Moves claims back if the clock went back. Returns whether it did.
    pub(crate) fn rewind(&self, state: &mut State, now_us: u64) -> bool {
        let latest_us = now_us.saturating_add(CLAIM_US);
        let is_ahead = state.parts.iter().any(|part| part.debts.until_us > latest_us);
        if is_ahead {
            self.bring(state, now_us);
        }
        is_ahead
    }

    /// How long until this many slots are left to the group; they are within the capacity.
    pub(crate) fn free_after_us(
        &self,
        state: &State,
        now_us: u64,
        slots: u64,
        reservations: &Reservations,
    ) -> u64 {
        first(|after_us| {
            let at_us = now_us.saturating_add(after_us);
            slots <= self.left(state, at_us, &HeldByGroups::of(&self.table, reservations, at_us))
        })
    }
}

/// The least number with which something holds that holds from there on.
fn first(mut holds: impl FnMut(u64) -> bool) -> u64 {
    if holds(0) {
        return 0;
    }
    let mut high = 1;
    while high < MAX_US && !holds(high) {
        high *= 2;
    }
    let mut low = high / 2;
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

fn narrow(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
