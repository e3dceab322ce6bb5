//! The guard of the core for web frameworks: one call decides about a request and says what the response has to be.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use polylimit::guard::{self, KeyPart, MissingKey, RequestFacts, RequestLimits, Verdict};

use crate::client_address::ClientAddressRules;
use crate::decision::Decision;
use crate::error::{PolylimitError, Result, guarded};
use crate::headers::{Outcome, Problem, by_name};
use crate::number::unsigned;
use crate::request::Policy;

/// The options of a guard; those that are left out have the same defaults in every language.
#[derive(Clone, Debug, uniffi::Record)]
pub struct GuardOptions {
    /// Policies by name, or quotas such as `100/minute`, all different; by default the limiter's only policy.
    #[uniffi(default)]
    pub policies: Option<Vec<String>>,
    /// Whether each request brings its policies.
    #[uniffi(default)]
    pub per_request: bool,
    /// The budget of quotas without a name, 1 to 256 bytes.
    #[uniffi(default)]
    pub scope: Option<String>,
    /// The parts of the key: `address`, `user`, `header:NAME`, `cookie:NAME` and `path:NAME`.
    #[uniffi(default)]
    pub key_parts: Vec<String>,
    /// How a request without a key counts: `address`, `share` or `refuse`.
    #[uniffi(default)]
    pub missing_key: Option<String>,
    /// The units that each request spends, 0 to 10^12; 1 by default.
    #[uniffi(default)]
    pub cost: Option<i64>,
    /// Which fields the response has: `ietf`, `legacy`, `both` or `none`.
    #[uniffi(default)]
    pub headers: Option<String>,
    /// The form of `x-ratelimit-reset`: `seconds` or `epoch`.
    #[uniffi(default)]
    pub reset_form: Option<String>,
    /// Other names of fields by their default names; an empty name turns a field off.
    #[uniffi(default)]
    pub header_names: HashMap<String, String>,
    /// The status of a request that is over its limit, 400 to 599; 429 by default.
    #[uniffi(default)]
    pub status: Option<i32>,
    /// The sentence in the body of a request that is over its limit.
    #[uniffi(default)]
    pub message: Option<String>,
    /// Whether the guard decides, spends and reports without ever denying.
    #[uniffi(default)]
    pub dry_run: bool,
    /// Whether the program hears of outages: then an answer may have an `outage`, which `overrule` concludes.
    #[uniffi(default)]
    pub hears_outages: bool,
    /// The proxies that may name the client's address; none by default.
    #[uniffi(default)]
    pub client_address: Option<Arc<ClientAddressRules>>,
}

/// What is known about a request.
#[derive(Clone, uniffi::Record)]
#[uniffi::export(Debug)]
pub struct GuardFacts {
    /// The key, where the program finds it.
    #[uniffi(default)]
    pub key: Option<Vec<u8>>,
    /// The values of the parts of the key, in order; the value of the address is not read.
    #[uniffi(default)]
    pub parts: Vec<Option<Vec<u8>>>,
    /// The other end of the socket.
    pub peer: String,
    /// The values of all lines of the header that `ClientAddressRules` name, in the order they were received.
    #[uniffi(default)]
    pub forwarded: Vec<String>,
    /// The units that the request spends, where they are not the guard's.
    #[uniffi(default)]
    pub cost: Option<i64>,
    /// The policies of this request, in place of the guard's; with none in the list the request is not limited.
    #[uniffi(default)]
    pub policies: Option<Vec<String>>,
    /// The request's `accept` field.
    #[uniffi(default)]
    pub accept: Option<String>,
    /// The check of the guard around this one, on the same request.
    #[uniffi(default)]
    pub outer: Option<Arc<GuardCheck>>,
}

/// Shows no key.
impl fmt::Debug for GuardFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardFacts").field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// What happens with a request: without a `problem` it proceeds.
#[derive(Clone, Debug, uniffi::Record)]
pub struct GuardAnswer {
    /// The fields of the response, for all guards of the request so far: values by names in lower case.
    pub fields: HashMap<String, String>,
    /// The response to a request that does not proceed.
    pub problem: Option<Problem>,
    /// The outage that the program has to hear of before there is an answer.
    pub outage: Option<GuardOutage>,
    /// What inner guards and the end of the request refer to, with the decisions.
    pub check: Arc<GuardCheck>,
}

/// An outage of the store: the outage policy decided, or nothing could because of an error.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct GuardOutage {
    /// The code of the error, such as `store_failed`.
    pub error_code: Option<String>,
    /// The error's message.
    pub error_message: Option<String>,
}

/// A limit on the requests of a web framework. It waits for the store on the caller's thread.
#[derive(Debug, uniffi::Object)]
pub struct Guard {
    core: guard::Guard,
    hears_outages: bool,
    rules: polylimit::ClientAddressRules,
}

/// A guard's decision about one request.
#[derive(Debug, uniffi::Object)]
pub struct GuardCheck {
    check: Mutex<guard::GuardCheck>,
    /// Whether the program still has to hear of an outage.
    is_pending: AtomicBool,
    accept: Option<String>,
}

impl Guard {
    pub(crate) fn new(limiter: &polylimit::Limiter, options: GuardOptions) -> Result<Arc<Self>> {
        let mut builder = guard::Guard::builder(limiter.clone());
        if let Some(policies) = options.policies {
            builder = builder.policies(policies);
        }
        builder = builder.per_request(options.per_request).dry_run(options.dry_run);
        if let Some(scope) = options.scope {
            builder = builder.scope(scope);
        }
        for part in &options.key_parts {
            builder = builder.key_part(part.parse()?);
        }
        if let Some(missing_key) = options.missing_key {
            builder = builder.missing_key(missing_key.parse()?);
        }
        if let Some(cost) = options.cost {
            builder = builder.cost(unsigned("cost", cost)?);
        }
        if let Some(style) = options.headers {
            builder = builder.header_style(style.parse()?);
        }
        if let Some(form) = options.reset_form {
            builder = builder.reset_form(form.parse()?);
        }
        for (field, name) in options.header_names {
            builder = builder.header_name(field, name);
        }
        if let Some(status) = options.status {
            // A status beyond 65535 is refused like any other that is no error.
            builder = builder.status(u16::try_from(status).unwrap_or(u16::MAX));
        }
        if let Some(message) = options.message {
            builder = builder.message(message);
        }
        let rules = match options.client_address {
            Some(rules) => rules.core().clone(),
            None => polylimit::ClientAddressRules::builder().build()?,
        };
        Ok(Arc::new(Self { core: builder.build()?, hears_outages: options.hears_outages, rules }))
    }

    /// The key of a request; nothing where the guard counts requests without one otherwise than by their address.
    fn key(&self, facts: &mut GuardFacts) -> Option<Vec<u8>> {
        let address = |facts: &GuardFacts| {
            self.rules.key_of(&facts.peer, facts.forwarded.iter().map(String::as_bytes)).into_bytes()
        };
        for (at, part) in self.core.key_parts().iter().enumerate() {
            if matches!(part, KeyPart::Address) && at < facts.parts.len() {
                facts.parts[at] = Some(address(facts));
            }
        }
        let key = facts.key.take().or_else(|| self.core.join_key(&facts.parts));
        key.or_else(|| (self.core.missing_key() == MissingKey::Address).then(|| address(facts)))
    }
}

#[uniffi::export]
impl Guard {
    /// The parts of the key as text, with the names of headers in lower case.
    pub fn key_parts(&self) -> Vec<String> {
        self.core.key_parts().iter().map(ToString::to_string).collect()
    }

    /// Decides about a request, and refunds what outer guards have spent when this one denies it.
    pub fn decide(&self, facts: GuardFacts) -> Result<GuardAnswer> {
        guarded(|| {
            let mut facts = facts;
            let key = self.key(&mut facts);
            let limits =
                facts.outer.map_or_else(RequestLimits::default, |outer| outer.check.lock().limits().clone());
            let policies: Option<Vec<&str>> =
                facts.policies.as_ref().map(|policies| policies.iter().map(String::as_str).collect());
            let mut known = RequestFacts::new();
            if let Some(key) = &key {
                known = known.key(key);
            }
            if let Some(cost) = facts.cost {
                known = known.cost(unsigned("cost", cost)?);
            }
            if let Some(policies) = &policies {
                known = known.policies(policies);
            }
            let mut check = self.core.start(&limits, &known)?;
            check.ask_blocking();
            let outage = if self.hears_outages { check.outage() } else { None };
            let outage = outage.map(|outage| {
                let error = outage.error.cloned().map(PolylimitError::from);
                GuardOutage {
                    error_code: error.as_ref().map(|error| error.kind().code().to_owned()),
                    error_message: error.map(|error| error.to_string()),
                }
            });
            let is_pending = AtomicBool::new(outage.is_some());
            let check = Arc::new(GuardCheck { check: Mutex::new(check), is_pending, accept: facts.accept });
            match outage {
                None => check.conclude(),
                Some(_) => Ok(GuardAnswer { fields: HashMap::new(), problem: None, outage, check }),
            }
        })
    }
}

#[uniffi::export]
impl GuardCheck {
    /// Concludes an answer with an outage: the program admits the request, denies it, or leaves it to the outage policy.
    #[uniffi::method(default(admit = None))]
    pub fn overrule(self: Arc<Self>, admit: Option<bool>) -> Result<GuardAnswer> {
        guarded(|| {
            if let Some(admit) = admit {
                self.check.lock().overrule(admit);
            }
            self.is_pending.store(false, Ordering::Relaxed);
            self.conclude()
        })
    }

    /// The policies that were applied to the request so far, each with its newest decision; during an outage that the program
    /// has not concluded, those of this guard.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let check = self.check.lock();
        let is_pending = self.is_pending.load(Ordering::Relaxed);
        let outcomes = if is_pending { check.outcomes() } else { check.limits().outcomes() };
        let one =
            |(policy, decision)| Outcome { policy: Policy::of(&policy), decision: Decision::from(&decision) };
        outcomes.into_iter().map(one).collect()
    }

    /// Ends the check when there is a response. A response that does not count gives its units back. Returns the fields.
    pub fn finish(&self, counts: bool) -> Result<HashMap<String, String>> {
        guarded(|| {
            let mut check = self.check.lock();
            check.finish(counts);
            check.refund_blocking();
            Ok(by_name(check.fields()))
        })
    }
}

impl GuardCheck {
    fn conclude(self: Arc<Self>) -> Result<GuardAnswer> {
        let mut check = self.check.lock();
        let verdict = check.conclude();
        check.refund_blocking();
        let problem = match verdict {
            Verdict::Admit => None,
            Verdict::Deny(problem) => Some(Problem::of(&problem, self.accept.as_deref())),
            Verdict::Fail(error) => return Err(error.into()),
        };
        let fields = by_name(check.fields());
        drop(check);
        Ok(GuardAnswer { fields, problem, outage: None, check: self })
    }
}
