//! One request's way through a guard.

use std::ffi::CStr;
use std::ffi::c_char;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use polylimit::guard::Guard;
use polylimit::guard::GuardCheck;
use polylimit::guard::KeyPart;
use polylimit::guard::MissingKey;
use polylimit::guard::RequestFacts;
use polylimit::guard::RequestLimits;
use polylimit::guard::Verdict;
use polylimit::headers::HeaderField;

use crate::arguments::Sized32;
use crate::arguments::TextBuffer;
use crate::arguments::array;
use crate::arguments::bytes;
use crate::arguments::handle;
use crate::arguments::optional_text;
use crate::arguments::out_param;
use crate::arguments::sized;
use crate::arguments::sized_out;
use crate::arguments::text;
use crate::attributes::polylimit_attributes;
use crate::attributes::request_attributes;
use crate::check_state::CheckState;
use crate::client_address::polylimit_line;
use crate::completions::Tag;
use crate::completions::polylimit_completions;
use crate::decision::polylimit_decision;
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

/// What a middleware knows about a request. Texts end with a NUL. Nothing is used after the call.
#[repr(C)]
pub struct polylimit_request_facts {
    /// sizeof(polylimit_request_facts), set by the caller.
    pub size: u32,
    /// 1 when `cost` is what the request spends; 0 when that is the guard's cost.
    pub has_cost: u32,
    /// The units that the request spends: 0 to 10^12.
    pub cost: u64,
    /// The key: any bytes. NULL when the request has none, and when the guard has key parts.
    pub key: *const c_void,
    /// The length of the key in bytes: 0 to 1 MiB.
    pub key_length: usize,
    /// The values of the guard's key parts, in their order. The `start` of a missing value is NULL; that of an address is
    /// not read.
    pub key_values: *const polylimit_line,
    /// The number of key values.
    pub key_value_count: usize,
    /// The client's address, as polylimit_address_rules_key writes it: for the key part "address", and for a request
    /// without a key. It may be NULL where neither is needed.
    pub address: *const c_char,
    /// The framework's name of the route, the same in every process; NULL for none.
    pub route: *const c_char,
    /// Policies of this request in place of the guard's: names, or quotas as text, which must come from the program and
    /// never from its users. NULL for the guard's; otherwise the request is not limited when `policy_count` is 0.
    pub policies: *const *const c_char,
    /// The number of policies.
    pub policy_count: usize,
    /// The attributes of the request, for a guard that decides by the configuration; otherwise NULL.
    pub attributes: *const polylimit_attributes,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_request_facts {
    const NAME: &'static str = "facts";
    const MIN_SIZE: u32 = 88;
}

/// Starts the decision on a request. The steps of a middleware are:
///
/// 1. polylimit_guard_check_run, or polylimit_guard_check_submit with completions: the store decides.
/// 2. polylimit_guard_check_outage: whether the program's function for outages is asked.
/// 3. polylimit_guard_check_conclude: whether the request proceeds. Then step 1 again, which refunds, and
///    polylimit_guard_check_fields; for a request that does not proceed also polylimit_guard_check_response.
/// 4. polylimit_guard_check_finish when there is a response, and step 1 again.
/// 5. Where polylimit_guard_check_holds says so, polylimit_guard_check_end when the response is done, and step 1 again.
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
        let check = unsafe { facts.start(&guard.guard, &limits) }?;
        let state =
            CheckState { is_undecided: true, is_tried: false, is_concluded: false, problem: None, check };
        let state = Arc::new(Mutex::new(state));
        *check_out = Box::into_raw(Box::new(polylimit_guard_check { state }));
        Ok(())
    })
}

impl polylimit_request_facts {
    /// # Safety
    /// The fields point at what their documentation says.
    unsafe fn start(&self, guard: &Guard, limits: &RequestLimits) -> Result<GuardCheck, Failure> {
        // SAFETY: the caller guarantees it.
        let (address, route) =
            unsafe { (optional_text(self.address, "address")?, optional_text(self.route, "route")?) };
        if guard.is_by_configuration() {
            if self.attributes.is_null() {
                return Ok(guard.start(limits, &RequestFacts::new())?);
            }
            // SAFETY: the caller guarantees attributes.
            let attributes = unsafe { request_attributes(self.attributes) }?;
            return Ok(guard.start(limits, &RequestFacts::new().attributes(&attributes))?);
        }
        let mut facts = RequestFacts::new();
        // SAFETY: the caller guarantees it.
        let key = unsafe { self.find_key(guard, address) }?;
        if let Some(key) = &key {
            facts = facts.key(key);
        }
        if self.has_cost != 0 {
            facts = facts.cost(self.cost);
        }
        if let Some(route) = route {
            facts = facts.route(route);
        }
        if self.policies.is_null() {
            return Ok(guard.start(limits, &facts)?);
        }
        // SAFETY: the caller guarantees an array of texts.
        let policies = unsafe { array(self.policies, self.policy_count, "policies") }?;
        // SAFETY: as above.
        let policies = policies.iter().map(|&policy| unsafe { text(policy, "a policy") });
        let policies = policies.collect::<Result<Vec<_>, _>>()?;
        Ok(guard.start(limits, &facts.policies(&policies))?)
    }

    /// The key; `None` for a request that the guard refuses or counts with all others that have none.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    unsafe fn find_key<'a>(
        &'a self,
        guard: &Guard,
        address: Option<&'a str>,
    ) -> Result<Option<std::borrow::Cow<'a, [u8]>>, Failure> {
        let parts = guard.key_parts();
        let key = if parts.is_empty() {
            // SAFETY: the caller guarantees the bytes.
            let key = || unsafe { bytes(self.key.cast(), self.key_length, "key") };
            (!self.key.is_null()).then(key).transpose()?.map(Into::into)
        } else {
            // SAFETY: the caller guarantees an array.
            let values = unsafe { array(self.key_values, self.key_value_count, "key_values") }?;
            let value_of = |(part, value): (&KeyPart, &polylimit_line)| match part {
                KeyPart::Address => Ok(address.map(str::as_bytes)),
                _ if value.start.is_null() => Ok(None),
                // SAFETY: the caller guarantees the bytes.
                _ => unsafe { bytes(value.start.cast(), value.length, "a key value") }.map(Some),
            };
            let values = parts.iter().zip(values).map(value_of).collect::<Result<Vec<_>, _>>()?;
            guard.join_key(&values).map(Into::into)
        };
        if key.is_some() || guard.missing_key() != MissingKey::Address {
            return Ok(key);
        }
        let missing =
            || Failure::invalid("the request has no key, and address is NULL: give the client's address");
        address.ok_or_else(missing).map(|address| Some(address.as_bytes().into()))
    }
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
            if stop() { None } else { limiter.blocking().call_until(call, STOP_POLL_INTERVAL, stop) }
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
        let mut state = unsafe { handle(check, "check") }?.lock();
        state.is_tried = false;
        let spent = units_spent(spent);
        Ok(match in_background {
            0 => state.check.end(spent),
            _ => state.check.end_in_background(spent),
        }?)
    })
}

/// Writes the fields of the response for all guards of the request so far, each as "name: value\r\n" with the name in lower case and
/// a value of printable ASCII. They replace those that an earlier guard wrote. The length without the NUL is written to
/// `length_out`, which may be NULL, even if the buffer is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_fields(
    check: *const polylimit_guard_check,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check.
        let fields = unsafe { handle(check, "check") }?.lock().check.fields();
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&lines(&fields, "")) }
    })
}

/// Writes the default response to a request that does not proceed: the fields of its body, each as "name: value\r\n", an empty line
/// "\r\n", and the body. Its status is written to `http_status_out`. polylimit_guard_check_fields has its other fields.
///
/// `accept` is the `accept` field of the request, or NULL: a client that prefers text gets text, any other one a problem
/// document (RFC 9457). The length without the NUL is written to `length_out`, which may be NULL, even if the buffer is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_response(
    check: *const polylimit_guard_check,
    accept: *const c_char,
    http_status_out: *mut u32,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check and an out-parameter.
        let (check, http_status_out) =
            unsafe { (handle(check, "check")?, out_param(http_status_out, "http_status_out")?) };
        // SAFETY: the caller guarantees a text, or NULL.
        let accept = (!accept.is_null()).then(|| unsafe { CStr::from_ptr(accept) }.to_string_lossy());
        let state = check.lock();
        let Some(problem) = &state.problem else {
            return Err(Failure::invalid("the check has not denied its request: there is no response to it"));
        };
        let response = problem.response(accept.as_deref());
        let text = lines(&response.fields, "\r\n") + &response.body;
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&text) }?;
        *http_status_out = response.status.into();
        Ok(())
    })
}

/// The number of policies with a decision: those of this guard in their order or, when `of_request` is not 0, those of all guards of
/// the request so far. 0 when `check` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_outcomes(
    check: *const polylimit_guard_check,
    of_request: u32,
) -> usize {
    guard_or(0, || {
        // SAFETY: the caller guarantees a check, or NULL.
        unsafe { check.as_ref() }.map_or(0, |check| check.lock().outcomes(of_request).len())
    })
}

/// Writes one of those decisions, and the name of its policy (1 to 64 bytes); `at` counts from 0. After a refund a decision of the
/// request shows what is left. The length of the name without the NUL is written to `length_out`, which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_check_outcome(
    check: *const polylimit_guard_check,
    of_request: u32,
    at: usize,
    decision_out: *mut polylimit_decision,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a check and a decision.
        let (check, decision_out) = unsafe { (handle(check, "check")?, sized_out(decision_out)?) };
        let outcomes = check.lock().outcomes(of_request);
        let Some((policy, decision)) = outcomes.get(at) else {
            return Err(Failure::invalid(format!("there is no outcome {at}: there are {}", outcomes.len())));
        };
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(policy.name()) }?;
        decision_out.set(decision);
        Ok(())
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
    fn lock(&self) -> MutexGuard<'_, CheckState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lines(fields: &[HeaderField], end: &str) -> String {
    let mut text = String::with_capacity(160);
    for field in fields {
        for part in [&field.name, ": ", &field.value, "\r\n"] {
            text.push_str(part);
        }
    }
    text.push_str(end);
    text
}
