//! How a check ends: with the head of the response, and with its last byte.

use std::sync::Arc;

use crate::error::Error;
use crate::http::guard::check::{Applied, GuardCheck, Origin, Stage};
use crate::http::guard::ledger::Spent;
use crate::http::guard::settlement::{Settlement, Step};
use crate::rules::decision::{Decision, Usage};
use crate::rules::request::Request;

impl GuardCheck {
    /// Ends the check when there is a response: a guard that meets the same request again, such as in another
    /// attempt, is charged again. A response that does not count gives back what only this guard relies on. What was reserved stays
    /// set aside until the check [ends](Self::end).
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

    /// Ends what the check [holds](Self::holds), when the last byte of the response is sent, its connection has gone, or a web socket
    /// is closed. `spent` is what the request has spent under the policies that it reserved; `None` is what was reserved. Nothing is spent for a response that does not [count](Self::finish). Without a
    /// response, such as for a request that is cancelled, it counts.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the units are above [`Request::MAX_COST`]; the check has ended with those
    /// that were reserved.
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

    /// The units to refund, each with its limiter: after [`conclude`](Self::conclude) those of a request that is
    /// denied, after [`finish`](Self::finish) those of a response that does not count. Units that cannot be refunded
    /// stay spent. A guard that reserves needs [`next_call`](Self::next_call) in its place.
    pub fn refunds(&self) -> impl Iterator<Item = (&crate::Limiter, Request<'_>)> {
        self.settlements.iter().filter_map(|one| Some((&one.limiter, one.refund()?)))
    }

    /// Takes the usage after the refund at this position of [`refunds`](Self::refunds), for the fields.
    pub fn refunded(&mut self, at: usize, left: Usage) {
        if let Some(settlement) = self.settlements.iter().filter(|one| one.refund().is_some()).nth(at) {
            self.limits.lock().settled(settlement, left);
        }
    }

    /// Adds what this guard gives back by itself because it did not rely on it: reservations, and checks that were admitted beside them.
    /// Checks without reservations are given back by the limiter.
    pub(super) fn give_back_own(&mut self) {
        if self.holds() || self.policies.iter().all(|one| one.reserving.is_none()) {
            return;
        }
        // The limiter has given back all checks where it has not admitted all of them.
        let mut checks = self.policies.iter().filter(|one| one.is_own_check());
        let are_spent = checks.all(|one| one.decision.as_ref().is_some_and(Decision::allowed));
        for one in &mut self.policies {
            let is_refunded = are_spent && one.is_own_check() && !one.is_by_outage();
            let reservation = one.reserving.as_mut().and_then(|reserving| reserving.handle.take());
            let step = match reservation {
                Some(reservation) => Step::End(Box::new(reservation)),
                None if is_refunded => Step::Refund(one.units),
                None => continue,
            };
            let (limiter, policy) = (self.guard.limiter().clone(), one.policy.clone());
            let key = Arc::clone(&self.key);
            self.settlements.push(Settlement { limiter, policy, key, plan: None, step });
        }
    }
}

impl Applied {
    /// Whether this guard had the store check it, and the store has decided.
    fn is_own_check(&self) -> bool {
        self.origin == Origin::Store && self.reserving.is_none()
    }

    fn is_by_outage(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.source().is_outage())
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
