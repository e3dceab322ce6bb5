//! A decision as HTTP.

use std::cell::RefCell;
use std::rc::Rc;

use napi::Env;
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;
use polylimit::headers::{HeaderSettings, HeaderStyle, Problem, ResetForm, problem};

use crate::answer::Field;
use crate::callback;
use crate::exchange::NativeExchange;
use crate::failure::{Result, failure, guarded, internal};
use crate::limiter::NativeLimiter;
use crate::number::cost;
use crate::respond::Respond;

/// What to answer to a denied request.
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

#[napi]
impl NativeExchange {
    /// The function that writes the fields of responses about what a limiter decides by a policy. It tells which values are
    /// not as they were in the response before.
    ///
    /// # Errors
    /// When a style or a form is not known.
    #[napi(ts_return_type = "() => string | undefined")]
    pub fn responder(
        &self,
        env: Env,
        limiter: &NativeLimiter,
        policy: String,
        style: Option<String>,
        reset_form: Option<String>,
    ) -> Result<Unknown<'_>> {
        guarded(|| {
            let mut settings = HeaderSettings::default();
            if let Some(style) = style {
                settings = settings.style(style.parse::<HeaderStyle>().map_err(failure)?);
            }
            if let Some(form) = reset_form {
                settings = settings.reset_form(form.parse::<ResetForm>().map_err(failure)?);
            }
            let respond = Respond {
                exchange: Rc::clone(&self.exchange),
                bound: Rc::clone(&limiter.bound),
                policy: policy.into(),
                settings,
                before: RefCell::default(),
            };
            callback::unknown(env, respond)
        })
    }

    /// Adds the decision in the array to those that the next response is about.
    #[napi]
    pub fn add_outcome(&self, limiter: &NativeLimiter, policy: String) -> Result<()> {
        guarded(|| {
            let policy = limiter.bound.limiter()?.policy_for(Some(&policy), None).map_err(failure)?;
            let decision = self.exchange.fields.decision()?;
            self.exchange.outcomes.borrow_mut().push((policy, decision));
            Ok(())
        })
    }

    /// Forgets what the response was about.
    #[napi]
    pub fn clear_outcomes(&self) {
        self.exchange.outcomes.borrow_mut().clear();
    }

    /// The content type and the body that answer the denied request of the response, for a client with this `accept` field;
    /// the status stands in the array.
    #[napi]
    pub fn refusal(&self, units: f64, accept: Option<String>) -> Result<Vec<String>> {
        guarded(|| {
            let problem = self.problem_of(units)?;
            self.exchange.fields.put(Field::Status as usize, problem.status().into());
            let (content_type, body) = problem.body(accept.as_deref());
            Ok(vec![content_type.to_owned(), body])
        })
    }

    /// The same for whoever writes the answer by hand.
    #[napi]
    pub fn problem(&self, units: f64) -> Result<NativeProblem> {
        guarded(|| {
            let problem = self.problem_of(units)?;
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

impl NativeExchange {
    fn problem_of(&self, units: f64) -> Result<Problem> {
        let outcomes = self.exchange.outcomes.borrow();
        let outcomes: Vec<_> = outcomes.iter().map(|(policy, decision)| (policy, decision)).collect();
        problem(&outcomes, cost(units)?).ok_or_else(|| internal("a request that was admitted has no problem"))
    }
}
