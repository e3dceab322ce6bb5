//! How a check ends: with the head of the response, and with its last byte.

use std::sync::Arc;

use crate::http::guard::check::{GuardCheck, Origin, Stage};
use crate::http::guard::ledger::Spent;
use crate::http::guard::settlement::{Settlement, Step};
use polylimit_rules::error::Error;

impl GuardCheck {
    /// Ends the check when there is a response: a guard that meets the same request again, such as in another attempt, charges
    /// it again. A response that does not count refunds what only this guard relies on. Reserved units stay set aside until the
    /// check [ends](Self::end).
    pub fn finish(&mut self, counts: bool) {
        if self.configured.is_some() {
            let is_denied = self.limits.lock().is_denied();
            return self.finish_configured(counts && !is_denied);
        }
        let mut ledger = self.limits.lock();
        if ledger.is_attempt_denied() {
            self.settlements.extend(ledger.end(self.number, false, Spent::Reserved));
            self.stage = Stage::Concluded;
            return;
        }
        self.settlements.extend(ledger.finish(self.number, counts));
        if let Stage::Holding { counts: known } = &mut self.stage {
            *known = counts;
        }
    }

    /// Whether the check holds reservations, so that it has to be [ended](Self::end) when the response is done.
    pub fn holds(&self) -> bool {
        matches!(self.stage, Stage::Holding { .. })
    }

    /// Ends what the check [holds](Self::holds), when the last byte of the response is sent, its connection has gone, or a web
    /// socket is closed. `spent` is what the request has spent under the policies that it reserved; `None` is what was
    /// reserved. Nothing is spent for a response that does not [count](Self::finish). Without a response, such as for a
    /// cancelled request, it counts.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the units are above
    /// [`Request::MAX_COST`](crate::Request::MAX_COST); the check has ended with those that were reserved.
    pub fn end<'a>(&mut self, spent: impl Into<Spent<'a>>) -> Result<(), Error> {
        let Stage::Holding { counts } = self.stage else { return Ok(()) };
        self.stage = Stage::Concluded;
        let spent = spent.into();
        let checked = spent.checked();
        let spent = if checked.is_ok() { spent } else { Spent::Reserved };
        if self.configured.is_some() {
            self.end_configured(counts, spent.at(0));
            return checked;
        }
        let settlements = self.limits.lock().end(self.number, counts, spent);
        self.settlements.extend(settlements);
        checked
    }

    /// Adds the refund of units that the store has admitted for this guard, which does not rely on them: an earlier guard has
    /// had the store decide about other policies, and one of those denies.
    pub(super) fn give_back_unclaimed(&mut self) {
        if !std::mem::take(&mut self.is_unclaimed) {
            return;
        }
        for one in self.policies.iter_mut().filter(|one| one.origin == Origin::Store) {
            let is_by_outage = one.decision.as_ref().is_some_and(|decision| decision.source().is_outage());
            let step = match one.reservation.take() {
                Some(reservation) => Step::End(reservation),
                None if is_by_outage => continue,
                None => Step::Refund(one.units),
            };
            let (limiter, policy) = (self.guard.limiter().clone(), one.policy.clone());
            let key = Arc::clone(&self.key);
            self.settlements.push(Settlement { limiter, policy, key, plan: None, step });
        }
    }
}

impl Drop for GuardCheck {
    fn drop(&mut self) {
        if self.holds() {
            // Without units there is nothing to refuse.
            let _ = self.end_in_background(Spent::Reserved);
        }
    }
}
