//! A limiter as JavaScript holds it: its construction, and every operation that is not on a single key.

use std::rc::Rc;

use napi::Env;
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;
use polylimit::metrics::TextFormat;
use polylimit::raw::Call;
use polylimit::{Limiter, Policy, Request};

use crate::credentials::NativeCredentials;
use crate::error::{Result, catch_panic, internal, invalid_argument, to_js_error};
use crate::exchange::NativeExchange;
use crate::function;
use crate::limiter_handle::{LimiterHandle, OperateFunction};
use crate::number::{BLOCK, TIMEOUT, duration, number};
use crate::owned_request::{KeyChoice, OwnedRequest, RequestOptions};
use crate::values::NativeClock;

/// A policy: its name, its quotas as text, its outage policy and its lease.
#[napi(object, object_to_js = false)]
pub struct PolicyRow {
    pub name: String,
    pub quotas: String,
    pub outage: Option<String>,
    pub lease: Option<String>,
}

/// The value of an option, as text, under its name in the core.
#[napi(object, object_to_js = false)]
pub struct OptionText {
    pub name: String,
    pub text: String,
}

/// A counter of `stats`.
#[napi(object, object_from_js = false)]
pub struct Counter {
    pub name: &'static str,
    pub count: f64,
}

/// A check as a value.
#[napi(object, object_to_js = false)]
pub struct CheckRow<'env> {
    pub key: Unknown<'env>,
    pub policy: Option<String>,
    pub cost: Option<f64>,
    pub headroom: Option<f64>,
    pub plan: Option<String>,
}

impl CheckRow<'_> {
    pub(crate) fn read(self, env: Env) -> Result<OwnedRequest> {
        let Self { key, policy, cost, headroom, plan } = self;
        OwnedRequest::read(env, key, RequestOptions { policy, cost, headroom, plan })
    }
}

/// One of several checks whose key, cost or headroom is not allowed, by its index.
#[napi(object, object_from_js = false)]
pub struct InvalidCheck {
    pub at: u32,
    pub message: String,
}

/// A limiter of the core, with the exchange of its environment.
#[napi]
pub struct NativeLimiter {
    pub(crate) handle: Rc<LimiterHandle>,
}

#[napi]
impl NativeLimiter {
    #[napi(constructor)]
    #[allow(
        clippy::too_many_arguments,
        reason = "they are the options of JavaScript; napi copies the attribute"
    )]
    pub fn new(
        exchange: &NativeExchange,
        number: u32,
        url: String,
        policies: Vec<PolicyRow>,
        options: Vec<OptionText>,
        document: Option<String>,
        clock: Option<&NativeClock>,
        credentials: Option<&NativeCredentials>,
    ) -> Result<Self> {
        catch_panic(|| {
            let sink = exchange.exchange.event_sink(number);
            let mut builder = Limiter::builder().store(&url).on_degraded(sink);
            for PolicyRow { name, quotas, outage, lease } in policies {
                for (option, text) in [("outage", outage), ("lease", lease)] {
                    if let Some(text) = text {
                        builder = builder.option(&format!("{option}.{name}"), &text);
                    }
                }
                builder = builder.policy(parse_policy(&name, &quotas)?);
            }
            for OptionText { name, text } in options {
                builder = builder.option(&name, &text);
            }
            if let Some(document) = document {
                builder = builder.document(&document);
            }
            if let Some(clock) = clock {
                builder = builder.clock(clock.clock.clone());
            }
            if let Some(credentials) = credentials {
                builder = credentials.give_to(builder);
            }
            let limiter = builder.build().map_err(to_js_error)?;
            let handle = Rc::new(LimiterHandle::new(limiter, Rc::clone(&exchange.exchange)));
            Ok(Self { handle })
        })
    }

    /// Creates the function that runs operations on single keys.
    #[napi(ts_return_type = "(key?: string | Uint8Array, policy?: string) => void")]
    pub fn operate_function(&self, env: Env) -> Result<Unknown<'_>> {
        catch_panic(|| function::create(env, OperateFunction(Rc::clone(&self.handle))))
    }

    /// Decides several checks, each on its own, and leaves the decisions, or their ticket. One whose key, cost or headroom is not allowed
    /// is returned, and the others are decided.
    #[napi]
    pub fn check_many(&self, env: Env, checks: Vec<CheckRow<'_>>) -> Result<Vec<InvalidCheck>> {
        catch_panic(|| {
            let mut valid = Vec::with_capacity(checks.len());
            let mut invalid = Vec::new();
            for (at, check) in (0..).zip(checks) {
                match check.read(env) {
                    Ok(request) => valid.push(request),
                    Err(error) => invalid.push(InvalidCheck { at, message: error.reason.clone() }),
                }
            }
            self.handle.submit(&Call::CheckMany(&requests(&valid)))?;
            Ok(invalid)
        })
    }

    /// Decides several checks together, and leaves the decisions, or their ticket.
    #[napi]
    pub fn check_together(&self, env: Env, checks: Vec<CheckRow<'_>>) -> Result<()> {
        catch_panic(|| self.handle.submit(&Call::CheckTogether(&requests(&read_each(env, checks)?))))
    }

    /// Leaves the decisions that these checks would get together, or their ticket.
    #[napi]
    pub fn peek_together(&self, env: Env, checks: Vec<CheckRow<'_>>) -> Result<()> {
        catch_panic(|| self.handle.submit(&Call::PeekTogether(&requests(&read_each(env, checks)?))))
    }

    /// Blocks the key for that many milliseconds; 0 forgets the block.
    #[napi]
    pub fn block(&self, env: Env, key: Unknown<'_>, for_ms: f64, choice: KeyChoice) -> Result<()> {
        catch_panic(|| {
            let time = duration("forMs", for_ms, &BLOCK)?;
            self.handle.submit(&Call::Block(choice.of(env, key)?.request(), time))
        })
    }

    /// Waits until the store answers.
    #[napi]
    pub fn ready(&self, timeout_ms: f64) -> Result<()> {
        catch_panic(|| self.handle.submit(&Call::Ready(duration("timeoutMs", timeout_ms, &TIMEOUT)?)))
    }

    /// Has the doctor examine the store.
    #[napi]
    pub fn doctor(&self) -> Result<()> {
        catch_panic(|| self.handle.submit(&Call::Doctor))
    }

    /// Adds a policy, or changes the quotas of an existing one.
    #[napi]
    pub fn set_policy(&self, name: String, quotas: String) -> Result<()> {
        catch_panic(|| {
            let policy = parse_policy(&name, &quotas)?;
            self.handle.limiter().set_policy(policy).map_err(to_js_error)
        })
    }

    /// Finds the policy of a name or of quotas, or the limiter's only one: its name, then its quotas as text.
    #[napi]
    pub fn policy_for(&self, policy: Option<String>, scope: Option<String>) -> Result<Vec<String>> {
        catch_panic(|| {
            let limiter = self.handle.limiter();
            // A closed limiter still knows the policies by their names.
            if let Some(named) = policy.as_deref().and_then(|name| limiter.policy(name)) {
                return Ok(policy_row(&named));
            }
            let found = limiter.policy_for(policy.as_deref(), scope.as_deref());
            found.as_ref().map(policy_row).map_err(|error| to_js_error(error.clone()))
        })
    }

    /// All policies: the name of each, then its quotas as text.
    #[napi]
    pub fn policies(&self) -> Vec<Vec<String>> {
        self.handle.limiter().policies().iter().map(policy_row).collect()
    }

    #[napi]
    pub fn set_credentials(&self, username: Option<String>, password: String) -> Result<()> {
        catch_panic(|| {
            self.handle.limiter().admin().set_credentials(username.as_deref(), &password).map_err(to_js_error)
        })
    }

    /// The counters of the limiter.
    #[napi]
    pub fn stats(&self) -> Vec<Counter> {
        let stats = self.handle.limiter().stats();
        stats.iter().map(|(name, count)| Counter { name, count: number(count) }).collect()
    }

    /// The metrics of the limiter, as JSON.
    #[napi]
    pub fn metrics(&self) -> Result<String> {
        catch_panic(|| {
            serde_json::to_string(&self.handle.limiter().metrics())
                .map_err(|error| internal(error.to_string()))
        })
    }

    /// The metrics of the limiter, as text in that format.
    #[napi]
    pub fn metrics_text(&self, format: String) -> Result<String> {
        catch_panic(|| {
            let format: TextFormat = format.parse().map_err(to_js_error)?;
            Ok(format.write(&self.handle.limiter().metrics()))
        })
    }

    #[napi]
    pub fn keys(&self) -> Option<f64> {
        self.handle.limiter().admin().keys().map(|keys| number(keys as u64))
    }

    #[napi]
    pub fn close(&self) -> Result<()> {
        catch_panic(|| {
            self.handle.close();
            Ok(())
        })
    }
}

pub(crate) fn read_each(env: Env, checks: Vec<CheckRow<'_>>) -> Result<Vec<OwnedRequest>> {
    checks.into_iter().map(|check| check.read(env)).collect()
}

pub(crate) fn requests(owned: &[OwnedRequest]) -> Vec<Request<'_>> {
    owned.iter().map(OwnedRequest::request).collect()
}

/// Reads the quotas of a policy. The error names it, because a program has several.
fn parse_policy(name: &str, quotas: &str) -> Result<Policy> {
    Policy::parse(name, quotas)
        .map_err(|error| invalid_argument(format!("policy {}: {}", excerpt(name), error.message())))
}

/// A name that a program has chosen, as messages show it.
fn excerpt(name: &str) -> String {
    format!("{:?}", name.chars().take(40).collect::<String>())
}

fn policy_row(policy: &Policy) -> Vec<String> {
    let quotas = policy.quotas().iter().map(ToString::to_string);
    std::iter::once(policy.name().to_owned()).chain(quotas).collect()
}
