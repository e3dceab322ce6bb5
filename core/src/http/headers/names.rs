//! The names of the fields, which a program may change.

use std::borrow::Cow;
use std::sync::Arc;

use crate::http::headers::{HeaderSettings, HeaderStyle};
use polylimit_rules::error::{Error, excerpt};

/// A field whose name a program may change.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Limit,
    Policy,
    LegacyLimit,
    LegacyRemaining,
    LegacyReset,
    Outage,
    Over,
}

const FIELD_COUNT: usize = 7;

/// The default names, in the order of [`Field`].
const DEFAULT_NAMES: [&str; FIELD_COUNT] = [
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-outage",
    "x-ratelimit-over",
];

/// Names in place of the default ones. Clones share them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FieldNames(Arc<[Cow<'static, str>; FIELD_COUNT]>);

impl HeaderSettings {
    /// The length of the longest name of a field, in bytes.
    pub const MAX_NAME_LENGTH: usize = 64;

    /// Other names for fields: pairs of a default name and the name in its place. The default names are `ratelimit`,
    /// `ratelimit-policy`, `x-ratelimit-limit`, `x-ratelimit-remaining`, `x-ratelimit-reset`, `x-ratelimit-outage` and
    /// `x-ratelimit-over`. An empty name turns its field off. Names are sent in lower case.
    ///
    /// ```
    /// use polylimit::http::headers::{HeaderSettings, HeaderStyle};
    ///
    /// let names = [("x-ratelimit-limit", "X-Rate-Limit-Limit"), ("x-ratelimit-reset", "")];
    /// let settings = HeaderSettings::default().style(HeaderStyle::Legacy).names(names)?;
    /// assert!(settings.names([("retry-after", "x-wait")]).is_err());
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when a field is not one of these, when a name is not a token of
    /// RFC 9110 of at most 64 bytes or is `retry-after`, and when two fields would have the same name.
    pub fn names<F: AsRef<str>, N: AsRef<str>>(
        mut self,
        names: impl IntoIterator<Item = (F, N)>,
    ) -> Result<Self, Error> {
        let mut all = match &self.names {
            Some(FieldNames(names)) => (**names).clone(),
            None => DEFAULT_NAMES.map(Cow::Borrowed),
        };
        for (field, name) in names {
            let (field, name) = (field.as_ref(), name.as_ref());
            let Some(at) = DEFAULT_NAMES.iter().position(|known| known.eq_ignore_ascii_case(field)) else {
                return Err(Error::invalid_argument(format!(
                    "header name for field {}: use one of {}",
                    excerpt(field),
                    DEFAULT_NAMES.join(", ")
                )));
            };
            all[at] = checked(field, name)?.into();
        }
        for (at, name) in all.iter().enumerate() {
            if let Some(other) = all[..at].iter().position(|other| other == name && !name.is_empty()) {
                return Err(Error::invalid_argument(format!(
                    "{} and {} would both have the header name {}: allowed are different names, or an empty one for a field \
                     that is not sent",
                    DEFAULT_NAMES[other],
                    DEFAULT_NAMES[at],
                    excerpt(name)
                )));
            }
        }
        let is_default = all.iter().eq(&DEFAULT_NAMES);
        self.names = (!is_default).then(|| FieldNames(all.into()));
        Ok(self)
    }

    /// The names of the fields that responses may have with these settings.
    pub(crate) fn sent_names(&self) -> Vec<Cow<'static, str>> {
        let of_style: &[Field] = match self.style {
            HeaderStyle::Ietf => &[Field::Limit, Field::Policy],
            HeaderStyle::Legacy => &[Field::LegacyLimit, Field::LegacyRemaining, Field::LegacyReset],
            HeaderStyle::Both => {
                &[Field::Limit, Field::Policy, Field::LegacyLimit, Field::LegacyRemaining, Field::LegacyReset]
            }
            HeaderStyle::None => &[],
        };
        let always: &[Field] =
            if self.style == HeaderStyle::None { &[] } else { &[Field::Outage, Field::Over] };
        let names = of_style.iter().chain(always).filter_map(|field| self.name_of(*field));
        names.chain([Cow::Borrowed("retry-after")]).collect()
    }

    /// The name of a field; `None` when it is turned off.
    pub(crate) fn name_of(&self, field: Field) -> Option<Cow<'static, str>> {
        let at = field as usize;
        match &self.names {
            None => Some(Cow::Borrowed(DEFAULT_NAMES[at])),
            Some(FieldNames(names)) => Some(names[at].clone()).filter(|name| !name.is_empty()),
        }
    }
}

/// A name in lower case.
fn checked(field: &str, name: &str) -> Result<String, Error> {
    // RFC 9110, section 5.6.2.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_retry_after = name.eq_ignore_ascii_case("retry-after");
    if name.len() > HeaderSettings::MAX_NAME_LENGTH || !name.bytes().all(is_token) || is_retry_after {
        return Err(Error::invalid_argument(format!(
            "header name {} for {field}: allowed are letters, digits and !#$%&'*+-.^_`|~, up to {} bytes, and not retry-after; \
             an empty name turns the field off",
            excerpt(name),
            HeaderSettings::MAX_NAME_LENGTH
        )));
    }
    Ok(name.to_ascii_lowercase())
}
