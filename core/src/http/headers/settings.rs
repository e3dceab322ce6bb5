//! Which fields a response has.

use std::str::FromStr;

use crate::http::headers::jitter::RetryJitter;
use crate::http::headers::names::FieldNames;
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::names::named_enum;

named_enum! {
    /// Which of the fields that report limits are sent. `retry-after` does not depend on it.
    #[derive(Default)]
    HeaderStyle, parsed as "header style" {
        /// `ratelimit-policy` and `ratelimit` of draft-ietf-httpapi-ratelimit-headers-11. The default.
        #[default]
        Ietf = "ietf",
        /// `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset`: no standard; older clients read them.
        Legacy = "legacy",
        /// All of them.
        Both = "both",
        /// None of them.
        None = "none",
    }
}

named_enum! {
    /// How `x-ratelimit-reset` expresses a time. Clients expect either form; the field does not say which one it has.
    #[derive(Default)]
    ResetForm, parsed as "reset form" {
        /// Seconds from now. The default: server and client need no synchronised clocks.
        #[default]
        Seconds = "seconds",
        /// Seconds since the Unix epoch.
        Epoch = "epoch",
    }
}

/// Which fields a response has, in which form, and under which names.
///
/// As text, which every language has, they are words in any order, separated by spaces: the name of a [`HeaderStyle`], the name of a
/// [`ResetForm`], `jitter=` and a [`RetryJitter`], and `FIELD=NAME` for each field that has another [name](Self::names), or `FIELD=` for one
/// that is not sent. What the text does not mention has its default.
///
/// ```
/// use polylimit::http::headers::{HeaderSettings, HeaderStyle, ResetForm};
///
/// let settings = HeaderSettings::default().style(HeaderStyle::Both).reset_form(ResetForm::Epoch);
/// assert_eq!("both epoch".parse::<HeaderSettings>()?, settings);
/// let settings = settings.names([("x-ratelimit-limit", "x-limit")])?;
/// assert_eq!("both epoch x-ratelimit-limit=x-limit".parse::<HeaderSettings>()?, settings);
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeaderSettings {
    pub(crate) style: HeaderStyle,
    pub(crate) reset_form: ResetForm,
    /// `None` for the default names.
    pub(crate) names: Option<FieldNames>,
    pub(crate) jitter: Option<RetryJitter>,
}

impl HeaderSettings {
    /// Which fields are sent; [`Ietf`](HeaderStyle::Ietf) by default.
    #[must_use]
    pub fn style(mut self, style: HeaderStyle) -> Self {
        self.style = style;
        self
    }

    /// The part of these settings that concerns the fields of one style; `None` when the style is not sent. Settings with equal
    /// parts write the same fields.
    pub(crate) fn only(&self, style: HeaderStyle) -> Option<Self> {
        let form = if style == HeaderStyle::Legacy { self.reset_form } else { ResetForm::Seconds };
        (self.style == style || self.style == HeaderStyle::Both)
            .then(|| Self { jitter: None, ..self.clone().style(style).reset_form(form) })
    }

    /// How `x-ratelimit-reset` expresses a time; [`Seconds`](ResetForm::Seconds) from now by default.
    #[must_use]
    pub fn reset_form(mut self, form: ResetForm) -> Self {
        self.reset_form = form;
        self
    }

    /// Adds a random number of seconds to `retry-after`, so that clients that were denied together do not come back together. The decision,
    /// the problem document and all other fields have the exact wait. None by default.
    #[must_use]
    pub fn jitter(mut self, jitter: RetryJitter) -> Self {
        self.jitter = Some(jitter);
        self
    }
}

impl From<HeaderStyle> for HeaderSettings {
    fn from(style: HeaderStyle) -> Self {
        Self::default().style(style)
    }
}

impl FromStr for HeaderSettings {
    type Err = Error;

    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an unknown word, for two words about the same setting, and as
    /// [`names`](Self::names).
    fn from_str(text: &str) -> Result<Self, Error> {
        let (mut style, mut form, mut jitter, mut names) = (None, None, None, Vec::new());
        for word in text.split_ascii_whitespace() {
            let is_repeated = if let Some(most) = word.strip_prefix("jitter=") {
                jitter.replace(most.parse()?).is_some()
            } else if let Some((field, name)) = word.split_once('=') {
                let is_repeated =
                    names.iter().any(|(known, _): &(&str, _)| known.eq_ignore_ascii_case(field));
                names.push((field, name));
                is_repeated
            } else if let Some(found) = HeaderStyle::from_name(word) {
                style.replace(found).is_some()
            } else if let Some(found) = ResetForm::from_name(word) {
                form.replace(found).is_some()
            } else {
                return Err(unknown(word));
            };
            if is_repeated {
                return Err(Error::invalid_argument(format!(
                    "the header settings {} have two values of one setting: {} is the second one",
                    excerpt(text),
                    excerpt(word)
                )));
            }
        }
        let settings = Self::default().style(style.unwrap_or_default()).reset_form(form.unwrap_or_default());
        let settings = Self { jitter, ..settings };
        if names.is_empty() { Ok(settings) } else { settings.names(names) }
    }
}

fn unknown(word: &str) -> Error {
    Error::invalid_argument(format!(
        "header setting {} is not known: allowed are {} for the style, {} for the form of x-ratelimit-reset, jitter=5s or jitter=20% for \
         retry-after, and FIELD=NAME for another name of a field",
        excerpt(word),
        HeaderStyle::ALL.map(HeaderStyle::name).join(", "),
        ResetForm::ALL.map(ResetForm::name).join(" or ")
    ))
}
