//! What an option of a store is, for code that lists options or sets them by name.

/// One option of a store, for those who list them or take them by name: bindings, documentation and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreOption {
    /// The name: of the setter, for [`LimiterBuilder::option`](crate::LimiterBuilder::option), and of the URL's parameter where
    /// there is one.
    pub name: &'static str,
    /// What its values are.
    pub kind: OptionKind,
    /// What it is for; the names of other options stand in backticks.
    pub about: &'static str,
    /// Which values it may have.
    pub allowed: &'static str,
    /// The value that it has unless told otherwise, as text; `None` when there is none.
    pub default: Option<&'static str>,
    /// Whether its value is a secret that must not be shown.
    pub secret: bool,
}

/// What the values of an option are, for those who have durations and numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OptionKind {
    /// A duration, as text a whole number and one of `us`, `ms`, `s`, `m` and `h`.
    Duration,
    /// A number.
    Number,
    /// Something else.
    Text,
}
