//! The way of answers and events to JavaScript: the completions of pending operations, and the arrays that hold an answer.
//!
//! Each environment (the main thread, and each worker) has one exchange.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;

use napi::bindgen_prelude::{Float64Array, Function, Int32Array, Uint8Array, Unknown};
use napi::{Env, sys};
use napi_derive::napi;
use polylimit::metrics::DegradedEvent;
use polylimit::raw::{Answer, Call, Completions};
use polylimit::{Error, Limiter};

use crate::active_check::{PreparedFacts, SharedCheck};
use crate::error::{Code, Result, catch_panic, internal, to_js_error};
use crate::event::{NativeEvent, NativeFinding, PendingEvents};
use crate::function::{self, ARGUMENT_COUNT, NativeFunction, ThreadsafeCallback};
use crate::request_layout::{AnswerKind, Field};
use crate::shared_arrays::SharedArrays;

/// The answer of an operation, or its error.
pub(crate) type OperationResult = std::result::Result<Answer, Error>;

/// What is done with an answer. It returns what JavaScript gets.
type Continuation = Box<dyn FnOnce(&Exchange, OperationResult) -> OperationResult>;

/// The pending operations, answers and events of one environment.
pub(crate) struct Exchange {
    pub(crate) arrays: SharedArrays,
    pub(crate) completions: Completions<u32>,
    /// Finished operations that JavaScript has not read yet, with their tickets.
    finished: RefCell<VecDeque<(u32, OperationResult)>>,
    /// The newest answer, where it does not fit into the arrays: an error, findings, several decisions.
    unread: RefCell<Option<OperationResult>>,
    /// What guards do with the answers of their operations, by ticket, before JavaScript reads them.
    waiting: RefCell<HashMap<u32, Continuation>>,
    /// The newest check of a guard.
    current: RefCell<Option<SharedCheck>>,
    current_number: Cell<u32>,
    /// For the next decision of a guard.
    pub(crate) prepared: RefCell<PreparedFacts>,
    on_finished: ThreadsafeCallback,
    events: PendingEvents,
    on_event: ThreadsafeCallback,
    last_ticket: Cell<u32>,
}

impl Exchange {
    /// The number of the next pending operation, from 1 up; after the largest number it starts again at 1.
    pub(crate) fn next_ticket(&self) -> u32 {
        let last = self.last_ticket.get();
        let ticket = if last == u32::MAX { 1 } else { last + 1 };
        self.last_ticket.set(ticket);
        ticket
    }

    /// The function that a limiter calls with its events, on any thread.
    pub(crate) fn event_sink(&self, limiter: u32) -> impl Fn(&DegradedEvent) + Send + Sync + use<> {
        let (events, signal) = (self.events.clone(), self.on_event.caller());
        move |event| {
            events.push(limiter, event.clone());
            signal();
        }
    }

    /// Answers a call at once where that needs no waiting. Otherwise it starts together with the other calls of this turn of
    /// the event loop, in one batch.
    pub(crate) fn call(&self, limiter: &Limiter, call: &Call<'_>, ticket: u32) -> Option<OperationResult> {
        limiter.raw().try_call(call).or_else(|| self.completions.defer(limiter, call, ticket))
    }

    /// Has `take` do something with the answer of a pending operation.
    pub(crate) fn wait(
        &self,
        ticket: u32,
        take: impl FnOnce(&Exchange, OperationResult) -> OperationResult + 'static,
    ) {
        self.waiting.borrow_mut().insert(ticket, Box::new(take));
    }

    /// Makes the next calls of a check, until one of them has to wait. Then its ticket is written, and `take` gets the check and the
    /// error of that call after the answer. Without such a call the ticket is 0. Returns the error of a call that did not wait.
    pub(crate) fn call_next(
        &self,
        shared: &SharedCheck,
        take: impl FnOnce(&Exchange, SharedCheck, Option<Error>) -> OperationResult + 'static,
    ) -> Option<Error> {
        let mut failed = None;
        loop {
            let ticket = self.next_ticket();
            let answer = shared.borrow().check.next_call(|limiter, call| self.call(limiter, call, ticket));
            let Some(answer) = answer else {
                self.arrays.set_ticket(0);
                return failed;
            };
            let Some(answer) = answer else {
                let shared = Rc::clone(shared);
                self.wait(ticket, move |exchange, answer| {
                    let error = answer.as_ref().err().cloned();
                    shared.borrow_mut().check.answer_call(answer);
                    take(exchange, shared, error)
                });
                self.arrays.set_ticket(ticket);
                return failed;
            };
            failed = answer.as_ref().err().cloned().or(failed);
            shared.borrow_mut().check.answer_call(answer);
        }
    }

    /// Whether the newest operation is still under way.
    pub(crate) fn is_waiting(&self) -> bool {
        self.arrays.get(Field::Ticket as usize) != 0.0
    }

    pub(crate) fn set_current(&self, check: SharedCheck) {
        *self.current.borrow_mut() = Some(check);
        let number = self.current_number.get().wrapping_add(1);
        self.current_number.set(number);
        self.arrays.set(Field::Check as usize, number.into());
    }

    /// The newest check of a guard.
    pub(crate) fn current(&self) -> Result<SharedCheck> {
        self.current.borrow().clone().ok_or_else(no_answer)
    }

    /// Takes the newest result that does not fit into the arrays.
    pub(crate) fn take_unread(&self) -> Option<OperationResult> {
        self.unread.take()
    }

    /// Has `read` look at that result.
    pub(crate) fn with_unread<T>(&self, read: impl FnOnce(Option<&OperationResult>) -> T) -> T {
        read(self.unread.borrow().as_ref())
    }

    /// Writes a result for JavaScript. What does not fit into the arrays is kept until JavaScript reads it with a method of
    /// [`NativeExchange`]; an error is thrown by `throw_error`.
    pub(crate) fn write_result(&self, result: OperationResult) {
        match &result {
            Ok(Answer::Decision(decision)) => return self.arrays.write_decision(decision),
            Ok(Answer::Usage(usage)) => return self.arrays.write_usage(usage),
            Ok(Answer::Ready) => return self.arrays.write_kind(AnswerKind::Ready, 0),
            Ok(Answer::Decisions(decisions)) => {
                self.arrays.write_kind(AnswerKind::Decisions, decisions.len());
            }
            Ok(Answer::Findings(findings)) => self.arrays.write_kind(AnswerKind::Findings, findings.len()),
            Ok(Answer::Request(made)) => self.arrays.write_kind(AnswerKind::Request, made.decisions.len()),
            Ok(Answer::Configuration(_)) => self.arrays.write_kind(AnswerKind::Configuration, 0),
            Ok(
                Answer::Keys(_)
                | Answer::KeysReset(_)
                | Answer::Explanation(_)
                | Answer::RequestExplanation(_),
            ) => self.arrays.write_kind(AnswerKind::Report, 0),
            Ok(_) | Err(_) => self.arrays.write_kind(AnswerKind::Failure, 0),
        }
        *self.unread.borrow_mut() = Some(result);
    }
}

/// An [`Exchange`] as JavaScript holds it.
#[napi]
pub struct NativeExchange {
    pub(crate) exchange: Rc<Exchange>,
}

#[napi]
impl NativeExchange {
    /// `on_finished` is called on JavaScript's thread after operations have finished, once for many of them, and `on_event`
    /// after limiters have raised events.
    #[napi(constructor)]
    pub fn new(
        env: Env,
        fields: Float64Array,
        request: Int32Array,
        short_key: Uint8Array,
        on_finished: Function<'_, (), ()>,
        on_event: Function<'_, (), ()>,
    ) -> Result<Self> {
        catch_panic(|| {
            let on_finished = ThreadsafeCallback::new(env, &on_finished)?;
            let exchange = Exchange {
                arrays: SharedArrays::new(fields, request, short_key)?,
                completions: Completions::new(on_finished.caller()),
                finished: RefCell::default(),
                unread: RefCell::default(),
                waiting: RefCell::default(),
                current: RefCell::default(),
                current_number: Cell::new(0),
                prepared: RefCell::default(),
                on_finished,
                events: PendingEvents::default(),
                on_event: ThreadsafeCallback::new(env, &on_event)?,
                last_ticket: Cell::new(0),
            };
            Ok(Self { exchange: Rc::new(exchange) })
        })
    }

    /// Lets other threads report events and finished operations, which the first limiter needs.
    #[napi]
    pub fn open(&self, env: Env) -> Result<()> {
        catch_panic(|| {
            self.exchange.on_finished.open(env)?;
            self.exchange.on_event.open(env)
        })
    }

    /// Creates the function that starts the deferred operations.
    #[napi(ts_return_type = "() => void")]
    pub fn start_function(&self, env: Env) -> Result<Unknown<'_>> {
        catch_panic(|| function::create(env, StartFunction(Rc::clone(&self.exchange))))
    }

    /// Creates the function that writes the result of the next finished operation, and its ticket, which is 0 when there is
    /// none.
    #[napi(ts_return_type = "() => void")]
    pub fn next_function(&self, env: Env) -> Result<Unknown<'_>> {
        catch_panic(|| function::create(env, NextFunction(Rc::clone(&self.exchange))))
    }

    /// Cancels the pending acquire or reserve with this ticket, whose answer never comes then: it leaves the line, and what it has
    /// got is given back. False when its answer has been taken from the core.
    #[napi]
    pub fn cancel(&self, ticket: u32) -> Result<bool> {
        catch_panic(|| {
            let is_cancelled = self.exchange.completions.cancel(&ticket);
            if is_cancelled {
                self.exchange.waiting.borrow_mut().remove(&ticket);
            }
            Ok(is_cancelled)
        })
    }

    /// Whether pending operations keep the process alive.
    #[napi]
    pub fn keep_alive(&self, is_kept: bool) -> Result<()> {
        catch_panic(|| self.exchange.on_finished.keep_alive(is_kept))
    }

    /// Writes one of several decisions into the arrays.
    ///
    /// # Errors
    /// The error of that request, if it has one.
    #[napi]
    pub fn load_decision(&self, at: u32) -> Result<()> {
        catch_panic(|| {
            let unread = self.exchange.unread.borrow();
            let found = match &*unread {
                Some(Ok(Answer::Decisions(decisions))) => {
                    decisions.get(at as usize).map(|made| made.as_ref())
                }
                Some(Ok(Answer::Request(made))) => {
                    made.decisions.get(at as usize).map(|made| Ok(&made.decision))
                }
                _ => None,
            };
            let decision = found.ok_or_else(no_answer)?.map_err(|error| to_js_error(error.clone()))?;
            self.exchange.arrays.write_decision(decision);
            Ok(())
        })
    }

    /// The findings of the newest `doctor`.
    #[napi]
    pub fn findings(&self) -> Result<Vec<NativeFinding>> {
        catch_panic(|| {
            let Some(Ok(Answer::Findings(findings))) = self.exchange.unread.take() else {
                return Err(no_answer());
            };
            Ok(findings.into_iter().map(NativeFinding::of).collect())
        })
    }

    /// The events that have not been read yet, the oldest first.
    #[napi]
    pub fn events(&self) -> Vec<NativeEvent> {
        self.exchange.events.take()
    }

    /// Throws the error of the newest result.
    ///
    /// # Errors
    /// Always.
    #[napi]
    pub fn throw_error(&self) -> Result<()> {
        catch_panic(|| match self.exchange.unread.take() {
            Some(Err(error)) => Err(to_js_error(error)),
            _ => Err(no_answer()),
        })
    }
}

/// `() => void`.
struct StartFunction(Rc<Exchange>);

impl NativeFunction for StartFunction {
    const NAME: &'static CStr = c"start";

    unsafe fn call(&self, _: sys::napi_env, _: [sys::napi_value; ARGUMENT_COUNT]) -> Result<sys::napi_value> {
        self.0.completions.flush();
        Ok(ptr::null_mut())
    }
}

/// `() => void`.
struct NextFunction(Rc<Exchange>);

impl NativeFunction for NextFunction {
    const NAME: &'static CStr = c"next";

    unsafe fn call(&self, _: sys::napi_env, _: [sys::napi_value; ARGUMENT_COUNT]) -> Result<sys::napi_value> {
        let exchange = &*self.0;
        let mut finished = exchange.finished.borrow_mut();
        if finished.is_empty() {
            exchange.completions.drain(|ticket, result| finished.push_back((ticket, result)));
        }
        let next = finished.pop_front();
        exchange.arrays.set_ticket(next.as_ref().map_or(0, |(ticket, _)| *ticket));
        drop(finished);
        if let Some((ticket, result)) = next {
            let take = exchange.waiting.borrow_mut().remove(&ticket);
            exchange.write_result(match take {
                Some(take) => take(exchange, result),
                None => result,
            });
        }
        Ok(ptr::null_mut())
    }
}

pub(crate) fn no_answer() -> napi::Error<Code> {
    internal("the exchange has no such answer: this is a defect in polylimit")
}
