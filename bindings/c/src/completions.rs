//! The non-blocking face: operations are submitted with a tag, one file descriptor tells when some have finished, and many
//! are drained at a time.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylimit::{Answer, Call, Completions, Decision, Error, ErrorKind};

use crate::answer::polylimit_result;
use crate::calls::{checked_requests, set_decisions};
use crate::decision::polylimit_decision;
use crate::event::Event;
use crate::failure::{Failure, MessageBuffer, guard, guard_done, guard_quietly};
use crate::limiter::polylimit_limiter;
use crate::pointer::{Strided, handle, place, sized};
use crate::request::polylimit_request;
use crate::status::{POLYLIMIT_OK, POLYLIMIT_PENDING, polylimit_status};

/// Tags with what came of their operations.
type Finished = VecDeque<(u64, Result<Answer, Error>)>;

/// Operations that were submitted and are not drained yet, of any number of limiters. Any thread may use it at any time.
/// It belongs to the process that opened it: a child that was forked opens its own, and may only free this one.
pub struct polylimit_completions {
    completions: Completions<u64>,
    event: Arc<Event>,
    /// Finished, and there was no room for them in what the caller drained into.
    left: Mutex<Finished>,
    /// The process that opened it: after a fork, a lock may be held by a thread that is not there, and the descriptor is
    /// shared with the parent, whose wake-ups must not be taken.
    process: u32,
}

impl polylimit_completions {
    fn left(&self) -> Result<MutexGuard<'_, Finished>, Failure> {
        if self.process != std::process::id() {
            return Err(Failure::new(
                ErrorKind::Internal,
                "these completions belong to the process that this one was forked from: open others",
            ));
        }
        Ok(self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Opens a place for finished operations. Freed by polylimit_completions_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_open(
    completions_out: *mut *mut polylimit_completions,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes the place.
        let completions_out = unsafe { place(completions_out, "completions_out") }?;
        let event = Arc::new(Event::new()?);
        let raised = Arc::clone(&event);
        let completions = Completions::new(move || raised.raise());
        let process = std::process::id();
        let opened = polylimit_completions { completions, event, left: Mutex::default(), process };
        *completions_out = Box::into_raw(Box::new(opened));
        Ok(())
    })
}

/// The file descriptor to watch (epoll, poll, libuv): it is readable when something can be drained. It is non-blocking,
/// closed on exec, and belongs to the completions: watch it, and neither read nor close it. -1 when they are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_fd(completions: *const polylimit_completions) -> c_int {
    // SAFETY: the caller owes completions, or NULL.
    guard_quietly(-1, || {
        unsafe { completions.as_ref() }.map_or(-1, |completions| completions.event.descriptor())
    })
}

/// Starts an operation, and does not wait. Nothing of the request is used after the call.
///
/// POLYLIMIT_OK: the answer was known at once and is in `result_out`; POLYLIMIT_PENDING: it comes by
/// polylimit_completions_drain, with this tag; otherwise it failed, and nothing comes. `result_size` is
/// sizeof(polylimit_result). A limiter may be closed and freed while its operations are pending: they are drained all the
/// same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_submit(
    completions: *const polylimit_completions,
    limiter: *const polylimit_limiter,
    request: *const polylimit_request,
    tag: u64,
    result_out: *mut polylimit_result,
    result_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes completions, a limiter, a request and a result.
        let (completions, limiter, request, result) = unsafe {
            (
                handle(completions, "completions")?,
                handle(limiter, "limiter")?,
                sized(request)?,
                Strided::new(result_out, result_size, 1)?,
            )
        };
        // SAFETY: the caller owes a key and a text, or NULL.
        let call = unsafe { request.call() }?;
        match completions.completions.submit(limiter.limiter.asynchronous(), &call, tag) {
            None => Ok(POLYLIMIT_PENDING),
            Some(answer) => {
                // SAFETY: it is the element of the array, and its fields may have any bytes.
                unsafe { &mut *result.at::<polylimit_result>(0) }.set(tag, Ok(answer?));
                Ok(POLYLIMIT_OK)
            }
        }
    })
}

/// Starts checks of requests that belong together, and does not wait; see polylimit_limiter_check_together. Nothing of the
/// requests is used after the call.
///
/// POLYLIMIT_OK: the decisions were known at once and are in `decisions_out`; POLYLIMIT_PENDING: they come by
/// polylimit_completions_drain, as `count` results of this tag in the order of the requests, or as one that says why there are
/// none; otherwise it failed, and nothing comes. The sizes are those of polylimit_limiter_check_together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_submit_together(
    completions: *const polylimit_completions,
    limiter: *const polylimit_limiter,
    requests: *const polylimit_request,
    request_size: usize,
    count: usize,
    tag: u64,
    decisions_out: *mut polylimit_decision,
    decision_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes completions, a limiter and two arrays.
        let (completions, limiter, requests, decisions) = unsafe {
            (
                handle(completions, "completions")?,
                handle(limiter, "limiter")?,
                checked_requests(requests, request_size, count)?,
                Strided::new(decisions_out, decision_size, count)?,
            )
        };
        if requests.is_empty() {
            return Err(Failure::invalid("there are no requests: nothing would come of them".to_owned()));
        }
        let call = Call::CheckTogether(&requests);
        match completions.completions.submit(limiter.limiter.asynchronous(), &call, tag) {
            None => Ok(POLYLIMIT_PENDING),
            Some(answer) => {
                // SAFETY: there are so many elements.
                unsafe { set_decisions(&decisions, &decisions_of(answer?)?) };
                Ok(POLYLIMIT_OK)
            }
        }
    })
}

fn decisions_of(answer: Answer) -> Result<Vec<Decision>, Error> {
    match answer {
        Answer::Decisions(decisions) => decisions.into_iter().collect(),
        _ => Ok(Vec::new()),
    }
}

/// A result of its own for each of several decisions.
fn put_apart(tag: u64, answer: Result<Answer, Error>, each: &mut Finished) {
    match answer {
        Ok(Answer::Decisions(decisions)) => {
            each.extend(decisions.into_iter().map(|decision| (tag, decision.map(Answer::Decision))));
        }
        other => each.push_back((tag, other)),
    }
}

/// Writes the results of up to `capacity` finished operations to `results_out` and their number to `count_out`. The
/// descriptor stays readable while there are more. `result_size` is sizeof(polylimit_result).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_drain(
    completions: *const polylimit_completions,
    results_out: *mut polylimit_result,
    result_size: usize,
    capacity: usize,
    count_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes completions, an array and a place.
        let (completions, results, count_out) = unsafe {
            (
                handle(completions, "completions")?,
                Strided::new(results_out, result_size, capacity)?,
                place(count_out, "count_out")?,
            )
        };
        *count_out = 0;
        let mut left = completions.left()?;
        // Lowered first: what finishes from here on raises it again.
        completions.event.lower();
        completions.completions.drain(|tag, answer| put_apart(tag, answer, &mut left));
        let count = left.len().min(capacity);
        for (at, (tag, answer)) in left.drain(..count).enumerate() {
            // SAFETY: it is an element of the array, and its fields may have any bytes.
            let result = unsafe { &mut *results.at::<polylimit_result>(at) };
            result.set(tag, answer.map_err(Into::into));
        }
        if !left.is_empty() {
            completions.event.raise();
        }
        *count_out = count;
        Ok(())
    })
}

/// Gives up the pending operation of this tag. An acquire leaves its queue, and units that the store has spent for it are
/// refunded, in Redis in the background; of anything else it stays unknown whether it was applied.
///
/// `given_up_out`: 1 when nothing of this tag will be drained, 0 when it has finished already, or there is none
/// of it; what has finished is still drained.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_cancel(
    completions: *const polylimit_completions,
    tag: u64,
    given_up_out: *mut u32,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes completions and a place.
        let (completions, given_up_out) =
            unsafe { (handle(completions, "completions")?, place(given_up_out, "given_up_out")?) };
        *given_up_out = u32::from(completions.completions.abandon(&tag));
        Ok(())
    })
}

/// How many operations were submitted and are not drained yet; 0 when it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_pending(completions: *const polylimit_completions) -> usize {
    guard_quietly(0, || {
        // SAFETY: the caller owes completions, or NULL.
        let Some(completions) = (unsafe { completions.as_ref() }) else { return 0 };
        completions.left().map_or(0, |left| left.len() + completions.completions.pending())
    })
}

/// Frees completions and closes their descriptor: no thread may use them any more. Operations that are pending are given
/// up. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_free(completions: *mut polylimit_completions) {
    guard_quietly((), || {
        if !completions.is_null() {
            // SAFETY: the caller owes completions that nobody uses any more.
            drop(unsafe { Box::from_raw(completions) });
        }
    });
}
