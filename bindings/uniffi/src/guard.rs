//! The guard of the core for web frameworks: one call decides about a request and says what the response has to be.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use polylimit::Call;
use polylimit::guard::{self, KeyPart, MissingKey, RequestFacts, RequestLimits, Verdict};
use polylimit::headers::{self, HeaderField, ProblemResponse};

use crate::client_address::ClientAddressRules;
use crate::decision::{AnswerResult, Decision};
use crate::error::{PolylimitError, Result, guarded};
use crate::headers::{Outcome, Problem, by_name};
use crate::number::{Span, address, unsigned};
use crate::request::Policy;
use crate::request_attributes::RequestAttributes;
use crate::reserve_options::spent_of;

/// The options of a guard; those that are left out have the same defaults in every language.
#[derive(Clone, Debug, Default, uniffi::Record)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct GuardOptions {
    /// Policies by name, or quotas such as `100/minute`, all different; by default what the configuration of the limiter says, and
    /// without a configuration the limiter's only policy.
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
    /// Whether all policies are reserved until the response is done, because the program says then what it has spent; by default
    /// those with a quota of concurrency are.
    #[uniffi(default)]
    pub reserved: bool,
    /// How long a reservation lasts after its last renewal: 1 ms to 48 h; 30 seconds by default.
    #[uniffi(default)]
    pub ttl: Option<Span>,
    /// How long reservations are renewed; one hour by default.
    #[uniffi(default)]
    pub max_age: Option<Span>,
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
    /// The attributes of the request, for a guard that decides by the configuration of its limiter.
    #[uniffi(default)]
    pub attributes: Option<RequestAttributes>,
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
    /// For a guard that decides by the configuration of its limiter.
    pub(crate) attributes: Option<polylimit::RequestAttributes<'a>>,
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
            attributes: self.attributes.as_ref().map(RequestAttributes::to_core),
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
    /// What it does when the calls of limiters are answered that it needs at the moment.
    then: Mutex<Option<AfterCalls>>,
    accept: Option<String>,
}

/// What a check does when its refunds, commits and cancels are made.
#[derive(Debug)]
enum AfterCalls {
    Conclude(Verdict),
    End,
}

/// The end of a check, or of the decision about its request.
pub(crate) enum Settled {
    Concluded(Conclusion),
    Ended(Vec<HeaderField>),
}

impl Guard {
    pub(crate) fn new(limiter: &polylimit::Limiter, options: GuardOptions) -> Result<Arc<Self>> {
        let mut builder = guard::Guard::builder(limiter.clone());
        if options.policies.is_none() && !options.per_request && limiter.configuration().is_some() {
            builder = builder.by_configuration();
        }
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
        builder = builder.reserved(options.reserved);
        if let Some(ttl) = options.ttl {
            builder = builder.ttl(ttl.duration("ttl")?);
        }
        if let Some(max_age) = options.max_age {
            builder = builder.max_age(max_age.duration("max_age")?);
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
        let key = if self.core.is_by_configuration() { None } else { self.key(&mut facts) };
        let mut known = RequestFacts::new();
        if let Some(attributes) = &facts.attributes {
            known = known.attributes(attributes);
        }
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
            then: Mutex::default(),
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

    /// Whether the configuration of the limiter decides, by the attributes of requests.
    pub fn is_by_configuration(&self) -> bool {
        self.core.is_by_configuration()
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
            check.outage_or_conclusion(blocking).and_then(|settled| GuardAnswer::of(settled, check))
        })
    }
}

#[uniffi::export]
impl GuardCheck {
    /// Concludes an answer with an outage: the program admits the request, denies it, or leaves it to the outage policy.
    #[uniffi::method(default(admit = None))]
    pub fn overrule(self: Arc<Self>, admit: Option<bool>) -> Result<GuardAnswer> {
        guarded(|| self.conclude_with(admit, blocking).and_then(|settled| GuardAnswer::of(settled, self)))
    }

    /// The policies that were applied to the request so far, each with its newest decision; during an outage that the program
    /// has not concluded, those of this guard.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let one =
            |(policy, decision)| Outcome { policy: Policy::of(&policy), decision: Decision::from(&decision) };
        self.all_outcomes().into_iter().map(one).collect()
    }

    /// Whether the check holds reservations until the response is done: then `end` commits or cancels them.
    pub fn holds(&self) -> bool {
        self.holds_reservations()
    }

    /// Ends what the check holds, when the last byte of the response is sent or its client has gone: commits the units that the
    /// request has spent, by default those that were reserved. A check that is freed ends by itself.
    #[uniffi::method(default(spent = None))]
    pub fn end(&self, spent: Option<i64>) -> Result<()> {
        guarded(|| {
            let ended = self.check.lock().end(spent_of(spent)?);
            self.advance(&blocking);
            Ok(ended?)
        })
    }

    /// Takes the response, when its head is known. One that does not count gives its units back. Returns the fields.
    pub fn finish(&self, counts: bool) -> Result<HashMap<String, String>> {
        guarded(|| match self.respond(counts, blocking)? {
            Some(Settled::Ended(fields)) => Ok(by_name(fields)),
            _ => Err(unsettled()),
        })
    }
}

/// What a check says about a request.
pub(crate) enum Conclusion {
    Admitted(Vec<HeaderField>),
    Denied(Vec<HeaderField>, headers::Problem, ProblemResponse),
    /// The program has to hear of an outage first; without an error the outage policy decided.
    Outage(Option<PolylimitError>),
}

impl GuardAnswer {
    fn of(settled: Option<Settled>, check: Arc<GuardCheck>) -> Result<Self> {
        let Some(Settled::Concluded(conclusion)) = settled else { return Err(unsettled()) };
        let (fields, problem, outage) = match conclusion {
            Conclusion::Admitted(fields) => (fields, None, None),
            Conclusion::Denied(fields, problem, response) => {
                (fields, Some(Problem::of(&problem, response)), None)
            }
            Conclusion::Outage(error) => (Vec::new(), None, Some(GuardOutage::of(error))),
        };
        Ok(Self { fields: by_name(fields), problem, outage, check })
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

    /// Takes the answer to the call that was submitted.
    pub(crate) fn answer_call(&self, answer: AnswerResult) {
        self.check.lock().answer_call(answer);
    }

    /// Takes the decisions on what the guard checks.
    pub(crate) fn answer(&self, answer: std::result::Result<Vec<polylimit::Decision>, polylimit::Error>) {
        self.check.lock().answer(answer);
    }

    /// Whether it holds reservations until the response is done.
    pub(crate) fn holds_reservations(&self) -> bool {
        self.check.lock().holds()
    }

    /// Makes the calls that are due. Returns whether all are answered.
    fn advance(&self, ask: &impl Ask) -> bool {
        let mut check = self.check.lock();
        while let Some(answer) = check.next_call(ask) {
            let Some(answer) = answer else { return false };
            check.answer_call(answer);
        }
        true
    }

    /// What happens with the request, or the outage that the program has to hear of first; nothing while a call has to
    /// be waited for. `ask` answers a call, or says that it has to be waited for.
    pub(crate) fn outage_or_conclusion(&self, ask: impl Ask) -> Result<Option<Settled>> {
        let is_concluding = self.then.lock().is_some();
        if !is_concluding && !self.advance(&ask) {
            return Ok(None);
        }
        if self.hears_outages
            && !is_concluding
            && let Some(outage) = self.check.lock().outage()
        {
            self.is_pending.store(true, Ordering::Relaxed);
            let error = outage.error.cloned().map(PolylimitError::from);
            return Ok(Some(Settled::Concluded(Conclusion::Outage(error))));
        }
        self.settle(|check| AfterCalls::Conclude(check.conclude()), ask)
    }

    /// What happens with the request, after the program has heard of an outage.
    pub(crate) fn conclude_with(&self, admit: Option<bool>, ask: impl Ask) -> Result<Option<Settled>> {
        self.is_pending.store(false, Ordering::Relaxed);
        let conclude = |check: &mut guard::GuardCheck| {
            if let Some(admit) = admit {
                check.overrule(admit);
            }
            AfterCalls::Conclude(check.conclude())
        };
        self.settle(conclude, ask)
    }

    /// Takes the head of the response, and refunds one that does not count.
    pub(crate) fn respond(&self, counts: bool, ask: impl Ask) -> Result<Option<Settled>> {
        let end = |check: &mut guard::GuardCheck| {
            check.finish(counts);
            AfterCalls::End
        };
        self.settle(end, ask)
    }

    /// Ends what it holds in the background, with the units that were spent.
    pub(crate) fn end_in_background(&self, spent: Option<u64>) -> Result<()> {
        Ok(self.check.lock().end_in_background(spent)?)
    }

    /// Begins a step unless one is under way, makes its calls, and finishes it.
    fn settle(
        &self,
        begin: impl FnOnce(&mut guard::GuardCheck) -> AfterCalls,
        ask: impl Ask,
    ) -> Result<Option<Settled>> {
        let mut then = self.then.lock();
        then.get_or_insert_with(|| begin(&mut self.check.lock()));
        if !self.advance(&ask) {
            return Ok(None);
        }
        let check = self.check.lock();
        let Some(AfterCalls::Conclude(verdict)) = then.take() else {
            return Ok(Some(Settled::Ended(check.fields())));
        };
        let conclusion = match verdict {
            Verdict::Admit => Conclusion::Admitted(check.fields()),
            Verdict::Deny(problem) => {
                let response = problem.response(self.accept.as_deref());
                Conclusion::Denied(check.fields(), problem, response)
            }
            Verdict::Fail(error) => return Err(error.into()),
        };
        Ok(Some(Settled::Concluded(conclusion)))
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
}

/// Makes a call, or says that its answer has to be waited for.
pub(crate) trait Ask: Fn(&polylimit::Limiter, &Call<'_>) -> Option<AnswerResult> {}

impl<F: Fn(&polylimit::Limiter, &Call<'_>) -> Option<AnswerResult>> Ask for F {}

/// Makes a call, and waits for the store on this thread.
#[expect(clippy::unnecessary_wraps, reason = "others may have no answer yet")]
fn blocking(limiter: &polylimit::Limiter, call: &Call<'_>) -> Option<AnswerResult> {
    Some(limiter.blocking().call(call))
}

fn unsettled() -> PolylimitError {
    PolylimitError::Internal("a guard has not made its calls".to_owned())
}
