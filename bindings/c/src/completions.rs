//! The non-blocking operations of a limiter: a program submits operations with tags, a file descriptor becomes readable when
//! some have finished, and the program drains many results at a time.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylimit::raw::{Answer, Call, Completions, EventDescriptor};
use polylimit::{Error, ErrorKind, Limiter};

use crate::arguments::{Strided, handle, out_param, sized};
use crate::decision::polylimit_decision;
use crate::error::{
    Failure, MessageBuffer, POLYLIMIT_OK, POLYLIMIT_PENDING, guard, guard_or, guard_unit, polylimit_status,
};
use crate::limiter::polylimit_limiter;
use crate::request::{
    POLYLIMIT_CHECK, POLYLIMIT_PEEK, POLYLIMIT_RESERVE, TogetherRequests, decisions_of, polylimit_request,
    polylimit_result, write_decisions,
};

/// Results of finished operations, with their tags.
type Finished = VecDeque<(Tag, Result<Answer, Error>)>;

/// The tag of an operation, and what takes its answer before the program.
pub(crate) struct Tag {
    pub(crate) number: u64,
    pub(crate) receiver: Option<Arc<dyn Receiver>>,
}

/// Takes the answer to an operation when it is drained, and says what the program gets.
pub(crate) trait Receiver: Send + Sync {
    fn receive(&self, answer: Result<Answer, Error>) -> Result<Answer, Error>;
}

impl PartialEq for Tag {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl From<u64> for Tag {
    fn from(number: u64) -> Self {
        Self { number, receiver: None }
    }
}

/// Operations of any number of limiters that were submitted and not drained yet. Any thread may use it at any time. It belongs
/// to the process that opened it: a forked child opens its own, and may only free this one.
pub struct polylimit_completions {
    completions: Completions<Tag>,
    event: Arc<EventDescriptor>,
    /// Finished operations that did not fit into the caller's array.
    undrained: Mutex<Finished>,
    /// The process that opened it. In a forked child, the lock may be held by a thread that does not exist there, and reading
    /// the descriptor would take wake-ups from the parent.
    process: u32,
}

impl polylimit_completions {
    /// Submits a call that cannot be answered at once.
    pub(crate) fn submit(
        &self,
        limiter: &Limiter,
        call: &Call<'_>,
        tag: Tag,
    ) -> Option<Result<Answer, Error>> {
        self.completions.submit(limiter, call, tag)
    }

    fn undrained(&self) -> Result<MutexGuard<'_, Finished>, Failure> {
        if self.process != std::process::id() {
            return Err(Failure::new(
                ErrorKind::Internal,
                "these completions belong to the parent process: open others in a forked child",
            ));
        }
        Ok(self.undrained.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers a call at once where that needs no waiting, and otherwise submits it.
    pub(crate) fn call(&self, limiter: &Limiter, call: &Call<'_>, tag: Tag) -> Option<Result<Answer, Error>> {
        limiter.raw().try_call(call).or_else(|| self.submit(limiter, call, tag))
    }
}

/// Opens completions. Freed by polylimit_completions_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_open(
    completions_out: *mut *mut polylimit_completions,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees the out-parameter.
        let completions_out = unsafe { out_param(completions_out, "completions_out") }?;
        let event = EventDescriptor::new().map_err(|error| {
            Failure::new(ErrorKind::Internal, format!("cannot create a descriptor for events: {error}"))
        })?;
        let event = Arc::new(event);
        let raised = Arc::clone(&event);
        let completions = Completions::new(move || raised.raise());
        let process = std::process::id();
        let opened = polylimit_completions { completions, event, undrained: Mutex::default(), process };
        *completions_out = Box::into_raw(Box::new(opened));
        Ok(())
    })
}

/// The file descriptor to watch (epoll, kqueue, poll, libuv), or on Windows the socket: it is readable when results can be drained. It is
/// non-blocking and closed on exec. It belongs to the completions: a program must neither read nor close it. -1 when `completions` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_fd(completions: *const polylimit_completions) -> c_int {
    // SAFETY: the caller guarantees completions, or NULL.
    let completions = unsafe { completions.as_ref() };
    guard_or(-1, || {
        let descriptor = completions.map(|completions| completions.event.descriptor());
        // Windows has sockets in place of descriptors, whose numbers have 32 bits.
        descriptor.and_then(|descriptor| c_int::try_from(descriptor).ok()).unwrap_or(-1)
    })
}

/// Starts an operation without waiting. The request is not used after the call. The tags of operations that are pending at the same
/// time have to differ, as a tag is how polylimit_completions_cancel and the result name the operation.
///
/// POLYLIMIT_OK: the answer was available at once and is in `result_out`. POLYLIMIT_PENDING: polylimit_completions_drain will
/// return it, with this tag. Any other status is an error, and there will be no result. `result_size` is
/// sizeof(polylimit_result). A limiter may be closed and freed while its operations are pending; their results are drained
/// as usual.
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
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees completions, a limiter, a request and a result.
        let (completions, limiter, request, result) = unsafe {
            (
                handle(completions, "completions")?,
                handle(limiter, "limiter")?,
                sized(request)?,
                Strided::new(result_out, result_size, 1)?,
            )
        };
        // SAFETY: the caller guarantees a key and a text, or NULL.
        let call = unsafe { request.call() }?;
        // The most frequent call: its decision is written from where it was made.
        if let Call::Check(request) = call
            && let Some(decision) = limiter.limiter.asynchronous().raw().try_check(request)
        {
            // SAFETY: it is the only element of the array, and any bytes are valid in its fields.
            unsafe { &mut *result.at::<polylimit_result>(0) }.set_decision(tag, &decision);
            return Ok(POLYLIMIT_OK);
        }
        match completions.call(limiter.limiter.asynchronous(), &call, tag.into()) {
            None => Ok(POLYLIMIT_PENDING),
            Some(answer) => {
                // SAFETY: it is the only element of the array, and any bytes are valid in its fields.
                unsafe { &mut *result.at::<polylimit_result>(0) }.set(tag, Ok(answer?));
                Ok(POLYLIMIT_OK)
            }
        }
    })
}

/// Decides requests that belong together, without waiting, as polylimit_limiter_check_together, polylimit_limiter_peek_together or
/// polylimit_limiter_reserve_together does: the operation of the requests, which is the same in all of them, says which. The requests are
/// not used after the call.
///
/// POLYLIMIT_OK: the decisions were available at once and are in `decisions_out`. POLYLIMIT_PENDING:
/// polylimit_completions_drain will return them as `count` results with this tag, in the order of the requests, or as one
/// result with the error. Any other status is an error, and there will be no result. The sizes are those of polylimit_limiter_check_together.
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
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees completions, a limiter and two arrays.
        let (completions, limiter, requests, decisions) = unsafe {
            (
                handle(completions, "completions")?,
                handle(limiter, "limiter")?,
                TogetherRequests::new(
                    requests,
                    request_size,
                    count,
                    &[POLYLIMIT_CHECK, POLYLIMIT_PEEK, POLYLIMIT_RESERVE],
                )?,
                Strided::new(decisions_out, decision_size, count)?,
            )
        };
        if requests.is_empty() {
            return Err(Failure::invalid("there are no requests: at least one is needed".to_owned()));
        }
        match completions.call(limiter.limiter.asynchronous(), &requests.call(), tag.into()) {
            None => Ok(POLYLIMIT_PENDING),
            Some(answer) => {
                // SAFETY: the array has that many elements.
                unsafe { write_decisions(&decisions, &decisions_of(answer?)?) };
                Ok(POLYLIMIT_OK)
            }
        }
    })
}

/// Adds a result, or one result for each decision of a call with several.
fn push_results(tag: Tag, answer: Result<Answer, Error>, results: &mut Finished) {
    match answer {
        Ok(Answer::Decisions(decisions)) if tag.receiver.is_none() => {
            let one = |decision: Result<_, _>| (tag.number.into(), decision.map(Answer::Decision));
            results.extend(decisions.into_iter().map(one));
        }
        other => results.push_back((tag, other)),
    }
}

/// Writes the results of up to `capacity` finished operations to `results_out` and their number to `count_out`. The
/// descriptor stays readable while more are left. `result_size` is sizeof(polylimit_result).
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees completions, an array and an out-parameter.
        let (completions, results, count_out) = unsafe {
            (
                handle(completions, "completions")?,
                Strided::new(results_out, result_size, capacity)?,
                out_param(count_out, "count_out")?,
            )
        };
        *count_out = 0;
        let mut undrained = completions.undrained()?;
        // The event is lowered before draining, so that an operation that finishes meanwhile raises it again.
        completions.event.lower();
        completions.completions.drain(|tag, answer| push_results(tag, answer, &mut undrained));
        let count = undrained.len().min(capacity);
        for (at, (tag, answer)) in undrained.drain(..count).enumerate() {
            // SAFETY: it is an element of the array, and any bytes are valid in its fields.
            let result = unsafe { &mut *results.at::<polylimit_result>(at) };
            let answer = match tag.receiver {
                None => answer,
                Some(receiver) => receiver.receive(answer),
            };
            result.set(tag.number, answer.map_err(Into::into));
        }
        if !undrained.is_empty() {
            completions.event.raise();
        }
        *count_out = count;
        Ok(())
    })
}

/// Cancels the pending operation with this tag. An acquire leaves its wait queue, and units that the store has spent for it are
/// refunded, in Redis in the background; a reserve leaves no reservation behind. Whether any other operation was applied is unknown.
///
/// `cancelled_out`: 1 when no result of the operation will be drained; 0 when it has finished already, in which case its result is
/// drained as usual, or when none is pending with this tag. Of several with one tag, one is cancelled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_cancel(
    completions: *const polylimit_completions,
    tag: u64,
    cancelled_out: *mut u32,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees completions and an out-parameter.
        let (completions, cancelled_out) =
            unsafe { (handle(completions, "completions")?, out_param(cancelled_out, "cancelled_out")?) };
        *cancelled_out = u32::from(completions.completions.cancel(&tag.into()));
        Ok(())
    })
}

/// The number of operations that were submitted and neither drained nor cancelled; 0 when `completions` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_pending(completions: *const polylimit_completions) -> usize {
    guard_or(0, || {
        // SAFETY: the caller guarantees completions, or NULL.
        let Some(completions) = (unsafe { completions.as_ref() }) else { return 0 };
        completions.undrained().map_or(0, |undrained| undrained.len() + completions.completions.pending())
    })
}

/// Frees completions, closes their descriptor, and cancels pending operations. No thread may use them during the call or
/// afterwards. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_free(completions: *mut polylimit_completions) {
    guard_or((), || {
        if !completions.is_null() {
            // SAFETY: the caller guarantees completions that no thread uses any more.
            drop(unsafe { Box::from_raw(completions) });
        }
    });
}
