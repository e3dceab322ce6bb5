//! One request's way through a guard.

use std::ffi::c_char;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use polylimit::http::guard::RequestLimits;
use polylimit::http::guard::Spent;
use polylimit::http::guard::Verdict;

use crate::arguments::array;
use crate::arguments::bytes;
use crate::arguments::handle;
use crate::arguments::out_param;
use crate::arguments::sized;
use crate::check_state::CheckState;
use crate::completions::Tag;
use crate::completions::polylimit_completions;
use crate::error::Failure;
use crate::error::MessageBuffer;
use crate::error::POLYLIMIT_OK;
use crate::error::guard;
use crate::error::guard_or;
use crate::error::guard_unit;
use crate::error::polylimit_status;
use crate::error::status_of;
use crate::guard::polylimit_guard;
use crate::operations::STOP_POLL_INTERVAL;
use crate::operations::is_stopped;
use crate::request::units_spent;
use crate::request_facts::polylimit_request_facts;

/// The program says nothing about an outage: the outage policy's decision holds.
pub const POLYLIMIT_OUTAGE_LEAVE: u32 = 0;
/// The program admits the request in spite of an outage.
pub const POLYLIMIT_OUTAGE_ADMIT: u32 = 1;
/// The program denies the request because of an outage.
pub const POLYLIMIT_OUTAGE_DENY: u32 = 2;

/// The decision of a guard on one request.
pub struct polylimit_guard_check {
    state: Arc<Mutex<CheckState>>,
}

/// Starts the decision on a request. The steps of a middleware are:
///
/// 1. polylimit_guard_check_run, or polylimit_guard_check_submit with completions: the store decides.
/// 2. polylimit_guard_check_outage: whether the program's function for outages is asked.
/// 3. polylimit_guard_check_conclude: whether the request proceeds. Then step 1 again, which refunds, and
///    polylimit_guard_check_fields; for a request that does not proceed also polylimit_guard_check_response.
/// 4. polylimit_guard_check_finish when there is a response, and step 1 again.
/// 5. If polylimit_guard_check_reads_response returns 1, polylimit_guard_check_read_head, and _read_body for each part of the body.
/// 6. If polylimit_guard_check_holds returns 1, polylimit_guard_check_end or _end_each when the response is done, and step 1 again.
///
/// `earlier` is NULL, or any check of another guard on the same request: the guards of a request charge a policy and key once,
/// refund each other's units, and report together. Freed by polylimit_guard_check_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_new(
    guard: *const polylimit_guard,
    earlier: *const polylimit_guard_check,
    facts: *const polylimit_request_facts,
    check_out: *mut *mut polylimit_guard_check,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a guard, a check or NULL, facts and an out-parameter.
        let (guard, earlier, facts, check_out) = unsafe {
            (handle(guard, "guard")?, earlier.as_ref(), sized(facts)?, out_param(check_out, "check_out")?)
        };
        let limits =
            earlier.map_or_else(RequestLimits::default, |earlier| earlier.lock().check.limits().clone());
        // SAFETY: the caller guarantees what the facts point at.
        let check = unsafe { facts.start(guard, &limits) }?;
        let state =
            CheckState { is_undecided: true, is_tried: false, is_concluded: false, problem: None, check };
        let state = Arc::new(Mutex::new(state));
        *check_out = Box::into_raw(Box::new(polylimit_guard_check { state }));
        Ok(())
    })
}

/// Has the store do what the check needs next: the decision or, after polylimit_guard_check_conclude, _finish and _end, what is given
/// back and committed.
/// It blocks this thread until that is done, or until another thread sets `*stopped` to a number other than 0. `stopped` may be NULL.
///
/// POLYLIMIT_OK: it is done. POLYLIMIT_PENDING: it was stopped; what was decided at once is kept. An error of the store is no
/// error here: polylimit_guard_check_conclude takes it into account. A refund that fails leaves its units spent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_run(
    check: *const polylimit_guard_check,
    stopped: *const u32,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check.
        let check = unsafe { handle(check, "check") }?;
        // SAFETY: the caller guarantees a number, or NULL.
        let stop = || unsafe { is_stopped(stopped) };
        Ok(check.lock().advance(|limiter, call| {
            if stop() { None } else { limiter.blocking().raw().call_until(call, STOP_POLL_INTERVAL, stop) }
        }))
    })
}

/// As polylimit_guard_check_run, without waiting.
///
/// POLYLIMIT_OK: it is done. POLYLIMIT_PENDING: polylimit_completions_drain will return a result with this tag and without an
/// answer; then the program calls this function again, until it returns POLYLIMIT_OK. The check may be freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_submit(
    check: *const polylimit_guard_check,
    completions: *const polylimit_completions,
    tag: u64,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check and completions.
        let (check, completions) = unsafe { (handle(check, "check")?, handle(completions, "completions")?) };
        let state = &check.state;
        Ok(check.lock().advance(|limiter, call| {
            let tag = Tag { number: tag, receiver: Some(Arc::<Mutex<CheckState>>::clone(state)) };
            completions.submit(limiter, call, tag)
        }))
    })
}

/// The program waits for the decision no longer, for example because the request's own deadline has passed: the store could not
/// decide. It has no effect when the store has decided.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_give_up(check: *const polylimit_guard_check) {
    guard_or((), || {
        // SAFETY: the caller guarantees a check, or NULL.
        if let Some(check) = unsafe { check.as_ref() } {
            let mut state = check.lock();
            if state.is_undecided {
                state.is_undecided = false;
                state.check.give_up();
            }
        }
    });
}

/// Whether there is an outage: 1 when a decision was made without the store or none could be made, otherwise 0.
///
/// Then the status of the store's error is written to `cause_out`, and its message to the buffer; POLYLIMIT_OK when an outage
/// policy has decided. `cause_out` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_outage(
    check: *const polylimit_guard_check,
    cause_out: *mut polylimit_status,
    cause_buffer: *mut c_char,
    cause_capacity: usize,
) -> u32 {
    guard_or(0, || {
        // SAFETY: the caller guarantees a check, or NULL.
        let Some(check) = (unsafe { check.as_ref() }) else { return 0 };
        let state = check.lock();
        let Some(outage) = state.check.outage() else { return 0 };
        if let Some(error) = outage.error {
            // SAFETY: the caller guarantees the buffer.
            unsafe { MessageBuffer::new(cause_buffer, cause_capacity) }.write(error.message());
        }
        // SAFETY: the caller guarantees an out-parameter, or NULL.
        if let Ok(cause) = unsafe { out_param(cause_out, "cause_out") } {
            *cause = outage.error.map_or(POLYLIMIT_OK, |error| status_of(error.kind()));
        }
        1
    })
}

/// Concludes, once: 1 is written to `admitted_out` when the request proceeds, otherwise 0. An error means that no decision could be
/// made and the store is not the cause; the framework's own response for errors is right then, such as 500.
///
/// `on_outage` is what the program says about an outage: POLYLIMIT_OUTAGE_LEAVE, _ADMIT or _DENY. It has no effect without one,
/// and cannot admit what the store has denied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_conclude(
    check: *const polylimit_guard_check,
    on_outage: u32,
    admitted_out: *mut u32,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check and an out-parameter.
        let (check, admitted_out) =
            unsafe { (handle(check, "check")?, out_param(admitted_out, "admitted_out")?) };
        let mut state = check.lock();
        if state.is_undecided || state.is_concluded {
            return Err(Failure::invalid(
                "a check is concluded once, after polylimit_guard_check_run or _submit has returned POLYLIMIT_OK",
            ));
        }
        match on_outage {
            POLYLIMIT_OUTAGE_LEAVE => {}
            POLYLIMIT_OUTAGE_ADMIT => state.check.overrule(true),
            POLYLIMIT_OUTAGE_DENY => state.check.overrule(false),
            other => {
                return Err(Failure::invalid(format!(
                    "on_outage is {other}: allowed are {POLYLIMIT_OUTAGE_LEAVE} to {POLYLIMIT_OUTAGE_DENY}"
                )));
            }
        }
        let verdict = state.check.conclude();
        state.is_tried = false;
        state.is_concluded = true;
        *admitted_out = match verdict {
            Verdict::Admit => 1,
            Verdict::Deny(problem) => {
                state.problem = Some(problem);
                0
            }
            Verdict::Fail(error) => return Err(error.into()),
        };
        Ok(())
    })
}

/// Ends the check when there is a response: `counts` is 0 when it does not count, so that what only this guard relies on is
/// refunded. A guard that meets the same request again afterwards charges it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_finish(
    check: *const polylimit_guard_check,
    counts: u32,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check.
        let mut state = unsafe { handle(check, "check") }?.lock();
        state.check.finish(counts != 0);
        state.is_tried = false;
        Ok(())
    })
}

/// 1 when the check holds reservations, so that polylimit_guard_check_end has to be called when the response is done; otherwise 0, also
/// when `check` is NULL. It is known after polylimit_guard_check_conclude.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_holds(check: *const polylimit_guard_check) -> u32 {
    guard_or(0, || {
        // SAFETY: the caller guarantees a check, or NULL.
        unsafe { check.as_ref() }.map_or(0, |check| check.lock().check.holds().into())
    })
}

/// 1 when the response has to be passed to polylimit_guard_check_read_head, because it reports what the request has spent; otherwise 0, also
/// when `check` is NULL. It is known after polylimit_guard_check_conclude.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_reads_response(check: *const polylimit_guard_check) -> u32 {
    guard_or(0, || {
        // SAFETY: the caller guarantees a check, or NULL.
        unsafe { check.as_ref() }.map_or(0, |check| check.lock().check.reads_response().into())
    })
}

/// Reads the fields of the response, before polylimit_guard_check_end: `fields` are `length` bytes, each field as "name: value\r\n". 1 is
/// written to `reads_body_out` when the body has to be passed to polylimit_guard_check_read_body, otherwise 0: it is JSON without a content
/// coding, and what was spent is in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_read_head(
    check: *const polylimit_guard_check,
    fields: *const u8,
    length: usize,
    reads_body_out: *mut u32,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check, bytes and an out-parameter.
        let (check, fields, reads_body_out) = unsafe {
            (
                handle(check, "check")?,
                bytes(fields, length, "fields")?,
                out_param(reads_body_out, "reads_body_out")?,
            )
        };
        let mut state = check.lock();
        let lines = fields.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        state.check.read_head(lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((std::str::from_utf8(&line[..colon]).ok()?, line[colon + 1..].trim_ascii()))
        }));
        *reads_body_out = state.check.reads_body().into();
        Ok(())
    })
}

/// Reads the next `length` bytes of the body of the response, which are not kept: parts of any size, in their order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_read_body(
    check: *const polylimit_guard_check,
    body: *const u8,
    length: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check and bytes.
        let (check, body) = unsafe { (handle(check, "check")?, bytes(body, length, "body")?) };
        check.lock().check.read_body(body);
        Ok(())
    })
}

/// Ends what the check holds, when the last byte of the response is sent, its connection has gone, or a web socket is closed. `spent`
/// are the units that the request has spent under each policy that it reserved: 0 to 10^12, or POLYLIMIT_AS_RESERVED. With more, the
/// check ends with those that were reserved, and the status is POLYLIMIT_INVALID_ARGUMENT. Nothing is spent for a response that does not
/// count. Ending again has no effect.
///
/// polylimit_guard_check_run or _submit then commits or cancels. When `in_background` is 1 this function does so itself without waiting,
/// and nothing is left to run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_end(
    check: *const polylimit_guard_check,
    spent: u64,
    in_background: u32,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check.
        unsafe { handle(check, "check") }?.end(units_spent(spent), in_background)
    })
}

/// As polylimit_guard_check_end, with what the request has spent under each policy: an array of `spent_count` units, in the order of the
/// policies of the guard or of the request. POLYLIMIT_AS_RESERVED, and a policy beyond the end, is what was reserved. With one of them above
/// 10^12, all end with what was reserved, and the status is POLYLIMIT_INVALID_ARGUMENT. For a guard by the configuration the first counts
/// for all policies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_end_each(
    check: *const polylimit_guard_check,
    spent: *const u64,
    spent_count: usize,
    in_background: u32,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check and an array.
        let (check, spent) = unsafe { (handle(check, "check")?, array(spent, spent_count, "spent")?) };
        let spent: Vec<_> = spent.iter().map(|&units| units_spent(units)).collect();
        check.end(spent.as_slice(), in_background)
    })
}

/// Frees a check at any time. What it has not refunded stays spent, and other guards of the request are not affected. What it holds ends
/// in the background as if the client had left. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_free(check: *mut polylimit_guard_check) {
    guard_or((), || {
        if !check.is_null() {
            // SAFETY: the caller guarantees a check that no thread uses any more.
            drop(unsafe { Box::from_raw(check) });
        }
    });
}

impl polylimit_guard_check {
    pub(crate) fn lock(&self) -> MutexGuard<'_, CheckState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end<'a>(&self, spent: impl Into<Spent<'a>>, in_background: u32) -> Result<(), Failure> {
        let mut state = self.lock();
        state.is_tried = false;
        Ok(match in_background {
            0 => state.check.end(spent),
            _ => state.check.end_in_background(spent),
        }?)
    }
}
