//! The configuration of a limiter as JavaScript sees it: its status and changes, and decisions on requests by their attributes.

use napi::Env;
use napi::bindgen_prelude::{Either, Uint8Array};
use napi_derive::napi;
use polylimit::admin::{ConfigurationStatus, PublishOptions};
use polylimit::document::{PolicyDecision, RequestDecision};
use polylimit::raw::{Answer, Call};

use crate::error::{Result, catch_panic, to_js_error};
use crate::exchange::{NativeExchange, no_answer};
use crate::limiter::NativeLimiter;
use crate::number::{TIMEOUT, duration, milliseconds, number, whole};
use crate::request_attributes::AttributesRow;
use crate::reservation::TermsSettings;

/// Which configuration is active.
#[napi(object, object_from_js = false)]
pub struct NativeConfiguration {
    pub source: String,
    pub version: f64,
    pub document_version: f64,
    /// Hexadecimal digits; empty before the first configuration.
    pub digest: String,
    /// Since the Unix epoch; 0 before the first configuration.
    pub applied_at_ms: f64,
    /// For how long the source has been unreachable; 0 when it is not.
    pub age_ms: f64,
    pub error: Option<String>,
}

impl From<ConfigurationStatus> for NativeConfiguration {
    fn from(status: ConfigurationStatus) -> Self {
        Self {
            source: status.source.into(),
            version: number(status.version),
            document_version: number(status.document_version),
            digest: status.digest.into(),
            applied_at_ms: milliseconds(status.applied_at_us),
            age_ms: milliseconds(status.unreachable_for_us),
            error: status.error.map(Into::into),
        }
    }
}

/// How a document is published.
#[napi(object, object_to_js = false)]
pub struct PublishSettings {
    pub expected_version: Option<f64>,
    pub by: Option<String>,
    pub why: Option<String>,
}

/// Text where the bytes are UTF-8. The type has no name: napi would write the name into the declarations, and not what it means.
fn key_value(key: &[u8]) -> Either<String, Uint8Array> {
    match std::str::from_utf8(key) {
        Ok(text) => Either::A(text.to_owned()),
        Err(_) => Either::B(Uint8Array::new(key.to_vec())),
    }
}

/// A policy that the rules apply to a request.
#[napi(object, object_from_js = false)]
pub struct NativeMatch {
    pub policy: String,
    pub key: Either<String, Uint8Array>,
    pub cost: f64,
    pub headroom: u8,
}

/// A policy with its decision on a request, which `loadDecision` reads.
#[napi(object, object_from_js = false)]
pub struct NativePolicyDecision {
    pub policy: String,
    pub key: Either<String, Uint8Array>,
    pub cost: f64,
    pub headroom: u8,
    pub reservation: Option<Either<String, Uint8Array>>,
}

/// The decision on a request by its attributes.
#[napi(object, object_from_js = false)]
pub struct NativeRequestDecision {
    pub allowed: bool,
    pub cause: Option<&'static str>,
    pub status: Option<u32>,
    /// `None` for never.
    pub retry_after_us: Option<f64>,
    pub decisions: Vec<NativePolicyDecision>,
}

impl NativePolicyDecision {
    fn of(made: &PolicyDecision) -> Self {
        Self {
            policy: made.policy.to_string(),
            key: key_value(&made.key),
            cost: number(made.cost),
            headroom: made.headroom,
            reservation: made.reservation.as_ref().map(|id| key_value(id.as_bytes())),
        }
    }
}

impl NativeRequestDecision {
    fn of(made: &RequestDecision) -> Self {
        Self {
            allowed: made.allowed,
            cause: made.cause.map(polylimit::decision::Cause::name),
            status: made.status().map(Into::into),
            retry_after_us: made.retry_after_us.map(number),
            decisions: made.decisions.iter().map(NativePolicyDecision::of).collect(),
        }
    }
}

/// What a candidate would have decided compared with the effective quotas.
#[napi(object, object_from_js = false)]
pub struct NativeCandidateCounts {
    pub both_allow: f64,
    pub only_live_denies: f64,
    pub only_candidate_denies: f64,
    pub both_deny: f64,
}

#[napi]
impl NativeLimiter {
    /// Which configuration is active; `None` for a limiter without one.
    #[napi]
    pub fn configuration(&self) -> Result<Option<NativeConfiguration>> {
        catch_panic(|| Ok(self.handle.limiter().admin().configuration().map(Into::into)))
    }

    /// Replaces the document that the program has given.
    #[napi]
    pub fn set_document(&self, text: String) -> Result<NativeConfiguration> {
        catch_panic(|| self.handle.limiter().admin().set_document(&text).map(Into::into).map_err(to_js_error))
    }

    #[napi]
    pub fn set_entry(&self, entry: String, value: String) -> Result<()> {
        catch_panic(|| self.handle.submit(&Call::SetEntry(&entry, &value)))
    }

    #[napi]
    pub fn delete_entry(&self, entry: String) -> Result<()> {
        catch_panic(|| self.handle.submit(&Call::DeleteEntry(&entry)))
    }

    /// Publishes a document to the source in the store.
    #[napi]
    pub fn publish(&self, document: String, settings: PublishSettings) -> Result<()> {
        catch_panic(|| {
            let (by, why) = (settings.by.unwrap_or_default(), settings.why.unwrap_or_default());
            let mut options = PublishOptions::default().by(&by).why(&why);
            if let Some(expected) = settings.expected_version {
                options = options.expected_version(whole("expectedVersion", expected, VERSIONS)?);
            }
            self.handle.submit(&Call::Publish(&document, options))
        })
    }

    /// Waits until a version of the configuration or a later one is active.
    #[napi]
    pub fn wait_for_version(&self, version: f64, timeout_ms: f64) -> Result<()> {
        catch_panic(|| {
            let version = whole("version", version, VERSIONS)?;
            self.handle.submit(&Call::WaitForVersion(version, duration("timeoutMs", timeout_ms, &TIMEOUT)?))
        })
    }

    /// The policies that the rules apply to a request.
    #[napi]
    pub fn matching(&self, env: Env, attributes: AttributesRow<'_>) -> Result<Vec<NativeMatch>> {
        catch_panic(|| {
            let read = attributes.read(env)?;
            let matches = self.handle.limiter().admin().matching(&read.attributes()).map_err(to_js_error)?;
            let matches = matches.iter().map(|applied| NativeMatch {
                policy: applied.policy.to_string(),
                key: key_value(&applied.key),
                cost: number(applied.cost),
                headroom: applied.headroom,
            });
            Ok(matches.collect())
        })
    }

    /// Decides about a request by its attributes, and leaves the decision or its ticket.
    #[napi]
    pub fn decide(&self, env: Env, attributes: AttributesRow<'_>, settings: TermsSettings<'_>) -> Result<()> {
        catch_panic(|| {
            let terms = settings.terms(env)?;
            let read = attributes.read(env)?;
            let request = read.attributes();
            self.handle.submit(&Call::Decide(&request, terms))
        })
    }

    /// How a policy's candidate compares with the effective quotas; `None` for a policy without one.
    #[napi]
    pub fn candidate_counts(&self, policy: String) -> Result<Option<NativeCandidateCounts>> {
        catch_panic(|| {
            let counts = self.handle.limiter().admin().candidate_counts(&policy);
            Ok(counts.map(|counts| NativeCandidateCounts {
                both_allow: number(counts.both_allow),
                only_live_denies: number(counts.only_live_denies),
                only_candidate_denies: number(counts.only_candidate_denies),
                both_deny: number(counts.both_deny),
            }))
        })
    }
}

#[napi]
impl NativeExchange {
    /// The newest configuration status.
    #[napi]
    pub fn configuration(&self) -> Result<NativeConfiguration> {
        catch_panic(|| match self.exchange.take_unread() {
            Some(Ok(Answer::Configuration(status))) => Ok(status.into()),
            _ => Err(no_answer()),
        })
    }

    /// The newest decision on a request; `loadDecision` reads those of its policies.
    #[napi]
    pub fn request_decision(&self) -> Result<NativeRequestDecision> {
        catch_panic(|| {
            let made = self.exchange.with_unread(|result| match result {
                Some(Ok(Answer::Request(made))) => Some(NativeRequestDecision::of(made)),
                _ => None,
            });
            made.ok_or_else(no_answer)
        })
    }
}

const VERSIONS: &str = "a whole number, up to 9007199254740991";
