//! Reservations with a handle: the library renews them, and freeing the handle gives back what was set aside.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylimit::raw::{Answer, Call, ReservationTerms};
use polylimit::reservation::{Reservation, ReserveOptions};
use polylimit::{Decision, Error, Limiter, Request};

use crate::arguments::{Strided, bytes, handle, optional_text, out_param, sized, sized_out};
use crate::completions::{Receiver, Tag, polylimit_completions};
use crate::decision::{polylimit_decision, polylimit_usage};
use crate::error::{
    Failure, MessageBuffer, POLYLIMIT_OK, POLYLIMIT_PENDING, guard, guard_or, guard_unit, polylimit_status,
};
use crate::limiter::polylimit_limiter;
use crate::operations::wrong_answer;
use crate::request::{polylimit_result, refined, units_spent};
use crate::reservation_options::polylimit_reservation_options;

/// Units that are set aside for its holder. Any thread may use it at any time until it is freed. While it lives, the library renews
/// the reservation in the background. It stays usable when its limiter is freed, and its operations then fail with
/// POLYLIMIT_CLOSED. In a forked child it is a copy, which may only be freed: the reservation belongs to the parent.
pub struct polylimit_reservation {
    shared: Arc<Shared>,
}

/// What a handle shares with the operation that makes its reservation.
struct Shared {
    limiter: Limiter,
    key: Box<[u8]>,
    policy: Option<Box<str>>,
    cost: u64,
    plan: Option<Box<str>>,
    headroom: u8,
    terms: ReservationTerms,
    options: ReserveOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    decision: Option<Decision>,
    /// Renews the reservation, and ends it where its holder does not.
    kept: Option<Reservation>,
    /// Whether the handle was committed, cancelled or freed.
    is_ended: bool,
}

impl Shared {
    /// # Safety
    /// As for polylimit_reservation_new.
    unsafe fn new(
        limiter: *const polylimit_limiter,
        policy: *const c_char,
        key: *const c_void,
        key_length: usize,
        cost: u64,
        options: *const polylimit_reservation_options,
    ) -> Result<Arc<Self>, Failure> {
        // SAFETY: the caller guarantees a limiter, a text or NULL, and a key.
        let (limiter, policy, key) = unsafe {
            (
                handle(limiter, "limiter")?,
                optional_text(policy, "policy")?,
                bytes(key.cast(), key_length, "key")?,
            )
        };
        let mut asked = Request::new(key).cost(cost);
        let options = if options.is_null() {
            ReserveOptions::default()
        } else {
            // SAFETY: the caller guarantees options, and in them a plan or NULL.
            unsafe {
                let options = sized(options)?;
                asked = refined(asked, options.headroom, options.plan)?;
                options.get()?
            }
        };
        Ok(Arc::new(Self {
            limiter: limiter.limiter.asynchronous().clone(),
            key: key.into(),
            policy: policy.map(Into::into),
            cost,
            plan: asked.plan_name().map(Into::into),
            headroom: asked.headroom_percent(),
            terms: options.terms()?,
            options,
            state: Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, cost: u64) -> Request<'_> {
        let mut request = Request::new(&self.key).cost(cost);
        if let Some(policy) = &self.policy {
            request = request.policy(policy);
        }
        if let Some(plan) = &self.plan {
            request = request.plan(plan);
        }
        request
    }

    fn reserve_call(&self) -> Call<'_> {
        Call::Reserve(self.request(self.cost).headroom(self.headroom), self.terms)
    }

    /// The handle has nothing to end any more, and renews nothing.
    fn close(&self) {
        let mut state = self.state();
        state.is_ended = true;
        let kept = state.kept.take();
        drop(state);
        if let Some(kept) = kept {
            kept.detach();
        }
    }

    fn commit_call(&self, spent: u64) -> Call<'_> {
        self.close();
        Call::Commit(self.request(0), self.terms.id, units_spent(spent))
    }

    fn cancel_call(&self) -> Call<'_> {
        self.close();
        Call::Cancel(self.request(0), self.terms.id)
    }
}

impl Receiver for Shared {
    /// Keeps the reservation, unless the handle was ended while the answer was on its way.
    fn receive(&self, answer: Result<Answer, Error>) -> Result<Answer, Error> {
        let answer = answer?;
        if let Answer::Decision(decision) = &answer {
            let request = self.request(self.cost);
            let mut state = self.state();
            let options = if state.is_ended { self.options.commit_at_end(false) } else { self.options };
            let kept = self.limiter.adopt(request, &self.terms, options, decision.clone())?;
            state.decision = Some(decision.clone());
            if !state.is_ended {
                state.kept = Some(kept);
            }
        }
        Ok(answer)
    }
}

/// Reserves as polylimit_limiter_reserve does, and gives a handle that renews the reservation and ends it. `options` may be NULL for
/// the defaults. A denied request has a handle as well: its decision is a denial, and ending it does nothing. Freed by
/// polylimit_reservation_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_new(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
    options: *const polylimit_reservation_options,
    reservation_out: *mut *mut polylimit_reservation,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter, a key, a text or NULL, options or NULL, and an out-parameter.
        let (reservation_out, shared) = unsafe {
            (
                out_param(reservation_out, "reservation_out")?,
                Shared::new(limiter, policy, key, key_length, cost, options)?,
            )
        };
        shared.receive(shared.limiter.blocking().raw().call(&shared.reserve_call()))?;
        *reservation_out = Box::into_raw(Box::new(polylimit_reservation { shared }));
        Ok(())
    })
}

/// Reserves as polylimit_reservation_new does, without waiting. The handle is there at once.
///
/// POLYLIMIT_OK: the decision was available at once and is in `result_out`. POLYLIMIT_PENDING: polylimit_completions_drain will return
/// it, with this tag; the reservation is kept from then on. Any other status is an error, and there will be neither a result nor a
/// handle. A handle that is freed before its result is drained gives back what is set aside when it is. `result_size` is
/// sizeof(polylimit_result).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_submit(
    completions: *const polylimit_completions,
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
    options: *const polylimit_reservation_options,
    tag: u64,
    reservation_out: *mut *mut polylimit_reservation,
    result_out: *mut polylimit_result,
    result_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_reservation_new, and completions and a result.
        let (completions, reservation_out, result, shared) = unsafe {
            (
                handle(completions, "completions")?,
                out_param(reservation_out, "reservation_out")?,
                Strided::new(result_out, result_size, 1)?,
                Shared::new(limiter, policy, key, key_length, cost, options)?,
            )
        };
        let receiver = Arc::<Shared>::clone(&shared);
        let submitted = Tag { number: tag, receiver: Some(receiver) };
        let answer = completions.call(&shared.limiter, &shared.reserve_call(), submitted);
        let status = match answer {
            None => POLYLIMIT_PENDING,
            Some(answer) => {
                let answer = shared.receive(answer)?;
                // SAFETY: it is the only element of the array, and any bytes are valid in its fields.
                unsafe { &mut *result.at::<polylimit_result>(0) }.set(tag, Ok(answer));
                POLYLIMIT_OK
            }
        };
        *reservation_out = Box::into_raw(Box::new(polylimit_reservation { shared }));
        Ok(status)
    })
}

/// Writes the decision on the request. A reservation whose result was not drained yet has none: POLYLIMIT_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_decision(
    reservation: *const polylimit_reservation,
    decision_out: *mut polylimit_decision,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a reservation and a decision.
        let (reservation, decision_out) =
            unsafe { (handle(reservation, "reservation")?, sized_out(decision_out)?) };
        let state = reservation.shared.state();
        let decision = state.decision.as_ref();
        let undecided = || Failure::invalid("the reservation has no decision yet: drain its result first");
        decision_out.set(decision.ok_or_else(undecided)?);
        Ok(())
    })
}

/// The id, by which another process can end the reservation; its length goes to `length_out`. It is valid until the handle is
/// freed. NULL when `reservation` or `length_out` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_id(
    reservation: *const polylimit_reservation,
    length_out: *mut usize,
) -> *const c_void {
    guard_or(std::ptr::null(), || {
        // SAFETY: the caller guarantees a reservation and a length, or NULL.
        match unsafe { (reservation.as_ref(), out_param(length_out, "length_out")) } {
            (Some(reservation), Ok(length_out)) => {
                let id = reservation.shared.terms.id.as_bytes();
                *length_out = id.len();
                id.as_ptr().cast()
            }
            _ => std::ptr::null(),
        }
    })
}

/// 1 when the reservation is known to have ended without its holder: a renewal did not find it, or its time has passed without one.
/// Its units may be admitted to others meanwhile. Otherwise 0, also when `reservation` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_is_lost(reservation: *const polylimit_reservation) -> u32 {
    guard_or(0, || {
        // SAFETY: the caller guarantees a reservation, or NULL.
        let Some(reservation) = (unsafe { reservation.as_ref() }) else { return 0 };
        u32::from(reservation.shared.state().kept.as_ref().is_some_and(Reservation::is_lost))
    })
}

/// Ends the reservation and spends `spent` units as a charge does, or what was reserved for POLYLIMIT_AS_RESERVED. The usage's
/// `found` is 0, and nothing is charged, when the reservation had ended before; so a commit that failed may be repeated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_commit(
    reservation: *const polylimit_reservation,
    spent: u64,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a reservation and a usage.
        unsafe { end(reservation, |shared| shared.commit_call(spent), usage_out) }
    })
}

/// Ends the reservation and spends nothing. The usage's `found` is 0 when it had ended before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_cancel(
    reservation: *const polylimit_reservation,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a reservation and a usage.
        unsafe { end(reservation, Shared::cancel_call, usage_out) }
    })
}

/// Commits as polylimit_reservation_commit does, without waiting. The statuses are those of polylimit_completions_submit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_submit_commit(
    completions: *const polylimit_completions,
    reservation: *const polylimit_reservation,
    spent: u64,
    tag: u64,
    result_out: *mut polylimit_result,
    result_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        let result = (result_out, result_size);
        // SAFETY: the caller guarantees completions, a reservation and a result.
        unsafe { submit_end(completions, reservation, |shared| shared.commit_call(spent), tag, result) }
    })
}

/// Cancels as polylimit_reservation_cancel does, without waiting. The statuses are those of polylimit_completions_submit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_submit_cancel(
    completions: *const polylimit_completions,
    reservation: *const polylimit_reservation,
    tag: u64,
    result_out: *mut polylimit_result,
    result_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        let result = (result_out, result_size);
        // SAFETY: the caller guarantees completions, a reservation and a result.
        unsafe { submit_end(completions, reservation, Shared::cancel_call, tag, result) }
    })
}

/// Leaves the reservation to another holder, which ends it by its id. This handle renews it no more, and freeing it does nothing.
/// NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_detach(reservation: *const polylimit_reservation) {
    guard_or((), || {
        // SAFETY: the caller guarantees a reservation, or NULL.
        if let Some(reservation) = unsafe { reservation.as_ref() } {
            reservation.shared.close();
        }
    });
}

/// Frees a handle. A reservation that was neither committed, cancelled nor detached is cancelled in the background, or what was reserved is
/// committed if the options say to. No thread may use the handle during the call or afterwards. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_reservation_free(reservation: *mut polylimit_reservation) {
    guard_or((), || {
        if !reservation.is_null() {
            // SAFETY: the caller guarantees a reservation that no thread uses any more.
            let reservation = unsafe { Box::from_raw(reservation) };
            let mut state = reservation.shared.state();
            state.is_ended = true;
            let kept = state.kept.take();
            drop(state);
            drop(kept);
        }
    });
}

/// # Safety
/// `reservation` is NULL or a reservation, `usage_out` NULL or a usage.
unsafe fn end(
    reservation: *const polylimit_reservation,
    call: impl FnOnce(&Shared) -> Call<'_>,
    usage_out: *mut polylimit_usage,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees it.
    let (reservation, usage_out) = unsafe { (handle(reservation, "reservation")?, sized_out(usage_out)?) };
    let shared = &reservation.shared;
    let Answer::Usage(usage) = shared.limiter.blocking().raw().call(&call(shared))? else {
        return Err(wrong_answer());
    };
    usage_out.set(&usage);
    Ok(())
}

/// # Safety
/// The pointers are NULL or point at completions, a reservation and a result.
unsafe fn submit_end(
    completions: *const polylimit_completions,
    reservation: *const polylimit_reservation,
    call: impl FnOnce(&Shared) -> Call<'_>,
    tag: u64,
    (result_out, result_size): (*mut polylimit_result, usize),
) -> Result<polylimit_status, Failure> {
    // SAFETY: the caller guarantees it.
    let (completions, reservation, result) = unsafe {
        (
            handle(completions, "completions")?,
            handle(reservation, "reservation")?,
            Strided::new(result_out, result_size, 1)?,
        )
    };
    let shared = &reservation.shared;
    match completions.call(&shared.limiter, &call(shared), tag.into()) {
        None => Ok(POLYLIMIT_PENDING),
        Some(answer) => {
            // SAFETY: it is the only element of the array, and any bytes are valid in its fields.
            unsafe { &mut *result.at::<polylimit_result>(0) }.set(tag, Ok(answer?));
            Ok(POLYLIMIT_OK)
        }
    }
}
