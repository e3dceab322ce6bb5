//! Settings of a limiter: its store, policies, options and clock.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use polylimit::LimiterBuilder;
use polylimit::raw::{OptionKind, Suggestion};

use crate::error::{PolylimitError, Result, guarded};
use crate::number::{Span, signed, unsigned};
use crate::request::Policy;

/// A clock for tests: it stands still until it is set or advanced, and may go back.
#[derive(Debug, uniffi::Object)]
pub struct ManualClock {
    pub(crate) clock: polylimit::clock::ManualClock,
}

#[uniffi::export]
impl ManualClock {
    /// A clock that shows this time in microseconds since the Unix epoch, 0 to 2^53 - 1.
    #[uniffi::constructor]
    pub fn new(now_us: i64) -> Result<Arc<Self>> {
        guarded(|| {
            let clock = polylimit::clock::ManualClock::new(unsigned("now_us", now_us)?)?;
            Ok(Arc::new(Self { clock }))
        })
    }

    /// The time it shows, in microseconds since the Unix epoch.
    pub fn now_us(&self) -> i64 {
        signed(self.clock.now_us())
    }

    /// Sets the time, in microseconds since the Unix epoch, 0 to 2^53 - 1; it may go back.
    pub fn set(&self, now_us: i64) -> Result<()> {
        guarded(|| Ok(self.clock.set(unsigned("now_us", now_us)?)?))
    }

    /// Moves the time forward, by whole microseconds.
    pub fn advance(&self, by: Span) -> Result<()> {
        guarded(|| Ok(self.clock.advance(by.duration("by")?)?))
    }
}

/// The settings of a limiter. Their text form omits the store's URL and the values of options, which may contain passwords.
#[derive(uniffi::Record)]
#[uniffi::export(Debug, Display)]
pub struct Settings {
    /// The URL of the store: `memory:`, `local:<name>` or one such as `redis://localhost`. It may be left out, which is `memory:`, but not
    /// be null: that is a URL that the program has failed to read.
    #[uniffi(default = Some("memory:"))]
    pub store: Option<String>,
    /// The policies; their names differ.
    #[uniffi(default)]
    pub policies: Vec<Policy>,
    /// Options by their names, as text: see `store_options`.
    #[uniffi(default)]
    pub options: HashMap<String, String>,
    /// The clock, in tests.
    #[uniffi(default)]
    pub clock: Option<Arc<ManualClock>>,
    /// A document of policies, rules and lists, in TOML or JSON, that the program keeps itself. For one that is followed there
    /// are the options `configuration` and `copy`.
    #[uniffi(default)]
    pub document: Option<String>,
}

/// Refuses an option that has the name of another setting, or nearly so.
fn refuse_setting(option: &str) -> Result<()> {
    /// In these languages, `policies` and the like are no options.
    const SETTINGS: [&str; 4] = ["policies", "document", "clock", "store"];

    let options = LimiterBuilder::options();
    if options.iter().any(|known| known.name == option) {
        return Ok(());
    }
    let known = SETTINGS.into_iter().chain(options.iter().map(|known| known.name));
    match Suggestion::nearest(option, known) {
        Some(nearest) if SETTINGS.contains(&nearest) => Err(PolylimitError::InvalidArgument(format!(
            "option {option:?} is not known: {nearest} is a setting of its own"
        ))),
        _ => Ok(()),
    }
}

/// A missing variable of the environment must not silently give each process limits of its own.
const NO_STORE: &str = "the store's URL is missing: allowed is one such as redis://localhost, or memory: for limits of this process alone";

impl Settings {
    pub(crate) fn build(self) -> Result<polylimit::Limiter> {
        Ok(self.builder()?.build()?)
    }

    pub(crate) fn builder(self) -> Result<LimiterBuilder> {
        let store = self.store.ok_or_else(|| PolylimitError::InvalidArgument(NO_STORE.to_owned()))?;
        let mut builder = polylimit::Limiter::builder().store(&store);
        for policy in &self.policies {
            builder = builder.policy(policy.parsed()?);
            if let Some(outage) = &policy.outage {
                builder = builder.outage(&policy.name, outage.parse()?);
            }
            if let Some(lease) = &policy.lease {
                builder = builder.lease(&policy.name, lease.parse()?);
            }
        }
        for (name, text) in &self.options {
            refuse_setting(name)?;
            builder = builder.option(name, text);
        }
        if let Some(clock) = &self.clock {
            builder = builder.clock(clock.clock.clone());
        }
        if let Some(document) = &self.document {
            builder = builder.document(document);
        }
        Ok(builder)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text before the colon of a URL is its scheme; a text without a colon may be a secret.
        let scheme = self.store.as_deref().and_then(|url| url.split_once(':')).map(|(scheme, _)| scheme);
        let store = if self.store.is_some() { scheme.unwrap_or("?") } else { "missing" };
        let policies: Vec<_> = self.policies.iter().map(|policy| (&policy.name, &policy.quotas)).collect();
        f.debug_struct("Settings")
            .field("store", &format_args!("{store}:..."))
            .field("policies", &policies)
            .field("options", &self.options.keys().collect::<BTreeSet<_>>())
            .finish_non_exhaustive()
    }
}

/// An option of a limiter.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct StoreOption {
    /// Its name.
    pub name: String,
    /// The type of its values: `duration`, `number` or `text`.
    pub kind: String,
    /// Its purpose.
    pub about: String,
    /// Its allowed values.
    pub allowed: String,
    /// Its default value.
    pub default_value: Option<String>,
}

/// Every option of a limiter.
#[uniffi::export]
pub fn store_options() -> Vec<StoreOption> {
    let kind = |kind| match kind {
        OptionKind::Duration => "duration",
        OptionKind::Number => "number",
        _ => "text",
    };
    let row = |option: polylimit::raw::StoreOption| StoreOption {
        name: option.name.to_owned(),
        kind: kind(option.kind).to_owned(),
        about: option.about.to_owned(),
        allowed: option.allowed.to_owned(),
        default_value: option.default.map(ToOwned::to_owned),
    };
    LimiterBuilder::options().into_iter().map(row).collect()
}

/// The replacement for an option of another rate limiter, such as `use key`, if it is known.
#[uniffi::export]
pub fn suggestion(option: String) -> Option<String> {
    Suggestion::for_option(&option).map(|ours| ours.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_shows_no_secret() {
        let settings = Settings {
            store: Some("redis://user:hunter2@localhost/?password=hunter3".to_owned()),
            policies: Vec::new(),
            options: HashMap::from([("password".to_owned(), "hunter4".to_owned())]),
            clock: None,
            document: None,
        };
        let shown = format!("{settings} {settings:?}");
        assert!(!shown.contains("hunter") && !shown.contains("user"), "{shown}");
        assert!(shown.contains("redis") && shown.contains("password"), "{shown}");
    }

    #[test]
    fn option_with_the_name_of_a_setting_is_answered_with_the_setting() {
        let refused = |name: &str| refuse_setting(name).unwrap_err().to_string();
        assert_eq!(refused("polcies"), "option \"polcies\" is not known: policies is a setting of its own");
        assert_eq!(refused("document"), "option \"document\" is not known: document is a setting of its own");
        for other in ["deadline", "dedline", "outage.api"] {
            assert_eq!(refuse_setting(other), Ok(()));
        }
    }

    #[test]
    fn missing_url_of_the_store_is_an_invalid_argument() {
        let settings = Settings {
            store: None,
            policies: Vec::new(),
            options: HashMap::new(),
            clock: None,
            document: None,
        };
        let refused = settings.build().unwrap_err();
        assert_eq!(refused, PolylimitError::InvalidArgument(NO_STORE.to_owned()));
    }
}
