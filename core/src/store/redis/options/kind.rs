//! What an option is: a kind of value, and a row in the table of options.

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

/// How values of a kind are read, checked and shown.
pub(super) trait Kind {
    /// What a setter in code takes.
    type Argument;
    /// What is kept.
    type Value: Clone + PartialEq;
    /// How the text is written, where `allowed` does not say it.
    const FORM: &'static str = "";
    /// What those who list options are told of it.
    const SHOWN: OptionKind = OptionKind::Text;
    /// Whether a value must not be shown.
    const SECRET: bool = false;

    fn from_argument(argument: Self::Argument) -> Self::Value;

    /// The value of a text, which need not be in range; `None` when the text has another form.
    fn read(text: &str) -> Option<Self::Value>;

    /// Whether the value is one of those that a row allows.
    fn allows(allowed: &str, value: &Self::Value) -> bool;

    /// The value as a message shows it.
    fn show(value: &Self::Value) -> String;
}
