//! What the doctor reports about a store.

use std::fmt;

use serde::Serialize;

use polylimit_rules::names::named_enum;

named_enum! {
    /// The severity of a [`Finding`].
    #[derive(PartialOrd, Ord)]
    Severity {
        /// No action is needed.
        Fine = "fine",
        /// The store works, but could work better or more safely.
        Advice = "advice",
        /// Limits cannot be enforced, or not always.
        Problem = "problem",
    }
}

/// The result of one examination: what the doctor found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// What was examined, such as `version` or `rights`.
    pub subject: &'static str,
    /// What was found, and what to do about it. Contains no password and no key.
    pub message: String,
}

impl Finding {
    #[doc(hidden)]
    pub fn new(severity: Severity, subject: &'static str, message: impl Into<String>) -> Self {
        Self { severity, subject, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.severity.name(), self.subject, self.message)
    }
}
