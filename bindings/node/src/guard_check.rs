//! The check of a guard on one request, as JavaScript goes on with it: what `onOutage` hears, refunds, and the response to a
//! request that does not proceed.

use std::rc::Rc;

use napi_derive::napi;
use polylimit::headers::Problem;
use polylimit::{Answer, Call};

use crate::active_check::SharedCheck;
use crate::error::{Result, catch_panic, internal, to_js_error};
use crate::exchange::{Exchange, NativeExchange, OperationResult};
use crate::field_text;

/// A policy that could not be decided by the store, as `onOutage` hears of it.
#[napi(object, object_from_js = false)]
pub struct NativeOutage {
    pub code: Option<&'static str>,
    pub message: Option<String>,
    /// The number of policies that an outage policy has decided; `loadOutcome` reads them.
    pub outcomes: u32,
}

/// The problem document of a request that does not proceed, and the same as text.
#[napi(object, object_from_js = false)]
pub struct NativeProblem {
    pub status: u32,
    #[napi(js_name = "type")]
    pub type_uri: &'static str,
    pub title: &'static str,
    pub detail: String,
    pub violated: Vec<String>,
    pub json: String,
    pub json_type: &'static str,
    pub text: String,
    pub text_type: &'static str,
}

/// A check that JavaScript keeps, because another guard meets the same request, or because its response may not count.
#[napi]
pub struct NativeCheck {
    exchange: Rc<Exchange>,
    pub(crate) shared: SharedCheck,
}

#[napi]
impl NativeCheck {
    pub(crate) fn new(exchange: &Rc<Exchange>, shared: SharedCheck) -> Self {
        Self { exchange: Rc::clone(exchange), shared }
    }

    /// What `onOutage` hears.
    #[napi]
    pub fn outage(&self) -> NativeOutage {
        let active = self.shared.borrow();
        let report = active.check.outage();
        let error = report.as_ref().and_then(|report| report.error);
        NativeOutage {
            code: error.map(|error| error.kind().code()),
            message: error.map(|error| error.message().to_owned()),
            outcomes: report
                .as_ref()
                .map_or(0, |report| u32::try_from(report.outcomes.len()).unwrap_or(u32::MAX)),
        }
    }

    /// Writes one of the decisions into the arrays, and returns the name of its policy.
    #[napi]
    pub fn load_outcome(&self, at: u32) -> Result<String> {
        catch_panic(|| {
            let outcomes = self.shared.borrow().check.outcomes();
            let (policy, decision) =
                outcomes.get(at as usize).ok_or_else(|| internal("the check has no such outcome"))?;
            self.exchange.arrays.write_decision(decision);
            Ok(policy.name().to_owned())
        })
    }

    /// Ends the check when there is a response. Returns the number of refunds.
    #[napi]
    pub fn finish(&self, counts: bool) -> u32 {
        let check = &mut self.shared.borrow_mut().check;
        check.finish(counts);
        u32::try_from(check.refunds().count()).unwrap_or(u32::MAX)
    }

    /// Makes one of the refunds. `Field::Ticket` is 0 unless it is still under way.
    #[napi]
    pub fn refund(&self, at: u32) -> Result<()> {
        catch_panic(|| {
            let (at, ticket) = (at as usize, self.exchange.next_ticket());
            let answer = {
                let active = self.shared.borrow();
                let Some((limiter, request)) = active.check.refunds().nth(at) else {
                    return Err(internal("the check has no such refund"));
                };
                self.exchange.call(limiter, &Call::Refund(request), ticket)
            };
            let shared = Rc::clone(&self.shared);
            let take = move |answer: OperationResult| {
                if let Answer::Usage(left) = answer? {
                    shared.borrow_mut().check.refunded(at, left);
                }
                Ok(Answer::Ready)
            };
            if let Some(answer) = answer {
                self.exchange.arrays.set_ticket(0);
                return take(answer).map(|_| ()).map_err(to_js_error);
            }
            self.exchange.arrays.set_ticket(ticket);
            self.exchange.wait(ticket, move |_, answer| take(answer));
            Ok(())
        })
    }

    /// The fields of the response as they are now: names and values, each on a line.
    #[napi]
    pub fn fields(&self) -> String {
        field_text::all(&self.shared.borrow().check.fields())
    }
}

#[napi]
impl NativeExchange {
    /// The newest check.
    #[napi]
    pub fn check(&self) -> Result<NativeCheck> {
        catch_panic(|| Ok(NativeCheck::new(&self.exchange, self.exchange.current()?)))
    }

    /// The response to the request that the newest check denied, for a client with this `accept` field: content type, `vary`
    /// and body. Its status stands in the arrays.
    #[napi]
    pub fn denial_response(&self, accept: Option<String>) -> Result<Vec<String>> {
        catch_panic(|| {
            let current = self.exchange.current()?;
            let active = current.borrow();
            let response = active.problem.as_ref().ok_or_else(no_problem)?.response(accept.as_deref());
            let values = response.fields.into_iter().map(|field| field.value);
            Ok(values.chain([response.body]).collect())
        })
    }

    /// The parts of that response, for a handler that writes its own.
    #[napi]
    pub fn problem(&self) -> Result<NativeProblem> {
        catch_panic(|| {
            let current = self.exchange.current()?;
            let active = current.borrow();
            let problem = active.problem.as_ref().ok_or_else(no_problem)?;
            Ok(NativeProblem {
                status: problem.status().into(),
                type_uri: problem.type_uri(),
                title: problem.title(),
                detail: problem.detail().to_owned(),
                violated: problem.violated().to_vec(),
                json: problem.json(),
                json_type: Problem::JSON_TYPE,
                text: problem.text(),
                text_type: Problem::TEXT_TYPE,
            })
        })
    }
}

fn no_problem() -> napi::Error<crate::error::Code> {
    internal("an admitted request has no problem document")
}
