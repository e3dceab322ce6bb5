//! Reservations as JavaScript holds them, and the operations on reservations by their id.

use std::cell::RefCell;
use std::rc::Rc;

use napi::bindgen_prelude::Unknown;
use napi::{Env, JsValue};
use napi_derive::napi;
use polylimit::raw::{Answer, Call, ReservationTerms};
use polylimit::reservation::{Reservation, ReservationId, ReserveOptions};

use crate::error::{Result, catch_panic, internal, to_js_error};
use crate::limiter::{CheckRow, NativeLimiter, read_each, requests};
use crate::limiter_handle::LimiterHandle;
use crate::number::{ANY, REMEMBER, TIMEOUT, TTL, duration, units};
use crate::owned_request::{KeyChoice, OwnedRequest, RequestOptions};
use crate::text::TextBuffer;

/// The options of a reserve. Those that are absent have the core's defaults.
#[napi(object, object_to_js = false)]
pub struct ReserveSettings<'env> {
    pub policy: Option<String>,
    pub cost: Option<f64>,
    pub headroom: Option<f64>,
    pub plan: Option<String>,
    pub id: Option<Unknown<'env>>,
    pub ttl_ms: Option<f64>,
    pub timeout_ms: Option<f64>,
    pub max_age_ms: Option<f64>,
    pub commit_at_end: Option<bool>,
    pub remember_ms: Option<f64>,
    /// Whether a signal may cancel the reserve.
    pub is_cancellable: Option<bool>,
}

/// The terms of reservations that have no handle. Those that are absent have the core's defaults.
#[napi(object, object_to_js = false)]
pub struct TermsSettings<'env> {
    pub id: Option<Unknown<'env>>,
    pub ttl_ms: Option<f64>,
    pub remember_ms: Option<f64>,
}

impl TermsSettings<'_> {
    fn options(&self, env: Env) -> Result<ReserveOptions> {
        let mut options = ReserveOptions::default();
        if let Some(id) = self.id {
            options = options.id(read_id(env, id)?);
        }
        if let Some(ttl_ms) = self.ttl_ms {
            options = options.ttl(duration("ttlMs", ttl_ms, &TTL)?);
        }
        if let Some(remember_ms) = self.remember_ms {
            options = options.remember(duration("rememberMs", remember_ms, &REMEMBER)?);
        }
        Ok(options)
    }

    pub(crate) fn terms(&self, env: Env) -> Result<ReservationTerms> {
        self.options(env)?.terms().map_err(to_js_error)
    }
}

impl ReserveSettings<'_> {
    fn options(&self, env: Env) -> Result<ReserveOptions> {
        let Self { id, ttl_ms, remember_ms, .. } = *self;
        let mut options = TermsSettings { id, ttl_ms, remember_ms }.options(env)?;
        if let Some(timeout_ms) = self.timeout_ms {
            options = options.timeout(duration("timeoutMs", timeout_ms, &TIMEOUT)?);
        }
        if let Some(max_age_ms) = self.max_age_ms {
            options = options.max_age(duration("maxAgeMs", max_age_ms, &ANY)?);
        }
        if let Some(commits) = self.commit_at_end {
            options = options.commit_at_end(commits);
        }
        Ok(options)
    }
}

/// A reservation, and the limiter that made it. When the garbage collector takes it, the reservation ends.
#[napi]
pub struct NativeReservation {
    limiter: Rc<LimiterHandle>,
    id: ReservationId,
    /// `None` until the reserve is answered.
    made: Rc<RefCell<Option<Reservation>>>,
}

impl NativeReservation {
    /// Submits a reserve. Its decision comes as the answers of all operations do.
    fn new(
        limiter: &Rc<LimiterHandle>,
        asked: OwnedRequest,
        options: ReserveOptions,
        is_cancellable: bool,
    ) -> Result<Self> {
        let terms = options.terms().map_err(to_js_error)?;
        let made: Rc<RefCell<Option<Reservation>>> = Rc::default();
        let (core, slot, asked) = (limiter.limiter().clone(), Rc::clone(&made), Rc::new(asked));
        let adopted = Rc::clone(&asked);
        limiter.submit_then(&Call::Reserve(asked.request(), terms), is_cancellable, move |result| {
            if let Ok(Answer::Decision(decision)) = &result {
                let reservation = core.adopt(adopted.request(), &terms, options, decision.clone())?;
                *slot.borrow_mut() = Some(reservation);
            }
            result
        })?;
        Ok(Self { limiter: Rc::clone(limiter), id: terms.id, made })
    }

    fn submit(&self, call: impl FnOnce(&mut Reservation) -> Call<'_>) -> Result<()> {
        let mut made = self.made.borrow_mut();
        let reservation = made.as_mut().ok_or_else(|| internal("the reserve is not answered yet"))?;
        self.limiter.submit(&call(reservation))
    }
}

#[napi]
impl NativeReservation {
    /// The id; for a random one, which is text.
    #[napi]
    pub fn id(&self) -> String {
        self.id.to_string()
    }

    /// Whether the reservation is known to have ended without its holder.
    #[napi]
    pub fn is_lost(&self) -> bool {
        self.made.borrow().as_ref().is_some_and(Reservation::is_lost)
    }

    /// Whether the reservation still has to be ended.
    #[napi]
    pub fn is_open(&self) -> bool {
        self.made.borrow().as_ref().is_some_and(Reservation::is_open)
    }

    /// Commits what was spent, or what was reserved.
    #[napi]
    pub fn commit(&self, spent: Option<f64>) -> Result<()> {
        catch_panic(|| {
            let spent = spent.map(|spent| units("spent", spent)).transpose()?;
            self.submit(|reservation| reservation.commit_call(spent))
        })
    }

    #[napi]
    pub fn cancel(&self) -> Result<()> {
        catch_panic(|| self.submit(Reservation::cancel_call))
    }

    /// Cancels, or commits what was reserved if the options say to.
    #[napi]
    pub fn end(&self) -> Result<()> {
        catch_panic(|| self.submit(Reservation::end_call))
    }
}

#[napi]
impl NativeLimiter {
    /// Submits a reserve, and leaves its decision or its ticket.
    #[napi]
    pub fn reserve(
        &self,
        env: Env,
        key: Unknown<'_>,
        settings: ReserveSettings<'_>,
    ) -> Result<NativeReservation> {
        catch_panic(|| {
            let options = settings.options(env)?;
            let ReserveSettings { policy, cost, headroom, plan, is_cancellable, .. } = settings;
            let asked = OwnedRequest::read(env, key, RequestOptions { policy, cost, headroom, plan })?;
            NativeReservation::new(&self.handle, asked, options, is_cancellable.unwrap_or(false))
        })
    }

    /// Reserves for several checks together, and leaves the decisions, or their ticket. Returns the id; for a random one, which is
    /// text.
    #[napi]
    pub fn reserve_together(
        &self,
        env: Env,
        checks: Vec<CheckRow<'_>>,
        settings: TermsSettings<'_>,
    ) -> Result<String> {
        catch_panic(|| {
            let terms = settings.terms(env)?;
            self.handle.submit(&Call::ReserveTogether(&requests(&read_each(env, checks)?), terms))?;
            Ok(terms.id.to_string())
        })
    }

    /// Commits the reservation with this id: what was spent, or what was reserved.
    #[napi]
    pub fn commit(
        &self,
        env: Env,
        key: Unknown<'_>,
        id: Unknown<'_>,
        spent: Option<f64>,
        choice: KeyChoice,
    ) -> Result<()> {
        catch_panic(|| {
            let (id, spent) = (read_id(env, id)?, spent.map(|spent| units("spent", spent)).transpose()?);
            let asked = choice.of(env, key)?;
            self.handle.submit(&Call::Commit(asked.request(), id, spent))
        })
    }

    /// Cancels the reservation with this id.
    #[napi]
    pub fn cancel(&self, env: Env, key: Unknown<'_>, id: Unknown<'_>, choice: KeyChoice) -> Result<()> {
        catch_panic(|| {
            let id = read_id(env, id)?;
            self.handle.submit(&Call::Cancel(choice.of(env, key)?.request(), id))
        })
    }

    /// Makes the reservation with this id end that many milliseconds from now.
    #[napi]
    pub fn renew(
        &self,
        env: Env,
        key: Unknown<'_>,
        id: Unknown<'_>,
        ttl_ms: f64,
        choice: KeyChoice,
    ) -> Result<()> {
        catch_panic(|| {
            let (id, ttl) = (read_id(env, id)?, duration("ttlMs", ttl_ms, &TTL)?);
            self.handle.submit(&Call::Renew(choice.of(env, key)?.request(), id, ttl))
        })
    }
}

fn read_id(env: Env, id: Unknown<'_>) -> Result<ReservationId> {
    let mut text = TextBuffer::new();
    // SAFETY: the value is an argument of this call.
    let bytes = unsafe { text.bytes("id", env.raw(), id.raw())? };
    ReservationId::new(bytes).map_err(to_js_error)
}
