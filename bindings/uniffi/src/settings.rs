//! What a limiter is made of.

use std::collections::HashMap;
use std::sync::Arc;

use polylimit::{LimiterBuilder, OptionKind};

use crate::clock::ManualClock;
use crate::error::Result;
use crate::policy::Policy;

/// What a limiter is made of.
#[derive(Debug, uniffi::Record)]
pub struct Settings {
    /// Where the states are kept, as a URL: `memory:`, `local:<name>` or one such as `redis://localhost`.
    #[uniffi(default)]
    pub store: Option<String>,
    /// The policies; their names differ.
    #[uniffi(default)]
    pub policies: Vec<Policy>,
    /// Options by their names, as text: see `store_options`.
    #[uniffi(default)]
    pub options: HashMap<String, String>,
    /// By which clock to decide, in tests.
    #[uniffi(default)]
    pub clock: Option<Arc<ManualClock>>,
}

impl Settings {
    pub(crate) fn build(self) -> Result<polylimit::Limiter> {
        let mut builder = polylimit::Limiter::builder();
        if let Some(store) = &self.store {
            builder = builder.store(store);
        }
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
            builder = builder.option(name, text);
        }
        if let Some(clock) = &self.clock {
            builder = builder.clock(clock.clock.clone());
        }
        Ok(builder.build()?)
    }
}

/// An option of a limiter.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct StoreOption {
    /// Its name.
    pub name: String,
    /// What its values are: `duration`, `number` or `text`.
    pub kind: String,
    /// What it is for.
    pub about: String,
    /// Which values it may have.
    pub allowed: String,
    /// The value that it has unless told otherwise.
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
    let row = |option: polylimit::StoreOption| StoreOption {
        name: option.name.to_owned(),
        kind: kind(option.kind).to_owned(),
        about: option.about.to_owned(),
        allowed: option.allowed.to_owned(),
        default_value: option.default.map(ToOwned::to_owned),
    };
    LimiterBuilder::options().into_iter().map(row).collect()
}
