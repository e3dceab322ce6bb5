//! A policy: a named list of quotas that a request must all satisfy.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::error::{Error, excerpt};
use crate::groups::{GroupTable, Groups};
use crate::penalty::Penalty;
use crate::quota::calendar::KeyOptions;
use crate::quota::{Algorithm, Quota, parse_quotas};
use crate::report::{hex, percent_decoded, sha256};

/// A named list of one or more quotas: a request spends under all of them or under none.
///
/// The name appears in HTTP fields, keys and metrics, so it is a token of RFC 9110 (section 5.6.2): 1 to 64 of the
/// letters, digits and ``!#$%&'*+-.^_`|~``. Within a policy, two quotas differ in algorithm, period, step or buckets:
/// these identify a quota's state when numbers change.
///
/// ```
/// use polylimit::Policy;
///
/// let policy = Policy::parse("api", "10/s; 1000/h")?;
/// assert_eq!(policy.quotas().len(), 2);
/// assert_eq!(policy.to_string(), "api: 10/second; 1000/hour");
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    name: Arc<str>,
    quotas: Arc<[Quota]>,
    penalty: Option<Penalty>,
    groups: Option<Groups>,
    /// The name for clients, where that is another one.
    public_name: Option<Arc<str>>,
}

impl Policy {
    /// The longest name, in bytes.
    pub const MAX_NAME_LENGTH: usize = 64;
    /// The most quotas of one policy.
    pub const MAX_QUOTAS: usize = 16;
    /// The longest scope, in bytes.
    pub const MAX_SCOPE_LENGTH: usize = 256;

    /// Makes a policy of quotas.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the name is not a token of 1 to 64 bytes, when there
    /// are no quotas or more than 16, when two agree in algorithm, period, step and buckets, or when a leaky bucket is combined with
    /// concurrency.
    pub fn new(name: &str, quotas: impl IntoIterator<Item = Quota>) -> Result<Self, Error> {
        check_name(name)?;
        let quotas: Arc<[Quota]> = quotas.into_iter().take(Self::MAX_QUOTAS + 1).collect();
        if quotas.is_empty() || quotas.len() > Self::MAX_QUOTAS {
            let read = if quotas.is_empty() { "no quotas" } else { "more than 16" };
            return Err(Error::invalid_argument(format!(
                "policy {name} has {read}: allowed is 1 to {}",
                Self::MAX_QUOTAS
            )));
        }
        for (at, quota) in quotas.iter().enumerate() {
            if let Some(twin) = quotas[..at].iter().find(|other| other.identity() == quota.identity()) {
                return Err(Error::invalid_argument(format!(
                    "policy {name} has both {twin} and {quota}: two quotas have to differ in algorithm, period, step \
                     or buckets, so that what was used can be distinguished"
                )));
            }
        }
        let has = |algorithm| quotas.iter().find(|quota| quota.algorithm() == algorithm);
        if let (Some(queue), Some(slots)) = (has(Algorithm::LeakyBucket), has(Algorithm::Concurrency)) {
            return Err(Error::invalid_argument(format!(
                "policy {name} has both {queue} and {slots}: a leaky_bucket cannot be reserved, and concurrency is only ever \
                 reserved; use a token_bucket"
            )));
        }
        Ok(Self { name: name.into(), quotas, penalty: None, groups: None, public_name: None })
    }

    /// The policy with the calendar of a key, for requests of a group.
    ///
    /// # Errors
    /// Invalid argument: two quotas are the same then, so that what was used could not be distinguished.
    #[doc(hidden)]
    pub fn of_key(&self, own: &KeyOptions) -> Result<Self, Error> {
        let quotas = self.quotas.iter().map(|quota| quota.of_key(own));
        let groups = self.groups.as_ref().map(|groups| groups.of(own.group.as_deref()));
        Ok(Self { groups, ..Self::new(&self.name, quotas)?.with_penalty(self.penalty) })
    }

    /// Makes a policy from quotas as text, separated by `;`.
    ///
    /// # Errors
    /// As for [`new`](Self::new), and when the text is not a list of quotas; see [`Quota`].
    pub fn parse(name: &str, quotas: &str) -> Result<Self, Error> {
        Self::new(name, parse_quotas(quotas)?)
    }

    /// A policy that is named after its quotas, so that all requests with the same quotas, in every language, share one
    /// budget. With a scope it is named after both. See [`Limiter::policy_for`](crate::Limiter::policy_for).
    #[doc(hidden)]
    pub fn one_off(quotas: &str, scope: Option<&str>) -> Result<Self, Error> {
        let policy = Self::new("unnamed", parse_quotas(quotas)?)?;
        let text = policy.quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join("&");
        // The text of a quota contains no `*`, `|`, `.`, backtick, `&` or `^`, and a scope contains no `^`: different pairs of quotas and
        // scope get different names. A zone may contain `+` and `:`.
        let mut name =
            text.replace('+', "*").replace(':', "`").replace('/', "|").replace(' ', "+").replace('=', ".");
        let mut public_name = None;
        if let Some(scope) = scope {
            check_scope(scope)?;
            public_name = Some(public(&name, scope).into());
            name.push('^');
            for byte in scope.bytes() {
                if is_token_byte(byte) && !b"%^".contains(&byte) {
                    name.push(char::from(byte));
                } else {
                    let _ = write!(name, "%{byte:02X}");
                }
            }
        }
        if name.len() <= Self::MAX_NAME_LENGTH {
            return Ok(Self { name: name.into(), public_name, ..policy });
        }
        let name = format!("#{}", hash(&name, 20));
        Ok(Self { name: name.into(), public_name, ..policy })
    }

    /// The policy with a name that was made of its quotas, and of a scope where it has one; `None` for every other name, and for one
    /// that was too long to hold them.
    #[doc(hidden)]
    pub fn of_one_off_name(name: &str) -> Option<Self> {
        let (quotas, scope) = match name.split_once('^') {
            Some((quotas, scope)) => (quotas, Some(percent_decoded(scope)?)),
            None => (name, None),
        };
        let quotas = quotas.replace('|', "/").replace('+', " ").replace('.', "=").replace('&', ";");
        let quotas = quotas.replace('*', "+").replace('`', ":");
        Self::one_off(&quotas, scope.as_deref()).ok().filter(|policy| policy.name() == name)
    }

    /// Refuses a name that is no token of 1 to 64 bytes.
    #[doc(hidden)]
    pub fn check_name(name: &str) -> Result<(), Error> {
        check_name(name)
    }

    /// Whether a text that may be either, as in a [`Request`](crate::Request), is a list of quotas and not a policy's name: names
    /// contain neither `/` nor spaces.
    pub fn is_quotas(text: &str) -> bool {
        text.contains(|c: char| c == '/' || c.is_whitespace())
    }

    /// The name: a token of RFC 9110, 1 to 64 bytes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name that clients see in the fields of responses and in problem documents. It is the [name](Self::name), but for quotas
    /// with a scope: a scope may be the pattern of a route or the name of a function, so clients see four hexadecimal digits of
    /// its SHA-256 in its place, as in `100|minute~9f3a`.
    pub fn public_name(&self) -> &str {
        self.public_name.as_ref().unwrap_or(&self.name)
    }

    /// The quotas, in the order in which they were given.
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The same policy with a penalty for keys that are denied too often.
    #[must_use]
    #[doc(hidden)]
    pub fn with_penalty(self, penalty: Option<Penalty>) -> Self {
        Self { penalty, ..self }
    }

    /// The same policy, whose quotas are shared by groups; for requests of none of those that have a name.
    ///
    /// # Errors
    /// Invalid argument: a quota cannot be divided among these groups.
    #[doc(hidden)]
    pub fn with_groups(self, table: Option<&Arc<GroupTable>>) -> Result<Self, Error> {
        let Some(table) = table else { return Ok(self) };
        let quotas = self.quotas.iter().map(|quota| quota.grouped(table)).collect::<Result<_, _>>()?;
        Ok(Self { quotas, groups: Some(Groups::new(Arc::clone(table))), ..self })
    }

    /// As [`with_groups`](Self::with_groups), for requests of the same group.
    ///
    /// # Errors
    /// As for [`with_groups`](Self::with_groups).
    #[doc(hidden)]
    pub fn shared_by(self, groups: &Groups) -> Result<Self, Error> {
        Ok(Self { groups: Some(groups.clone()), ..self.with_groups(Some(&groups.table))? })
    }

    #[doc(hidden)]
    pub fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    #[doc(hidden)]
    pub fn penalty(&self) -> Option<&Penalty> {
        self.penalty.as_ref()
    }

    /// Whether requests can only be reserved under it, because of a quota of concurrency.
    #[doc(hidden)]
    pub fn is_only_reserved(&self) -> bool {
        self.quotas.iter().any(|quota| !quota.algorithm().is_rate())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        for (at, quota) in self.quotas.iter().enumerate() {
            write!(f, "{}{quota}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// As its name and its quotas, `{"name": "api", "quotas": ["10/second", "1000/hour"]}`. The penalty of a policy document is not part of it.
impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Policy", 2)?;
        fields.serialize_field("name", &*self.name)?;
        fields.serialize_field("quotas", &*self.quotas)?;
        fields.end()
    }
}

/// From a name and quotas, which [`Policy::new`] checks. A name that was made of these quotas, as that of a policy without a name of its
/// own, stands for the same policy again.
impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename = "Policy", deny_unknown_fields)]
        struct Fields<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            quotas: Vec<Quota>,
        }
        let Fields { name, quotas } = Fields::deserialize(deserializer)?;
        let policy = Self::new(&name, quotas).map_err(de::Error::custom)?;
        Ok(Self::of_one_off_name(&name).filter(|named| named.quotas == policy.quotas).unwrap_or(policy))
    }
}

/// The name for clients of quotas with this name and a scope.
fn public(quotas: &str, scope: &str) -> String {
    let scope = hash(scope, 2);
    if quotas.len() + 1 + scope.len() <= Policy::MAX_NAME_LENGTH {
        return format!("{quotas}~{scope}");
    }
    format!("#{}~{scope}", hash(quotas, 4))
}

/// The first bytes of a text's SHA-256, as hexadecimal digits.
fn hash(text: &str, bytes: usize) -> String {
    hex(&sha256(text.as_ref())[..bytes])
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn check_scope(scope: &str) -> Result<(), Error> {
    if (1..=Policy::MAX_SCOPE_LENGTH).contains(&scope.len()) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "scope {} ({} bytes): allowed is a text of 1 to {} bytes",
        excerpt(scope),
        scope.len(),
        Policy::MAX_SCOPE_LENGTH
    )))
}

fn check_name(name: &str) -> Result<(), Error> {
    if (1..=Policy::MAX_NAME_LENGTH).contains(&name.len()) && name.bytes().all(is_token_byte) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "policy name {} ({} bytes): allowed are 1 to 64 letters, digits and !#$%&'*+-.^_`|~",
        excerpt(name),
        name.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_token_of_64_bytes() {
        for name in ["a", "api-v1.2_x~|`", &"x".repeat(64)] {
            assert_eq!(Policy::parse(name, "1/s").unwrap().name(), name);
        }
        for name in ["", "a b", "é", "a\"b", "a\0", "{a}", &"x".repeat(65)] {
            assert!(Policy::parse(name, "1/s").unwrap_err().to_string().contains("allowed are 1 to 64"));
        }
    }

    #[test]
    fn policies_are_serialized_as_name_and_quotas() {
        let named = Policy::parse("api", "10/s; 1000/h token_bucket burst=5").unwrap();
        let json = serde_json::to_string(&named).unwrap();
        assert_eq!(json, r#"{"name":"api","quotas":["10/second","1000/hour token_bucket burst=5"]}"#);
        let scoped = Policy::one_off("100/60s; 5 concurrent", Some("GET /users/{id}")).unwrap();
        for policy in [named, Policy::one_off("100/60s", None).unwrap(), scoped] {
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
        }
        for (json, refused) in [
            (r#"{"name":"a b","quotas":["1/s"]}"#, "policy name \"a b\" (3 bytes): allowed"),
            (r#"{"name":"a","quotas":["1/s","1/x"]}"#, "column 3: read \"x\""),
            (r#"{"name":"a","quotas":[]}"#, "policy a has no quotas"),
            (r#"{"name":"a","quotas":["1/s"],"burst":1}"#, "unknown field `burst`"),
        ] {
            let error = serde_json::from_str::<Policy>(json).unwrap_err().to_string();
            assert!(error.contains(refused), "{error}");
        }
    }

    #[test]
    fn a_one_off_policy_is_named_for_its_quotas() {
        let name = |quotas| Policy::one_off(quotas, None).unwrap().name().to_owned();
        assert_eq!(name("100/60s"), "100|minute");
        assert_eq!(name("10/s token_bucket burst=20; 1_000/h"), "10|second+token_bucket+burst.20&1000|hour");
        let long = "1/s; 1/m; 1/h; 1/d; 1/w; 1/2s; 1/2m; 1/2h; 1/2d; 1/2w; 1/3s";
        assert_eq!(name(long), "#2860dd79ed1a337f271f357278d321769f3a645a");
        for quotas in ["100/60s", long] {
            assert!(check_name(&name(quotas)).is_ok());
        }
        assert_eq!(name("9/month zone=Europe/Berlin"), "9|month+zone.Europe|Berlin");
        assert_eq!(name("9/day zone=+05:30"), "9|day+zone.*05`30");
        assert!(Policy::one_off("100/fortnight", None).unwrap_err().to_string().contains("month"));
    }

    #[test]
    fn a_one_off_policy_is_read_from_its_name() {
        for (quotas, scope) in [
            ("100/60s", None),
            ("10/s token_bucket burst=20; 1_000/h excess=10%", None),
            ("20 concurrent; 5/15m sliding_log count_denied", None),
            ("9/month from=15 zone=Europe/Berlin", None),
            ("9/day zone=+05:30; 9/year zone=Etc/GMT+2", Some("GET /a")),
            ("100/60s", Some("GET /users/{id}")),
            ("1/s fixed_window aligned", Some("a^b%C3é")),
        ] {
            let policy = Policy::one_off(quotas, scope).unwrap();
            assert_eq!(Policy::of_one_off_name(policy.name()), Some(policy));
        }
        let hashed = Policy::one_off("100/60s", Some(&"x".repeat(256))).unwrap();
        for name in ["api", "", "100|months", "100|60s", "1_00|minute", hashed.name(), "100|minute^%ff"] {
            assert_eq!(Policy::of_one_off_name(name), None, "{name}");
        }
    }

    #[test]
    fn clients_see_no_scope() {
        let policy = |quotas: &str, scope| Policy::one_off(quotas, scope).unwrap();
        let named = Policy::parse("api^x", "1/s").unwrap();
        assert_eq!(named.public_name(), "api^x");
        assert_eq!(policy("100/60s", None).public_name(), "100|minute");
        let scoped = policy("100/60s", Some("GET /users/{id}"));
        assert_eq!(scoped.name(), "100|minute^GET%20%2Fusers%2F{id}".replace('{', "%7B").replace('}', "%7D"));
        assert_eq!(scoped.public_name(), "100|minute~e870");
        assert_ne!(policy("100/60s", Some("GET /")).public_name(), scoped.public_name());
        let long = "x".repeat(256);
        for quotas in ["1/s", "1/s; 2/m; 3/h; 4/d; 5/7d; 6/30d; 7/60d; 8/90d"] {
            let scoped = policy(quotas, Some(&long));
            assert!(check_name(scoped.public_name()).is_ok() && !scoped.public_name().contains('x'));
        }
    }

    #[test]
    fn a_scope_makes_another_policy_of_the_same_quotas() {
        let name =
            |quotas: &str, scope: &str| Policy::one_off(quotas, Some(scope)).unwrap().name().to_owned();
        assert_eq!(name("100/60s", "login"), "100|minute^login");
        assert_eq!(name("100/60s", "GET /users/{id}"), "100|minute^GET%20%2Fusers%2F%7Bid%7D");
        assert_eq!(name("100/60s", "a^b%C3é"), "100|minute^a%5Eb%25C3%C3%A9");
        assert!(name("100/60s", &"x".repeat(256)).starts_with('#'));
        assert_ne!(name("100/60s", &"x".repeat(256)), name("100/60s", &"x".repeat(255)));
        for scope in ["login", "\0 /{}", &"é".repeat(128)] {
            assert!(check_name(&name("100/60s", scope)).is_ok());
        }
        for scope in ["", &"x".repeat(257)] {
            let refused = Policy::one_off("100/60s", Some(scope)).unwrap_err().to_string();
            assert!(refused.contains("allowed is a text of 1 to 256 bytes"), "{refused}");
        }
    }

    #[test]
    fn quotas_are_told_apart() {
        assert!(
            Policy::parse("a", "1/s; 2/s")
                .unwrap_err()
                .to_string()
                .contains("has both 1/second and 2/second")
        );
        Policy::parse("a", "1/s; 1/s buckets=1; 1/s token_bucket; 1/s token_bucket step=1; 1/m").unwrap();
        assert!(Policy::new("a", []).unwrap_err().to_string().contains("no quotas"));
        let many = (1..=17).map(|seconds| format!("1/{seconds}s")).collect::<Vec<_>>().join(";");
        assert!(Policy::parse("a", &many).unwrap_err().to_string().contains("more than 16"));
    }
}
