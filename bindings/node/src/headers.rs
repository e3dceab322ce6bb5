//! The HTTP side of decisions: header fields of a response, and the response to a denied request.

use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;

use napi::bindgen_prelude::Unknown;
use napi::{Env, sys};
use napi_derive::napi;
use polylimit::headers::{HeaderField, HeaderSettings, HeaderStyle, Problem, ResetForm, fields, problem};

use crate::error::{Result, catch_panic, internal, to_js_error};
use crate::exchange::{Exchange, NativeExchange};
use crate::function::{self, ARGUMENT_COUNT, NativeFunction};
use crate::limiter::NativeLimiter;
use crate::limiter_handle::LimiterHandle;
use crate::number::{cost, microseconds};
use crate::request_layout::{Field, RequestField};
use crate::text;

/// The problem document of a denied request, and the same as text.
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
    /// Creates the function that writes the header fields of responses about one limiter and policy.
    ///
    /// # Errors
    /// When the style or the form is not known.
    #[napi(ts_return_type = "() => string | undefined")]
    pub fn header_function(
        &self,
        env: Env,
        limiter: &NativeLimiter,
        policy: String,
        style: Option<String>,
        reset_form: Option<String>,
    ) -> Result<Unknown<'_>> {
        catch_panic(|| {
            let mut settings = HeaderSettings::default();
            if let Some(style) = style {
                settings = settings.style(style.parse::<HeaderStyle>().map_err(to_js_error)?);
            }
            if let Some(form) = reset_form {
                settings = settings.reset_form(form.parse::<ResetForm>().map_err(to_js_error)?);
            }
            let function = HeaderFunction {
                exchange: Rc::clone(&self.exchange),
                handle: Rc::clone(&limiter.handle),
                policy: policy.into(),
                settings,
                previous: RefCell::default(),
            };
            function::create(env, function)
        })
    }

    /// Adds the decision in the arrays to those that the next response is about.
    #[napi]
    pub fn add_outcome(&self, limiter: &NativeLimiter, policy: String) -> Result<()> {
        catch_panic(|| {
            let policy = limiter.handle.limiter()?.policy_for(Some(&policy), None).map_err(to_js_error)?;
            let decision = self.exchange.arrays.decision()?;
            self.exchange.outcomes.borrow_mut().push((policy, decision));
            Ok(())
        })
    }

    /// Removes all added decisions.
    #[napi]
    pub fn clear_outcomes(&self) {
        self.exchange.outcomes.borrow_mut().clear();
    }

    /// The content type and the body of the response to the denied request, for a client with this `accept` field. The status
    /// is written into the arrays.
    #[napi]
    pub fn denial_response(&self, units: f64, accept: Option<String>) -> Result<Vec<String>> {
        catch_panic(|| {
            let problem = self.problem_of(units)?;
            self.exchange.arrays.set(Field::Status as usize, problem.status().into());
            let (content_type, body) = problem.body(accept.as_deref());
            Ok(vec![content_type.to_owned(), body])
        })
    }

    /// The parts of that response, for a handler that writes its own.
    #[napi]
    pub fn problem(&self, units: f64) -> Result<NativeProblem> {
        catch_panic(|| {
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
        problem(&outcomes, cost(units)?)
            .ok_or_else(|| internal("an admitted request has no problem document"))
    }
}

/// `() => string | undefined`: the difference to the previous response, because most values stay as they are.
///
/// When the names are the same, it returns the values that changed, each on a line, and sets a bit for each of them in
/// `Field::Changed`. Otherwise it returns all names and values, and `Field::Changed` is -1.
struct HeaderFunction {
    exchange: Rc<Exchange>,
    handle: Rc<LimiterHandle>,
    /// The policy of the decision in the arrays.
    policy: Box<str>,
    settings: HeaderSettings,
    /// The fields of the previous response.
    previous: RefCell<Vec<HeaderField>>,
}

/// The value of `Field::Changed` when all names and values are returned.
const ALL: f64 = -1.0;

impl NativeFunction for HeaderFunction {
    const NAME: &'static CStr = c"headers";

    unsafe fn call(
        &self,
        env: sys::napi_env,
        _: [sys::napi_value; ARGUMENT_COUNT],
    ) -> Result<sys::napi_value> {
        let arrays = &self.exchange.arrays;
        if arrays.request_field(RequestField::OutcomesAdded) == 0 {
            // The response is about the decision in the arrays alone.
            let policy = self.handle.limiter()?.policy_for(Some(&self.policy), None).map_err(to_js_error)?;
            let mut outcomes = self.exchange.outcomes.borrow_mut();
            outcomes.clear();
            outcomes.push((policy, arrays.decision()?));
        }
        let outcomes = self.exchange.outcomes.borrow();
        let outcomes: Vec<_> = outcomes.iter().map(|(policy, decision)| (policy, decision)).collect();
        let now = microseconds("nowMs", arrays.get(Field::NowMs as usize))?;
        let fields = fields(&outcomes, &self.settings, now);
        let (changed, lines) = changes(&self.previous.borrow(), &fields);
        self.previous.replace(fields);
        arrays.set(Field::Changed as usize, changed);
        if lines.is_empty() {
            return Ok(ptr::null_mut());
        }
        // SAFETY: the caller guarantees it for the environment; header fields are printable ASCII.
        unsafe { text::string(env, &lines) }
    }
}

/// The bits of the values that changed, and the lines to return.
fn changes(before: &[HeaderField], after: &[HeaderField]) -> (f64, String) {
    let mut text = String::new();
    let mut add = |line: &str| {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    };
    if !before.iter().map(|field| &field.name).eq(after.iter().map(|field| &field.name)) {
        for HeaderField { name, value } in after {
            add(name);
            add(value);
        }
        return (ALL, text);
    }
    let mut changed = 0_u32;
    for (at, (old, new)) in before.iter().zip(after).enumerate() {
        if old.value != new.value {
            changed |= 1 << at;
            add(&new.value);
        }
    }
    (changed.into(), text)
}
