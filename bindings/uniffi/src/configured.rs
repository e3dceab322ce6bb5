//! Limiters with a configuration: its status and changes, and decisions about requests by their attributes.

use std::fmt;

use polylimit::raw::{Answer, Call};

use crate::admin::{Admin, AsyncAdmin};
use crate::decision::{AnswerFuture, AnswerResult, Decision, answer, unexpected};
use crate::error::{Result, guarded};
use crate::limiter::{AsyncLimiter, Limiter};
use crate::number::{Span, signed, unsigned};
use crate::request_attributes::RequestAttributes;
use crate::reserve_options::terms_of;

/// A policy that the rules apply to a request.
#[derive(Clone, PartialEq, Eq, uniffi::Record)]
pub struct PolicyMatch {
    /// The policy's name.
    pub policy: String,
    /// The key under the policy.
    pub key: Vec<u8>,
    /// The units that the request spends.
    pub cost: i64,
    /// Percent of the capacity that is kept for others, 0 to 99.
    pub headroom: i32,
}

/// The decision of one policy on a request.
#[derive(Clone, PartialEq, Eq, uniffi::Record)]
pub struct PolicyDecision {
    /// The policy's name.
    pub policy: String,
    /// The key under the policy.
    pub key: Vec<u8>,
    /// The units that the request spends.
    pub cost: i64,
    /// Percent of the capacity that was kept for others, 0 to 99.
    pub headroom: i32,
    /// The decision; a denied request may have decisions that admit it.
    pub decision: Decision,
    /// The id of the reservation that was made under the policy, which the caller commits or cancels; nothing where units were
    /// spent.
    pub reservation: Option<Vec<u8>>,
}

/// The decision on a request by the configuration's lists, rules and policies.
#[derive(Clone, PartialEq, Eq, uniffi::Record)]
pub struct RequestDecision {
    /// Whether the request may proceed.
    pub allowed: bool,
    /// Why it was denied, or admitted without the store; as in a decision.
    pub cause: Option<String>,
    /// The HTTP status of a denial: 400 for a missing key, 403 for a deny list, otherwise 429. Nothing when allowed.
    pub status: Option<i32>,
    /// How long until the request would be admitted: 0 when allowed; nothing is never.
    pub retry_after: Option<Span>,
    /// The decisions of the policies that the rules apply, in their order; none when a list or a missing key decides.
    pub decisions: Vec<PolicyDecision>,
}

/// Which configuration is active, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct ConfigurationStatus {
    /// The source: `document` for one that the program gives, otherwise as the option `configuration` names it.
    pub source: String,
    /// Raised with each change; 0 before the first configuration.
    pub version: i64,
    /// Which document of Redis is active, counted from 1: what `expected_version` of a publication expects to replace. 0 where the
    /// document does not come from Redis.
    pub document_version: i64,
    /// SHA-256 of the active document in canonical form, as hexadecimal digits; empty before the first.
    pub digest: String,
    /// When this version was applied, in microseconds since the Unix epoch; 0 before the first.
    pub applied_at_us: i64,
    /// For how long the source has been unreachable; 0 when it is reachable.
    pub age: Span,
    /// Why a newer configuration was not applied, or may not be known.
    pub error: Option<String>,
}

/// How a document is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, uniffi::Record)]
pub struct PublishOptions {
    /// The version of the document that this one replaces; by default whichever is there.
    #[uniffi(default)]
    pub expected_version: Option<i64>,
    /// The author's name, up to 256 bytes.
    #[uniffi(default = "")]
    pub by: String,
    /// The reason, up to 1,024 bytes.
    #[uniffi(default = "")]
    pub why: String,
}

/// What a candidate would have decided compared with the effective quotas, in checks since either's quotas changed.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct CandidateCounts {
    /// Both admit.
    pub both_allow: i64,
    /// The effective quotas deny, and the candidate would admit.
    pub only_live_denies: i64,
    /// The effective quotas admit, and the candidate would deny.
    pub only_candidate_denies: i64,
    /// Both deny.
    pub both_deny: i64,
}

/// Shows no key.
impl fmt::Debug for PolicyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, decision) = (&self.policy, &self.decision);
        f.debug_struct("PolicyDecision")
            .field("policy", policy)
            .field("decision", decision)
            .finish_non_exhaustive()
    }
}

/// Shows no key.
impl fmt::Debug for PolicyMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyMatch").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl PublishOptions {
    fn to_core(&self) -> Result<polylimit::admin::PublishOptions<'_>> {
        let options = polylimit::admin::PublishOptions::default().by(&self.by).why(&self.why);
        Ok(match self.expected_version {
            Some(version) => options.expected_version(unsigned("expected_version", version)?),
            None => options,
        })
    }
}

impl From<&polylimit::admin::ConfigurationStatus> for ConfigurationStatus {
    fn from(status: &polylimit::admin::ConfigurationStatus) -> Self {
        Self {
            source: status.source.to_string(),
            version: signed(status.version),
            document_version: signed(status.document_version),
            digest: status.digest.to_string(),
            applied_at_us: signed(status.applied_at_us),
            age: Span::of_us(status.unreachable_for_us),
            error: status.error.as_ref().map(ToString::to_string),
        }
    }
}

impl From<polylimit::document::RequestDecision> for RequestDecision {
    fn from(decided: polylimit::document::RequestDecision) -> Self {
        let status = decided.status().map(i32::from);
        let each = decided.decisions.into_iter().map(|made| PolicyDecision {
            policy: made.policy.to_string(),
            key: made.key.into_vec(),
            cost: signed(made.cost),
            headroom: made.headroom.into(),
            decision: (&made.decision).into(),
            reservation: made.reservation.map(|id| id.as_bytes().to_vec()),
        });
        Self {
            allowed: decided.allowed,
            cause: decided.cause.map(|cause| cause.name().to_owned()),
            status,
            retry_after: decided.retry_after_us.map(Span::of_us),
            decisions: each.collect(),
        }
    }
}

fn status(answer: AnswerResult) -> Result<ConfigurationStatus> {
    match answer? {
        Answer::Configuration(status) => Ok((&status).into()),
        other => Err(unexpected(&other)),
    }
}

fn decided(answer: AnswerResult) -> Result<RequestDecision> {
    match answer? {
        Answer::Request(decided) => Ok(decided.into()),
        other => Err(unexpected(&other)),
    }
}

#[uniffi::export]
impl Limiter {
    /// Decides about a request by the configuration: its lists, rules and policies. Policies with a quota of concurrency are
    /// reserved, under this id (random by default) and for this ttl (30 seconds), all others spend. With `remember`, the id is
    /// remembered for so long after the commit: see `ReserveOptions`. When one policy denies, nothing is spent or reserved.
    #[uniffi::method(default(id = None, ttl = None, remember = None))]
    pub fn decide(
        &self,
        attributes: RequestAttributes,
        id: Option<Vec<u8>>,
        ttl: Option<Span>,
        remember: Option<Span>,
    ) -> Result<RequestDecision> {
        let terms = terms_of(id.as_ref(), ttl, remember)?;
        guarded(|| decided(self.core().raw().call(&Call::Decide(&attributes.to_core(), terms))))
    }
}

#[uniffi::export]
impl AsyncLimiter {
    /// See `Limiter.decide`.
    #[uniffi::method(default(id = None, ttl = None, remember = None))]
    pub async fn decide(
        &self,
        attributes: RequestAttributes,
        id: Option<Vec<u8>>,
        ttl: Option<Span>,
        remember: Option<Span>,
    ) -> Result<RequestDecision> {
        let terms = terms_of(id.as_ref(), ttl, remember)?;
        let started = {
            let attributes = attributes.to_core();
            guarded(|| Ok(Box::pin(self.core().start(&Call::Decide(&attributes, terms))) as AnswerFuture))?
        };
        answer(started, decided).await
    }
}

#[uniffi::export]
impl Admin {
    /// Which configuration is active; nothing for a limiter that has none.
    pub fn configuration(&self) -> Option<ConfigurationStatus> {
        self.core().asynchronous().admin().configuration().as_ref().map(Into::into)
    }

    /// Replaces the document that the program has given, in TOML or JSON. One that cannot be used is refused with line, column, what
    /// was read and what is allowed; then the previous one stays active.
    pub fn set_document(&self, text: String) -> Result<ConfigurationStatus> {
        guarded(|| Ok((&self.core().asynchronous().admin().set_document(&text)?).into()))
    }

    /// Sets an entry: `deny ITEM`, `allow ITEM` or `override POLICY KEY`. The value is a JSON object that may have `until`, `by`, `why`
    /// and, for an override, `numbers`.
    pub fn set_entry(&self, item: String, value: String) -> Result<ConfigurationStatus> {
        guarded(|| status(self.core().raw().call(&Call::SetEntry(&item, &value))))
    }

    /// Deletes an entry; one that is not there is no error.
    pub fn delete_entry(&self, item: String) -> Result<ConfigurationStatus> {
        guarded(|| status(self.core().raw().call(&Call::DeleteEntry(&item))))
    }

    /// Publishes a document to the store that the configuration comes from, and waits until it is active here.
    #[uniffi::method(default(options = None))]
    pub fn publish(&self, document: String, options: Option<PublishOptions>) -> Result<ConfigurationStatus> {
        let options = options.unwrap_or_default();
        guarded(|| status(self.core().raw().call(&Call::Publish(&document, options.to_core()?))))
    }

    /// Waits until this version of the configuration or a later one is active, at most for the timeout.
    pub fn wait_for_version(&self, version: i64, timeout: Span) -> Result<ConfigurationStatus> {
        let (version, timeout) = (unsigned("version", version)?, timeout.duration("timeout")?);
        guarded(|| status(self.core().raw().call(&Call::WaitForVersion(version, timeout))))
    }

    /// The policies that the rules apply to a request, each with its key, cost and headroom. Asks no store.
    pub fn matching(&self, attributes: RequestAttributes) -> Result<Vec<PolicyMatch>> {
        guarded(|| {
            let found = self.core().asynchronous().admin().matching(&attributes.to_core())?;
            let each = found.into_iter().map(|found| PolicyMatch {
                policy: found.policy.to_string(),
                key: found.key,
                cost: signed(found.cost),
                headroom: found.headroom.into(),
            });
            Ok(each.collect())
        })
    }

    /// How the candidate of a policy compares with the effective quotas; nothing for a policy without a candidate.
    pub fn candidate_counts(&self, policy: String) -> Option<CandidateCounts> {
        self.core().asynchronous().admin().candidate_counts(&policy).map(|counts| CandidateCounts {
            both_allow: signed(counts.both_allow),
            only_live_denies: signed(counts.only_live_denies),
            only_candidate_denies: signed(counts.only_candidate_denies),
            both_deny: signed(counts.both_deny),
        })
    }
}

#[uniffi::export]
impl AsyncAdmin {
    /// See `Admin.set_entry`.
    pub async fn set_entry(&self, item: String, value: String) -> Result<ConfigurationStatus> {
        answer(self.limiter.start_call(|| Ok(Call::SetEntry(&item, &value)))?, status).await
    }

    /// See `Admin.delete_entry`.
    pub async fn delete_entry(&self, item: String) -> Result<ConfigurationStatus> {
        answer(self.limiter.start_call(|| Ok(Call::DeleteEntry(&item)))?, status).await
    }

    /// See `Admin.publish`.
    #[uniffi::method(default(options = None))]
    pub async fn publish(
        &self,
        document: String,
        options: Option<PublishOptions>,
    ) -> Result<ConfigurationStatus> {
        let options = options.unwrap_or_default();
        answer(self.limiter.start_call(|| Ok(Call::Publish(&document, options.to_core()?)))?, status).await
    }

    /// See `Admin.wait_for_version`.
    pub async fn wait_for_version(&self, version: i64, timeout: Span) -> Result<ConfigurationStatus> {
        let (version, timeout) = (unsigned("version", version)?, timeout.duration("timeout")?);
        answer(self.limiter.start_call(|| Ok(Call::WaitForVersion(version, timeout)))?, status).await
    }
}
