//! Which fields a response has.

use std::fmt;
use std::str::FromStr;

use crate::http::headers::names::FieldNames;
use polylimit_rules::error::{Error, excerpt};

/// Which of the fields that report limits are sent. `retry-after` does not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HeaderStyle {
    /// `ratelimit-policy` and `ratelimit` of draft-ietf-httpapi-ratelimit-headers-11. The default.
    #[default]
    Ietf,
    /// `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset`: no standard; older clients read them.
    Legacy,
    /// All of them.
    Both,
    /// None of them.
    None,
}

impl HeaderStyle {
    /// Every style.
    pub const ALL: [Self; 4] = [Self::Ietf, Self::Legacy, Self::Both, Self::None];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ietf => "ietf",
            Self::Legacy => "legacy",
            Self::Both => "both",
            Self::None => "none",
        }
    }
}

/// How `x-ratelimit-reset` expresses a time. Clients expect either form; the field does not say which one it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResetForm {
    /// Seconds from now. The default: server and client need no synchronised clocks.
    #[default]
    Seconds,
    /// Seconds since the Unix epoch.
    Epoch,
}

impl ResetForm {
    /// Every form.
    pub const ALL: [Self; 2] = [Self::Seconds, Self::Epoch];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Epoch => "epoch",
        }
    }
}

/// Writes an enumeration as its names, and reads them.
macro_rules! names {
    ($type:ident, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $type {
            type Err = Error;

            /// # Errors
            /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a text that is none of the names.
            fn from_str(name: &str) -> Result<Self, Error> {
                Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
                    let (read, known) = (excerpt(name), Self::ALL.map(Self::name).join(", "));
                    Error::invalid_argument(format!("{} {read} is not known: use one of {known}", $what))
                })
            }
        }
    };
}

names!(HeaderStyle, "header style");
names!(ResetForm, "reset form");

/// Which fields a response has, in which form, and under which names.
///
/// ```
/// use polylimit::http::headers::{HeaderSettings, HeaderStyle, ResetForm};
///
/// let settings = HeaderSettings::default().style("both".parse()?).reset_form(ResetForm::Epoch);
/// assert_eq!(settings, HeaderSettings::default().style(HeaderStyle::Both).reset_form("epoch".parse()?));
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeaderSettings {
    pub(crate) style: HeaderStyle,
    pub(crate) reset_form: ResetForm,
    /// `None` for the default names.
    pub(crate) names: Option<FieldNames>,
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
            .then(|| self.clone().style(style).reset_form(form))
    }

    /// How `x-ratelimit-reset` expresses a time; [`Seconds`](ResetForm::Seconds) from now by default.
    #[must_use]
    pub fn reset_form(mut self, form: ResetForm) -> Self {
        self.reset_form = form;
        self
    }
}
