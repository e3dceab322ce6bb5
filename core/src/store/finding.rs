//! What the doctor reports about a store.

use std::fmt;

/// How much a [`Finding`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// All is well.
    Fine,
    /// It works, and could work better or more safely.
    Advice,
    /// Limits cannot be held, or not always.
    Problem,
}

impl Severity {
    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Advice => "advice",
            Self::Problem => "problem",
        }
    }
}

/// Something that was looked at: what was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What was looked at, such as `version` or `rights`.
    pub subject: &'static str,
    /// What was found, and what to do about it. Holds no password and no key.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.severity.name(), self.subject, self.message)
    }
}
