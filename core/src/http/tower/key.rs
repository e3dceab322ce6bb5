//! The key that a request is counted by.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use http::header::COOKIE;
use http::request::Parts;
use http::{HeaderName, HeaderValue};

use polylimit_document::client_address::ClientAddressRules;

/// The authenticated user of a request: an extension that an outer layer inserts, read by
/// [`KeyPart::User`](crate::http::guard::KeyPart::User).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct User(
    /// The user's identifier, which is the same in every process.
    pub String,
);

/// `Debug` does not show the user.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("User").finish_non_exhaustive()
    }
}

/// Counts by the client's address, as found by these rules.
///
/// `peer` returns the address of the other end of the socket, which each server puts into the request in its own way;
/// `None` means a Unix socket, whose other end is on this host. With axum it is
/// `|request| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip())`, and the server must be made by
/// `into_make_service_with_connect_info::<SocketAddr>()`: without that, all requests count as one client.
pub fn client_address(
    rules: ClientAddressRules,
    peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static,
) -> impl Fn(&Parts) -> String + Send + Sync + 'static {
    let header = rules.header().map(|header| HeaderName::from_static(header.name()));
    move |request| {
        let peer = peer(request).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let lines: Vec<&[u8]> =
            header.iter().flat_map(|name| request.headers.get_all(name)).map(HeaderValue::as_bytes).collect();
        rules.resolve(peer, lines).key()
    }
}

/// Counts by the value of a header, such as an API key that was checked before. Requests without it are counted by the
/// result of `otherwise`.
///
/// The key is the header's name, a colon and its value; the values of several lines are joined by `", "`.
pub fn header<K: AsRef<[u8]>>(
    name: HeaderName,
    otherwise: impl Fn(&Parts) -> K + Send + Sync + 'static,
) -> impl Fn(&Parts) -> Vec<u8> + Send + Sync + 'static {
    move |request| match header_value(request, name.as_str()) {
        Some(value) => [name.as_str().as_bytes(), b":", &value].concat(),
        None => otherwise(request).as_ref().to_vec(),
    }
}

/// The values of a header, joined by `", "`.
pub(super) fn header_value(request: &Parts, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<_> = request.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    (!lines.is_empty()).then(|| lines.join(&b", "[..]))
}

/// The value of a cookie, as it was sent (RFC 6265, section 4.2.1).
pub(super) fn cookie_value(request: &Parts, name: &str) -> Option<Vec<u8>> {
    let lines = request.headers.get_all(COOKIE).iter();
    let mut pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.find_map(|pair| {
        let value = pair.trim_ascii_start().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value.trim_ascii_end().to_vec())
    })
}
