//! Decisions that a program has made itself: the header fields of their response, and the response to a denied request.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use napi_derive::napi;
use polylimit::http::headers::{self, HeaderSettings};
use polylimit::{Decision, Policy};

use crate::error::{Result, catch_panic, to_js_error};
use crate::field_text;
use crate::limiter::NativeLimiter;
use crate::limiter_handle::LimiterHandle;
use crate::number;

/// The response to a denied request.
#[napi(object, object_from_js = false)]
pub struct NativeResponse {
    pub status: u32,
    /// Content type and `vary`.
    pub values: Vec<String>,
    pub body: String,
}

/// The policies that were applied to one request, each with its decision.
#[napi]
pub struct NativeOutcomes {
    limiter: Rc<LimiterHandle>,
    outcomes: RefCell<Vec<(Policy, Decision)>>,
}

#[napi]
impl NativeOutcomes {
    #[napi(constructor)]
    pub fn new(limiter: &NativeLimiter) -> Self {
        Self { limiter: Rc::clone(&limiter.handle), outcomes: RefCell::default() }
    }

    /// Adds the decision that stands in the arrays, and its policy: a name, quotas, or nothing for the limiter's only one.
    #[napi]
    pub fn add(&self, policy: Option<String>) -> Result<()> {
        catch_panic(|| {
            let policy =
                self.limiter.limiter().raw().policy_in_request(policy.as_deref()).map_err(to_js_error)?;
            let decision = self.limiter.exchange.arrays.decision()?;
            self.outcomes.borrow_mut().push((policy, decision));
            Ok(())
        })
    }

    /// The fields of the response that these settings select: names and values, each on a line.
    #[napi]
    pub fn fields(&self, settings: String) -> Result<String> {
        catch_panic(|| {
            let chosen: HeaderSettings = settings.parse().map_err(to_js_error)?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
            Ok(self.using(|outcomes| field_text::all(&headers::fields(outcomes, &chosen, now_us))))
        })
    }

    /// The response for a client with this `accept` field; `None` when no decision is a denial.
    #[napi]
    pub fn response(&self, cost: f64, accept: Option<String>) -> Result<Option<NativeResponse>> {
        catch_panic(|| {
            let cost = number::cost(cost)?;
            let problem = self.using(|outcomes| headers::problem(outcomes, cost));
            Ok(problem.map(|problem| {
                let response = problem.response(accept.as_deref());
                let values = response.fields.into_iter().map(|field| field.value).collect();
                NativeResponse { status: response.status.into(), values, body: response.body }
            }))
        })
    }

    fn using<T>(&self, use_them: impl FnOnce(&[headers::Outcome<'_>]) -> T) -> T {
        let outcomes = self.outcomes.borrow();
        let outcomes: Vec<_> = outcomes.iter().map(|(policy, decision)| (policy, decision)).collect();
        use_them(&outcomes)
    }
}
