//! How the values of an option are parsed, checked and shown.

use crate::store::option::OptionKind;

/// How values of a kind of option are parsed, checked and shown.
pub(crate) trait Kind {
    /// The type that the setter takes.
    type Argument;
    /// The type that is stored.
    type Value: Clone + PartialEq;
    /// The text form, where `allowed` does not give it.
    const FORM: &'static str = "";
    /// The type in the public list of options.
    const SHOWN: OptionKind = OptionKind::Text;
    /// Whether a value must not be shown.
    const SECRET: bool = false;

    fn from_argument(argument: Self::Argument) -> Self::Value;

    /// Parses a value, which need not be in range; `None` when the text has another form.
    fn read(text: &str) -> Option<Self::Value>;

    /// Whether the value is allowed by its row.
    fn allows(allowed: &str, value: &Self::Value) -> bool;

    /// Formats the value for a message.
    fn show(value: &Self::Value) -> String;
}
