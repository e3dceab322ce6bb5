//! A limiter as the addon holds it, and the function that runs its operations on single keys.

use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;

use napi::sys;
use polylimit::raw::{Answer, Call};
use polylimit::{Limiter, Request};

use crate::error::{Code, Result, internal, invalid_argument, to_js_error};
use crate::exchange::{Exchange, OperationResult};
use crate::function::{ARGUMENT_COUNT, NativeFunction};
use crate::number::{TIMEOUT, cost, duration, headroom};
use crate::policy_interner::PolicyInterner;
use crate::request_layout::{Field, Operation, PolicyRef, RequestHeader};
use crate::text::TextBuffer;

/// A limiter, and the exchange that takes its answers to JavaScript.
pub(crate) struct LimiterHandle {
    limiter: Limiter,
    /// The same limiter, if its store is in this process or on this host: for calls that may block the event loop.
    immediate: Option<polylimit::blocking::Limiter>,
    interner: RefCell<PolicyInterner>,
    /// What follows on `close`.
    on_close: RefCell<Vec<Box<dyn Fn()>>>,
    pub(crate) exchange: Rc<Exchange>,
}

impl LimiterHandle {
    pub(crate) fn new(limiter: Limiter, exchange: Rc<Exchange>) -> Self {
        let immediate = limiter.raw().answers_at_once().then(|| limiter.blocking());
        Self { limiter, immediate, interner: RefCell::default(), on_close: RefCell::default(), exchange }
    }

    /// The limiter, which says by itself what it still does after `close`.
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Has `then` run once the limiter is closed.
    pub(crate) fn on_close(&self, then: impl Fn() + 'static) {
        self.on_close.borrow_mut().push(Box::new(then));
    }

    /// Closes the limiter. A program may keep a reference to a closed one, which has no connections and no states any more.
    pub(crate) fn close(&self) {
        self.limiter.close();
        self.on_close.take().iter().for_each(|then| then());
    }
}

/// `(key, policy, plan) => void`: runs the request that stands in the shared arrays, and writes its answer there, or the ticket of
/// the answer that is still to come. The key is an argument only when it does not fit into the short key's buffer, and the
/// policy's name only when it is not interned. A plan always is.
pub(crate) struct OperateFunction(pub(crate) Rc<LimiterHandle>);

impl NativeFunction for OperateFunction {
    const NAME: &'static CStr = c"operate";

    #[inline]
    unsafe fn call(
        &self,
        env: sys::napi_env,
        arguments: [sys::napi_value; ARGUMENT_COUNT],
    ) -> Result<sys::napi_value> {
        // SAFETY: the caller guarantees it.
        unsafe { self.0.run(env, arguments)? };
        Ok(ptr::null_mut())
    }
}

impl LimiterHandle {
    /// # Safety
    /// The environment and the arguments must be valid.
    #[inline]
    unsafe fn run(&self, env: sys::napi_env, arguments: [sys::napi_value; ARGUMENT_COUNT]) -> Result<()> {
        let header = self.exchange.arrays.request_header();
        // Most calls have no arguments to read.
        let (Some(length), PolicyRef::None | PolicyRef::Interned(_), false) =
            (header.short_key, header.policy, header.has_plan)
        else {
            // SAFETY: the caller guarantees it.
            return unsafe { self.run_with_arguments(env, header, arguments) };
        };
        let request = Request::new(self.exchange.arrays.short_key(length));
        let PolicyRef::Interned(number) = header.policy else { return self.execute(header, request) };
        let interner = self.interner.borrow();
        self.execute(header, request.policy(interner.name(number)?))
    }

    /// Runs a request whose key, policy or plan is an argument.
    ///
    /// # Safety
    /// The environment and the arguments must be valid.
    #[inline(never)]
    unsafe fn run_with_arguments(
        &self,
        env: sys::napi_env,
        header: RequestHeader,
        [key, policy, plan]: [sys::napi_value; ARGUMENT_COUNT],
    ) -> Result<()> {
        let arrays = &self.exchange.arrays;
        let [mut key_text, mut policy_text, mut plan_text] = [(); 3].map(|()| TextBuffer::new());
        let key = match header.short_key {
            Some(length) => arrays.short_key(length),
            // SAFETY: the caller guarantees it.
            None => unsafe { key_text.key(env, key)? },
        };
        let mut request = Request::new(key);
        if header.has_plan {
            // SAFETY: the caller guarantees it.
            let name = unsafe { plan_text.text(env, plan) };
            request = request.plan(name.ok_or_else(|| {
                invalid_argument("plan is no text: allowed is a string without unpaired surrogates")
            })?);
        }
        match header.policy {
            PolicyRef::None => self.execute(header, request),
            PolicyRef::Interned(number) => {
                self.execute(header, request.policy(self.interner.borrow().name(number)?))
            }
            PolicyRef::Argument => {
                // SAFETY: the caller guarantees it.
                let name = unsafe { policy_text.text(env, policy) };
                let name = name.ok_or_else(|| internal("the policy argument is not a string"))?;
                arrays.set_interned_policy(self.interner.borrow_mut().intern(name, &self.limiter));
                self.execute(header, request.policy(name))
            }
        }
    }

    #[inline]
    fn execute(&self, header: RequestHeader, mut request: Request<'_>) -> Result<()> {
        if let Some(units) = header.cost {
            request = request.cost(cost(units)?);
        }
        if let Some(percent) = header.headroom {
            request = request.headroom(headroom(percent)?);
        }
        let operation = header.operation;
        let Self { limiter, immediate, .. } = self;
        let is_check = matches!(operation, CHECK | CHECK_SYNC);
        // The most frequent call: its decision is written from where it was made.
        if is_check && let Some(decision) = limiter.raw().try_check(request) {
            self.exchange.arrays.set_ticket(0);
            self.exchange.arrays.write_decision(&decision);
            return Ok(());
        }
        let call = match operation {
            CHECK => Call::Check(request),
            CHECK_SYNC => {
                let Some(limiter) = immediate else {
                    limiter.raw().check_open().map_err(to_js_error)?;
                    return Err(not_immediate());
                };
                let decision = limiter.check(request).map_err(to_js_error)?;
                return self.write_answer(Ok(Answer::Decision(decision)));
            }
            PEEK => Call::Peek(request),
            TAKE => Call::Take(request),
            CHARGE => Call::Charge(request),
            REFUND => Call::Refund(request),
            RESET => Call::Reset(request),
            ACQUIRE => {
                let timeout_ms = self.exchange.arrays.get(Field::TimeoutMs as usize);
                Call::Acquire(request, duration("timeoutMs", timeout_ms, &TIMEOUT)?)
            }
            _ => return Err(internal(format!("there is no operation {operation}"))),
        };
        self.submit(&call)
    }

    /// Submits a call, and writes its answer, or the ticket of the answer that is still to come.
    #[inline]
    pub(crate) fn submit(&self, call: &Call<'_>) -> Result<()> {
        let (ticket, immediate) = self.start(call, false);
        if let Some(result) = immediate {
            return self.write_answer(result);
        }
        self.exchange.arrays.set_ticket(ticket);
        Ok(())
    }

    /// Submits a call as [`submit`](Self::submit) does, and has `take` do something with its result before JavaScript reads it.
    pub(crate) fn submit_then(
        &self,
        call: &Call<'_>,
        is_cancellable: bool,
        take: impl FnOnce(OperationResult) -> OperationResult + 'static,
    ) -> Result<()> {
        let (ticket, immediate) = self.start(call, is_cancellable);
        if let Some(result) = immediate {
            return self.write_answer(take(result));
        }
        self.exchange.wait(ticket, |_, result| take(result));
        self.exchange.arrays.set_ticket(ticket);
        Ok(())
    }

    /// Starts a call; its ticket, and its result if it need not wait.
    #[inline]
    fn start(&self, call: &Call<'_>, is_cancellable: bool) -> (u32, Option<OperationResult>) {
        let Self { limiter, exchange, .. } = self;
        let ticket = exchange.next_ticket();
        let waits_in_line = match call {
            Call::Acquire(..) => true,
            Call::Reserve(_, terms) => !terms.timeout.is_zero(),
            _ => false,
        };
        // Most calls that may wait in line need not, which shows only once they have started. A deferred call cannot be cancelled.
        let immediate = if waits_in_line || is_cancellable {
            limiter.raw().try_call(call).or_else(|| exchange.completions.submit(limiter, call, ticket))
        } else {
            exchange.call(limiter, call, ticket)
        };
        (ticket, immediate)
    }

    #[inline]
    fn write_answer(&self, result: OperationResult) -> Result<()> {
        let answer = result.map_err(to_js_error)?;
        self.exchange.arrays.set_ticket(0);
        self.exchange.write_result(Ok(answer));
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

fn not_immediate() -> napi::Error<Code> {
    invalid_argument(
        "checkSync needs a store that answers at once, memory: or local:, and this one is behind a network: use check",
    )
}
