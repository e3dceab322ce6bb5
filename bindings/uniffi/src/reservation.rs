//! Reservations as objects, for languages that free objects as soon as they are not referred to any more.

use std::sync::Arc;

use parking_lot::Mutex;
use polylimit::blocking;

use crate::decision::{Decision, Usage, usage};
use crate::error::{Result, guarded};
use crate::pending_call::{AnswerFuture, answer};
use crate::reserve_options::spent_of;

/// Units that are set aside for their holder, made by `Limiter.reserve`. While it exists, it is renewed in the background. When it
/// is freed without a commit or a cancel, it ends by itself: it is cancelled, unless its options say that it is committed.
#[derive(Debug, uniffi::Object)]
pub struct Reservation {
    limiter: blocking::Limiter,
    reservation: Mutex<polylimit::Reservation>,
}

impl Reservation {
    pub(crate) fn new(limiter: &blocking::Limiter, reservation: polylimit::Reservation) -> Arc<Self> {
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
        guarded(|| usage(self.limiter.call(&self.reservation.lock().commit_call(spent))))
    }

    /// Ends the reservation and spends nothing.
    pub fn cancel(&self) -> Result<Usage> {
        guarded(|| usage(self.limiter.call(&self.reservation.lock().cancel_call())))
    }
}

/// Units that are set aside for their holder, made by `AsyncLimiter.reserve`; as `Reservation`, and holds no thread.
#[derive(Debug, uniffi::Object)]
pub struct AsyncReservation {
    limiter: polylimit::Limiter,
    reservation: Mutex<polylimit::Reservation>,
}

impl AsyncReservation {
    pub(crate) fn new(limiter: &polylimit::Limiter, reservation: polylimit::Reservation) -> Arc<Self> {
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
