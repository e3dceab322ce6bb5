//! One operation as a value: its request and its result, alone and in arrays.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use polylimit::raw::{Answer, Call, ReservationTerms};
use polylimit::reservation::ReservationId;
use polylimit::{Decision, Error, ErrorKind, Request};

use crate::arguments::{Sized32, Strided, bytes, optional_text, sized};
use crate::decision::{polylimit_decision, polylimit_usage};
use crate::error::{Failure, MessageBuffer, POLYLIMIT_OK, polylimit_status};

/// Decides, and spends the cost from every quota of the policy when all admit it.
pub const POLYLIMIT_CHECK: u32 = 1;
/// The decision that a check would give now; leaves no trace.
pub const POLYLIMIT_PEEK: u32 = 2;
/// Spends as much of the cost as every quota admits.
pub const POLYLIMIT_TAKE: u32 = 3;
/// Spends the cost even if it exceeds what is left, up to 8 times the capacity.
pub const POLYLIMIT_CHARGE: u32 = 4;
/// Gives units back, at most as many as are used.
pub const POLYLIMIT_REFUND: u32 = 5;
/// Deletes the state of the key; the cost has no effect.
pub const POLYLIMIT_RESET: u32 = 6;
/// Waits until admitted, for at most `timeout_us`.
pub const POLYLIMIT_ACQUIRE: u32 = 7;
/// Waits until the store answers, for at most `timeout_us`; policy, key and cost have no effect.
pub const POLYLIMIT_READY: u32 = 8;
/// Decides as a check does, and sets the cost aside under `id` until it is committed or cancelled, or `ttl_us` have passed;
/// waits as an acquire does, for at most `timeout_us`.
pub const POLYLIMIT_RESERVE: u32 = 9;
/// Ends a reservation and spends the cost, or what was reserved for POLYLIMIT_AS_RESERVED.
pub const POLYLIMIT_COMMIT: u32 = 10;
/// Ends a reservation and spends nothing; the cost has no effect.
pub const POLYLIMIT_CANCEL: u32 = 11;
/// Makes a reservation end `ttl_us` from now; the cost has no effect.
pub const POLYLIMIT_RENEW: u32 = 12;
/// Denies the requests of the key for `ttl_us` from now, or for longer where it is blocked for longer; 0 forgets blocks and
/// penalties. The cost has no effect.
pub const POLYLIMIT_BLOCK: u32 = 13;

/// The longest id of a reservation, in bytes.
pub const POLYLIMIT_RESERVATION_ID_SIZE: usize = 64;
/// The cost of a commit that spends what was reserved.
pub const POLYLIMIT_AS_RESERVED: u64 = u64::MAX;

const _: () = assert!(POLYLIMIT_RESERVATION_ID_SIZE == ReservationId::MAX_LENGTH);

/// One operation on one key.
#[repr(C)]
pub struct polylimit_request {
    /// sizeof(polylimit_request), set by the caller.
    pub size: u32,
    /// One of POLYLIMIT_CHECK to POLYLIMIT_BLOCK.
    pub operation: u32,
    /// The name of a policy of the limiter, or quotas as text such as "100/minute; 1000/hour"; may be NULL when the
    /// limiter has one policy. Ends with a NUL.
    pub policy: *const c_char,
    /// Identifies what is limited, such as a user or an address: any bytes. May be NULL when `key_length` is 0.
    pub key: *const c_void,
    /// The length of the key in bytes: 0 to 1 MiB.
    pub key_length: usize,
    /// The units that the request spends: 0 to 10^12. A cost of 0 is always allowed and leaves no trace.
    pub cost: u64,
    /// The longest wait, in microseconds; only for POLYLIMIT_ACQUIRE, POLYLIMIT_READY and POLYLIMIT_RESERVE.
    pub timeout_us: u64,
    /// Names the reservation among those of its key: any bytes; only for POLYLIMIT_RESERVE to POLYLIMIT_RENEW.
    pub id: *const c_void,
    /// The length of the id in bytes: 1 to POLYLIMIT_RESERVATION_ID_SIZE.
    pub id_length: usize,
    /// How long the reservation lasts from now, in microseconds: 1 ms to 48 h; only for POLYLIMIT_RESERVE and POLYLIMIT_RENEW. For
    /// POLYLIMIT_BLOCK how long the key is blocked: 0, or 1 ms to 366 days.
    pub ttl_us: u64,
    /// The plan of the key, whose quotas decide where the policy has it; a calendar may follow, as in "gold from=15". May be NULL. Ends
    /// with a NUL.
    pub plan: *const c_char,
    /// The part of each quota's capacity that a check, a peek or a reserve leaves for others, in percent, rounded up: 0 to 99.
    pub headroom: u32,
    /// Always 0.
    pub reserved: u32,
    /// How long after its commit the id is remembered, as in polylimit_reservation_options; only for POLYLIMIT_RESERVE.
    pub remember_us: u64,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_request {
    const NAME: &'static str = "request";
    const MIN_SIZE: u32 = 96;
}

/// Makes a request of the core.
///
/// # Safety
/// `policy` is NULL or a text that ends with a NUL; `key` is NULL or points at `key_length` bytes. Both must not change while
/// the request is used.
#[expect(
    clippy::inline_always,
    reason = "the request then stays in registers: a check takes an eighth less time"
)]
#[inline(always)]
pub(crate) unsafe fn request<'a>(
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
) -> Result<Request<'a>, Failure> {
    // SAFETY: the caller guarantees it.
    let (key, policy) = unsafe { (bytes(key.cast(), key_length, "key")?, optional_text(policy, "policy")?) };
    let request = Request::new(key).cost(cost);
    Ok(match policy {
        Some(policy) => request.policy(policy),
        None => request,
    })
}

/// The request, with the headroom and the plan that may be set.
///
/// # Safety
/// `plan` is NULL or a text that ends with a NUL, which must not change while the request is used.
pub(crate) unsafe fn refined(
    request: Request<'_>,
    headroom: u32,
    plan: *const c_char,
) -> Result<Request<'_>, Failure> {
    let percent = u8::try_from(headroom).map_err(|_| {
        Failure::invalid(format!("headroom is {headroom} %: allowed is 0 to {} %", Request::MAX_HEADROOM))
    })?;
    let request = request.headroom(percent);
    // SAFETY: the caller guarantees it.
    Ok(match unsafe { optional_text(plan, "plan") }? {
        Some(plan) => request.plan(plan),
        None => request,
    })
}

impl polylimit_request {
    /// # Safety
    /// As [`request`], for the fields of this.
    pub(crate) unsafe fn request<'a>(&self) -> Result<Request<'a>, Failure> {
        // SAFETY: the caller guarantees it.
        unsafe {
            let request = request(self.policy, self.key, self.key_length, self.cost)?;
            refined(request, self.headroom, self.plan)
        }
    }

    /// Makes a call of the core.
    ///
    /// # Safety
    /// As [`request`], for the fields of this.
    pub(crate) unsafe fn call<'a>(&self) -> Result<Call<'a>, Failure> {
        let timeout = Duration::from_micros(self.timeout_us);
        if self.operation == POLYLIMIT_READY {
            return Ok(Call::Ready(timeout));
        }
        // SAFETY: the caller guarantees it.
        let request = unsafe { self.request() }?;
        Ok(match self.operation {
            POLYLIMIT_CHECK => Call::Check(request),
            POLYLIMIT_PEEK => Call::Peek(request),
            POLYLIMIT_TAKE => Call::Take(request),
            POLYLIMIT_CHARGE => Call::Charge(request),
            POLYLIMIT_REFUND => Call::Refund(request),
            POLYLIMIT_RESET => Call::Reset(request),
            POLYLIMIT_ACQUIRE => Call::Acquire(request, timeout),
            // SAFETY: the caller guarantees it.
            POLYLIMIT_RESERVE => Call::Reserve(request, unsafe { self.terms() }?),
            // SAFETY: the caller guarantees it.
            POLYLIMIT_COMMIT => Call::Commit(request, unsafe { self.id() }?, units_spent(self.cost)),
            // SAFETY: the caller guarantees it.
            POLYLIMIT_CANCEL => Call::Cancel(request.cost(0), unsafe { self.id() }?),
            POLYLIMIT_RENEW => {
                let ttl = Duration::from_micros(self.ttl_us);
                // SAFETY: the caller guarantees it.
                Call::Renew(request.cost(0), unsafe { self.id() }?, ttl)
            }
            POLYLIMIT_BLOCK => Call::Block(request.cost(0), Duration::from_micros(self.ttl_us)),
            other => {
                return Err(Failure::invalid(format!(
                    "operation {other} is not known: allowed are {POLYLIMIT_CHECK} to {POLYLIMIT_BLOCK}"
                )));
            }
        })
    }

    /// The terms of a reserve.
    ///
    /// # Safety
    /// `id` is NULL or points at `id_length` bytes.
    unsafe fn terms(&self) -> Result<ReservationTerms, Failure> {
        Ok(ReservationTerms {
            // SAFETY: the caller guarantees it.
            id: unsafe { self.id() }?,
            ttl: Duration::from_micros(self.ttl_us),
            timeout: Duration::from_micros(self.timeout_us),
            remember: Duration::from_micros(self.remember_us),
        })
    }

    /// # Safety
    /// `id` is NULL or points at `id_length` bytes.
    unsafe fn id(&self) -> Result<ReservationId, Failure> {
        // SAFETY: the caller guarantees it.
        unsafe { reservation_id(self.id, self.id_length) }
    }
}

/// Reads the id of a reservation.
///
/// # Safety
/// `id` is NULL or points at `length` bytes.
pub(crate) unsafe fn reservation_id(id: *const c_void, length: usize) -> Result<ReservationId, Failure> {
    // SAFETY: the caller guarantees it.
    Ok(ReservationId::new(unsafe { bytes(id.cast(), length, "id") }?)?)
}

/// What a commit spends; `None` is what was reserved.
pub(crate) fn units_spent(units: u64) -> Option<u64> {
    (units != POLYLIMIT_AS_RESERVED).then_some(units)
}

/// The size of the message in a result, in bytes, including the NUL.
pub const POLYLIMIT_MESSAGE_SIZE: usize = 240;

/// The answer of an operation.
#[repr(C)]
pub union polylimit_answer {
    /// For a check, a peek, an acquire and a reserve.
    pub decision: std::mem::ManuallyDrop<polylimit_decision>,
    /// For a take, a charge, a refund, a reset, a commit, a cancel, a renew and a block.
    pub usage: std::mem::ManuallyDrop<polylimit_usage>,
}

/// The result of one operation.
#[repr(C)]
pub struct polylimit_result {
    /// sizeof(polylimit_result), set by the library.
    pub size: u32,
    /// POLYLIMIT_OK when `answer` is valid; otherwise the kind of the error, which `message` explains.
    pub status: polylimit_status,
    /// The tag with which the operation was submitted; in a batch the index of its request.
    pub tag: u64,
    /// Always 0.
    pub reserved: [u64; 4],
    /// The error message, which ends with a NUL; empty on success.
    pub message: [c_char; POLYLIMIT_MESSAGE_SIZE],
    /// The answer. It is not written after an error, nor for POLYLIMIT_READY.
    pub answer: polylimit_answer,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_result {
    const NAME: &'static str = "result";
    const MIN_SIZE: u32 = 1136;
}

impl polylimit_result {
    fn begin(&mut self, tag: u64) {
        self.size = SIZE;
        self.tag = tag;
        self.reserved = [0; 4];
        self.message[0] = 0;
    }

    /// Writes the decision of the check with this tag.
    #[inline]
    pub(crate) fn set_decision(&mut self, tag: u64, decision: &Decision) {
        self.begin(tag);
        self.answer.set_decision(decision);
        self.status = POLYLIMIT_OK;
    }

    /// Writes the result of the operation with this tag.
    pub(crate) fn set(&mut self, tag: u64, outcome: Result<Answer, Failure>) {
        self.begin(tag);
        let written = outcome.and_then(|answer| self.answer.set(&answer));
        self.status = match written {
            Ok(()) => POLYLIMIT_OK,
            Err(failure) => {
                // SAFETY: the message has that many bytes.
                let message = unsafe { MessageBuffer::new(self.message.as_mut_ptr(), self.message.len()) };
                message.write(&failure.message);
                failure.status()
            }
        };
    }
}

impl polylimit_answer {
    #[inline]
    fn set_decision(&mut self, decision: &Decision) {
        // SAFETY: all fields are plain numbers, for which any bytes are valid.
        let place = unsafe { &mut *self.decision };
        place.size = DECISION_SIZE;
        place.set(decision);
    }

    fn set(&mut self, answer: &Answer) -> Result<(), Failure> {
        match answer {
            Answer::Decision(decision) => self.set_decision(decision),
            Answer::Usage(usage) => {
                // SAFETY: as for the decision.
                let place = unsafe { &mut *self.usage };
                place.size = USAGE_SIZE;
                place.set(usage);
            }
            Answer::Ready | Answer::Configuration(_) => {}
            _ => {
                return Err(Failure::new(ErrorKind::Internal, "an operation has an answer of another kind"));
            }
        }
        Ok(())
    }
}

const SIZE: u32 = polylimit_result::MIN_SIZE;
const DECISION_SIZE: u32 = polylimit_decision::MIN_SIZE;
const USAGE_SIZE: u32 = polylimit_usage::MIN_SIZE;

/// Requests that belong together, and what all of them ask: POLYLIMIT_CHECK, POLYLIMIT_PEEK or POLYLIMIT_RESERVE with these terms.
pub(crate) struct TogetherRequests<'a> {
    requests: Vec<Request<'a>>,
    operation: u32,
    terms: Option<ReservationTerms>,
}

impl TogetherRequests<'_> {
    /// Reads an array of requests, all with one of the operations.
    ///
    /// # Safety
    /// `requests` is NULL or points at `count` requests of `request_size` bytes each.
    pub(crate) unsafe fn new(
        requests: *const polylimit_request,
        request_size: usize,
        count: usize,
        operations: &[u32],
    ) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
        let given = unsafe { Strided::new(requests.cast_mut(), request_size, count) }?;
        let mut read = Self { requests: Vec::new(), operation: operations[0], terms: None };
        for at in 0..count {
            // SAFETY: the index is within the array.
            let one = unsafe { sized(given.at::<polylimit_request>(at)) }?;
            if at == 0 && operations.contains(&one.operation) {
                read.operation = one.operation;
            } else if one.operation != read.operation {
                let allowed = if at == 0 { operations } else { &[read.operation] };
                let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
                return Err(Failure::invalid(format!(
                    "operation {} in a list of requests: allowed is {}",
                    one.operation,
                    allowed.join(" or ")
                )));
            }
            if one.operation == POLYLIMIT_RESERVE {
                // SAFETY: the caller guarantees an id, or NULL.
                let terms = unsafe { one.terms() }?;
                if read.terms.is_some_and(|first| first != terms) {
                    return Err(Failure::invalid(
                        "requests that are reserved together have several terms: id, ttl_us, timeout_us and remember_us are those of \
                         the first one in all of them"
                            .to_owned(),
                    ));
                }
                read.terms = Some(terms);
            }
            // SAFETY: the caller guarantees a key and a text, or NULL.
            read.requests.push(unsafe { one.request() }?);
        }
        Ok(read)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn call(&self) -> Call<'_> {
        match (self.operation, self.terms) {
            (_, Some(terms)) => Call::ReserveTogether(&self.requests, terms),
            (POLYLIMIT_PEEK, None) => Call::PeekTogether(&self.requests),
            (_, None) => Call::CheckTogether(&self.requests),
        }
    }
}

/// The decisions of requests that belong together.
pub(crate) fn decisions_of(answer: Answer) -> Result<Vec<Decision>, Error> {
    match answer {
        Answer::Decisions(decisions) => decisions.into_iter().collect(),
        _ => Ok(Vec::new()),
    }
}

/// Writes decisions, and the size of each.
///
/// # Safety
/// The array has at least that many elements.
pub(crate) unsafe fn write_decisions(places: &Strided, decisions: &[Decision]) {
    for (at, decision) in decisions.iter().enumerate() {
        // SAFETY: it is an element of the array, and any bytes are valid in its fields.
        let place = unsafe { &mut *places.at::<polylimit_decision>(at) };
        place.size = polylimit_decision::MIN_SIZE;
        place.set(decision);
    }
}

/// Reads one request for a check.
///
/// # Safety
/// `given` points at a request.
pub(crate) unsafe fn check_request<'a>(given: *const polylimit_request) -> Result<Request<'a>, Failure> {
    // SAFETY: the caller guarantees it.
    let given = unsafe { sized(given) }?;
    if given.operation != POLYLIMIT_CHECK {
        return Err(Failure::invalid(format!(
            "operation {} in a batch of checks: allowed is {POLYLIMIT_CHECK}",
            given.operation
        )));
    }
    // SAFETY: the caller guarantees it.
    unsafe { given.request() }
}
