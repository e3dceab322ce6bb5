//! Answers of operations: decisions, usages and findings.

use std::pin::Pin;

use polylimit::decision::{Cause, Degradation, QuotaVerdict, Source};
use polylimit::raw::{Answer, DecisionParts};

use crate::error::{PolylimitError, Result, guarded_async};
use crate::number::{Span, signed, unsigned};

/// The state of a key under one quota, after the operation, and in a decision the quota's own verdict on the request.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct QuotaUsage {
    /// The quota's limit, in units per period.
    pub limit: i64,
    /// Whole units that this quota would still admit right now.
    pub remaining: i64,
    /// How long until nothing counts as used under this quota if nothing else arrives.
    pub reset_after: Span,
    /// Units of the quota's excess that are in use: above 0 once use is beyond the limit.
    pub over: i64,
    /// Whether this quota admits the request; true where no quota was asked, and in a usage.
    pub allowed: bool,
    /// How long until this quota would admit the same request if no other arrives. 0 when it admits it; nothing is never.
    pub retry_after: Option<Span>,
}

/// The answer to a check, a peek, a reserve or an acquire.
#[expect(clippy::struct_excessive_bools, reason = "each is a field of a decision in every language")]
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Decision {
    /// Whether every quota of the policy admits the request.
    pub allowed: bool,
    /// Whole units that can still be spent right now, after this decision: the least over the quotas.
    pub remaining: i64,
    /// How long until the same request, alone, would be admitted. 0 when allowed; nothing is never: the cost exceeds
    /// what a quota can ever admit.
    pub retry_after: Option<Span>,
    /// How long until nothing counts as used any more if nothing else arrives: the longest over the quotas.
    pub reset_after: Span,
    /// How long this admitted request has to wait for its turn: leaky bucket only, otherwise 0.
    pub delay: Span,
    /// Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit.
    pub over: i64,
    /// The source of the answer, such as `store`.
    pub source: String,
    /// Whether the outage policy answered, since the store was unavailable.
    pub is_outage: bool,
    /// Why this is not what a healthy store would have answered for this key alone, such as `timeout`.
    pub degraded: Option<String>,
    /// Why the request was denied, or is `shadowed`: `deny_list`, `missing_key`, `blocked`, `quota` or `concurrency`; or why it was
    /// admitted without the store: `off` or `allow_list`. Nothing otherwise.
    pub cause: Option<String>,
    /// Whether this decision has made the use of some quota cross its limit, into its excess.
    pub crossed: bool,
    /// Whether the pool of an elastic policy has admitted the request.
    pub elastic: bool,
    /// Whether the policy is in shadow and would have denied: the request is allowed, and has the cause and the `retry_after` of the
    /// denial.
    pub shadowed: bool,
    /// The state under each quota, in the order of the policy.
    pub quotas: Vec<QuotaUsage>,
}

/// The answer to a take, a charge, a refund, a reset, or a commit, cancel or renew of a reservation.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Usage {
    /// Whole units that can still be spent right now: the least over the quotas.
    pub remaining: i64,
    /// How long until nothing counts as used any more if nothing else arrives: the longest over the quotas.
    pub reset_after: Span,
    /// The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
    pub taken: i64,
    /// Whether a commit, a cancel or a renew has found the reservation; true for every other operation.
    pub found: bool,
    /// Whether this was a commit of an id that was committed before and is remembered, so that nothing was charged.
    pub repeated: bool,
    /// Units of an excess that are in use, the most over the quotas.
    pub over: i64,
    /// The source of the answer, such as `store`.
    pub source: String,
    /// Whether the outage policy answered, since the store was unavailable.
    pub is_outage: bool,
    /// Why this is not what a healthy store would have answered for this key alone, such as `timeout`.
    pub degraded: Option<String>,
    /// The state under each quota, in the order of the policy.
    pub quotas: Vec<QuotaUsage>,
}

/// The result of one of several checks: a decision or an error.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct CheckResult {
    /// The decision.
    pub decision: Option<Decision>,
    /// The code of the error, such as `store_unavailable`.
    pub error_code: Option<String>,
    /// The error's message.
    pub error_message: Option<String>,
}

/// A finding about the store.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Finding {
    /// Its severity: `fine`, `advice` or `problem`.
    pub severity: String,
    /// The subject, such as `version` or `rights`.
    pub subject: String,
    /// The finding, and what to do about it. Contains no password and no key.
    pub message: String,
}

impl From<&polylimit::Decision> for Decision {
    fn from(decision: &polylimit::Decision) -> Self {
        Self {
            allowed: decision.allowed(),
            remaining: signed(decision.remaining()),
            retry_after: decision.retry_after_us().map(Span::of_us),
            reset_after: Span::of_us(decision.reset_after_us()),
            delay: Span::of_us(decision.delay_us()),
            over: signed(decision.over()),
            source: decision.source().name().to_owned(),
            is_outage: decision.source().is_outage(),
            degraded: decision.degraded().map(|why| why.name().to_owned()),
            cause: decision.cause().map(|cause| cause.name().to_owned()),
            crossed: decision.crossed(),
            elastic: decision.elastic(),
            shadowed: decision.shadowed(),
            quotas: quotas(decision.quotas(), decision.verdicts()),
        }
    }
}

impl Decision {
    /// The decision of the core that has these values.
    pub(crate) fn to_core(&self) -> Result<polylimit::Decision> {
        let known = |source: &Source| source.name() == self.source;
        let source = Source::ALL.into_iter().find(known).ok_or_else(|| unknown("source", &self.source))?;
        let degraded = |name: &String| {
            let known = |why: &Degradation| why.name() == name;
            Degradation::ALL.into_iter().find(known).ok_or_else(|| unknown("degradation", name))
        };
        let cause = |name: &String| {
            let known = |cause: &Cause| cause.name() == name;
            Cause::ALL.into_iter().find(known).ok_or_else(|| unknown("cause", name))
        };
        let waits_turn = self.allowed && !self.shadowed;
        let wait = if waits_turn { Some(self.delay) } else { self.retry_after };
        let wait_us = wait.map(|wait| wait.us("wait")).transpose()?;
        let quotas: Result<Vec<_>> = self.quotas.iter().map(QuotaUsage::to_core).collect();
        // Whether a quota admits the request follows from its wait.
        let each_us: Result<Vec<_>> = self.quotas.iter().map(QuotaUsage::wait_us).collect();
        Ok(polylimit::Decision::from_parts(DecisionParts {
            allowed: self.allowed,
            wait_us,
            source,
            degraded: self.degraded.as_ref().map(degraded).transpose()?,
            cause: self.cause.as_ref().map(cause).transpose()?,
            crossed: self.crossed,
            elastic: self.elastic,
            shadowed: self.shadowed,
            remaining: unsigned("remaining", self.remaining)?,
            quotas: &quotas?,
            quota_waits_us: &each_us?,
        })?)
    }
}

impl QuotaUsage {
    fn to_core(&self) -> Result<polylimit::decision::QuotaUsage> {
        Ok(polylimit::decision::QuotaUsage {
            limit: unsigned("limit", self.limit)?,
            remaining: unsigned("remaining", self.remaining)?,
            reset_after_us: self.reset_after.us("reset_after")?,
            over: unsigned("over", self.over)?,
        })
    }

    fn wait_us(&self) -> Result<Option<u64>> {
        self.retry_after.map(|wait| wait.us("retry_after")).transpose()
    }
}

fn unknown(what: &str, name: &str) -> PolylimitError {
    PolylimitError::InvalidArgument(format!(
        "{what} {name:?} is not known: pass a decision as a limiter has made it"
    ))
}

impl From<&polylimit::decision::Usage> for Usage {
    fn from(usage: &polylimit::decision::Usage) -> Self {
        Self {
            remaining: signed(usage.remaining()),
            reset_after: Span::of_us(usage.reset_after_us()),
            taken: signed(usage.taken()),
            found: usage.found(),
            repeated: usage.repeated(),
            over: signed(usage.over()),
            source: usage.source().name().to_owned(),
            is_outage: usage.source().is_outage(),
            degraded: usage.degraded().map(|why| why.name().to_owned()),
            quotas: quotas(usage.quotas(), std::iter::repeat(ADMITS)),
        }
    }
}

impl From<std::result::Result<polylimit::Decision, polylimit::Error>> for CheckResult {
    fn from(result: std::result::Result<polylimit::Decision, polylimit::Error>) -> Self {
        let (decision, error) = match &result {
            Ok(decision) => (Some(decision.into()), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            decision,
            error_code: error.map(|error| error.kind().code().to_owned()),
            error_message: error.map(|error| error.message().to_owned()),
        }
    }
}

impl From<PolylimitError> for CheckResult {
    fn from(error: PolylimitError) -> Self {
        Self {
            decision: None,
            error_code: Some(error.kind().code().to_owned()),
            error_message: Some(error.to_string()),
        }
    }
}

impl From<polylimit::admin::Finding> for Finding {
    fn from(finding: polylimit::admin::Finding) -> Self {
        Self {
            severity: finding.severity.name().to_owned(),
            subject: finding.subject.to_owned(),
            message: finding.message,
        }
    }
}

/// What each quota of a usage says: there is no request that it might deny.
pub(crate) const ADMITS: QuotaVerdict = QuotaVerdict { allowed: true, retry_after_us: Some(0) };

fn quotas(
    each: &[polylimit::decision::QuotaUsage],
    verdicts: impl IntoIterator<Item = QuotaVerdict>,
) -> Vec<QuotaUsage> {
    let one = |(usage, verdict): (&polylimit::decision::QuotaUsage, QuotaVerdict)| QuotaUsage {
        limit: signed(usage.limit),
        remaining: signed(usage.remaining),
        reset_after: Span::of_us(usage.reset_after_us),
        over: signed(usage.over),
        allowed: verdict.allowed,
        retry_after: verdict.retry_after_us.map(Span::of_us),
    };
    each.iter().zip(verdicts).map(one).collect()
}

pub(crate) type AnswerResult = std::result::Result<Answer, polylimit::Error>;
/// The answer to a call that a task waits for.
pub(crate) type AnswerFuture = Pin<Box<dyn Future<Output = AnswerResult> + Send>>;

pub(crate) async fn answer<T>(
    future: AnswerFuture,
    read: impl FnOnce(AnswerResult) -> Result<T>,
) -> Result<T> {
    guarded_async(async { read(future.await) }).await
}

pub(crate) fn decision(answer: AnswerResult) -> Result<Decision> {
    core_decision(answer).map(|decision| (&decision).into())
}

pub(crate) fn core_decision(answer: AnswerResult) -> Result<polylimit::Decision> {
    match answer? {
        Answer::Decision(decision) => Ok(decision),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn usage(answer: AnswerResult) -> Result<Usage> {
    match answer? {
        Answer::Usage(usage) => Ok((&usage).into()),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn decisions(answer: AnswerResult) -> Result<Vec<CheckResult>> {
    match answer? {
        Answer::Decisions(decisions) => Ok(decisions.into_iter().map(Into::into).collect()),
        other => Err(unexpected(&other)),
    }
}

/// The decisions on requests that belong together, which have no errors of their own.
pub(crate) fn all_decisions(answer: AnswerResult) -> Result<Vec<Decision>> {
    match answer? {
        Answer::Decisions(decisions) => decisions.into_iter().map(|made| Ok((&made?).into())).collect(),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn ready(answer: AnswerResult) -> Result<()> {
    answer?;
    Ok(())
}

pub(crate) fn findings(answer: AnswerResult) -> Result<Vec<Finding>> {
    match answer? {
        Answer::Findings(findings) => Ok(findings.into_iter().map(Into::into).collect()),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn unexpected(answer: &Answer) -> PolylimitError {
    PolylimitError::Internal(format!("unexpected answer to an operation: {answer:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_comes_back_with_the_verdict_of_each_quota() {
        let policy = polylimit::Policy::parse("api", "2/minute; 10/hour").unwrap();
        let limiter = polylimit::Limiter::builder().policy(policy).build().unwrap().blocking();
        for (cost, admits) in [(2, [true, true]), (1, [false, true]), (100, [false, false])] {
            let made = limiter.check(polylimit::Request::new("key").cost(cost)).unwrap();
            let exported = Decision::from(&made);
            assert_eq!(exported.to_core(), Ok(made));
            let [first, second] = &*exported.quotas else { panic!("{exported:?}") };
            assert_eq!([first.allowed, second.allowed], admits);
            assert_eq!(first.retry_after, exported.retry_after);
        }
    }
}
