//! A decision as HTTP.

use napi_derive::napi;
use polylimit::headers::{HeaderSettings, HeaderStyle, Problem, ResetForm, fields, problem};
use polylimit::{Decision, Policy};

use crate::exchange::NativeExchange;
use crate::failure::{Result, failure, guarded, invalid_argument};
use crate::limiter::NativeLimiter;
use crate::number::{cost, microseconds};

/// Which fields a response gets.
#[napi]
pub struct NativeHeaderSettings {
    settings: HeaderSettings,
}

#[napi]
impl NativeHeaderSettings {
    #[napi(constructor)]
    pub fn new(style: Option<String>, reset_form: Option<String>) -> Result<Self> {
        guarded(|| {
            let mut settings = HeaderSettings::default();
            if let Some(style) = style {
                settings = settings.style(style.parse::<HeaderStyle>().map_err(failure)?);
            }
            if let Some(form) = reset_form {
                settings = settings.reset_form(form.parse::<ResetForm>().map_err(failure)?);
            }
            Ok(Self { settings })
        })
    }
}

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
    /// Adds the decision in the fields to those that the next response is about.
    #[napi]
    pub fn add_outcome(&self, limiter: &NativeLimiter, policy: String) -> Result<()> {
        guarded(|| {
            let found = limiter.bound.limiter.policy(&policy).ok_or_else(|| {
                invalid_argument(
                    "policy is not one of the limiter's: allowed is one that has made a decision",
                )
            })?;
            let decision = self.exchange.fields.decision()?;
            self.exchange.outcomes.borrow_mut().push((found, decision));
            Ok(())
        })
    }

    /// The names and values of the fields, one after the other.
    #[napi]
    pub fn header_fields(&self, settings: &NativeHeaderSettings, now_ms: f64) -> Result<Vec<String>> {
        guarded(|| {
            let now = microseconds("nowMs", now_ms)?;
            let outcomes = self.exchange.outcomes.borrow();
            let fields = fields(&outcomes_of(&outcomes), settings.settings, now);
            Ok(fields.into_iter().flat_map(|field| [field.name.to_owned(), field.value]).collect())
        })
    }

    /// What is wrong, if the request was denied.
    #[napi]
    pub fn problem(&self, units: f64) -> Result<Option<NativeProblem>> {
        guarded(|| {
            let outcomes = self.exchange.outcomes.borrow();
            Ok(problem(&outcomes_of(&outcomes), cost(units)?).map(|problem| NativeProblem {
                status: problem.status().into(),
                type_uri: problem.type_uri(),
                title: problem.title(),
                detail: problem.detail().to_owned(),
                violated: problem.violated().to_vec(),
                json: problem.json(),
                json_type: Problem::JSON_TYPE,
                text: problem.text(),
                text_type: Problem::TEXT_TYPE,
            }))
        })
    }

    /// Forgets what the response was about.
    #[napi]
    pub fn clear_outcomes(&self) {
        self.exchange.outcomes.borrow_mut().clear();
    }
}

fn outcomes_of(outcomes: &[(Policy, Decision)]) -> Vec<(&Policy, &Decision)> {
    outcomes.iter().map(|(policy, decision)| (policy, decision)).collect()
}
