//! The operations of a limiter, for threads that wait for their answers.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use polylimit::{Answer, Call, Decision, ErrorKind, Request};

use crate::answer::polylimit_result;
use crate::decision::polylimit_decision;
use crate::failure::{Failure, MessageBuffer, guard, guard_done};
use crate::limiter::polylimit_limiter;
use crate::pointer::{Sized32, Strided, handle, sized, sized_place};
use crate::request::{POLYLIMIT_CHECK, polylimit_request, request};
use crate::status::{POLYLIMIT_OK, POLYLIMIT_PENDING, polylimit_status};
use crate::usage::polylimit_usage;

/// Decides, and spends the cost from every quota of the policy when all admit it.
///
/// `policy` is the name of a policy of the limiter, or quotas as text such as "100/minute; 1000/hour"; NULL where the
/// limiter has one policy. The key is any `key_length` bytes, up to 1 MiB. `cost` is 0 to 10^12 units; 0 is always
/// allowed and leaves no trace. All operations fail with POLYLIMIT_INVALID_ARGUMENT when one of these is not so, and
/// with POLYLIMIT_CLOSED after polylimit_limiter_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_check(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
    decision_out: *mut polylimit_decision,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter, a key, a text or NULL, and a decision.
        let (limiter, request, decision_out) = unsafe {
            (handle(limiter, "limiter")?, request(policy, key, key_length, cost)?, sized_place(decision_out)?)
        };
        decision_out.set(&limiter.limiter.check(request)?);
        Ok(())
    })
}

/// The decision that a check would give now; leaves no trace. See polylimit_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_peek(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
    decision_out: *mut polylimit_decision,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { decide(limiter, request(policy, key, key_length, cost)?, Call::Peek, decision_out) }
    })
}

/// Waits until the request is admitted and, in a leaky bucket, until its turn has come; at most `timeout_us`
/// microseconds. When that cannot be met it says so at once: then the decision is a denial, and nothing was spent. See
/// polylimit_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_acquire(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
    timeout_us: u64,
    decision_out: *mut polylimit_decision,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        let acquire = |request| Call::Acquire(request, Duration::from_micros(timeout_us));
        // SAFETY: as for polylimit_limiter_check.
        unsafe { decide(limiter, request(policy, key, key_length, cost)?, acquire, decision_out) }
    })
}

/// Spends as much of the cost as every quota admits, from 0 to the cost, and says how much it took. See
/// polylimit_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_take(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, cost)?, Call::Take, usage_out) }
    })
}

/// Spends the cost whether it fits or not, for a cost that is learnt afterwards; use saturates at 8 times each quota's
/// capacity. See polylimit_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_charge(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, cost)?, Call::Charge, usage_out) }
    })
}

/// Gives back up to what is used, the newest first. See polylimit_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_refund(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, cost)?, Call::Refund, usage_out) }
    })
}

/// Forgets the key under its policy. See polylimit_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_reset(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, 0)?, Call::Reset, usage_out) }
    })
}

/// Checks `count` requests in one call, of one or more policies. Each is decided on its own, in order, and has its own
/// result; the operation of each is POLYLIMIT_CHECK. `request_size` and `result_size` are the sizes of one element:
/// sizeof(polylimit_request) and sizeof(polylimit_result).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_check_many(
    limiter: *const polylimit_limiter,
    requests: *const polylimit_request,
    request_size: usize,
    count: usize,
    results_out: *mut polylimit_result,
    result_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter and two arrays.
        let (limiter, requests, results) = unsafe {
            (
                handle(limiter, "limiter")?,
                Strided::new(requests.cast_mut(), request_size, count)?,
                Strided::new(results_out, result_size, count)?,
            )
        };
        // SAFETY: they are elements of the array.
        let read = |at| unsafe { checked_request(requests.at(at)) };
        let read: Vec<Result<Request<'_>, Failure>> = (0..count).map(read).collect();
        let valid: Vec<_> = read.iter().filter_map(|request| request.as_ref().ok().copied()).collect();
        let mut decisions = limiter.limiter.check_many(valid).into_iter();
        for (at, request) in read.into_iter().enumerate() {
            let decided = request.and_then(|_| {
                let decided = decisions.next();
                decided
                    .ok_or_else(|| Failure::new(ErrorKind::Internal, "a request of a batch has no answer"))?
                    .map_err(Failure::from)
            });
            let answer = decided.map(Answer::Decision);
            // SAFETY: it is an element of the array, and its fields may have any bytes.
            unsafe { &mut *results.at::<polylimit_result>(at) }.set(at as u64, answer);
        }
        Ok(())
    })
}

/// Checks `count` requests that belong together, such as one client under several policies: all are admitted, or nothing is
/// spent. When one is denied or fails, what the others have spent is given back, and their decisions show what is left; the
/// first error of any is that of the call. The operation of each is POLYLIMIT_CHECK. `request_size` and `decision_size` are the
/// sizes of one element: sizeof(polylimit_request) and sizeof(polylimit_decision).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_check_together(
    limiter: *const polylimit_limiter,
    requests: *const polylimit_request,
    request_size: usize,
    count: usize,
    decisions_out: *mut polylimit_decision,
    decision_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter and two arrays.
        let (limiter, requests, decisions) = unsafe {
            (
                handle(limiter, "limiter")?,
                checked_requests(requests, request_size, count)?,
                Strided::new(decisions_out, decision_size, count)?,
            )
        };
        let decided = limiter.limiter.check_together(&requests)?;
        // SAFETY: there are so many elements.
        unsafe { set_decisions(&decisions, &decided) };
        Ok(())
    })
}

/// Requests that are checked together.
///
/// # Safety
/// `requests` is NULL or points at `count` requests of `request_size` bytes each.
pub(crate) unsafe fn checked_requests<'a>(
    requests: *const polylimit_request,
    request_size: usize,
    count: usize,
) -> Result<Vec<Request<'a>>, Failure> {
    // SAFETY: as promised by the caller.
    let requests = unsafe { Strided::new(requests.cast_mut(), request_size, count) }?;
    // SAFETY: they are elements of the array.
    (0..count).map(|at| unsafe { checked_request(requests.at(at)) }).collect()
}

/// Writes decisions, and the size of each.
///
/// # Safety
/// The array has as many elements.
pub(crate) unsafe fn set_decisions(places: &Strided, decisions: &[Decision]) {
    for (at, decision) in decisions.iter().enumerate() {
        // SAFETY: it is an element of the array, and its fields may have any bytes.
        let place = unsafe { &mut *places.at::<polylimit_decision>(at) };
        place.size = polylimit_decision::FIRST;
        place.set(decision);
    }
}

/// # Safety
/// `given` points at a request.
unsafe fn checked_request<'a>(given: *const polylimit_request) -> Result<Request<'a>, Failure> {
    // SAFETY: as promised by the caller.
    let given = unsafe { sized(given) }?;
    if given.operation != POLYLIMIT_CHECK {
        return Err(Failure::invalid(format!("operation {} in a batch of checks", given.operation)));
    }
    // SAFETY: as promised by the caller.
    unsafe { given.request() }
}

/// Does an operation and waits on this thread, until it is answered or another thread sets `*stopped` to another number than
/// 0; NULL waits to the end. `result_size` is sizeof(polylimit_result).
///
/// POLYLIMIT_OK: the answer is in `result_out`. POLYLIMIT_PENDING: it was stopped, within 5 ms of that: an acquire leaves its
/// queue, and units that the store has spent for it are refunded, in Redis in the background; of anything else it stays unknown
/// whether it was applied. What is stopped from the start is answered if the
/// answer is known at once, and otherwise nothing of it was done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_call(
    limiter: *const polylimit_limiter,
    request: *const polylimit_request,
    stopped: *const u32,
    result_out: *mut polylimit_result,
    result_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter, a request and a result.
        let (limiter, request, result) = unsafe {
            (handle(limiter, "limiter")?, sized(request)?, Strided::new(result_out, result_size, 1)?)
        };
        // SAFETY: the caller owes a key and a text, or NULL.
        let call = unsafe { request.call() }?;
        // SAFETY: the caller owes a number, or NULL. It is read as other threads may write it.
        let stop = || {
            unsafe { stopped.cast::<AtomicU32>().as_ref() }
                .is_some_and(|stopped| stopped.load(Ordering::Relaxed) != 0)
        };
        let known = limiter.limiter.asynchronous().try_call(&call);
        let answer = match known {
            None if stop() => None,
            None => limiter.limiter.call_until(&call, LOOK_EVERY, stop),
            known => known,
        };
        let Some(answer) = answer else { return Ok(POLYLIMIT_PENDING) };
        // SAFETY: it is the element of the array, and its fields may have any bytes.
        unsafe { &mut *result.at::<polylimit_result>(0) }.set(0, Ok(answer?));
        Ok(POLYLIMIT_OK)
    })
}

/// Between two looks at whether a call is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// # Safety
/// `limiter` is NULL or a limiter, `decision_out` NULL or a decision.
unsafe fn decide<'a>(
    limiter: *const polylimit_limiter,
    request: Request<'a>,
    call: impl FnOnce(Request<'a>) -> Call<'a>,
    decision_out: *mut polylimit_decision,
) -> Result<(), Failure> {
    // SAFETY: as promised by the caller.
    let (limiter, decision_out) = unsafe { (handle(limiter, "limiter")?, sized_place(decision_out)?) };
    let Answer::Decision(decision) = limiter.limiter.call(&call(request))? else {
        return Err(other_answer());
    };
    decision_out.set(&decision);
    Ok(())
}

/// # Safety
/// `limiter` is NULL or a limiter, `usage_out` NULL or a usage.
unsafe fn spend<'a>(
    limiter: *const polylimit_limiter,
    request: Request<'a>,
    call: impl FnOnce(Request<'a>) -> Call<'a>,
    usage_out: *mut polylimit_usage,
) -> Result<(), Failure> {
    // SAFETY: as promised by the caller.
    let (limiter, usage_out) = unsafe { (handle(limiter, "limiter")?, sized_place(usage_out)?) };
    let Answer::Usage(usage) = limiter.limiter.call(&call(request))? else { return Err(other_answer()) };
    usage_out.set(&usage);
    Ok(())
}

fn other_answer() -> Failure {
    Failure::new(ErrorKind::Internal, "an operation was answered by what it does not answer")
}
