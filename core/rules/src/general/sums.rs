//! Decisions in addition to reservations of which only the sums are known: what they hold and how many there are. All of them count now, and no
//! groups share the policy.

use super::decide::HeldBeside;
use crate::algorithm::{Rules, State};
use crate::reservation::list::{Held, MAX_RESERVATIONS};
use crate::transition::PolicyRules;

impl PolicyRules {
    /// Whether every quota admits a cost in addition to what is set aside and, for a reserve, a slot is free.
    pub(crate) fn admits_beside(
        &self,
        states: &[State],
        now_us: u64,
        cost: u64,
        held: Held,
        takes_slot: bool,
    ) -> bool {
        let slots = self.slots.unwrap_or(u64::MAX).min(MAX_RESERVATIONS as u64);
        let held = HeldBeside { all: held, of_groups: None };
        let fits =
            || self.rates(states).all(|(quota, state)| cost <= quota.left_beside(state, now_us, &held));
        !(takes_slot && held.all.alive >= slots) && (cost == 0 || fits())
    }

    /// Spends units that are known to fit, or brings the states to the present.
    pub(crate) fn spend_each(&self, states: &mut [State], now_us: u64, units: u64) {
        self.spend(states, now_us, units);
    }

    /// Charges what a reservation has spent, up to saturation.
    pub(crate) fn settle_each(&self, states: &mut [State], now_us: u64, units: u64) {
        for (quota, state) in self.quotas.iter().zip(states) {
            let units = units.min(quota.rules.room(state, now_us));
            quota.rules.spend(state, now_us, units);
        }
    }
}
