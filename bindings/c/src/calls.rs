//! The operations of a limiter, for threads that wait for their answers.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use polylimit::{Answer, Call, ErrorKind, Request};

use crate::answer::polylimit_result;
use crate::decision::polylimit_decision;
use crate::failure::{Failure, MessageBuffer, guard_done};
use crate::limiter::polylimit_limiter;
use crate::pointer::{Strided, handle, sized, sized_place};
use crate::request::{POLYLIMIT_CHECK, polylimit_request, request};
use crate::status::polylimit_status;
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
