//! The check of a guard on one request, as JavaScript goes on with it: what `onOutage` hears, what is given back or committed, and
//! the response to a request that does not proceed.

use std::rc::Rc;

use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use polylimit::http::headers::Problem;
use polylimit::raw::Answer;

use crate::active_check::SharedCheck;
use crate::error::{Result, catch_panic, internal, to_js_error};
use crate::exchange::{Exchange, NativeExchange};
use crate::field_text;
use crate::number::units;

/// A policy that could not be decided by the store, as passed to `onOutage`.
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

    /// Ends the check when there is a response. Returns whether `settle` has to give something back.
    #[napi]
    pub fn finish(&self, counts: bool) -> bool {
        let mut active = self.shared.borrow_mut();
        active.finish(counts);
        active.check.next_call(|_, _| ()).is_some()
    }

    /// Refunds, commits and cancels what the check has to. `Field::Ticket` is 0 unless one of these calls is still under way, after
    /// which this has to be called again.
    #[napi]
    pub fn settle(&self) -> Result<()> {
        catch_panic(|| {
            let take =
                |_: &Exchange, _, error: Option<polylimit::Error>| error.map_or(Ok(Answer::Ready), Err);
            self.exchange.call_next(&self.shared, take).map_or(Ok(()), |error| Err(to_js_error(error)))
        })
    }

    /// Whether `readHead` has to be called with the fields of the response, because it reports what was spent.
    #[napi]
    pub fn reads_response(&self) -> bool {
        self.shared.borrow().check.reads_response()
    }

    /// Reads the fields of the response: names and values in turn. Returns whether `readBody` has to be called with each part of the body.
    #[napi]
    pub fn read_head(&self, fields: Vec<String>) -> bool {
        let check = &mut self.shared.borrow_mut().check;
        let pairs = fields.chunks_exact(2);
        check.read_head(pairs.map(|pair| (&*pair[0], pair[1].as_bytes())));
        check.reads_body()
    }

    /// Reads the next part of the body, which is not kept.
    #[napi]
    pub fn read_body(&self, part: Uint8Array) {
        self.shared.borrow_mut().check.read_body(&part);
    }

    /// Ends what the check holds, when the response is done or its client has gone: commits what was `spent` under each policy, or
    /// under all of them, by default what was reserved. This needs no answer.
    #[napi]
    pub fn end(&self, spent: Vec<Option<f64>>, for_all: bool) -> Result<()> {
        catch_panic(|| {
            let read = |units_spent: Option<f64>| {
                units_spent.map(|spent| units("the result of spent", spent)).transpose()
            };
            let all: Vec<Result<Option<u64>>> = spent.into_iter().map(read).collect();
            let known: Vec<Option<u64>> =
                all.iter().map(|one| one.as_ref().map_or(None, |one| *one)).collect();
            let ended = if for_all {
                self.shared.borrow_mut().end(known.first().copied().flatten())
            } else {
                self.shared.borrow_mut().end(known.as_slice())
            };
            all.into_iter().collect::<Result<Vec<_>>>()?;
            ended.map_err(to_js_error)
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
