//! Reservations that the language holds, or whose answer it has not taken.

use std::sync::Arc;

use parking_lot::Mutex;
use polylimit::raw::{Answer, ReservationTerms};
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::{Decision, Error, Request};

use crate::decision::core_decision;
use crate::direct::layout::{RESERVATION, Writer};
use crate::error::Result;

/// What a handle of the language refers to.
pub(super) struct Held {
    /// `None` once it was ended.
    reservation: Mutex<Option<Box<polylimit::reservation::Reservation>>>,
    pub(super) commits_at_end: bool,
}

impl Held {
    pub(super) fn is_open(&self) -> bool {
        self.reservation.lock().is_some()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.reservation.lock().as_ref().is_some_and(|reservation| reservation.is_lost())
    }

    /// From here on, the call that was made ends the reservation.
    pub(super) fn detach(&self) {
        if let Some(reservation) = self.reservation.lock().take() {
            reservation.detach();
        }
    }
}

/// A reservation that was submitted.
pub(crate) struct Reserve {
    pub(super) limiter: polylimit::Limiter,
    pub(super) key: Box<[u8]>,
    pub(super) policy: Option<Box<str>>,
    pub(super) plan: Option<Box<str>>,
    pub(super) terms: ReservationTerms,
    pub(super) options: ReserveOptions,
    pub(super) commits_at_end: bool,
}

impl Reserve {
    /// Makes the handle.
    pub(crate) fn adopt(&self, answer: std::result::Result<Answer, Error>) -> Result<Reserved> {
        let mut request = Request::new(&self.key);
        if let Some(policy) = &self.policy {
            request = request.policy(policy);
        }
        if let Some(plan) = &self.plan {
            request = request.plan(plan);
        }
        Reserved::of(&self.limiter, request, &self.terms, (self.options, self.commits_at_end), answer)
    }
}

/// The answer to a reserve. Unless it is handed over to the language, dropping it ends the reservation.
pub(crate) struct Reserved {
    held: Option<Arc<Held>>,
    id: ReservationId,
    decision: Decision,
}

impl Reserved {
    pub(super) fn of(
        limiter: &polylimit::Limiter,
        request: Request<'_>,
        terms: &ReservationTerms,
        (options, commits_at_end): (ReserveOptions, bool),
        answer: std::result::Result<Answer, Error>,
    ) -> Result<Self> {
        let decision = core_decision(answer)?;
        let reservation = limiter.adopt(request, terms, options, decision.clone())?;
        let held = reservation
            .is_open()
            .then(|| Arc::new(Held { reservation: Mutex::new(Some(Box::new(reservation))), commits_at_end }));
        Ok(Self { held, id: terms.id, decision })
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u8(RESERVATION);
        let address = self.held.as_ref().map(|held| Arc::as_ptr(held).expose_provenance() as u64);
        writer.u64(address.unwrap_or(0));
        writer.bytes(self.id.as_bytes());
        writer.decision(&self.decision);
    }

    /// What was written belongs to the language.
    pub(crate) fn hand_over(self) {
        if let Some(held) = self.held {
            let _ = Arc::into_raw(held);
        }
    }
}
