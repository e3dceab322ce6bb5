//! Reservations as objects, for languages that free objects as soon as they are not referred to any more.

use std::sync::Arc;

use parking_lot::Mutex;
use polylimit::blocking;
use polylimit::raw::ReservationTerms;

use crate::decision::{AnswerFuture, Decision, Usage, answer, usage};
use crate::error::{Result, guarded};
use crate::reserve_options::spent_of;

/// The decisions on requests that were reserved together, and the id of their reservations.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct RequestReservation {
    /// Whether every request is admitted, so that units are set aside or spent.
    pub allowed: bool,
    /// The decision on each request, in their order. In a denied request, those that admit are the decisions of a peek.
    pub decisions: Vec<Decision>,
    /// The id, for `commit`, `cancel` and `renew` of the limiter.
    pub id: Vec<u8>,
}

impl RequestReservation {
    pub(crate) fn new(terms: &ReservationTerms, decisions: Vec<Decision>) -> Self {
        let allowed = decisions.iter().all(|decision| decision.allowed);
        Self { allowed, decisions, id: terms.id.as_bytes().to_vec() }
    }
}

/// Units that are set aside for their holder, made by `Limiter.reserve`. While it exists, it is renewed in the background. When it
/// is freed without a commit or a cancel, it ends by itself: it is cancelled, unless its options say that it is committed.
#[derive(Debug, uniffi::Object)]
pub struct Reservation {
    limiter: blocking::Limiter,
    reservation: Mutex<polylimit::reservation::Reservation>,
}

impl Reservation {
    pub(crate) fn new(
        limiter: &blocking::Limiter,
        reservation: polylimit::reservation::Reservation,
    ) -> Arc<Self> {
        Arc::new(Self { limiter: limiter.clone(), reservation: Mutex::new(reservation) })
    }
}

#[uniffi::export]
impl Reservation {
    /// Whether every quota has admitted the request, so that its units are set aside.
    pub fn allowed(&self) -> bool {
        self.reservation.lock().allowed()
    }

    /// The decision on the request.
    pub fn decision(&self) -> Decision {
        self.reservation.lock().decision().into()
    }

    /// The id, by which another process can end the reservation.
    pub fn id(&self) -> Vec<u8> {
        self.reservation.lock().id().as_bytes().to_vec()
    }

    /// Whether the reservation is known to have ended without its holder: a renewal did not find it, or its time has passed
    /// without a renewal.
    pub fn is_lost(&self) -> bool {
        self.reservation.lock().is_lost()
    }

    /// Ends the reservation and charges what was spent, by default what was reserved. The usage's `found` is false, and
    /// nothing is charged, when the reservation had ended before.
    #[uniffi::method(default(spent = None))]
    pub fn commit(&self, spent: Option<i64>) -> Result<Usage> {
        let spent = spent_of(spent)?;
        guarded(|| usage(self.limiter.raw().call(&self.reservation.lock().commit_call(spent))))
    }

    /// Ends the reservation and spends nothing.
    pub fn cancel(&self) -> Result<Usage> {
        guarded(|| usage(self.limiter.raw().call(&self.reservation.lock().cancel_call())))
    }
}

/// Units that are set aside for their holder, made by `AsyncLimiter.reserve`; as `Reservation`, and holds no thread.
#[derive(Debug, uniffi::Object)]
pub struct AsyncReservation {
    limiter: polylimit::Limiter,
    reservation: Mutex<polylimit::reservation::Reservation>,
}

impl AsyncReservation {
    pub(crate) fn new(
        limiter: &polylimit::Limiter,
        reservation: polylimit::reservation::Reservation,
    ) -> Arc<Self> {
        Arc::new(Self { limiter: limiter.clone(), reservation: Mutex::new(reservation) })
    }

    fn start_commit(&self, spent: Option<u64>) -> Result<AnswerFuture> {
        guarded(|| {
            Ok(Box::pin(self.limiter.start(&self.reservation.lock().commit_call(spent))) as AnswerFuture)
        })
    }

    fn start_cancel(&self) -> Result<AnswerFuture> {
        guarded(|| Ok(Box::pin(self.limiter.start(&self.reservation.lock().cancel_call())) as AnswerFuture))
    }
}

#[uniffi::export]
impl AsyncReservation {
    /// Whether every quota has admitted the request, so that its units are set aside.
    pub fn allowed(&self) -> bool {
        self.reservation.lock().allowed()
    }

    /// The decision on the request.
    pub fn decision(&self) -> Decision {
        self.reservation.lock().decision().into()
    }

    /// The id, by which another process can end the reservation.
    pub fn id(&self) -> Vec<u8> {
        self.reservation.lock().id().as_bytes().to_vec()
    }

    /// Whether the reservation is known to have ended without its holder.
    pub fn is_lost(&self) -> bool {
        self.reservation.lock().is_lost()
    }

    /// Ends the reservation and charges what was spent, by default what was reserved. The usage's `found` is false, and
    /// nothing is charged, when the reservation had ended before.
    #[uniffi::method(default(spent = None))]
    pub async fn commit(&self, spent: Option<i64>) -> Result<Usage> {
        answer(self.start_commit(spent_of(spent)?)?, usage).await
    }

    /// Ends the reservation and spends nothing.
    pub async fn cancel(&self) -> Result<Usage> {
        answer(self.start_cancel()?, usage).await
    }
}
