//! Ready-made functions from a request to the key that it is counted by.

use std::net::{IpAddr, Ipv4Addr};

use http::HeaderName;
use http::request::Parts;

use crate::http::client_address::ClientAddressRules;

/// Counts by the client's address, which these rules find.
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
        let lines: Vec<&[u8]> = header
            .iter()
            .flat_map(|name| request.headers.get_all(name))
            .map(http::HeaderValue::as_bytes)
            .collect();
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
    move |request| {
        let lines: Vec<_> = request.headers.get_all(&name).iter().map(http::HeaderValue::as_bytes).collect();
        if lines.is_empty() {
            return otherwise(request).as_ref().to_vec();
        }
        [name.as_str().as_bytes(), b":", &lines.join(&b", "[..])].concat()
    }
}
