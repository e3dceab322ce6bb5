//! The array of numbers that both sides see, and the answers on their way through it.
//!
//! One for each environment, that is for the main thread and for each worker.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;

use napi::bindgen_prelude::{Float64Array, Function, Int32Array, Uint8Array, Unknown};
use napi::{Env, sys};
use napi_derive::napi;
use polylimit::{Answer, Completions, Decision, DegradedEvent, Error, Finding, Policy};

use crate::answer::{Fields, Kind};
use crate::callback::{self, ARGUMENTS, Callback};
use crate::event::{NativeEvent, Untold};
use crate::failure::{Result, failure, guarded, internal};
use crate::wake::Wake;

/// What an operation came to.
pub(crate) type Answered = std::result::Result<Answer, Error>;

/// The answers of one environment.
pub(crate) struct Exchange {
    pub(crate) fields: Fields,
    pub(crate) completions: Completions<u32>,
    finished: RefCell<VecDeque<(u32, Answered)>>,
    /// The newest answer, if there is more to it than fits into the fields.
    rest: RefCell<Option<Answered>>,
    /// The decisions that the next response is about.
    pub(crate) outcomes: RefCell<Vec<(Policy, Decision)>>,
    wake: Wake,
    /// Tells of events.
    untold: Untold,
    tell: Wake,
    ticket: Cell<u32>,
}

impl Exchange {
    /// A number for a pending operation, from 1 up.
    pub(crate) fn next_ticket(&self) -> u32 {
        let ticket = if self.ticket.get() == u32::MAX { 1 } else { self.ticket.get() + 1 };
        self.ticket.set(ticket);
        ticket
    }

    /// What a limiter of that number calls with its events, on any thread.
    pub(crate) fn teller(&self, limiter: u32) -> impl Fn(&DegradedEvent) + Send + Sync + use<> {
        let (untold, wake) = (self.untold.clone(), self.tell.caller());
        move |event| {
            untold.push(limiter, event.clone());
            wake();
        }
    }

    /// Shows an answer to JavaScript; an error is one only when somebody asks for it.
    pub(crate) fn show(&self, answered: Answered) {
        match &answered {
            Ok(Answer::Decision(decision)) => return self.fields.show_decision(decision),
            Ok(Answer::Usage(usage)) => return self.fields.show_usage(usage),
            Ok(Answer::Ready) => return self.fields.show(Kind::Ready, 0),
            Ok(Answer::Decisions(decisions)) => self.fields.show(Kind::Decisions, decisions.len()),
            Ok(Answer::Findings(findings)) => self.fields.show(Kind::Findings, findings.len()),
            Ok(_) | Err(_) => self.fields.show(Kind::Failure, 0),
        }
        *self.rest.borrow_mut() = Some(answered);
    }
}

/// What JavaScript holds of an [`Exchange`].
#[napi]
pub struct NativeExchange {
    pub(crate) exchange: Rc<Exchange>,
}

/// Something that was looked at by `doctor`.
#[napi(object, object_from_js = false)]
pub struct NativeFinding {
    pub severity: &'static str,
    pub subject: &'static str,
    pub message: String,
}

impl NativeFinding {
    pub(crate) fn of(finding: Finding) -> Self {
        Self { severity: finding.severity.name(), subject: finding.subject, message: finding.message }
    }
}

#[napi]
impl NativeExchange {
    /// `drain` is called on JavaScript's thread after operations have finished, once for many, and `tell` after a limiter has
    /// something to tell.
    #[napi(constructor)]
    pub fn new(
        env: Env,
        fields: Float64Array,
        question: Int32Array,
        short_key: Uint8Array,
        drain: Function<'_, (), ()>,
        tell: Function<'_, (), ()>,
    ) -> Result<Self> {
        guarded(|| {
            let (wake, tell) = (Wake::new(env, drain)?, Wake::new(env, tell)?);
            let exchange = Exchange {
                fields: Fields::new(fields, question, short_key)?,
                completions: Completions::new(wake.caller()),
                finished: RefCell::default(),
                rest: RefCell::default(),
                outcomes: RefCell::default(),
                wake,
                untold: Untold::default(),
                tell,
                ticket: Cell::new(0),
            };
            Ok(Self { exchange: Rc::new(exchange) })
        })
    }

    /// The function that starts the operations that are pending and were not started yet.
    #[napi(ts_return_type = "() => void")]
    pub fn starter(&self, env: Env) -> Result<Unknown<'_>> {
        guarded(|| callback::unknown(env, Start(Rc::clone(&self.exchange))))
    }

    /// The function that shows the next finished operation and its ticket, which is 0 when there is none.
    #[napi(ts_return_type = "() => void")]
    pub fn finished(&self, env: Env) -> Result<Unknown<'_>> {
        guarded(|| callback::unknown(env, Next(Rc::clone(&self.exchange))))
    }

    /// Whether the process stays for the sake of what is pending.
    #[napi]
    pub fn keep_alive(&self, stay: bool) -> Result<()> {
        guarded(|| self.exchange.wake.keep_alive(stay))
    }

    /// Shows one of several decisions.
    ///
    /// # Errors
    /// Its own, if it has one.
    #[napi]
    pub fn item(&self, at: u32) -> Result<()> {
        guarded(|| {
            let rest = self.exchange.rest.borrow();
            let Some(Ok(Answer::Decisions(decisions))) = &*rest else { return Err(lost()) };
            match decisions.get(at as usize) {
                Some(Ok(decision)) => {
                    self.exchange.fields.show_decision(decision);
                    Ok(())
                }
                Some(Err(error)) => Err(failure(error.clone())),
                None => Err(lost()),
            }
        })
    }

    /// What `doctor` has found.
    #[napi]
    pub fn findings(&self) -> Result<Vec<NativeFinding>> {
        guarded(|| {
            let Some(Ok(Answer::Findings(findings))) = self.exchange.rest.take() else { return Err(lost()) };
            Ok(findings.into_iter().map(NativeFinding::of).collect())
        })
    }

    /// What limiters have to tell, the oldest first.
    #[napi]
    pub fn events(&self) -> Vec<NativeEvent> {
        self.exchange.untold.take()
    }

    /// The failure that was shown.
    ///
    /// # Errors
    /// Always.
    #[napi]
    pub fn failure(&self) -> Result<()> {
        guarded(|| match self.exchange.rest.take() {
            Some(Err(error)) => Err(failure(error)),
            _ => Err(lost()),
        })
    }
}

struct Start(Rc<Exchange>);

impl Callback for Start {
    const NAME: &'static CStr = c"start";

    unsafe fn call(&self, _: sys::napi_env, _: [sys::napi_value; ARGUMENTS]) -> Result<sys::napi_value> {
        self.0.completions.start_held();
        Ok(ptr::null_mut())
    }
}

struct Next(Rc<Exchange>);

impl Callback for Next {
    const NAME: &'static CStr = c"next";

    unsafe fn call(&self, _: sys::napi_env, _: [sys::napi_value; ARGUMENTS]) -> Result<sys::napi_value> {
        let exchange = &*self.0;
        let mut finished = exchange.finished.borrow_mut();
        if finished.is_empty() {
            exchange.completions.drain(|ticket, answered| finished.push_back((ticket, answered)));
        }
        let next = finished.pop_front();
        exchange.fields.set_ticket(next.as_ref().map_or(0, |(ticket, _)| *ticket));
        if let Some((_, answered)) = next {
            exchange.show(answered);
        }
        Ok(ptr::null_mut())
    }
}

fn lost() -> napi::Error<crate::failure::Code> {
    internal("an answer was lost on its way to JavaScript: this is a defect in polylimit")
}
