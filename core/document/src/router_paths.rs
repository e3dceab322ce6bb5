//! How routers read paths when they do not compare them byte by byte.

/// How the router behind a limit reads the path of a request, so that rules compare paths as it does: a router that ignores
/// case reaches the handler of `/login` by `/LOGIN`, too. A middleware describes the router of its framework; the table `paths`
/// of a document overrides that, for services behind a proxy.
///
/// Rules about paths ignore repeated slashes, a slash at the end, dot segments and escapes in any case, and count a path with
/// an escaped slash or a backslash as a part of its segment and as a separator: see the attribute `path` in the page on
/// policies.
///
/// ```
/// use polylimit::document::{RequestAttributes, RouterPaths};
/// use polylimit::Limiter;
///
/// let document = r#"
///     polylimit = 1
///     [policies.login]
///     quotas = "5/15m"
///     [[rules]]
///     match = { path = "/login" }
///     apply = [{ policy = "login", key = "all" }]
/// "#;
/// let limiter = Limiter::builder().document(document).build()?.blocking();
/// let request = RequestAttributes::new().path("/LOGIN;a=1");
/// assert!(limiter.admin().matching(&request)?.is_empty());
/// let router = RouterPaths::new().ignore_case().drop_parameters();
/// assert_eq!(limiter.admin().matching(&request.router_paths(router))?.len(), 1);
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RouterPaths {
    bits: u8,
}

impl RouterPaths {
    const IGNORE_CASE: u8 = 1;
    const DROP_PARAMETERS: u8 = 2;
    const DROP_SUFFIX: u8 = 4;
    const EVERY_READING: u8 = 8;
    /// The properties that apply to all paths alike, so that rules can be compiled for them.
    const COMPILED: u8 = Self::IGNORE_CASE | Self::DROP_PARAMETERS | Self::DROP_SUFFIX;
    /// How many different routers rules can be compiled for.
    pub(crate) const VARIANTS: usize = Self::COMPILED as usize + 1;

    /// A router that compares paths byte by byte.
    pub const fn new() -> Self {
        Self { bits: 0 }
    }

    /// A router by the sum of its properties, as foreign interfaces pass it: 1 ignores case, 2 drops parameters, 4 drops a
    /// suffix, 8 counts every reading. Other bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the mask leaves four bits")]
        Self { bits: (bits & (Self::COMPILED | Self::EVERY_READING) as u32) as u8 }
    }

    /// The router ignores the case of letters.
    #[must_use]
    pub const fn ignore_case(self) -> Self {
        Self { bits: self.bits | Self::IGNORE_CASE }
    }

    /// The router drops what follows a `;` in each segment, as servlet containers drop `;jsessionid=1`.
    #[must_use]
    pub const fn drop_parameters(self) -> Self {
        Self { bits: self.bits | Self::DROP_PARAMETERS }
    }

    /// The router accepts a format after the path, such as `.json`, as routes of Rails do: the last dot of the last segment and
    /// what follows it.
    #[must_use]
    pub const fn drop_suffix(self) -> Self {
        Self { bits: self.bits | Self::DROP_SUFFIX }
    }

    /// The router's treatment of dot segments is unknown: a request counts under the rules for its path both with them resolved
    /// and with them as they are. Counting too much is safer than not counting. Guards that decide by a configuration always do
    /// so.
    #[must_use]
    pub const fn every_reading(self) -> Self {
        Self { bits: self.bits | Self::EVERY_READING }
    }

    pub(crate) const fn ignores_case(self) -> bool {
        self.bits & Self::IGNORE_CASE != 0
    }

    pub(crate) const fn drops_parameters(self) -> bool {
        self.bits & Self::DROP_PARAMETERS != 0
    }

    pub(crate) const fn drops_suffix(self) -> bool {
        self.bits & Self::DROP_SUFFIX != 0
    }

    pub(crate) const fn counts_every_reading(self) -> bool {
        self.bits & Self::EVERY_READING != 0
    }

    /// The index of the rules that are compiled for this router, below [`VARIANTS`](Self::VARIANTS).
    pub(crate) const fn variant(self) -> usize {
        (self.bits & Self::COMPILED) as usize
    }
}

/// The router's properties in the table `paths` of a document; those that are absent are as the middleware describes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentPaths {
    pub(crate) ignore_case: Option<bool>,
    pub(crate) drop_parameters: Option<bool>,
    pub(crate) drop_suffix: Option<bool>,
}

impl DocumentPaths {
    /// The router that a middleware describes, with the properties that the document overrides.
    pub(crate) fn over(self, router: RouterPaths) -> RouterPaths {
        let said = [
            (self.ignore_case, RouterPaths::IGNORE_CASE),
            (self.drop_parameters, RouterPaths::DROP_PARAMETERS),
            (self.drop_suffix, RouterPaths::DROP_SUFFIX),
        ];
        let bits = said.into_iter().fold(router.bits, |bits, (said, bit)| match said {
            Some(true) => bits | bit,
            Some(false) => bits & !bit,
            None => bits,
        });
        RouterPaths { bits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_wins_over_the_middleware() {
        let paths =
            DocumentPaths { ignore_case: Some(true), drop_parameters: Some(false), drop_suffix: None };
        let router = RouterPaths::new().drop_parameters().drop_suffix().every_reading();
        let expected = RouterPaths::new().ignore_case().drop_suffix().every_reading();
        assert_eq!(paths.over(router), expected);
        assert_eq!(DocumentPaths::default().over(router), router);
    }

    #[test]
    fn bits_are_properties() {
        assert_eq!(RouterPaths::from_bits(u32::MAX).variant(), RouterPaths::VARIANTS - 1);
        assert_eq!(RouterPaths::from_bits(5), RouterPaths::new().ignore_case().drop_suffix());
        assert_eq!(RouterPaths::from_bits(16), RouterPaths::new());
    }
}
