//! The description of a store option, for code that lists options or sets them by name.

/// One option of a store, for code that lists options or sets them by name: bindings, documentation and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOption {
    /// The name: of the setter, for `LimiterBuilder::option`, and of the URL parameter
    /// if there is one.
    pub name: &'static str,
    /// The type of its values.
    pub kind: OptionKind,
    /// Its purpose; names of other options are in backticks.
    pub about: &'static str,
    /// The allowed values.
    pub allowed: &'static str,
    /// The default as text; `None` if there is none.
    pub default: Option<&'static str>,
    /// Whether its value is a secret that must not be shown.
    pub secret: bool,
}

/// The type of an option's values, for languages with their own types for durations and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OptionKind {
    /// A duration; as text, a whole number and one of `us`, `ms`, `s`, `m` and `h`.
    Duration,
    /// A number.
    Number,
    /// Any other text.
    Text,
}
