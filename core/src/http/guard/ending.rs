//! How a check ends: with the head of the response, and with its last byte.

use std::sync::Arc;

use crate::http::guard::check::{GuardCheck, Origin, Stage};
use crate::http::guard::ledger::Spent;
use crate::http::guard::settlement::{Settlement, Step};
use polylimit_document::meter::Meters;
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

    /// Whether the check has to be passed the response, because a policy that it reserves has a
    /// [meter](crate::http::guard::GuardBuilder::spent_by).
    pub fn reads_response(&self) -> bool {
        self.holds() && self.meters().is_some()
    }

    /// Takes the fields of the response, if the check [reads](Self::reads_response) it.
    pub fn read_head<'h>(&mut self, fields: impl IntoIterator<Item = (&'h str, &'h [u8])>) {
        let Some(meters) = self.meters().filter(|_| self.holds()) else { return };
        let mut reading = meters.reading();
        reading.head(fields);
        self.reading = Some(Box::new(reading));
    }

    /// Whether the body of the response has to be passed to [`read_body`](Self::read_body): a meter reads JSON, and the body is JSON
    /// without a content coding.
    pub fn reads_body(&self) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.needs_body())
    }

    /// Takes the next piece of the body of the response, of any size, which is not kept.
    pub fn read_body(&mut self, bytes: &[u8]) {
        if let Some(reading) = &mut self.reading {
            reading.body(bytes);
        }
    }

    fn meters(&self) -> Option<Arc<Meters>> {
        match &self.configured {
            Some(configured) => configured.meters.clone(),
            None => self.guard.shared.options.meters.clone(),
        }
    }

    /// What was spent under each of the policies: what the response reports where they have a meter, and otherwise as the program says.
    fn metered(&mut self, spent: Spent<'_>) -> Option<Vec<Option<u64>>> {
        let meters = self.meters()?;
        if let Some(reading) = &mut self.reading {
            reading.end();
        }
        let reported = |at| self.reading.as_ref().and_then(|reading| reading.units(at));
        let units = |at| if meters.has(at) { reported(at) } else { spent.at(at) };
        Some((0..self.policies.len()).map(units).collect())
    }

    /// Ends what the check [holds](Self::holds), when the last byte of the response is sent, its connection has gone, or a web
    /// socket is closed. `spent` is what the request has spent under the policies that it reserved; `None` is what was
    /// reserved. Under a policy with a meter it is what the response reports. Nothing is spent for a response that does not [count](Self::finish). Without a response, such as for a
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
        let spent = match &self.configured {
            Some(_) => Spent::from(spent.at(0)),
            None => spent,
        };
        let metered = self.metered(spent);
        let spent = metered.as_deref().map_or(spent, Spent::Each);
        if self.configured.is_some() {
            self.end_configured(counts, spent);
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
        if self.waiting.is_some() {
            self.leave_line();
        }
        if self.holds() {
            // Without units there is nothing to refuse.
            let _ = self.end_in_background(Spent::Reserved);
        }
    }
}
