//! Reservations in direct calls.
//!
//! | operation | number | target | arguments | answer |
//! |---|---:|---|---|---|
//! | reserve | 12 | limiter | a request, options | a reservation |
//! | commit | 13 | limiter | a request whose cost is what was spent, a reservation | a usage |
//! | cancel | 14 | limiter | a request, a reservation | a usage |
//! | renew | 15 | limiter | a request, a reservation, the ttl in microseconds (`i64`) | a usage |
//! | end | 16 | limiter | a request, a reservation, whether it cancels in any case (`u8`) | a usage, or ready where nothing was to be ended |
//! | release | 17 | handle | | |
//! | is lost | 18 | handle | | `u8` |
//!
//! - **Options:** the id (bytes or none), `u8` [`HAS_TTL`], [`HAS_MAX_AGE`] and [`COMMITS_AT_END`], ttl, longest age and how long the
//!   commit is remembered in microseconds (`i64`). The timeout is that of the header.
//! - **Terms** of reservations without a handle: the id (bytes or none), whether they have a ttl (`u8`), ttl and how long the commit is
//!   remembered in microseconds (`i64`).
//! - **Reservation** as an argument: its handle (`u64`, or 0), and its id (bytes).
//!
//! A **handle** keeps its reservation renewed until it is committed, cancelled or ended through it. Its address belongs to an
//! object of the language, which releases it once, and until then may use it from any thread. Releasing a handle that was not
//! ended ends the reservation in the background.

use std::sync::Arc;

use polylimit::raw::{Answer, Call, ReservationTerms};
use polylimit::reservation::{ReservationId, ReserveOptions};

use crate::direct::held::{Held, Reserve, Reserved};
use crate::direct::layout::{Header, Reader, SUBMIT, TRY, WAIT, malformed};
use crate::direct::queue::Then;
use crate::direct::{Outcome, answer, longest_wait, object};
use crate::error::Result;
use crate::limiter::Limiter;
use crate::number::Span;

const RESERVE: u8 = 12;
const COMMIT: u8 = 13;
const CANCEL: u8 = 14;
const RENEW: u8 = 15;
const END: u8 = 16;
const RELEASE: u8 = 17;

const HAS_TTL: u8 = 1;
const HAS_MAX_AGE: u8 = 2;
const COMMITS_AT_END: u8 = 4;

/// # Safety
/// `target` is one of the operation, and a handle in the arguments is one that was not released.
pub(super) unsafe fn perform(target: u64, header: &Header, reader: &mut Reader<'_>) -> Result<Outcome> {
    match header.operation {
        RELEASE => {
            // SAFETY: the caller gives the handle back, and uses it no more.
            drop(unsafe { Arc::from_raw(std::ptr::from_ref(object::<Held>(target)?)) });
            Ok(Outcome::Nothing)
        }
        // SAFETY: the caller guarantees the target.
        RESERVE => reserve(unsafe { object(target) }?, header, reader),
        // SAFETY: the caller guarantees the target and the handle.
        COMMIT | CANCEL | RENEW | END => unsafe { on_reservation(object(target)?, header, reader) },
        // SAFETY: the caller guarantees the target.
        _ => Ok(Outcome::Flag(unsafe { object::<Held>(target) }?.is_lost())),
    }
}

/// The terms of reservations that have no handle.
pub(super) fn terms(reader: &mut Reader<'_>) -> Result<ReservationTerms> {
    let mut options = ReserveOptions::default();
    if let Some(id) = reader.bytes()? {
        options = options.id(ReservationId::new(id)?);
    }
    let (has_ttl, ttl_us, remember_us) = (reader.u8()? != 0, reader.i64()?, reader.i64()?);
    if has_ttl {
        options = options.ttl(Span::of_signed(ttl_us).duration("ttl")?);
    }
    Ok(options.remember(Span::of_signed(remember_us).duration("remember")?).terms()?)
}

fn reserve(limiter: &Limiter, header: &Header, reader: &mut Reader<'_>) -> Result<Outcome> {
    let request = reader.request()??;
    let mut options = ReserveOptions::default().timeout(longest_wait(header)?);
    if let Some(id) = reader.bytes()? {
        options = options.id(ReservationId::new(id)?);
    }
    let flags = reader.u8()?;
    let (ttl_us, max_age_us, remember_us) = (reader.i64()?, reader.i64()?, reader.i64()?);
    if flags & HAS_TTL != 0 {
        options = options.ttl(Span::of_signed(ttl_us).duration("ttl")?);
    }
    if flags & HAS_MAX_AGE != 0 {
        options = options.max_age(Span::of_signed(max_age_us).duration("max_age")?);
    }
    let commits_at_end = flags & COMMITS_AT_END != 0;
    options =
        options.commit_at_end(commits_at_end).remember(Span::of_signed(remember_us).duration("remember")?);
    let terms = options.terms()?;
    let core = limiter.core().asynchronous();
    let answered = answer(limiter, &Call::Reserve(request, terms), header, || {
        Then::Reserve(Box::new(Reserve {
            limiter: core.clone(),
            key: request.key().into(),
            policy: request.policy_name().map(Into::into),
            plan: request.plan_name().map(Into::into),
            terms,
            options,
            commits_at_end,
        }))
    })?;
    Ok(match answered {
        Ok(answer) => {
            Outcome::Reserved(Reserved::of(core, request, &terms, (options, commits_at_end), answer)?)
        }
        Err(waits) => waits,
    })
}

/// # Safety
/// The handle in the arguments is 0, or one that was not released.
unsafe fn on_reservation(limiter: &Limiter, header: &Header, reader: &mut Reader<'_>) -> Result<Outcome> {
    let (request, spent) = reader.spending()?;
    let held = match reader.u64()? {
        0 => None,
        // SAFETY: the caller guarantees the handle.
        handle => Some(unsafe { object::<Held>(handle) }?),
    };
    let id = ReservationId::new(reader.bytes()?.ok_or_else(|| malformed("its id is missing"))?)?;
    let call = match header.operation {
        COMMIT => Call::Commit(request, id, spent),
        CANCEL => Call::Cancel(request, id),
        RENEW => Call::Renew(request, id, Span::of_signed(reader.i64()?).duration("ttl")?),
        _ => {
            let Some(held) = held.filter(|held| held.is_open()) else {
                return Ok(Outcome::Answer(Ok(Answer::Ready)));
            };
            let cancels = reader.u8()? != 0 || !held.commits_at_end;
            if cancels { Call::Cancel(request, id) } else { Call::Commit(request, id, None) }
        }
    };
    let held = held.filter(|_| header.operation != RENEW);
    // What is refused, or has to wait first, leaves the handle as it was.
    if header.waits & TRY != 0
        && let Some(answer) = limiter.core().asynchronous().raw().try_call(&call)
    {
        if let (Some(held), Ok(_)) = (held, &answer) {
            held.detach();
        }
        return Ok(Outcome::Answer(answer));
    }
    if header.waits & (WAIT | SUBMIT) == 0 {
        return Ok(Outcome::HasToWait);
    }
    if let Some(held) = held {
        held.detach();
    }
    let header = Header { waits: header.waits & !TRY, ..*header };
    Ok(answer(limiter, &call, &header, || Then::Nothing)?.map_or_else(|waits| waits, Outcome::Answer))
}
