//! How the values of an option are read, checked and shown.

use crate::store::option::OptionKind;

/// How values of a kind are read, checked and shown.
pub(crate) trait Kind {
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
