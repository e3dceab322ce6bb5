//! The conditions under which a rule matches a request.

use crate::attribute::Attribute;
use crate::client_address::address::Network;
use crate::path::PathPattern;
use crate::router_paths::RouterPaths;
use crate::schedule::DailySpan;
use polylimit_rules::error::{Error, excerpt};

/// The conditions of `match` or of `unless`, which must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    conditions: Vec<Condition>,
}

impl Conditions {
    pub(crate) fn push(&mut self, condition: Condition) {
        self.conditions.push(condition);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.iter()
    }

    /// Whether a path of these conditions has a capture with this name.
    pub(crate) fn capture(&self, name: &str) -> bool {
        self.conditions.iter().any(|condition| match condition {
            Condition::Path(patterns) => patterns.iter().any(|pattern| pattern.captures(name)),
            _ => false,
        })
    }
}

/// Alternatives, one of which holds. `A` is how an attribute is referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition<A = Attribute> {
    Text(A, Vec<TextTest>),
    Client(Vec<ClientTest>),
    Path(Vec<PathPattern>),
    During(Vec<DailySpan>),
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextTest {
    Exact(Box<[u8]>),
    /// `abc*`
    Prefix(Box<[u8]>),
    /// `*`
    Present,
    /// `!`
    Absent,
}

/// A test of the client's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientTest {
    Network(Network),
    Present,
    Absent,
}

impl Condition {
    /// A condition without alternatives yet, about `method`, `path`, `client`, `header.NAME`, `during`, or an attribute that
    /// the application provides.
    ///
    /// # Errors
    /// Invalid argument: no condition can be about this name.
    pub(crate) fn about(name: &str) -> Result<Self, Error> {
        if name == "during" {
            return Ok(Self::During(Vec::new()));
        }
        match Attribute::parse(name)? {
            Attribute::Path => Ok(Self::Path(Vec::new())),
            Attribute::Client => Ok(Self::Client(Vec::new())),
            Attribute::Capture(_) => Err(Error::invalid_argument(format!(
                "a condition is about {}; allowed is path, whose text names segments",
                excerpt(name)
            ))),
            attribute => Ok(Self::Text(attribute, Vec::new())),
        }
    }

    /// Adds an alternative.
    ///
    /// # Errors
    /// Invalid argument: the text is not a test for this condition's subject.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), Error> {
        match self {
            Self::Text(Attribute::Method, tests) => tests.push(TextTest::parse_method(text)?),
            Self::Text(Attribute::Provided(name), tests) if **name == *"route" => {
                tests.push(TextTest::parse_route(text)?);
            }
            Self::Text(_, tests) => tests.push(TextTest::parse(text)?),
            Self::Client(tests) => tests.push(ClientTest::parse(text)?),
            Self::Path(patterns) => patterns.push(PathPattern::parse(text)?),
            Self::During(spans) => spans.push(DailySpan::parse(text)?),
        }
        Ok(())
    }

    /// The same condition with another reference to its attribute, for paths as this router reads them.
    pub(crate) fn compile<B>(
        &self,
        refer: impl FnOnce(&Attribute) -> B,
        router: RouterPaths,
    ) -> Condition<B> {
        match self {
            Self::Text(attribute, tests) => {
                let mut tests = tests.clone();
                // Handlers of GET also respond to HEAD.
                if *attribute == Attribute::Method && tests.iter().any(|test| test.exact() == Some(b"GET")) {
                    tests.push(TextTest::Exact(b"HEAD".as_slice().into()));
                }
                Condition::Text(refer(attribute), tests)
            }
            Self::Client(tests) => Condition::Client(tests.clone()),
            Self::Path(patterns) => {
                Condition::Path(patterns.iter().map(|pattern| pattern.for_router(router)).collect())
            }
            Self::During(spans) => Condition::During(spans.clone()),
        }
    }
}

impl TextTest {
    fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "*" => return Ok(Self::Present),
            "!" => return Ok(Self::Absent),
            _ => {}
        }
        let (prefix, is_prefix) = text.strip_suffix('*').map_or((text, false), |prefix| (prefix, true));
        if prefix.is_empty() || prefix.contains('*') || prefix.starts_with('!') {
            return Err(Error::invalid_argument(format!(
                "condition is {}; allowed are a text without * that does not start with !, a prefix such as \"abc*\", \
                 \"*\" for present and \"!\" for absent",
                excerpt(text)
            )));
        }
        let bytes = prefix.as_bytes().into();
        Ok(if is_prefix { Self::Prefix(bytes) } else { Self::Exact(bytes) })
    }

    /// Reads a test of a method. Clients send methods in upper case, so one in lower case means the same.
    fn parse_method(text: &str) -> Result<Self, Error> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_suffix('*').unwrap_or(&upper);
        if upper != "*" && upper != "!" && !is_method(name) {
            return Err(refuse_method("a condition on method is", text));
        }
        Self::parse(&upper)
    }

    /// Reads a test of a route, whose last segment may be `{*name}`.
    fn parse_route(text: &str) -> Result<Self, Error> {
        match text.strip_suffix('}').and_then(|text| text.split_once("/{*")) {
            Some((before, name)) if !before.contains('*') && !name.contains(['*', '/']) => {
                Ok(Self::Exact(text.as_bytes().into()))
            }
            _ => Self::parse(text),
        }
    }

    /// The only value that passes, if there is just one.
    pub(crate) fn exact(&self) -> Option<&[u8]> {
        match self {
            Self::Exact(value) => Some(value),
            _ => None,
        }
    }

    /// Whether a value passes. An absent one is `None`, never empty.
    pub(crate) fn passes(&self, value: Option<&[u8]>) -> bool {
        match (self, value) {
            (Self::Exact(text), Some(value)) => **text == *value,
            (Self::Prefix(prefix), Some(value)) => value.starts_with(prefix),
            (Self::Present, value) => value.is_some(),
            (Self::Absent, value) => value.is_none(),
            (_, None) => false,
        }
    }
}

impl ClientTest {
    /// The network whose addresses pass, if the test is a network.
    pub(crate) fn network(&self) -> Option<Network> {
        match self {
            Self::Network(network) => Some(*network),
            Self::Present | Self::Absent => None,
        }
    }

    fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "*" => Ok(Self::Present),
            "!" => Ok(Self::Absent),
            _ => Ok(Self::Network(Network::parse(text)?)),
        }
    }
}

/// Whether an HTTP client can send a method: a token of RFC 9110, section 5.6.2.
pub fn is_method(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

pub fn refuse_method(what: &str, text: &str) -> Error {
    Error::invalid_argument(format!(
        "{what} {}, which no client can send: allowed is a method such as GET or POST",
        excerpt(text)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(name: &str, text: &str) -> Result<Condition, Error> {
        let mut condition = Condition::about(name)?;
        condition.add(text)?;
        Ok(condition)
    }

    #[test]
    fn value_is_exact_has_a_prefix_is_present_or_absent() {
        for (test, passing, failing) in [
            ("gold", &[Some("gold")][..], &[Some("golden"), Some("Gold"), None][..]),
            ("free*", &[Some("free"), Some("free-2026")], &[Some("fre"), Some("a free"), None]),
            ("*", &[Some("x")], &[None]),
            ("!", &[None], &[Some("x"), Some("!")]),
        ] {
            let test = TextTest::parse(test).unwrap();
            assert!(passing.iter().all(|value| test.passes(value.map(str::as_bytes))), "{test:?}");
            assert!(!failing.iter().any(|value| test.passes(value.map(str::as_bytes))), "{test:?}");
        }
    }

    #[test]
    fn subject_decides_what_a_text_means() {
        for text in ["POST", "post"] {
            let test = TextTest::Exact(b"POST".as_slice().into());
            assert_eq!(condition("method", text), Ok(Condition::Text(Attribute::Method, vec![test])));
        }
        assert!(
            matches!(condition("method", "prop*"), Ok(Condition::Text(_, tests)) if tests[0].passes(Some(b"PROPFIND")))
        );
        for (text, test) in [("/a/{b}/{*c}", TextTest::Exact as fn(_) -> _), ("/a/*", TextTest::Prefix)] {
            let value = text.strip_suffix('*').unwrap_or(text).as_bytes().into();
            let expected = Condition::Text(Attribute::Provided("route".into()), vec![test(value)]);
            assert_eq!(condition("route", text), Ok(expected));
        }
        assert!(matches!(condition("header.x-api-key", "*"), Ok(Condition::Text(Attribute::Header(_), _))));
        assert!(matches!(condition("client", "192.0.2.0/24"), Ok(Condition::Client(_))));
        assert!(matches!(condition("path", "/v1/{id}"), Ok(Condition::Path(_))));
        assert!(matches!(condition("during", "00:00-01:00"), Ok(Condition::During(_))));
    }

    #[test]
    fn other_text_is_refused() {
        for (name, text, about) in [
            ("method", "", "no client can send"),
            ("method", "G T", "\"G T\", which no client can send"),
            ("method", "!GET", "\"!GET\""),
            ("method", "G*T", "\"G*T\""),
            ("route", "/a/{*x}/*b", "\"/a/{*x}/*b\""),
            ("user", "/a/{*x}", "\"/a/{*x}\""),
            ("user", "", "\"\""),
            ("user", "a*b", "\"a*b\""),
            ("user", "**", "\"**\""),
            ("user", "!root", "\"!root\""),
            ("client", "10.0.0.1/8", "\"10.0.0.1/8\""),
            ("client", "loopback", "\"loopback\""),
            ("client", "10.*", "\"10.*\""),
            ("path", "*", "\"*\""),
            ("path", "!", "\"!\""),
            ("during", "25:00-26:00", "25:00"),
            ("User", "x", "\"User\""),
            ("header", "x", "\"header\""),
            ("path.id", "x", "\"path.id\""),
            ("key", "x", "\"key\""),
        ] {
            let message = condition(name, text).unwrap_err().message().to_owned();
            assert!(message.contains(about), "{name} = {text}: {message}");
        }
    }

    #[test]
    fn captures_are_those_of_paths() {
        let mut conditions = Conditions::default();
        assert!(!conditions.capture("id"));
        conditions.push(condition("user", "id").unwrap());
        conditions.push(condition("path", "/v1/{id}").unwrap());
        assert!(conditions.capture("id") && !conditions.capture("v1"));
    }
}
