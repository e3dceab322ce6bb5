//! Events that a limiter publishes about its store and its configuration: it decides without the store, the store decides again, the
//! doctor found a problem, or a document was refused or is missing.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use polylimit_rules::decision::Degradation;
use polylimit_store::finding::{Finding, Severity};

/// An event for operators: see [`LimiterBuilder::on_degraded`](crate::LimiterBuilder::on_degraded).
///
/// `Display` writes a sentence for a log. It names the limiter's store, since a program may have several limiters, and
/// contains no key, user or password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DegradedEvent {
    /// A decision was made without the store, for the first time or after an [`Ended`](Self::Ended).
    #[non_exhaustive]
    Started {
        /// Why the first decision was made without the store.
        reason: Degradation,
        /// The limiter's store: see [`store`](DegradedEvent::store).
        store: Option<Arc<str>>,
        /// Why the store cannot be used: see [`cause`](DegradedEvent::cause).
        cause: Option<Arc<str>>,
    },
    /// The store decides again, and no decision was made without it for [`CALM`](Self::CALM).
    #[non_exhaustive]
    Ended {
        /// Why the first decision was made without the store.
        reason: Degradation,
        /// From the first decision without the store to the last one.
        lasted: Duration,
        /// How many decisions were made without the store.
        decisions: u64,
        /// The limiter's store: see [`store`](DegradedEvent::store).
        store: Option<Arc<str>>,
    },
    /// A problem: the limits of a document are not active because it was refused or is missing (subject `configuration`), or the
    /// doctor found a reason why limits cannot always be held. It examines the store once, in the background, for all limiters that
    /// share connections, and the limiter that started it publishes the findings; see
    /// [`doctor_after`](crate::redis::RedisOptions::doctor_after). [`Fine`](Severity::Fine): the limits are active again, or (subject
    /// `options`) options have no effect on the limiter's store.
    Finding(Finding),
}

/// The subject of findings about a configuration.
pub(crate) const CONFIGURATION: &str = "configuration";

impl DegradedEvent {
    /// How long the store must decide every request before that counts as the end: 3 seconds. So a store that fails now
    /// and then causes one pair of events, and each event occurs at most once in this time.
    pub const CALM: Duration = Duration::from_secs(3);

    /// The name, the same in every language: `started`, `ended` or `finding`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Ended { .. } => "ended",
            Self::Finding(_) => "finding",
        }
    }

    /// Why the first decision was made without the store; `None` for a finding.
    pub const fn reason(&self) -> Option<Degradation> {
        match self {
            Self::Started { reason, .. } | Self::Ended { reason, .. } => Some(*reason),
            Self::Finding(_) => None,
        }
    }

    /// The store of the limiter, without credentials: the address and the prefix of Redis, such as `redis.example:6379, prefix shop`,
    /// or the file of a local store. `None` for a memory store, and for a finding.
    pub fn store(&self) -> Option<&str> {
        match self {
            Self::Started { store, .. } | Self::Ended { store, .. } => store.as_deref(),
            Self::Finding(_) => None,
        }
    }

    /// Why the store cannot be used, as the doctor reports it, such as a password that the server refuses, a
    /// certificate that is not trusted, or rights that the user needs. `None` where the reason is sufficient, where the
    /// cause is not known, and for other events.
    pub fn cause(&self) -> Option<&str> {
        match self {
            Self::Started { cause, .. } => cause.as_deref(),
            Self::Ended { .. } | Self::Finding(_) => None,
        }
    }

    /// From the first decision without the store to the last one; zero unless this is an end.
    pub const fn lasted(&self) -> Duration {
        if let Self::Ended { lasted, .. } = self { *lasted } else { Duration::ZERO }
    }

    /// How many decisions were made without the store; 0 unless this is an end.
    pub const fn decisions(&self) -> u64 {
        if let Self::Ended { decisions, .. } = self { *decisions } else { 0 }
    }

    /// The doctor's finding; `None` for other events.
    pub const fn finding(&self) -> Option<&Finding> {
        if let Self::Finding(finding) = self { Some(finding) } else { None }
    }

    /// The severity: an end is [`Fine`](Severity::Fine), and a start a [`Problem`](Severity::Problem).
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Started { .. } => Severity::Problem,
            Self::Ended { .. } => Severity::Fine,
            Self::Finding(finding) => finding.severity,
        }
    }
}

impl fmt::Display for DegradedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { reason: Degradation::StoreFull, .. } => f.write_str(
                "the store is full of keys in use (store_full): new keys share one state a policy",
            )?,
            Self::Started { reason, .. } => write!(
                f,
                "the limiter decides without its store ({}): the outage policies answer",
                reason.name()
            )?,
            Self::Ended { reason, lasted, decisions, .. } => {
                let what = match reason {
                    Degradation::StoreFull => "the store has room for new keys again",
                    _ => "the limiter decides with its store again",
                };
                let (seconds, millis) = (lasted.as_secs(), lasted.subsec_millis());
                let plural = if *decisions == 1 { "" } else { "s" };
                write!(
                    f,
                    "{what}: {decisions} decision{plural} within {seconds}.{millis:03} s went without ({})",
                    reason.name()
                )?;
            }
            Self::Finding(Finding { subject: CONFIGURATION, message, .. }) => {
                write!(f, "the limiter's configuration: {message}")?;
            }
            Self::Finding(Finding {
                severity: Severity::Fine | Severity::Advice, subject, message, ..
            }) => {
                write!(f, "{subject}: {message}")?;
            }
            Self::Finding(Finding { subject, message, .. }) => {
                write!(f, "the limiter's store cannot be relied on: {subject}: {message}")?;
            }
        }
        if let Some(cause) = self.cause() {
            write!(f, "; {cause}")?;
        }
        match self.store() {
            Some(store) => write!(f, " [{store}]"),
            None => Ok(()),
        }
    }
}

/// The user's callback for events.
#[derive(Clone)]
pub(crate) struct Hook(Arc<dyn Fn(&DegradedEvent) + Send + Sync>);

impl Hook {
    pub(crate) fn new(hook: impl Fn(&DegradedEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    /// Calls the hook; a panic of the hook does not affect the decision.
    pub(crate) fn call(&self, event: &DegradedEvent) {
        let _ = catch_unwind(AssertUnwindSafe(|| (self.0)(event)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_sentence() {
        let ended = |reason, decisions| DegradedEvent::Ended {
            reason,
            lasted: Duration::from_micros(12_034_999),
            decisions,
            store: None,
        };
        let started = |reason, store: Option<&str>| DegradedEvent::Started {
            reason,
            store: store.map(Into::into),
            cause: store
                .map(|_| "the server at redis.example:6379 cannot be used: it does not answer".into()),
        };
        let finding = Finding::new(Severity::Problem, "memory", "it is small");
        let options =
            Finding::new(Severity::Fine, "options", "option deadline has no effect on the memory store");
        let table = [
            (
                started(Degradation::Unreachable, Some("redis.example:6379, prefix shop")),
                "the limiter decides without its store (unreachable): the outage policies answer; the server at \
                 redis.example:6379 cannot be used: it does not answer [redis.example:6379, prefix shop]",
            ),
            (
                ended(Degradation::Timeout, 340),
                "the limiter decides with its store again: 340 decisions within 12.034 s went without (timeout)",
            ),
            (
                started(Degradation::StoreFull, None),
                "the store is full of keys in use (store_full): new keys share one state a policy",
            ),
            (
                ended(Degradation::StoreFull, 1),
                "the store has room for new keys again: 1 decision within 12.034 s went without (store_full)",
            ),
            (DegradedEvent::Finding(finding), "the limiter's store cannot be relied on: memory: it is small"),
            (DegradedEvent::Finding(options), "options: option deadline has no effect on the memory store"),
        ];
        for (event, sentence) in table {
            assert_eq!(event.to_string(), sentence);
        }
    }
}
