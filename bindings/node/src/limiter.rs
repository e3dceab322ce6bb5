//! A limiter as JavaScript holds it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use napi::bindgen_prelude::Unknown;
use napi::{Env, JsValue};
use napi_derive::napi;
use polylimit::{Call, Limiter, LimiterBuilder, OptionKind, Policy, Request, Suggestion};

use crate::callback;
use crate::clock::NativeClock;
use crate::exchange::NativeExchange;
use crate::failure::{Result, failure, guarded};
use crate::number::{cost, microseconds, number};
use crate::operation::{Bound, Operate};
use crate::text::Text;

/// A policy: its name, its quotas as text, what it answers while its store cannot be asked, and how it is leased.
#[napi(object, object_to_js = false)]
pub struct PolicyRow {
    pub name: String,
    pub quotas: String,
    pub outage: Option<String>,
    pub lease: Option<String>,
}

/// An option by its name in the core, as text.
#[napi(object, object_to_js = false)]
pub struct OptionText {
    pub name: String,
    pub text: String,
}

/// An option that there is.
#[napi(object, object_from_js = false)]
pub struct OptionRow {
    pub name: &'static str,
    pub about: &'static str,
    pub allowed: &'static str,
    pub default: Option<&'static str>,
    pub kind: &'static str,
}

/// One count.
#[napi(object, object_from_js = false)]
#[derive(Clone)]
pub struct Count {
    pub name: &'static str,
    pub count: f64,
}

/// What one of several checks asks.
#[napi(object, object_to_js = false)]
pub struct CheckRow<'env> {
    pub key: Unknown<'env>,
    pub policy: Option<String>,
    pub cost: Option<f64>,
}

impl CheckRow<'_> {
    /// The key, and the cost if there is one.
    fn key_and_cost(&self, env: Env) -> Result<(Vec<u8>, Option<u64>)> {
        let mut text = Text::new();
        // SAFETY: the value is one of this call.
        let key = unsafe { text.key(env.raw(), self.key.raw())? }.to_vec();
        Ok((key, self.cost.map(cost).transpose()?))
    }
}

/// One of several checks whose key or cost is none.
#[napi(object, object_from_js = false)]
pub struct RefusedCheck {
    pub at: u32,
    pub message: String,
}

/// A limiter of the core, bound to the exchange of its environment.
#[napi]
pub struct NativeLimiter {
    pub(crate) bound: Rc<Bound>,
    last: RefCell<Last>,
}

/// What a limiter that was closed still tells.
#[derive(Default)]
struct Last {
    policies: Vec<Vec<String>>,
    counts: Vec<Count>,
}

#[napi]
impl NativeLimiter {
    #[napi(constructor)]
    pub fn new(
        exchange: &NativeExchange,
        number: u32,
        url: String,
        policies: Vec<PolicyRow>,
        options: Vec<OptionText>,
        clock: Option<&NativeClock>,
    ) -> Result<Self> {
        guarded(|| {
            let told = exchange.exchange.teller(number);
            let mut builder = Limiter::builder().store(&url).on_degraded(told);
            for PolicyRow { name, quotas, outage, lease } in policies {
                for (option, text) in [("outage", outage), ("lease", lease)] {
                    if let Some(text) = text {
                        builder = builder.option(&format!("{option}.{name}"), &text);
                    }
                }
                builder = builder.policy(Policy::parse(&name, &quotas).map_err(failure)?);
            }
            for OptionText { name, text } in options {
                builder = builder.option(&name, &text);
            }
            if let Some(clock) = clock {
                builder = builder.clock(clock.clock.clone());
            }
            let limiter = builder.build().map_err(failure)?;
            let bound = Rc::new(Bound::new(limiter, Rc::clone(&exchange.exchange)));
            Ok(Self { bound, last: RefCell::default() })
        })
    }

    /// The function that does the operations on one key.
    #[napi(ts_return_type = "(key?: string | Uint8Array, policy?: string) => void")]
    pub fn operate(&self, env: Env) -> Result<Unknown<'_>> {
        guarded(|| callback::unknown(env, Operate(Rc::clone(&self.bound))))
    }

    /// Checks several, each on its own or all together; leaves the decisions, or their ticket. Of those on their own, what
    /// cannot be asked is told by its place, and the others are decided.
    #[napi]
    pub fn check_many(
        &self,
        env: Env,
        checks: Vec<CheckRow<'_>>,
        together: bool,
    ) -> Result<Vec<RefusedCheck>> {
        guarded(|| {
            let mut asked = Vec::with_capacity(checks.len());
            let mut refused = Vec::new();
            for (at, check) in (0..).zip(&checks) {
                match check.key_and_cost(env) {
                    Ok((key, cost)) => asked.push((key, cost, check.policy.as_deref())),
                    Err(error) if together => return Err(error),
                    Err(error) => refused.push(RefusedCheck { at, message: error.reason.clone() }),
                }
            }
            let requests = asked.iter().map(|(key, cost, policy)| {
                let request = cost.iter().fold(Request::new(key), |request, units| request.cost(*units));
                policy.map_or(request, |policy| request.policy(policy))
            });
            let requests: Vec<_> = requests.collect();
            let call = if together { Call::CheckTogether(&requests) } else { Call::CheckMany(&requests) };
            self.bound.submit(&call)?;
            Ok(refused)
        })
    }

    /// Waits for the store.
    #[napi]
    pub fn ready(&self, timeout_ms: f64) -> Result<()> {
        guarded(|| {
            let timeout = Duration::from_micros(microseconds("timeoutMs", timeout_ms)?);
            self.bound.submit(&Call::Ready(timeout))
        })
    }

    /// Looks at the store.
    #[napi]
    pub fn doctor(&self) -> Result<()> {
        guarded(|| self.bound.submit(&Call::Doctor))
    }

    /// Adds a policy or changes its numbers.
    #[napi]
    pub fn set_policy(&self, name: String, quotas: String) -> Result<()> {
        guarded(|| {
            let policy = Policy::parse(&name, &quotas).map_err(failure)?;
            self.bound.limiter()?.set_policy(policy).map_err(failure)
        })
    }

    /// The name of the policy by which requests that name this one, these quotas or none are decided, and its quotas as text.
    #[napi]
    pub fn policy_for(&self, policy: Option<String>, scope: Option<String>) -> Result<Vec<String>> {
        guarded(|| {
            let found = self.bound.limiter()?.policy_for(policy.as_deref(), scope.as_deref());
            found.as_ref().map(policy_row).map_err(|error| failure(error.clone()))
        })
    }

    /// Each policy's name, and its quotas as text.
    #[napi]
    pub fn policies(&self) -> Vec<Vec<String>> {
        match self.bound.limiter() {
            Ok(limiter) => policy_rows(&limiter),
            Err(_) => self.last.borrow().policies.clone(),
        }
    }

    #[napi]
    pub fn set_credentials(&self, username: Option<String>, password: String) -> Result<()> {
        guarded(|| self.bound.limiter()?.set_credentials(username.as_deref(), &password).map_err(failure))
    }

    /// How many decisions came from where, and what they took.
    #[napi]
    pub fn stats(&self) -> Vec<Count> {
        match self.bound.limiter() {
            Ok(limiter) => counts(&limiter),
            Err(_) => self.last.borrow().counts.clone(),
        }
    }

    #[napi]
    pub fn keys(&self) -> Option<f64> {
        let limiter = self.bound.limiter().ok()?;
        limiter.keys().map(|keys| number(keys as u64))
    }

    #[napi]
    pub fn close(&self) -> Result<()> {
        guarded(|| {
            if let Some(limiter) = self.bound.close() {
                self.last.replace(Last { policies: policy_rows(&limiter), counts: counts(&limiter) });
            }
            Ok(())
        })
    }
}

fn policy_rows(limiter: &Limiter) -> Vec<Vec<String>> {
    limiter.policies().iter().map(policy_row).collect()
}

fn counts(limiter: &Limiter) -> Vec<Count> {
    limiter.stats().iter().map(|(name, count)| Count { name, count: number(count) }).collect()
}

fn policy_row(policy: &Policy) -> Vec<String> {
    let quotas = policy.quotas().iter().map(ToString::to_string);
    std::iter::once(policy.name().to_owned()).chain(quotas).collect()
}

/// What does here what an option of another rate limiter does.
#[napi(object, object_from_js = false)]
pub struct SuggestionRow {
    pub name: &'static str,
    pub hint: &'static str,
}

/// What to use in place of an option of another rate limiter.
#[napi]
pub fn suggestion(option: String) -> Option<SuggestionRow> {
    Suggestion::for_option(&option).map(|Suggestion { name, hint, .. }| SuggestionRow { name, hint })
}

/// Every option of a limiter.
#[napi]
pub fn limiter_options() -> Vec<OptionRow> {
    let row = |option: polylimit::StoreOption| OptionRow {
        name: option.name,
        about: option.about,
        allowed: option.allowed,
        default: option.default,
        kind: match option.kind {
            OptionKind::Duration => "duration",
            OptionKind::Number => "number",
            _ => "text",
        },
    };
    LimiterBuilder::options().into_iter().map(row).collect()
}
