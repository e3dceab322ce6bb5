//! The fast way into the core for what happens in each request: one call with numbers only, on a buffer that the caller
//! reuses. The request stands in the buffer, and the answer replaces it; `direct/layout.rs` has the layout. A call allocates
//! nothing that the language would have to free.
//!
//! | operation | number | target | arguments | answer |
//! |---|---:|---|---|---|
//! | check, peek, take, charge, refund, reset | 1 to 6 | limiter | a request | a decision, or a usage |
//! | acquire | 7 | limiter | a request | a decision |
//! | check many, check together | 8, 9 | limiter | a list of requests | decisions |
//! | ready | 10 | limiter | | ready |
//! | doctor | 11 | limiter | | findings |
//! | reserve, commit, cancel, renew, end, release, is lost | 12 to 18 | limiter, or handle | `direct/reservation.rs` | |
//! | block | 19 | limiter | a request; the time is the timeout of the header | a usage |
//! | decide by a configuration, matching, and changes of it | 20 to 27 | limiter | `direct/configured.rs` | |
//! | peek together | 28 | limiter | a list of requests | decisions |
//! | reserve together | 29 | limiter | a list of requests, and terms: `direct/reservation.rs` | reservations of a request |
//! | decide, continue, overrule, finish, outcomes, release, applies to, end | 32 to 39 | guard, or check | `direct/guard.rs` | |
//! | read head, read body | 50, 51 | check | `direct/guard.rs` | |
//! | list, scan top, reset listed, explain, explain request, top keys, metrics | 40 to 46 | limiter | `direct/reports.rs` | a report |
//! | fields, problem | 48, 49 | | `direct/headers.rs` | |
//! | open a queue | 64 | | the descriptor to wake (`i64`), or -1 | the queue (`u64`) |
//! | take from a queue | 65 | queue | the timeout of the header | a list of tags and answers |
//! | cancel a call | 66 | queue | the tag of the header | whether there was one (`u8`) |
//! | close a queue | 67 | queue | | |
//! | fetch an answer | 68 | answer | | the answer |
//! | stop waiting for a queue | 69 | queue | | |
//!
//! A **target** is an address that an object of the language owns: `Limiter::address`, `Guard::address`, or what an earlier
//! answer had. The object outlives the call. A limiter that was closed stays at its address and answers with an error.

mod configured;
mod guard;
mod headers;
mod held;
mod layout;
mod queue;
mod report;
mod reports;
mod reservation;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use polylimit::Error;
use polylimit::admin::ConfigurationStatus;
use polylimit::document::PolicyMatch;
use polylimit::raw::{Answer, Call};
use polylimit::reservation::ReservationId;

use crate::direct::held::Reserved;
use crate::direct::layout::{HEADER_LENGTH, Header, Reader, SUBMIT, TRY, WAIT, Writer, malformed};
use crate::direct::queue::{Queue, Then};
use crate::direct::report::Report;
use crate::error::{PolylimitError, Result, panicked};
use crate::limiter::Limiter;
use crate::number::Span;

pub use layout::{cause_names, degradation_names, source_names};

/// The call was submitted: the queue has the answer later.
const PENDING: i32 = -1;
/// The answer is larger than the buffer, which has its address (`u64`) and its length (`u32`). It is fetched once.
const TOO_LARGE: i32 = -2;
/// The call has to wait, and the caller did not want that. Nothing was done.
const HAS_TO_WAIT: i32 = -3;
/// The buffer is missing or too small for any answer.
const NO_BUFFER: i32 = -4;

/// The capacity that a buffer must have.
const MIN_CAPACITY: usize = 256;

const ACQUIRE: u8 = 7;
const CHECK_MANY: u8 = 8;
const CHECK_TOGETHER: u8 = 9;
const READY: u8 = 10;
const DOCTOR: u8 = 11;
const BLOCK: u8 = 19;
const PEEK_TOGETHER: u8 = 28;
const RESERVE_TOGETHER: u8 = 29;
const OPEN_QUEUE: u8 = 64;
const TAKE: u8 = 65;
const CANCEL: u8 = 66;
const CLOSE_QUEUE: u8 = 67;
const FETCH: u8 = 68;
const STOP_WAITING: u8 = 69;

/// What a call writes into the buffer. It owns what it needs, so that the request may be overwritten.
enum Outcome {
    Answer(std::result::Result<Answer, Error>),
    /// Several decisions, and with their positions the requests that were refused.
    Decisions(std::result::Result<Answer, Error>, Vec<(usize, PolylimitError)>),
    /// The decisions on requests that were reserved under this id.
    ReservedTogether(ReservationId, std::result::Result<Answer, Error>),
    Guard(guard::Reply),
    Headers(headers::Reply),
    Reserved(Reserved),
    Number(u64),
    Flag(bool),
    Matches(Vec<PolicyMatch>),
    Report(Report),
    Json(String),
    Status(Option<ConfigurationStatus>),
    Bytes(Vec<u8>),
    Taken(Arc<Queue>, Duration),
    Nothing,
    /// With the addresses of a guard's checks.
    Pending([u64; 2]),
    HasToWait,
}

/// Performs the operation in the buffer, and returns the length of the answer there or one of the numbers above.
///
/// # Safety
/// `buffer` has `capacity` initialized bytes, which no other thread uses during the call; `target` is one of the operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_direct_call(target: u64, buffer: *mut u8, capacity: u32) -> i32 {
    let capacity = capacity as usize;
    if buffer.is_null() || capacity < MIN_CAPACITY {
        return NO_BUFFER;
    }
    // SAFETY: the caller guarantees the buffer.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer, capacity) };
    // SAFETY: the caller guarantees the target.
    let run = || unsafe { perform(target, buffer) };
    let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(panicked()));
    catch_unwind(AssertUnwindSafe(|| write(outcome, buffer))).unwrap_or(NO_BUFFER)
}

/// The same for the JVM, which passes numbers to native code at the lowest cost. The environment and the class are not used.
///
/// # Safety
/// As for [`polylimit_direct_call`].
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_polylimit_DirectCalls_call(
    _environment: *mut std::ffi::c_void,
    _class: *mut std::ffi::c_void,
    target: i64,
    buffer: i64,
    capacity: i32,
) -> i32 {
    let buffer = std::ptr::with_exposed_provenance_mut(usize::try_from(buffer).unwrap_or(0));
    // SAFETY: the caller guarantees what the function needs.
    unsafe { polylimit_direct_call(target.cast_unsigned(), buffer, u32::try_from(capacity).unwrap_or(0)) }
}

/// # Safety
/// `target` is one of the operation in the buffer.
unsafe fn perform(target: u64, buffer: &[u8]) -> Result<Outcome> {
    let mut reader = Reader::new(buffer);
    let header = reader.header()?;
    debug_assert_eq!(HEADER_LENGTH, 32);
    match header.operation {
        1..=DOCTOR | BLOCK | PEEK_TOGETHER | RESERVE_TOGETHER => {
            // SAFETY: the caller guarantees the target.
            let limiter = unsafe { object::<Limiter>(target) }?;
            call(limiter, &header, &mut reader)
        }
        // SAFETY: the caller guarantees the target.
        12..=18 => unsafe { reservation::perform(target, &header, &mut reader) },
        // SAFETY: the caller guarantees the target.
        20..=27 => configured::perform(unsafe { object(target) }?, &header, &mut reader),
        // SAFETY: the caller guarantees the target.
        32..=39 | 50 | 51 => unsafe { guard::perform(target, &header, &mut reader) },
        // SAFETY: the caller guarantees the target.
        40..=46 => reports::perform(unsafe { object(target) }?, &header, &mut reader),
        48 | 49 => headers::perform(&header, &mut reader),
        OPEN_QUEUE => {
            let descriptor = i32::try_from(reader.i64()?).unwrap_or(-1);
            Ok(Outcome::Number(Arc::into_raw(Arc::new(Queue::open(descriptor)?)).expose_provenance() as u64))
        }
        TAKE => {
            let timeout = Span::of_signed(header.timeout_us.max(0)).duration("timeout")?;
            // SAFETY: the caller guarantees the target.
            Ok(Outcome::Taken(unsafe { shared::<Queue>(target) }?, timeout))
        }
        // SAFETY: the caller guarantees the target.
        CANCEL => Ok(Outcome::Flag(unsafe { object::<Queue>(target) }?.cancel(header.tag))),
        STOP_WAITING => {
            // SAFETY: the caller guarantees the target.
            unsafe { object::<Queue>(target) }?.stop_waiting();
            Ok(Outcome::Nothing)
        }
        CLOSE_QUEUE => {
            // SAFETY: the caller gives the queue back, and uses it no more.
            drop(unsafe { Arc::from_raw(std::ptr::from_ref(object::<Queue>(target)?)) });
            Ok(Outcome::Nothing)
        }
        FETCH => {
            let answer = std::ptr::from_ref(unsafe { object::<Vec<u8>>(target) }?).cast_mut();
            // SAFETY: the caller fetches the answer once.
            Ok(Outcome::Bytes(*unsafe { Box::from_raw(answer) }))
        }
        other => Err(malformed(&format!("operation {other} is not known"))),
    }
}

/// # Safety
/// The target is 0 or the address of such an object, which lives as long as the reference.
unsafe fn object<'a, T>(target: u64) -> Result<&'a T> {
    let address = usize::try_from(target).unwrap_or(0);
    // SAFETY: the caller guarantees it.
    unsafe { std::ptr::with_exposed_provenance::<T>(address).as_ref() }
        .ok_or_else(|| PolylimitError::Closed("this was closed: make another one".to_owned()))
}

/// # Safety
/// The target is 0 or what `Arc::into_raw` or `Arc::as_ptr` has returned, and the allocation exists.
unsafe fn shared<T>(target: u64) -> Result<Arc<T>> {
    // SAFETY: the caller guarantees it.
    let object = std::ptr::from_ref(unsafe { object::<T>(target) }?);
    // SAFETY: the caller guarantees it, and the count is raised before the reference is made.
    unsafe {
        Arc::increment_strong_count(object);
        Ok(Arc::from_raw(object))
    }
}

fn call(limiter: &Limiter, header: &Header, reader: &mut Reader<'_>) -> Result<Outcome> {
    let one = match header.operation {
        1 => Some(Call::Check(reader.request()??)),
        2 => Some(Call::Peek(reader.request()??)),
        3 => Some(Call::Take(reader.request()??)),
        4 => Some(Call::Charge(reader.request()??)),
        5 => Some(Call::Refund(reader.request()??)),
        6 => Some(Call::Reset(reader.request()??)),
        ACQUIRE => {
            let request = reader.request()??;
            Some(Call::Acquire(request, longest_wait(header)?))
        }
        BLOCK => Some(Call::Block(reader.request()??, longest_wait(header)?)),
        READY => Some(Call::Ready(longest_wait(header)?)),
        DOCTOR => Some(Call::Doctor),
        _ => None,
    };
    if let Some(call) = one {
        return Ok(
            answer(limiter, &call, header, || Then::Nothing)?.map_or_else(|waits| waits, Outcome::Answer)
        );
    }
    let (mut requests, mut refused) = (Vec::new(), Vec::new());
    let list = reader.list(Reader::request)?;
    for (at, request) in list.into_iter().enumerate() {
        match request {
            Ok(request) => requests.push(request),
            Err(error) if header.operation == CHECK_MANY => refused.push((at, error)),
            Err(error) => return Err(error),
        }
    }
    let call = match header.operation {
        CHECK_MANY => Call::CheckMany(&requests),
        CHECK_TOGETHER => Call::CheckTogether(&requests),
        PEEK_TOGETHER => Call::PeekTogether(&requests),
        _ => {
            let terms = reservation::terms(reader)?;
            let call = Call::ReserveTogether(&requests, terms);
            let answered = answer(limiter, &call, header, || Then::ReserveTogether(terms.id))?;
            return Ok(
                answered.map_or_else(|waits| waits, |answer| Outcome::ReservedTogether(terms.id, answer))
            );
        }
    };
    let answered = answer(limiter, &call, header, || Then::Merge(refused.clone()))?;
    Ok(answered.map_or_else(|waits| waits, |answer| Outcome::Decisions(answer, refused)))
}

fn longest_wait(header: &Header) -> Result<Duration> {
    let name = if header.operation == BLOCK { "time" } else { "timeout" };
    Span::of_signed(header.timeout_us).duration(name)
}

/// The answer to a call, or why there is none yet.
fn answer(
    limiter: &Limiter,
    call: &Call<'_>,
    header: &Header,
    then: impl FnOnce() -> Then,
) -> Result<std::result::Result<std::result::Result<Answer, Error>, Outcome>> {
    let limiter = limiter.core();
    if header.waits & TRY != 0
        && let Some(answer) = limiter.asynchronous().raw().try_call(call)
    {
        return Ok(Ok(answer));
    }
    if header.waits & WAIT != 0 {
        return Ok(Ok(limiter.raw().call_store(call)));
    }
    if header.waits & SUBMIT == 0 {
        return Ok(Err(Outcome::HasToWait));
    }
    // SAFETY: the header names a queue that its owner has not closed.
    let queue = unsafe { object::<Queue>(header.queue) }?;
    let answer = queue.submit(limiter.asynchronous(), call, header.tag, then());
    Ok(answer.ok_or(Outcome::Pending([0; 2])))
}

fn write(outcome: Result<Outcome>, buffer: &mut [u8]) -> i32 {
    let room = buffer.len();
    let mut writer = Writer::new(buffer);
    match outcome {
        Ok(Outcome::Decisions(Ok(Answer::Decisions(decisions)), refused)) => {
            writer.decisions(&decisions, refused);
        }
        Ok(Outcome::ReservedTogether(id, answer)) => writer.reserved_together(&id, &answer),
        Ok(Outcome::Answer(answer) | Outcome::Decisions(answer, _)) => writer.answer(&answer),
        Ok(Outcome::Guard(reply)) => reply.write(&mut writer),
        Ok(Outcome::Headers(reply)) => reply.write(&mut writer),
        Ok(Outcome::Reserved(reserved)) => {
            reserved.write(&mut writer);
            reserved.hand_over();
        }
        Ok(Outcome::Number(number)) => writer.u64(number),
        Ok(Outcome::Flag(flag)) => writer.u8(flag.into()),
        Ok(Outcome::Status(status)) => {
            if let Some(status) = status {
                configured::write_status(&mut writer, &status);
            }
        }
        Ok(Outcome::Report(report)) => report.write(&mut writer),
        Ok(Outcome::Json(json)) => report::write(&mut writer, json.as_bytes()),
        Ok(Outcome::Matches(matches)) => configured::write_matches(&mut writer, &matches),
        Ok(Outcome::Bytes(bytes)) => writer.raw(&bytes),
        Ok(Outcome::Taken(queue, timeout)) => queue.take(timeout, &mut writer, room - size_of::<u32>()),
        Ok(Outcome::Nothing) => {}
        Ok(Outcome::Pending(checks)) => {
            for address in checks {
                writer.u64(address);
            }
            return PENDING;
        }
        Ok(Outcome::HasToWait) => return HAS_TO_WAIT,
        Err(error) => writer.error(&error),
    }
    match writer.end() {
        Ok(length) => i32::try_from(length).unwrap_or(NO_BUFFER),
        Err(answer) => {
            let mut writer = Writer::new(buffer);
            let length = answer.len();
            writer.u64(Box::into_raw(Box::new(answer)).expose_provenance() as u64);
            writer.count(length);
            TOO_LARGE
        }
    }
}

#[cfg(test)]
mod tests;
