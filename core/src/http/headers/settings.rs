//! Which fields a response has.

use crate::http::headers::names::FieldNames;
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
