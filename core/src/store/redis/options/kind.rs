//! What an option is: a kind of value, and a row in the table of options.

/// One option of [`RedisOptions`](crate::RedisOptions), for those who list them: the documentation and tests of bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisOption {
    /// The name: of the URL's parameter, of the setter, and for [`RedisOptions::set`](crate::RedisOptions::set).
    pub name: &'static str,
    /// What it is for; the names of other options stand in backticks.
    pub about: &'static str,
    /// Which values it may have.
    pub allowed: &'static str,
    /// The value that it has unless told otherwise, as text; `None` when there is none.
    pub default: Option<&'static str>,
    /// Whether its value is a secret that must not be shown.
    pub secret: bool,
}

/// How values of a kind are read, checked and shown.
pub(super) trait Kind {
    /// What a setter in code takes.
    type Argument;
    /// What is kept.
    type Value: Clone + PartialEq;
    /// How the text is written, where `allowed` does not say it.
    const FORM: &'static str = "";
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
