//! The guard of the core for web frameworks: one call decides about a request and says what the response has to be.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use polylimit::Call;
use polylimit::guard::{self, KeyPart, MissingKey, RequestFacts, RequestLimits, Verdict};
use polylimit::headers::HeaderField;

use crate::client_address::ClientAddressRules;
use crate::decision::Decision;
use crate::error::{PolylimitError, Result, guarded};
use crate::headers::{Outcome, Problem, by_name};
use crate::number::{address, unsigned};
use crate::request::Policy;

/// The options of a guard; those that are left out have the same defaults in every language.
#[derive(Clone, Debug, Default, uniffi::Record)]
pub struct GuardOptions {
    /// Policies by name, or quotas such as `100/minute`, all different; by default the limiter's only policy.
    #[uniffi(default)]
    pub policies: Option<Vec<String>>,
    /// Only requests of these methods are limited, however they are written; by default those of all.
    #[uniffi(default)]
    pub methods: Vec<String>,
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

/// The facts of a request without their owner.
pub(crate) struct Facts<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) parts: Vec<Option<&'a [u8]>>,
    pub(crate) peer: &'a str,
    pub(crate) forwarded: Vec<&'a [u8]>,
    pub(crate) cost: Option<i64>,
    pub(crate) policies: Option<Vec<&'a str>>,
    pub(crate) accept: Option<&'a str>,
}

impl GuardFacts {
    fn borrowed(&self) -> Facts<'_> {
        Facts {
            key: self.key.as_deref(),
            parts: self.parts.iter().map(Option::as_deref).collect(),
            peer: &self.peer,
            forwarded: self.forwarded.iter().map(String::as_bytes).collect(),
            cost: self.cost,
            policies: self.policies.as_ref().map(|policies| policies.iter().map(String::as_str).collect()),
            accept: self.accept.as_deref(),
        }
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
    hears_outages: bool,
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
        for method in options.methods {
            builder = builder.method(method);
        }
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
    fn key<'a>(&self, facts: &mut Facts<'a>) -> Option<Cow<'a, [u8]>> {
        if let Some(key) = facts.key {
            return Some(key.into());
        }
        let parts = self.core.key_parts();
        let address = || self.rules.key_of(facts.peer, facts.forwarded.iter().copied()).into_bytes();
        let key = if parts.contains(&KeyPart::Address) {
            let address = address();
            let each = parts.iter().zip(&facts.parts);
            let values: Vec<_> = each
                .map(|(part, value)| if *part == KeyPart::Address { Some(&*address) } else { *value })
                .collect();
            self.core.join_key(&values)
        } else {
            self.core.join_key(&facts.parts)
        };
        let key = key.or_else(|| (self.core.missing_key() == MissingKey::Address).then(address));
        key.map(Cow::from)
    }

    /// The guard of the core.
    pub(crate) fn core(&self) -> &guard::Guard {
        &self.core
    }

    /// Starts the decision about a request.
    pub(crate) fn start(&self, limits: &RequestLimits, mut facts: Facts<'_>) -> Result<Arc<GuardCheck>> {
        let key = self.key(&mut facts);
        let mut known = RequestFacts::new();
        if let Some(key) = &key {
            known = known.key(key);
        }
        if let Some(cost) = facts.cost {
            known = known.cost(unsigned("cost", cost)?);
        }
        if let Some(policies) = &facts.policies {
            known = known.policies(policies);
        }
        let check = Mutex::new(self.core.start(limits, &known)?);
        Ok(Arc::new(GuardCheck {
            check,
            hears_outages: self.hears_outages,
            is_pending: AtomicBool::new(false),
            accept: facts.accept.map(ToOwned::to_owned),
        }))
    }
}

#[uniffi::export]
impl Guard {
    /// The parts of the key as text, with the names of headers in lower case.
    pub fn key_parts(&self) -> Vec<String> {
        self.core.key_parts().iter().map(ToString::to_string).collect()
    }

    /// Where the guard is for direct calls, as long as it exists.
    pub fn address(&self) -> i64 {
        address(self)
    }

    /// Whether requests of this method are limited.
    pub fn applies_to(&self, method: String) -> bool {
        self.core.applies_to(&method)
    }

    /// Decides about a request, and refunds what outer guards have spent when this one denies it.
    pub fn decide(&self, facts: GuardFacts) -> Result<GuardAnswer> {
        guarded(|| {
            let limits = facts.outer.as_ref().map_or_else(RequestLimits::default, |outer| outer.limits());
            let check = self.start(&limits, facts.borrowed())?;
            check.check.lock().ask_blocking();
            check.outage_or_conclusion().map(|conclusion| GuardAnswer::of(conclusion, check))
        })
    }
}

#[uniffi::export]
impl GuardCheck {
    /// Concludes an answer with an outage: the program admits the request, denies it, or leaves it to the outage policy.
    #[uniffi::method(default(admit = None))]
    pub fn overrule(self: Arc<Self>, admit: Option<bool>) -> Result<GuardAnswer> {
        guarded(|| self.conclude_with(admit).map(|conclusion| GuardAnswer::of(conclusion, self)))
    }

    /// The policies that were applied to the request so far, each with its newest decision; during an outage that the program
    /// has not concluded, those of this guard.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let one =
            |(policy, decision)| Outcome { policy: Policy::of(&policy), decision: Decision::from(&decision) };
        self.all_outcomes().into_iter().map(one).collect()
    }

    /// Ends the check when there is a response. A response that does not count gives its units back. Returns the fields.
    pub fn finish(&self, counts: bool) -> Result<HashMap<String, String>> {
        guarded(|| Ok(by_name(self.end(counts))))
    }
}

/// What a check says about a request.
pub(crate) enum Conclusion {
    Admitted(Vec<HeaderField>),
    Denied(Vec<HeaderField>, Problem),
    /// The program has to hear of an outage first; without an error the outage policy decided.
    Outage(Option<PolylimitError>),
}

impl GuardAnswer {
    fn of(conclusion: Conclusion, check: Arc<GuardCheck>) -> Self {
        let (fields, problem, outage) = match conclusion {
            Conclusion::Admitted(fields) => (fields, None, None),
            Conclusion::Denied(fields, problem) => (fields, Some(problem), None),
            Conclusion::Outage(error) => (Vec::new(), None, Some(GuardOutage::of(error))),
        };
        Self { fields: by_name(fields), problem, outage, check }
    }
}

impl GuardOutage {
    fn of(error: Option<PolylimitError>) -> Self {
        Self {
            error_code: error.as_ref().map(|error| error.kind().code().to_owned()),
            error_message: error.map(|error| error.to_string()),
        }
    }
}

impl GuardCheck {
    pub(crate) fn limits(&self) -> RequestLimits {
        self.check.lock().limits().clone()
    }

    /// Asks what the limiter has to decide, if there is something.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&Call<'_>) -> Result<T>) -> Result<Option<T>> {
        let check = self.check.lock();
        let requests = check.requests();
        match &requests[..] {
            [] => Ok(None),
            [request] => ask(&Call::Check(*request)).map(Some),
            requests => ask(&Call::CheckTogether(requests)).map(Some),
        }
    }

    /// Takes the limiter's decisions.
    pub(crate) fn answer(&self, answer: std::result::Result<Vec<polylimit::Decision>, polylimit::Error>) {
        self.check.lock().answer(answer);
    }

    /// What happens with the request, or the outage that the program has to hear of first.
    pub(crate) fn outage_or_conclusion(&self) -> Result<Conclusion> {
        if self.hears_outages
            && let Some(outage) = self.check.lock().outage()
        {
            self.is_pending.store(true, Ordering::Relaxed);
            return Ok(Conclusion::Outage(outage.error.cloned().map(PolylimitError::from)));
        }
        self.conclude()
    }

    /// What happens with the request, after the program has heard of an outage.
    pub(crate) fn conclude_with(&self, admit: Option<bool>) -> Result<Conclusion> {
        if let Some(admit) = admit {
            self.check.lock().overrule(admit);
        }
        self.is_pending.store(false, Ordering::Relaxed);
        self.conclude()
    }

    fn conclude(&self) -> Result<Conclusion> {
        let mut check = self.check.lock();
        let verdict = check.conclude();
        check.refund_blocking();
        match verdict {
            Verdict::Admit => Ok(Conclusion::Admitted(check.fields())),
            Verdict::Deny(problem) => {
                Ok(Conclusion::Denied(check.fields(), Problem::of(&problem, self.accept.as_deref())))
            }
            Verdict::Fail(error) => Err(error.into()),
        }
    }

    /// Concludes a check whose verdict is known.
    pub(crate) fn conclude_again(&self) {
        drop(self.check.lock().conclude());
    }

    /// The policies of this guard, each with its decision.
    pub(crate) fn own_outcomes(&self) -> Vec<(polylimit::Policy, polylimit::Decision)> {
        self.check.lock().outcomes()
    }

    /// The policies that were applied to the request so far.
    pub(crate) fn all_outcomes(&self) -> Vec<(polylimit::Policy, polylimit::Decision)> {
        let check = self.check.lock();
        if self.is_pending.load(Ordering::Relaxed) { check.outcomes() } else { check.limits().outcomes() }
    }

    /// Ends the check, refunds a response that does not count, and returns the fields.
    pub(crate) fn end(&self, counts: bool) -> Vec<HeaderField> {
        let mut check = self.check.lock();
        check.finish(counts);
        check.refund_blocking();
        check.fields()
    }
}
