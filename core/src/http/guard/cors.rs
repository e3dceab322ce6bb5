//! The fields that let a browser show a denial to a page of another origin (Fetch standard, "CORS protocol").

use std::borrow::Cow;

use crate::http::headers::{HeaderField, HeaderSettings};
use polylimit_rules::error::{Error, excerpt};

/// The origins whose pages may read denials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum CorsOrigins {
    #[default]
    None,
    /// `*`
    Any,
    Listed(Vec<String>),
}

impl CorsOrigins {
    /// Reads `*`, or origins such as `https://app.example` or `http://localhost:3000`.
    ///
    /// # Errors
    /// Invalid argument: a text is not an origin as browsers send it, or `*` is not the only one.
    pub(super) fn parse(origins: &[String]) -> Result<Self, Error> {
        match origins {
            [] => Ok(Self::None),
            [any] if any == "*" => Ok(Self::Any),
            origins => {
                let listed = origins.iter().map(|origin| checked(origin)).collect::<Result<_, _>>()?;
                Ok(Self::Listed(listed))
            }
        }
    }

    /// The value of `access-control-allow-origin` for a request from an origin.
    fn allowed(&self, origin: &str) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Any => Some("*"),
            Self::Listed(origins) => {
                origins.iter().find(|known| known.eq_ignore_ascii_case(origin)).map(String::as_str)
            }
        }
    }

    /// The fields of a response to a request from an origin, in addition to those of its limits.
    pub(super) fn fields(&self, origin: Option<&str>, headers: &HeaderSettings) -> Vec<HeaderField> {
        let Some(allowed) = origin.and_then(|origin| self.allowed(origin)) else { return Vec::new() };
        let field = |name, value: &str| HeaderField { name: Cow::Borrowed(name), value: value.to_owned() };
        let mut fields = vec![field("access-control-allow-origin", allowed)];
        if allowed != "*" {
            // Only a named origin may read the response to a request with credentials.
            fields.push(field("access-control-allow-credentials", "true"));
            fields.push(field("vary", "origin"));
        }
        fields.push(field("access-control-expose-headers", &headers.sent_names().join(", ")));
        fields
    }
}

/// A serialised origin: scheme, host and perhaps a port (RFC 6454, section 6.2).
fn checked(origin: &str) -> Result<String, Error> {
    let rest = ["https://", "http://"].into_iter().find_map(|scheme| origin.strip_prefix(scheme));
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    match rest {
        Some(host) if !host.is_empty() && host.bytes().all(is_host_byte) => Ok(origin.to_owned()),
        _ => Err(Error::invalid_argument(format!(
            "CORS origin {}: allowed are origins as browsers send them, such as https://app.example or \
             http://localhost:3000 without a slash at the end, or * alone",
            excerpt(origin)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::headers::HeaderStyle;

    fn fields(origins: &[&str], origin: Option<&str>) -> Vec<String> {
        let origins: Vec<_> = origins.iter().map(ToString::to_string).collect();
        let settings = HeaderSettings::default().style(HeaderStyle::Both).names([("ratelimit", "x-quota")]);
        let settings = settings.and_then(|settings| settings.names([("x-ratelimit-over", "")])).unwrap();
        let fields = CorsOrigins::parse(&origins).unwrap().fields(origin, &settings);
        fields.iter().map(|field| format!("{}: {}", field.name, field.value)).collect()
    }

    #[test]
    fn page_of_an_allowed_origin_may_read_a_denial() {
        let exposed = "access-control-expose-headers: x-quota, ratelimit-policy, x-ratelimit-limit, \
                       x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-outage, retry-after";
        let app = "https://app.example";
        let expected = [
            "access-control-allow-origin: https://app.example",
            "access-control-allow-credentials: true",
            "vary: origin",
            exposed,
        ];
        assert_eq!(fields(&["http://localhost:3000", app], Some(app)), expected);
        assert_eq!(fields(&["*"], Some(app)), ["access-control-allow-origin: *", exposed]);
        for (origins, origin) in [
            (&[][..], Some(app)),
            (&[app], None),
            (&["*"], None),
            (&[app], Some("https://app.example.evil")),
            (&[app], Some("http://app.example")),
            (&[app], Some("null")),
        ] {
            assert!(fields(origins, origin).is_empty(), "{origins:?} and {origin:?}");
        }
    }

    #[test]
    fn text_that_is_no_origin_is_refused() {
        for origin in
            ["", "app.example", "https://", "https://app.example/", "null", "https://a b", "ftp://a"]
        {
            let message = CorsOrigins::parse(&[origin.to_owned()]).unwrap_err().message().to_owned();
            assert!(message.starts_with(&format!("CORS origin {origin:?}: allowed")), "{message}");
        }
        assert!(CorsOrigins::parse(&["https://a".to_owned(), "*".to_owned()]).is_err());
    }
}
