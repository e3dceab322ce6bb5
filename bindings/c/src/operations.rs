//! The blocking operations of a limiter: single, in batches, together, and cancellable.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use polylimit::raw::{Answer, Call};
use polylimit::{ErrorKind, Request};

use crate::arguments::{Strided, handle, sized, sized_out};
use crate::decision::{polylimit_decision, polylimit_usage};
use crate::error::{
    Failure, MessageBuffer, POLYLIMIT_OK, POLYLIMIT_PENDING, guard, guard_unit, polylimit_status,
};
use crate::limiter::polylimit_limiter;
use crate::request::{
    POLYLIMIT_CHECK, POLYLIMIT_PEEK, POLYLIMIT_RESERVE, TogetherRequests, check_request, decisions_of,
    polylimit_request, polylimit_result, request, write_decisions,
};

/// Decides, and spends the cost from every quota of the policy when all admit it.
///
/// `policy` is the name of a policy of the limiter, or quotas as text such as "100/minute; 1000/hour"; it may be NULL when
/// the limiter has one policy. The key is any `key_length` bytes, up to 1 MiB. `cost` is 0 to 10^12 units; 0 is always
/// allowed and leaves no trace. A request with a headroom or a plan is a polylimit_request; see polylimit_limiter_call. All
/// operations fail with POLYLIMIT_INVALID_ARGUMENT for any other argument, and with
/// POLYLIMIT_CLOSED after polylimit_limiter_close.
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter, a key, a text or NULL, and a decision.
        let (limiter, request, decision_out) = unsafe {
            (handle(limiter, "limiter")?, request(policy, key, key_length, cost)?, sized_out(decision_out)?)
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { decide(limiter, request(policy, key, key_length, cost)?, Call::Peek, decision_out) }
    })
}

/// Waits until the request is admitted and, in a leaky bucket, until its turn; at most `timeout_us` microseconds. If that
/// timeout cannot be met, it returns a denial at once and spends nothing. See polylimit_limiter_check.
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        let acquire = |request| Call::Acquire(request, Duration::from_micros(timeout_us));
        // SAFETY: as for polylimit_limiter_check.
        unsafe { decide(limiter, request(policy, key, key_length, cost)?, acquire, decision_out) }
    })
}

/// Spends as much of the cost as every quota admits, from 0 to the cost; `taken` is how much that was. See
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, cost)?, Call::Take, usage_out) }
    })
}

/// Spends the cost even if it exceeds what is left, for a cost that is known only afterwards; usage saturates at 8 times each
/// quota's capacity. See polylimit_limiter_check.
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, cost)?, Call::Charge, usage_out) }
    })
}

/// Gives units back, the newest first, at most as many as are used. See polylimit_limiter_check.
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, cost)?, Call::Refund, usage_out) }
    })
}

/// Deletes the state of the key under its policy. See polylimit_limiter_check.
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, 0)?, Call::Reset, usage_out) }
    })
}

/// Denies the requests of the key for `for_us` microseconds from now: 1 ms to 366 days. A key that is blocked for longer stays
/// so. 0 forgets blocks and penalties, as polylimit_admin_unblock does. A check of cost 0, and the holders of reservations, are
/// not denied. See polylimit_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_block(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    for_us: u64,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        let block = |request| Call::Block(request, Duration::from_micros(for_us));
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, 0)?, block, usage_out) }
    })
}

/// Ends the block of the key, and forgets its penalties. See polylimit_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_unblock(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    usage_out: *mut polylimit_usage,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        let unblock = |request| Call::Block(request, Duration::ZERO);
        // SAFETY: as for polylimit_limiter_check.
        unsafe { spend(limiter, request(policy, key, key_length, 0)?, unblock, usage_out) }
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and two arrays.
        let (limiter, requests, results) = unsafe {
            (
                handle(limiter, "limiter")?,
                Strided::new(requests.cast_mut(), request_size, count)?,
                Strided::new(results_out, result_size, count)?,
            )
        };
        // SAFETY: every index is within the array.
        let read = |at| unsafe { check_request(requests.at(at)) };
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
            // SAFETY: it is an element of the array, and any bytes are valid in its fields.
            unsafe { &mut *results.at::<polylimit_result>(at) }.set(at as u64, answer);
        }
        Ok(())
    })
}

/// Checks `count` requests that belong together, such as one client under several policies: all are admitted, or nothing is
/// spent. If one is denied, the decisions that admit are those of a peek. Requests for the same key under the same policy are one
/// of their sum. The store decides all of them in one step; between slots of a cluster, units are given back within the call. The
/// first error is that of the call. The operation of each is POLYLIMIT_CHECK. `request_size` and `decision_size` are the
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
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        let requests = (requests, request_size, count);
        // SAFETY: the caller guarantees a limiter and two arrays.
        unsafe { decide_together(limiter, POLYLIMIT_CHECK, requests, decisions_out, decision_size) }
    })
}

/// The decisions that polylimit_limiter_check_together would give now; leaves no trace. The operation of each request is
/// POLYLIMIT_PEEK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_peek_together(
    limiter: *const polylimit_limiter,
    requests: *const polylimit_request,
    request_size: usize,
    count: usize,
    decisions_out: *mut polylimit_decision,
    decision_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        let requests = (requests, request_size, count);
        // SAFETY: as for polylimit_limiter_check_together.
        unsafe { decide_together(limiter, POLYLIMIT_PEEK, requests, decisions_out, decision_size) }
    })
}

/// As polylimit_limiter_check_together, but requests under a policy with a quota of concurrency are reserved; the others spend.
///
/// The operation of each request is POLYLIMIT_RESERVE, and `id`, `ttl_us` and `remember_us` are the same in all of them; `timeout_us` is
/// 0, because they do not wait in line. polylimit_reservation_id_random makes an id. The caller ends each reservation by
/// polylimit_limiter_commit or polylimit_limiter_cancel with its key, its policy and this id, or by polylimit_limiter_call with the same
/// request and the operation POLYLIMIT_COMMIT or POLYLIMIT_CANCEL. Nothing renews them in the background: polylimit_limiter_renew makes
/// them last longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_reserve_together(
    limiter: *const polylimit_limiter,
    requests: *const polylimit_request,
    request_size: usize,
    count: usize,
    decisions_out: *mut polylimit_decision,
    decision_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        let requests = (requests, request_size, count);
        // SAFETY: as for polylimit_limiter_check_together.
        unsafe { decide_together(limiter, POLYLIMIT_RESERVE, requests, decisions_out, decision_size) }
    })
}

/// Decides requests that belong together; their array is given by its start, the size of an element, and their number.
///
/// # Safety
/// `limiter` is NULL or a limiter, and each array is NULL or has that many elements.
unsafe fn decide_together(
    limiter: *const polylimit_limiter,
    operation: u32,
    (requests, request_size, count): (*const polylimit_request, usize, usize),
    decisions_out: *mut polylimit_decision,
    decision_size: usize,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees it.
    let (limiter, requests, decisions) = unsafe {
        (
            handle(limiter, "limiter")?,
            TogetherRequests::new(requests, request_size, count, &[operation])?,
            Strided::new(decisions_out, decision_size, count)?,
        )
    };
    let decided = decisions_of(limiter.limiter.raw().call(&requests.call())?)?;
    // SAFETY: the array has that many elements.
    unsafe { write_decisions(&decisions, &decided) };
    Ok(())
}

/// Runs one operation and blocks this thread until the answer is there, or until another thread sets `*stopped` to a number
/// other than 0. `stopped` may be NULL. `result_size` is sizeof(polylimit_result).
///
/// POLYLIMIT_OK: the answer is in `result_out`. POLYLIMIT_PENDING: the operation was stopped, within 5 ms: an acquire leaves its
/// wait queue, and units that the store has spent for it are refunded, in Redis in the background; whether any other operation
/// was applied is unknown. If `*stopped` is set from the start, an answer that is available at once is returned, and otherwise
/// nothing is done.
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
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter, a request and a result.
        let (limiter, request, result) = unsafe {
            (handle(limiter, "limiter")?, sized(request)?, Strided::new(result_out, result_size, 1)?)
        };
        // SAFETY: the caller guarantees a key and a text, or NULL.
        let call = unsafe { request.call() }?;
        // SAFETY: the caller guarantees a number, or NULL.
        let stop = || unsafe { is_stopped(stopped) };
        let limiter = &limiter.limiter;
        let answer = limiter.asynchronous().raw().try_call(&call).or_else(|| match stopped.is_null() {
            // Nothing stops it, so that it needs no timer.
            true => Some(limiter.raw().call_store(&call)),
            false if stop() => None,
            false => limiter.raw().call_until(&call, STOP_POLL_INTERVAL, stop),
        });
        let Some(answer) = answer else { return Ok(POLYLIMIT_PENDING) };
        // SAFETY: it is the only element of the array, and any bytes are valid in its fields.
        unsafe { &mut *result.at::<polylimit_result>(0) }.set(0, Ok(answer?));
        Ok(POLYLIMIT_OK)
    })
}

/// Whether another thread has set `*stopped`.
///
/// # Safety
/// `stopped` is NULL or points at a number, which other threads may write: the read is atomic.
pub(crate) unsafe fn is_stopped(stopped: *const u32) -> bool {
    // SAFETY: the caller guarantees it.
    unsafe { stopped.cast::<AtomicU32>().as_ref() }
        .is_some_and(|stopped| stopped.load(Ordering::Relaxed) != 0)
}

/// How often a blocked call reads `*stopped`.
pub(crate) const STOP_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// # Safety
/// `limiter` is NULL or a limiter, `decision_out` NULL or a decision.
pub(crate) unsafe fn decide<'a>(
    limiter: *const polylimit_limiter,
    request: Request<'a>,
    call: impl FnOnce(Request<'a>) -> Call<'a>,
    decision_out: *mut polylimit_decision,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees it.
    let (limiter, decision_out) = unsafe { (handle(limiter, "limiter")?, sized_out(decision_out)?) };
    let Answer::Decision(decision) = limiter.limiter.raw().call(&call(request))? else {
        return Err(wrong_answer());
    };
    decision_out.set(&decision);
    Ok(())
}

/// # Safety
/// `limiter` is NULL or a limiter, `usage_out` NULL or a usage.
pub(crate) unsafe fn spend<'a>(
    limiter: *const polylimit_limiter,
    request: Request<'a>,
    call: impl FnOnce(Request<'a>) -> Call<'a>,
    usage_out: *mut polylimit_usage,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees it.
    let (limiter, usage_out) = unsafe { (handle(limiter, "limiter")?, sized_out(usage_out)?) };
    let Answer::Usage(usage) = limiter.limiter.raw().call(&call(request))? else {
        return Err(wrong_answer());
    };
    usage_out.set(&usage);
    Ok(())
}

pub(crate) fn wrong_answer() -> Failure {
    Failure::new(ErrorKind::Internal, "an operation has an answer of another kind")
}
