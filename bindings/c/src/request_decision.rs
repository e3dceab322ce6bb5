//! The decision on a request by its attributes.

use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use polylimit::Error;
use polylimit::document::{PolicyDecision, RequestDecision};
use polylimit::raw::{Answer, Call};
use polylimit::reservation::ReserveOptions;

use crate::arguments::{Sized32, Strided, handle, out_param, sized, sized_out};
use crate::attributes::{polylimit_attributes, request_attributes};
use crate::completions::{Receiver, Tag, polylimit_completions};
use crate::configuration::c_text;
use crate::decision::{POLYLIMIT_NEVER, polylimit_decision};
use crate::error::{
    Failure, MessageBuffer, POLYLIMIT_OK, POLYLIMIT_PENDING, guard, guard_or, guard_unit, polylimit_status,
};
use crate::limiter::polylimit_limiter;
use crate::matching::out_of_range;
use crate::names::cause_number;
use crate::request::polylimit_result;
use crate::reservation_options::polylimit_reservation_options;

/// The decision on a request by its attributes, with that of each policy. Freed by polylimit_request_decision_free.
pub struct polylimit_request_decision {
    decided: Arc<Decided>,
}

/// What a handle shares with the operation that decides.
#[derive(Default)]
struct Decided {
    answer: OnceLock<Kept>,
}

struct Kept {
    decision: RequestDecision,
    /// The names of the policies, in their order.
    policies: Vec<CString>,
}

impl Receiver for Decided {
    fn receive(&self, answer: Result<Answer, Error>) -> Result<Answer, Error> {
        Ok(match answer? {
            Answer::Request(decision) => {
                let policies = decision.decisions.iter().map(|made| c_text(&made.policy)).collect();
                let _ = self.answer.set(Kept { decision, policies });
                Answer::Ready
            }
            other => other,
        })
    }
}

impl polylimit_request_decision {
    fn kept(&self) -> Result<&Kept, Failure> {
        let undecided = || Failure::invalid("the request has no decision yet: drain its result first");
        self.decided.answer.get().ok_or_else(undecided)
    }
}

/// The decision on a request as a whole.
#[repr(C)]
pub struct polylimit_request_outcome {
    /// sizeof(polylimit_request_outcome), set by the caller.
    pub size: u32,
    /// 1 when the request may proceed, otherwise 0.
    pub allowed: u32,
    /// Why it was denied, or admitted without the store: 0 is none; see polylimit_cause_name.
    pub cause: u32,
    /// The HTTP status of a denial: 400 for a missing key, 403 for a deny list, otherwise 429. 0 when allowed.
    pub http_status: u32,
    /// Microseconds until the request would be admitted: the longest over the denials. 0 when allowed; POLYLIMIT_NEVER when never.
    pub retry_after_us: u64,
    /// The number of policies that have decided; none when a list or a missing key did.
    pub policy_count: usize,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_request_outcome {
    const NAME: &'static str = "outcome";
    const MIN_SIZE: u32 = 32;
}

/// The decision of one policy on a request.
#[repr(C)]
pub struct polylimit_policy_decision {
    /// sizeof(polylimit_policy_decision), set by the caller.
    pub size: u32,
    /// The percent of each quota's capacity that was left for others.
    pub headroom: u32,
    /// The units that the request spends.
    pub cost: u64,
    /// The name of the policy; valid until the decision on the request is freed, as are the key and the id.
    pub policy: *const c_char,
    /// The key under the policy: any bytes.
    pub key: *const c_void,
    /// The length of the key in bytes.
    pub key_length: usize,
    /// The id of the reservation that was made, which the caller ends by polylimit_limiter_commit or polylimit_limiter_cancel; NULL
    /// where units were spent.
    pub id: *const c_void,
    /// The length of the id in bytes.
    pub id_length: usize,
    /// The decision. A request that is denied may have decisions that admit it: what they spent was given back.
    pub decision: polylimit_decision,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_policy_decision {
    const NAME: &'static str = "decision";
    const MIN_SIZE: u32 = 56 + polylimit_decision::MIN_SIZE;
}

/// Decides about a request by the configuration: its lists, its rules and their policies. All policies admit it, or nothing is spent.
/// Policies with a quota of concurrent reservations reserve by `options`, which may be NULL: `id`, `ttl_us` and `remember_us`, with a
/// `timeout_us` of 0; the rest of the options has no effect. POLYLIMIT_INVALID_ARGUMENT for a limiter without a configuration, and when an attribute
/// that gives a cost holds none. The decision is freed by polylimit_request_decision_free; reservations outlive it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_decide(
    limiter: *const polylimit_limiter,
    attributes: *const polylimit_attributes,
    options: *const polylimit_reservation_options,
    decision_out: *mut *mut polylimit_request_decision,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter, attributes, options or NULL, and an out-parameter.
        let (limiter, request, options, decision_out) = unsafe {
            (
                handle(limiter, "limiter")?,
                request_attributes(attributes)?,
                reserve_options(options)?,
                out_param(decision_out, "decision_out")?,
            )
        };
        let decided = Arc::<Decided>::default();
        let call = Call::Decide(&request, options.terms()?);
        decided.receive(limiter.limiter.raw().call(&call))?;
        *decision_out = Box::into_raw(Box::new(polylimit_request_decision { decided }));
        Ok(())
    })
}

/// Decides about a request as polylimit_limiter_decide does, without waiting. The handle is there at once.
///
/// POLYLIMIT_OK: the decision was available at once, and the handle has it. POLYLIMIT_PENDING: polylimit_completions_drain will return a
/// result without an answer, with this tag; from then on the handle has the decision. Any other status is an error, and there will be
/// neither a result nor a handle. `result_size` is sizeof(polylimit_result).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_submit_decide(
    completions: *const polylimit_completions,
    limiter: *const polylimit_limiter,
    attributes: *const polylimit_attributes,
    options: *const polylimit_reservation_options,
    tag: u64,
    decision_out: *mut *mut polylimit_request_decision,
    result_out: *mut polylimit_result,
    result_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: as for polylimit_limiter_decide, and completions and a result.
        let (completions, limiter, request, options, decision_out, result) = unsafe {
            (
                handle(completions, "completions")?,
                handle(limiter, "limiter")?,
                request_attributes(attributes)?,
                reserve_options(options)?,
                out_param(decision_out, "decision_out")?,
                Strided::new(result_out, result_size, 1)?,
            )
        };
        let decided = Arc::<Decided>::default();
        let receiver = Arc::<Decided>::clone(&decided);
        let submitted = Tag { number: tag, receiver: Some(receiver) };
        let call = Call::Decide(&request, options.terms()?);
        let status = match completions.call(limiter.limiter.asynchronous(), &call, submitted) {
            None => POLYLIMIT_PENDING,
            Some(answer) => {
                let answer = decided.receive(answer)?;
                // SAFETY: it is the only element of the array, and any bytes are valid in its fields.
                unsafe { &mut *result.at::<polylimit_result>(0) }.set(tag, Ok(answer));
                POLYLIMIT_OK
            }
        };
        *decision_out = Box::into_raw(Box::new(polylimit_request_decision { decided }));
        Ok(status)
    })
}

/// Writes the decision on the request as a whole. One whose result was not drained yet has none: POLYLIMIT_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_request_decision_outcome(
    decision: *const polylimit_request_decision,
    outcome_out: *mut polylimit_request_outcome,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a decision and an outcome.
        let (decision, outcome) = unsafe { (handle(decision, "decision")?, sized_out(outcome_out)?) };
        let decision = &decision.kept()?.decision;
        outcome.allowed = decision.allowed.into();
        outcome.cause = cause_number(decision.cause);
        outcome.http_status = decision.status().unwrap_or(0).into();
        outcome.retry_after_us = decision.retry_after_us.unwrap_or(POLYLIMIT_NEVER);
        outcome.policy_count = decision.decisions.len();
        Ok(())
    })
}

/// Writes the decision of the policy at an index from 0, in the order of the rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_request_decision_at(
    decision: *const polylimit_request_decision,
    index: usize,
    policy_out: *mut polylimit_policy_decision,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a decision and a policy's decision.
        let (decision, policy_out) = unsafe { (handle(decision, "decision")?, sized_out(policy_out)?) };
        let kept = decision.kept()?;
        let all = &kept.decision.decisions;
        let (Some(made), Some(name)) = (all.get(index), kept.policies.get(index)) else {
            return Err(out_of_range(index, all.len()));
        };
        policy_out.set(made, name);
        Ok(())
    })
}

impl polylimit_policy_decision {
    fn set(&mut self, made: &PolicyDecision, name: &CString) {
        let id = made.reservation.as_ref().map_or(&[][..], |id| id.as_bytes());
        self.headroom = made.headroom.into();
        self.cost = made.cost;
        self.policy = name.as_ptr();
        self.key = made.key.as_ptr().cast();
        self.key_length = made.key.len();
        self.id = if id.is_empty() { ptr::null() } else { id.as_ptr().cast() };
        self.id_length = id.len();
        self.decision.size = polylimit_decision::MIN_SIZE;
        self.decision.set(&made.decision);
    }
}

/// Frees the decision on a request; its reservations stay. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_request_decision_free(decision: *mut polylimit_request_decision) {
    guard_or((), || {
        if !decision.is_null() {
            // SAFETY: the caller guarantees a decision that no thread uses any more.
            drop(unsafe { Box::from_raw(decision) });
        }
    });
}

/// # Safety
/// `options` is NULL or points at options.
unsafe fn reserve_options(options: *const polylimit_reservation_options) -> Result<ReserveOptions, Failure> {
    if options.is_null() {
        return Ok(ReserveOptions::default());
    }
    // SAFETY: the caller guarantees options.
    unsafe { sized(options)?.get() }
}
