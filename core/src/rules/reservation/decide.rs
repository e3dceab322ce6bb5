//! The transition of a key with reservations: every operation sees what is set aside as if it were spent.

use crate::rules::algorithm::{QuotaRules, Rules, State};
use crate::rules::decision::{Decision, Degradation};
use crate::rules::reservation::explain::HeldRequest;
use crate::rules::reservation::list::{AS_RESERVED, Hold, MAX_RESERVATIONS, Reservation, Reservations};
use crate::rules::transition::{Applied, Operation, PolicyRules, QuotaNumbers};
use crate::units::MAX_US;

impl PolicyRules {
    /// Applies an operation to a key that has reservations, or may get one, and explains the result. The states are those of
    /// the quotas, then the key's reservations; these must be there, empty or not, for a reserve.
    #[inline(never)]
    pub(crate) fn decide_with_reservations(
        &self,
        states: &mut [State],
        now_us: u64,
        operation: Operation,
        cost: u64,
        hold: Option<&Hold>,
        degraded: Option<Degradation>,
    ) -> (Decision, Applied) {
        let request = HeldRequest { now_us, operation, cost };
        let mut none = Reservations::default();
        let (states, reservations) = split(states, self.quotas.len());
        let reservations = reservations.unwrap_or(&mut none);
        let applied = self.apply_with_reservations(states, reservations, request, hold);
        (self.explain_with_reservations(states, reservations, request, applied, degraded), applied)
    }

    fn apply_with_reservations(
        &self,
        states: &mut [State],
        reservations: &mut Reservations,
        request: HeldRequest,
        hold: Option<&Hold>,
    ) -> Applied {
        let HeldRequest { now_us, operation, cost } = request;
        let nothing = |allowed| Applied { allowed, spent: 0, written: false };
        match (operation, hold) {
            (Operation::Reserve, Some(hold)) => self.reserve(states, reservations, request, hold),
            (Operation::Commit | Operation::Cancel | Operation::Renew, Some(hold)) => {
                self.change_reservation(states, reservations, request, hold)
            }
            (Operation::Peek, _) => nothing(self.admits_beside(states, reservations, request)),
            // Nothing is spent; what is ahead of the clock is moved back to it all the same.
            (_, _) if cost == 0 => {
                let rewound = reservations.rewind(now_us) | self.rewind(states, now_us);
                Applied { written: rewound, ..nothing(true) }
            }
            (Operation::Check, _) => {
                if !self.admits_beside(states, reservations, request) {
                    return self.deny_beside(states, reservations, request);
                }
                reservations.bring(now_us);
                self.apply(states, now_us, Operation::Check, cost)
            }
            (Operation::Take, _) => {
                let spent = self.left_beside(states, reservations.held(now_us).units, now_us).min(cost);
                if spent == 0 {
                    let rewound = reservations.rewind(now_us) | self.rewind(states, now_us);
                    return Applied { written: rewound, ..nothing(true) };
                }
                reservations.bring(now_us);
                self.apply(states, now_us, Operation::Take, spent)
            }
            (Operation::Charge | Operation::Refund, _) => {
                reservations.bring(now_us);
                self.apply(states, now_us, operation, cost)
            }
            // A store passes a hold with each operation on a reservation.
            _ => nothing(true),
        }
    }

    fn reserve(
        &self,
        states: &mut [State],
        reservations: &mut Reservations,
        request: HeldRequest,
        hold: &Hold,
    ) -> Applied {
        let HeldRequest { now_us, cost, .. } = request;
        if reservations.find(&hold.id, now_us).is_some() {
            return Applied { allowed: true, spent: 0, written: false };
        }
        if !self.admits_beside(states, reservations, request) {
            return self.deny_beside(states, reservations, request);
        }
        reservations.bring(now_us);
        let (id, ttl_us) = (hold.id, hold.ttl_us);
        reservations.0.push(Reservation { id, units: cost, ends_us: end_of(now_us, ttl_us), ttl_us });
        self.bring(states, now_us);
        Applied { allowed: true, spent: 0, written: true }
    }

    /// Ends or renews a reservation. Everything is brought to the present, also when the reservation is not there.
    fn change_reservation(
        &self,
        states: &mut [State],
        reservations: &mut Reservations,
        request: HeldRequest,
        hold: &Hold,
    ) -> Applied {
        let HeldRequest { now_us, operation, cost, .. } = request;
        reservations.bring(now_us);
        self.bring(states, now_us);
        let place = reservations.0.iter().position(|reservation| reservation.id == hold.id);
        if let Some(place) = place {
            if operation == Operation::Renew {
                let renewed = &mut reservations.0[place];
                (renewed.ends_us, renewed.ttl_us) = (end_of(now_us, hold.ttl_us), hold.ttl_us);
            } else {
                let ended = reservations.0.remove(place);
                if operation == Operation::Commit {
                    let spent = if cost == AS_RESERVED { ended.units } else { cost };
                    self.apply(states, now_us, Operation::Charge, spent);
                }
            }
        }
        Applied { allowed: place.is_some(), spent: 0, written: true }
    }

    /// Whether every quota admits the request beside what is set aside.
    fn admits_beside(&self, states: &[State], reservations: &Reservations, request: HeldRequest) -> bool {
        let HeldRequest { now_us, cost, .. } = request;
        let held = reservations.held(now_us);
        let has_slot = self.slots_of(request).is_none_or(|slots| held.alive < slots);
        has_slot && (cost == 0 || cost <= self.left_beside(states, held.units, now_us))
    }

    /// How many reservations this request may have beside its own one; `None` for a request that needs no slot.
    pub(super) fn slots_of(&self, request: HeldRequest) -> Option<u64> {
        match request.operation {
            Operation::Reserve => Some(self.most_reservations()),
            Operation::Peek => self.slots.map(|_| self.most_reservations()),
            _ => None,
        }
    }

    /// The most reservations that a key may have at a time.
    pub(super) fn most_reservations(&self) -> u64 {
        self.slots.unwrap_or(u64::MAX).min(MAX_RESERVATIONS as u64)
    }

    /// Denies a request: charges the quotas that count denied requests, and moves what is ahead of the clock back to it.
    fn deny_beside(
        &self,
        states: &mut [State],
        reservations: &mut Reservations,
        request: HeldRequest,
    ) -> Applied {
        let HeldRequest { now_us, cost, .. } = request;
        if self.never_admits_beside(request) {
            return Applied { allowed: false, spent: 0, written: false };
        }
        let rewound = reservations.rewind(now_us);
        let charged = self.charge(states, now_us, cost, |quota| quota.count_denied && cost > 0);
        Applied { allowed: false, spent: 0, written: charged || rewound }
    }

    /// Whether the request can never be admitted: its cost is above a capacity, or there are no slots at all.
    pub(super) fn never_admits_beside(&self, request: HeldRequest) -> bool {
        (request.cost > 0 && self.never_admits(request.cost)) || self.slots_of(request) == Some(0)
    }

    /// The units that every quota admits beside the units that are set aside; the largest cost where no quota counts units.
    pub(super) fn left_beside(&self, states: &[State], held: u64, now_us: u64) -> u64 {
        let left = self.rates(states).map(|(quota, state)| quota.rules.remaining(state, now_us));
        left.fold(u64::MAX, u64::min).saturating_sub(held)
    }

    /// The quotas that count units, with their states.
    pub(super) fn rates<'a>(
        &'a self,
        states: &'a [State],
    ) -> impl Iterator<Item = (&'a QuotaNumbers, &'a State)> {
        self.quotas.iter().zip(states).filter(|(quota, _)| !matches!(quota.rules, QuotaRules::Slots))
    }

    fn rewind(&self, states: &mut [State], now_us: u64) -> bool {
        self.charge(states, now_us, 0, |_| false)
    }

    /// Brings the states to the present without spending anything.
    fn bring(&self, states: &mut [State], now_us: u64) {
        for (quota, state) in self.quotas.iter().zip(states) {
            quota.rules.spend(state, now_us, 0);
        }
    }
}

/// A key's states, cut into those of its quotas and its reservations.
fn split(states: &mut [State], quotas: usize) -> (&mut [State], Option<&mut Reservations>) {
    let (states, rest) = states.split_at_mut(quotas.min(states.len()));
    match rest {
        [State::Reservations(reservations)] => (states, Some(reservations)),
        _ => (states, None),
    }
}

/// When a reservation that is made now ends; no clock shows a time after [`MAX_US`].
fn end_of(now_us: u64, ttl_us: u64) -> u64 {
    now_us.saturating_add(ttl_us).min(MAX_US)
}
