//! How many units a request spends: a number, or the value of one of its attributes.

use crate::attribute::Attribute;
use crate::condition::Conditions;
use crate::key_template::{parse_placeholder, single_placeholder};
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::request::Request;

/// The maximum number of digits of a cost in an attribute.
const MAX_DIGITS: usize = 13;

/// The cost in a rule. `A` is how an attribute is referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cost<A = Attribute> {
    Units(u64),
    /// The attribute, which holds a number.
    Attribute(A),
}

impl Cost {
    /// Reads the text of a cost: `{attribute}`.
    ///
    /// # Errors
    /// Invalid argument: the text is not a placeholder of one attribute, or the rule's path does not capture it.
    pub(crate) fn parse(text: &str, when: &Conditions) -> Result<Self, Error> {
        let name = single_placeholder(text).ok_or_else(|| {
            Error::invalid_argument(format!(
                "cost is {}; allowed are a number from 0 to {} and one attribute, such as \"{{tokens}}\"",
                excerpt(text),
                Request::MAX_COST
            ))
        })?;
        Ok(Self::Attribute(parse_placeholder(name, when)?))
    }

    /// The same cost with its attribute mapped to another reference.
    pub(crate) fn map<B>(&self, mut refer: impl FnMut(&Attribute) -> B) -> Cost<B> {
        match self {
            Self::Units(units) => Cost::Units(*units),
            Self::Attribute(attribute) => Cost::Attribute(refer(attribute)),
        }
    }
}

impl<A> Cost<A> {
    /// The units of a request with these values.
    ///
    /// # Errors
    /// Invalid argument: the attribute is absent, or is not a number of 1 to 13 digits up to 10^12.
    pub(crate) fn units<'a>(&self, value: impl FnOnce(&A) -> Option<&'a [u8]>) -> Result<u64, Error> {
        match self {
            Self::Units(units) => Ok(*units),
            Self::Attribute(attribute) => value(attribute).and_then(parse_units).ok_or_else(|| {
                Error::invalid_argument(
                    "the attribute that gives the cost is absent or not a number; allowed are 1 to 13 digits, up to \
                     1000000000000",
                )
            }),
        }
    }
}

fn parse_units(digits: &[u8]) -> Option<u64> {
    if !(1..=MAX_DIGITS).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let units = digits.iter().fold(0, |units, digit| units * 10 + u64::from(digit - b'0'));
    (units <= Request::MAX_COST).then_some(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_holds_digits_up_to_the_largest_cost() {
        let cost = Cost::parse("{tokens}", &Conditions::default()).unwrap();
        for (value, units) in
            [("0", 0), ("7", 7), ("0012", 12), ("1000000000000", Request::MAX_COST), ("0000000000001", 1)]
        {
            assert_eq!(cost.units(|_| Some(value.as_bytes())), Ok(units), "{value}");
        }
        for value in [
            "",
            " 1",
            "1 ",
            "+1",
            "-1",
            "1.5",
            "1e3",
            "0x1",
            "\u{663}",
            "1000000000001",
            "00000000000001",
            "1_000",
        ] {
            assert!(cost.units(|_| Some(value.as_bytes())).is_err(), "{value}");
        }
        let longest = vec![b'9'; 100_000];
        assert!(cost.units(|_| Some(&longest)).is_err());
        assert!(cost.units(|_| None).is_err());
    }

    #[test]
    fn text_is_one_attribute() {
        for text in
            ["", "5", "{tokens", "tokens}", "{}", "{a,b}", "{a}{b}", "{{a}}", "{A}", "{path.id}", "{during}"]
        {
            assert!(Cost::parse(text, &Conditions::default()).is_err(), "{text}");
        }
        let message = Cost::parse("{tokens", &Conditions::default()).unwrap_err().message().to_owned();
        assert!(message.contains("\"{tokens\""), "{message}");
    }
}
