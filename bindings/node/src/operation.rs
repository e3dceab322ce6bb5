//! The function that decides, one for each limiter.

use std::cell::{Ref, RefCell};
use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use napi::sys;
use polylimit::{Answer, Call, Limiter, Request};

use crate::answer::Field;
use crate::asked::{Asked, AskedPolicy};
use crate::callback::{ARGUMENTS, Callback};
use crate::exchange::Exchange;
use crate::failure::{Code, Result, closed, failure, internal, invalid_argument};
use crate::number::{cost, microseconds};
use crate::policy_places::PolicyPlaces;
use crate::text::Text;

/// A limiter and where its answers go.
pub(crate) struct Bound {
    /// Not there any more once it is closed: JavaScript may hold on to a limiter for as long as it likes.
    open: RefCell<Option<Open>>,
    places: RefCell<PolicyPlaces>,
    pub(crate) exchange: Rc<Exchange>,
}

struct Open {
    limiter: Limiter,
    /// The same limiter, if its store answers without waiting.
    at_once: Option<polylimit::blocking::Limiter>,
}

impl Bound {
    pub(crate) fn new(limiter: Limiter, exchange: Rc<Exchange>) -> Self {
        let at_once = limiter.answers_at_once().then(|| limiter.blocking());
        let open = RefCell::new(Some(Open { limiter, at_once }));
        Self { open, places: RefCell::default(), exchange }
    }

    /// The limiter, if it is not closed.
    pub(crate) fn limiter(&self) -> Result<Ref<'_, Limiter>> {
        Ref::filter_map(self.open.borrow(), |open| open.as_ref().map(|open| &open.limiter))
            .map_err(|_| closed())
    }

    /// Closes the limiter and lets go of it; gives it the first time.
    pub(crate) fn close(&self) -> Option<Limiter> {
        let Open { limiter, .. } = self.open.take()?;
        limiter.close();
        self.places.take();
        Some(limiter)
    }
}

/// The operations on one key, by their numbers.
#[napi_derive::napi]
pub enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
    Acquire,
    /// A check that has to answer at once.
    CheckSync,
}

/// `(key, policy) => void`. What it is to do stands in the exchange's fields, and it leaves the answer there, or the ticket
/// under which the answer will come. A short key stands beside the fields and is no argument, nor is a policy that has a
/// place; what is not given is as in the core.
pub(crate) struct Operate(pub(crate) Rc<Bound>);

impl Callback for Operate {
    const NAME: &'static CStr = c"operate";

    #[inline]
    unsafe fn call(
        &self,
        env: sys::napi_env,
        arguments: [sys::napi_value; ARGUMENTS],
    ) -> Result<sys::napi_value> {
        // SAFETY: as the caller's.
        unsafe { self.0.operate(env, arguments)? };
        Ok(ptr::null_mut())
    }
}

impl Bound {
    /// # Safety
    /// The environment and the arguments have to be valid.
    #[inline]
    unsafe fn operate(&self, env: sys::napi_env, arguments: [sys::napi_value; ARGUMENTS]) -> Result<()> {
        let asked = self.exchange.fields.asked();
        // Most calls have no arguments to read.
        let (Some(length), AskedPolicy::None | AskedPolicy::Place(_)) = (asked.short_key, asked.policy)
        else {
            // SAFETY: as the caller's.
            return unsafe { self.operate_on(env, asked, arguments) };
        };
        let request = Request::new(self.exchange.fields.short_key(length));
        let AskedPolicy::Place(place) = asked.policy else { return self.answer(asked, request) };
        let _open = self.limiter()?;
        let places = self.places.borrow();
        self.answer(asked, request.policy(places.name(place)?))
    }

    /// The same with a key or a policy that has to be read.
    ///
    /// # Safety
    /// The environment and the arguments have to be valid.
    #[inline(never)]
    unsafe fn operate_on(
        &self,
        env: sys::napi_env,
        asked: Asked,
        [key, policy]: [sys::napi_value; ARGUMENTS],
    ) -> Result<()> {
        let fields = &self.exchange.fields;
        let (mut key_text, mut policy_text) = (Text::new(), Text::new());
        let key = match asked.short_key {
            Some(length) => fields.short_key(length),
            // SAFETY: as the caller's.
            None => unsafe { key_text.key(env, key)? },
        };
        let request = Request::new(key);
        match asked.policy {
            AskedPolicy::None => self.answer(asked, request),
            AskedPolicy::Place(place) => {
                let _open = self.limiter()?;
                self.answer(asked, request.policy(self.places.borrow().name(place)?))
            }
            AskedPolicy::Argument => {
                // SAFETY: as the caller's.
                let name = unsafe { policy_text.text(env, policy) };
                let name = name.ok_or_else(|| internal("an argument that has to be a text is none"))?;
                fields.set_policy_place(self.places.borrow_mut().place_of(name, &*self.limiter()?));
                self.answer(asked, request.policy(name))
            }
        }
    }

    #[inline]
    fn answer(&self, asked: Asked, mut request: Request<'_>) -> Result<()> {
        if let Some(units) = asked.cost {
            request = request.cost(cost(units)?);
        }
        let operation = asked.operation;
        let open = self.open.borrow();
        let Open { limiter, at_once } = open.as_ref().ok_or_else(closed)?;
        if let (CHECK | CHECK_SYNC, Some(limiter)) = (operation, at_once) {
            // Most calls are such ones, and the answer has no need to be one of several kinds.
            let decision = limiter.check(request).map_err(failure)?;
            self.exchange.fields.set_ticket(0);
            self.exchange.fields.show_decision(&decision);
            return Ok(());
        }
        let call = match operation {
            CHECK => Call::Check(request),
            CHECK_SYNC => return Err(no_sync()),
            PEEK => Call::Peek(request),
            TAKE => Call::Take(request),
            CHARGE => Call::Charge(request),
            REFUND => Call::Refund(request),
            RESET => Call::Reset(request),
            ACQUIRE => Call::Acquire(
                request,
                Duration::from_micros(microseconds(
                    "timeoutMs",
                    self.exchange.fields.get(Field::TimeoutMs as usize),
                )?),
            ),
            _ => return Err(internal("an operation has no such number")),
        };
        self.submit_to(limiter, &call)
    }

    /// Shows the answer, or the ticket under which it will come.
    pub(crate) fn submit(&self, call: &Call<'_>) -> Result<()> {
        self.submit_to(&*self.limiter()?, call)
    }

    #[inline]
    fn submit_to(&self, limiter: &Limiter, call: &Call<'_>) -> Result<()> {
        let ticket = self.exchange.next_ticket();
        let completions = &self.exchange.completions;
        let known = match call {
            // Mostly it need not wait, which is seen only when it is started.
            Call::Acquire(..) => completions.submit(limiter, call, ticket),
            // It is started along with what is asked next.
            _ => completions.hold(limiter, call, ticket),
        };
        if let Some(answered) = known {
            return self.show(answered);
        }
        self.exchange.fields.set_ticket(ticket);
        Ok(())
    }

    #[inline]
    pub(crate) fn show(&self, answered: std::result::Result<Answer, polylimit::Error>) -> Result<()> {
        let answer = answered.map_err(failure)?;
        self.exchange.fields.set_ticket(0);
        self.exchange.show(Ok(answer));
        Ok(())
    }
}

const CHECK: i32 = Operation::Check as i32;
const PEEK: i32 = Operation::Peek as i32;
const TAKE: i32 = Operation::Take as i32;
const CHARGE: i32 = Operation::Charge as i32;
const REFUND: i32 = Operation::Refund as i32;
const RESET: i32 = Operation::Reset as i32;
const ACQUIRE: i32 = Operation::Acquire as i32;
const CHECK_SYNC: i32 = Operation::CheckSync as i32;

fn no_sync() -> napi::Error<Code> {
    invalid_argument(
        "checkSync needs a store that answers at once, memory: or local:, and this one is asked over the network: use check",
    )
}
