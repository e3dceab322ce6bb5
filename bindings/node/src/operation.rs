//! The functions that decide, one set for each limiter.
//!
//! They are made by hand and not by napi's macros: converting what JavaScript passes takes longer than a decision does.

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use napi::{Env, JsError, sys};
use polylimit::{Answer, Call, Limiter, Request};

use crate::exchange::Exchange;
use crate::failure::{Code, Result, failure, guarded, internal, invalid_argument};
use crate::number::{cost, microseconds};
use crate::text::Text;

/// A limiter and where its answers go.
pub(crate) struct Bound {
    pub(crate) limiter: Limiter,
    /// The same limiter, if its store answers without waiting.
    at_once: Option<polylimit::blocking::Limiter>,
    pub(crate) exchange: Rc<Exchange>,
}

impl Bound {
    pub(crate) fn new(limiter: Limiter, exchange: Rc<Exchange>) -> Self {
        let at_once = limiter.answers_at_once().then(|| limiter.blocking());
        Self { limiter, at_once, exchange }
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

/// Makes the JavaScript function `(operation, key, policy, cost, timeoutMs) => void`. What is not given is as in the core. It leaves
/// the answer in the exchange's fields, or the ticket under which the answer will come.
pub(crate) fn function(env: Env, bound: Rc<Bound>) -> Result<sys::napi_value> {
    let data = Rc::into_raw(bound).cast_mut().cast::<c_void>();
    let mut function = ptr::null_mut();
    // SAFETY: `data` is an `Rc<Bound>`, which the finalizer of the function drops when nobody can call it any more.
    let status = unsafe {
        let name = c"operate";
        let made = sys::napi_create_function(
            env.raw(),
            name.as_ptr(),
            name.count_bytes().cast_signed(),
            Some(operate),
            data,
            &raw mut function,
        );
        match made {
            sys::Status::napi_ok => sys::napi_add_finalizer(
                env.raw(),
                function,
                data,
                Some(release),
                ptr::null_mut(),
                ptr::null_mut(),
            ),
            status => status,
        }
    };
    if status == sys::Status::napi_ok {
        return Ok(function);
    }
    // SAFETY: the finalizer was not added.
    drop(unsafe { Rc::from_raw(data.cast::<Bound>()) });
    Err(internal("Node-API refused to make a function"))
}

unsafe extern "C" fn release(_: sys::napi_env, data: *mut c_void, _: *mut c_void) {
    // SAFETY: made by `function`, and dropped only here.
    let bound = unsafe { Rc::from_raw(data.cast::<Bound>()) };
    // A panic must not leave this function; there is nobody to tell.
    _ = guarded(|| {
        drop(bound);
        Ok(())
    });
}

const ARGUMENTS: usize = 5;
/// So many are always there: the operation and the key.
const GIVEN: usize = 2;

unsafe extern "C" fn operate(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    let done = guarded(|| {
        let mut arguments = [ptr::null_mut(); ARGUMENTS];
        let (mut count, mut data) = (ARGUMENTS, ptr::null_mut());
        // SAFETY: there is room for so many arguments; those that were not given become undefined.
        let status = unsafe {
            sys::napi_get_cb_info(
                env,
                info,
                &raw mut count,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
                &raw mut data,
            )
        };
        if status != sys::Status::napi_ok {
            return Err(internal("Node-API refused to give the arguments"));
        }
        // SAFETY: the function is being called, so that its data is there.
        let bound = unsafe { &*data.cast::<Bound>() };
        // SAFETY: both are valid as long as this call lasts.
        unsafe { bound.operate(env, &arguments, count) }
    });
    if let Err(error) = done {
        // SAFETY: no exception is pending.
        unsafe { JsError::from(error).throw_into(env) };
    }
    ptr::null_mut()
}

impl Bound {
    /// # Safety
    /// The environment and the arguments have to be valid.
    #[inline]
    unsafe fn operate(
        &self,
        env: sys::napi_env,
        arguments: &[sys::napi_value; ARGUMENTS],
        count: usize,
    ) -> Result<()> {
        let [operation, key, policy, units, timeout_ms] = *arguments;
        let (mut key_text, mut policy_text) = (Text::new(), Text::new());
        // SAFETY: as the caller's.
        let Some(key) = (unsafe { key_text.bytes(env, key) }) else { return Err(no_key()) };
        // SAFETY: as the caller's.
        let operation = unsafe { small(env, operation)? };
        let mut request = Request::new(key);
        if count > GIVEN {
            // SAFETY: as the caller's.
            let (policy, units) = unsafe { (policy_text.text(env, policy), number(env, units)) };
            // What is not given is as the core has it.
            if let Some(policy) = policy {
                request = request.policy(policy);
            }
            if let Some(units) = units {
                request = request.cost(cost(units)?);
            }
        }
        if let (CHECK | CHECK_SYNC, Some(limiter)) = (operation, &self.at_once) {
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
            ACQUIRE => {
                // SAFETY: as the caller's.
                let timeout_ms = unsafe { number(env, timeout_ms) }.unwrap_or(f64::NAN);
                Call::Acquire(request, Duration::from_micros(microseconds("timeoutMs", timeout_ms)?))
            }
            _ => return Err(internal("an operation has no such number")),
        };
        self.submit(&call)
    }

    /// Shows the answer, or the ticket under which it will come.
    #[inline]
    pub(crate) fn submit(&self, call: &Call<'_>) -> Result<()> {
        let ticket = self.exchange.next_ticket();
        if let Some(answered) = self.exchange.completions.submit(&self.limiter, call, ticket) {
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

const CHECK: u32 = Operation::Check as u32;
const PEEK: u32 = Operation::Peek as u32;
const TAKE: u32 = Operation::Take as u32;
const CHARGE: u32 = Operation::Charge as u32;
const REFUND: u32 = Operation::Refund as u32;
const RESET: u32 = Operation::Reset as u32;
const ACQUIRE: u32 = Operation::Acquire as u32;
const CHECK_SYNC: u32 = Operation::CheckSync as u32;

/// # Safety
/// Both have to be valid.
#[inline]
unsafe fn small(env: sys::napi_env, value: sys::napi_value) -> Result<u32> {
    let mut number = 0;
    // SAFETY: as the caller's.
    match unsafe { sys::napi_get_value_uint32(env, value, &raw mut number) } {
        sys::Status::napi_ok => Ok(number),
        _ => Err(internal("an argument that has to be a number is none")),
    }
}

/// # Safety
/// Both have to be valid.
#[inline]
unsafe fn number(env: sys::napi_env, value: sys::napi_value) -> Option<f64> {
    let mut number = 0.0;
    // SAFETY: as the caller's.
    let status = unsafe { sys::napi_get_value_double(env, value, &raw mut number) };
    (status == sys::Status::napi_ok).then_some(number)
}

fn no_sync() -> napi::Error<Code> {
    invalid_argument(
        "checkSync needs a store that answers at once, memory: or local:, and this one is asked over the network: use check",
    )
}

pub(crate) fn no_key() -> napi::Error<Code> {
    invalid_argument(
        "key is neither text nor bytes: allowed are a string without half a surrogate pair, and a Uint8Array",
    )
}
