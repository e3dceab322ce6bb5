//! The attributes of a request, by which a configuration finds its limits.

use std::fmt;
use std::net::IpAddr;

use crate::router_paths::RouterPaths;

/// The attributes of a request: what the rules, lists and plans of a configuration refer to. Attributes that are not set are absent.
///
/// ```
/// use polylimit::document::RequestAttributes;
///
/// let attributes = RequestAttributes::new()
///     .method("POST")
///     .path("/login?next=/")
///     .peer("203.0.113.7")
///     .header("x-api-key", "k1")
///     .attribute("user", "alice");
/// # let _ = attributes;
/// ```
#[derive(Clone, Default)]
pub struct RequestAttributes<'a> {
    method: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    peer: Option<Peer<'a>>,
    // A `SmallVec` would be invariant, so that no `Call` could borrow attributes that live as long as it does.
    headers: Vec<(&'a [u8], &'a [u8])>,
    attributes: Vec<(&'a str, &'a [u8])>,
    router_paths: RouterPaths,
}

impl<'a> RequestAttributes<'a> {
    /// A request without attributes.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// The method, such as `GET`, as it was sent. A condition on `GET` holds for `HEAD`, too.
    #[inline]
    #[must_use]
    pub fn method(mut self, method: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.method = Some(method.as_ref());
        self
    }

    /// The path as the client sent it, with its escapes. A scheme and an authority before it, and a query or fragment after it,
    /// are ignored.
    #[inline]
    #[must_use]
    pub fn path(mut self, path: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.path = Some(path.as_ref());
        self
    }

    /// How the router behind the limit reads paths; byte by byte by default.
    #[inline]
    #[must_use]
    pub fn router_paths(mut self, router: RouterPaths) -> Self {
        self.router_paths = router;
        self
    }

    /// The other end of the socket, as an address or as text: see `ClientAddressRules::key_of`.
    #[inline]
    #[must_use]
    pub fn peer(mut self, peer: impl Into<Peer<'a>>) -> Self {
        self.peer = Some(peer.into());
        self
    }

    /// Adds one line of a header. The name may be in any case; a header has all lines that were added, in this order.
    #[inline]
    #[must_use]
    pub fn header(
        mut self,
        name: &'a (impl AsRef<[u8]> + ?Sized),
        value: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        self.headers.push((name.as_ref(), value.as_ref()));
        self
    }

    /// An attribute that the application provides, such as `user` or `plan`. Its name is a letter followed by letters, digits
    /// and `_`, all in lower case. If a name is set more than once, the last value counts.
    #[inline]
    #[must_use]
    pub fn attribute(mut self, name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.attributes.push((name, value.as_ref()));
        self
    }
}

/// Shows the names of the attributes only: their values identify clients.
impl fmt::Debug for RequestAttributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attributes: Vec<_> = self.attributes.iter().map(|(name, _)| name).collect();
        f.debug_struct("RequestAttributes")
            .field("headers", &self.headers.len())
            .field("attributes", &attributes)
            .finish_non_exhaustive()
    }
}

/// The other end of a request's socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Peer<'a> {
    /// Its address.
    Address(IpAddr),
    /// The web server's description: an address, with or without a port, or any other text, such as `unix:`.
    Text(&'a str),
}

/// Shows no address.
impl fmt::Debug for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address(_) => "Address",
            Self::Text(_) => "Text",
        })
    }
}

impl From<IpAddr> for Peer<'_> {
    fn from(address: IpAddr) -> Self {
        Self::Address(address)
    }
}

impl<'a> From<&'a str> for Peer<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Peer<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

/// The source of a request's attributes. A configuration reads those that its rules, lists and plans refer to, and each at most
/// once or twice, so a framework's request can be a source without a copy of its headers.
///
/// [`RequestAttributes`] is a source. An empty value counts as absent.
pub trait AttributeSource {
    /// The method, as it was sent.
    fn method(&self) -> Option<&[u8]>;

    /// The path, as it was sent; a query or fragment after it is ignored.
    fn path(&self) -> Option<&[u8]>;

    /// The other end of the socket.
    fn peer(&self) -> Option<Peer<'_>>;

    /// Calls `line` with the value of each line of a header, in the order in which they were received. `name` is in lower
    /// case.
    fn header<'a>(&'a self, name: &str, line: &mut dyn FnMut(&'a [u8]));

    /// The attribute that the application provides under a name.
    fn attribute(&self, name: &str) -> Option<&[u8]>;

    /// How the router behind the limit reads paths; byte by byte by default.
    fn router_paths(&self) -> RouterPaths {
        RouterPaths::new()
    }
}

impl AttributeSource for RequestAttributes<'_> {
    fn method(&self) -> Option<&[u8]> {
        self.method
    }

    fn path(&self) -> Option<&[u8]> {
        self.path
    }

    fn peer(&self) -> Option<Peer<'_>> {
        self.peer
    }

    fn header<'a>(&'a self, name: &str, line: &mut dyn FnMut(&'a [u8])) {
        for (header, value) in &self.headers {
            if header.eq_ignore_ascii_case(name.as_bytes()) {
                line(value);
            }
        }
    }

    fn attribute(&self, name: &str) -> Option<&[u8]> {
        self.attributes.iter().rev().find(|(attribute, _)| *attribute == name).map(|(_, value)| *value)
    }

    fn router_paths(&self) -> RouterPaths {
        self.router_paths
    }
}

/// The attributes of a request for a caller that continues before the decision is available.
pub struct OwnedAttributes {
    method: Option<Box<[u8]>>,
    path: Option<Box<[u8]>>,
    peer: Option<OwnedPeer>,
    headers: Vec<OwnedPair<Box<[u8]>>>,
    attributes: Vec<OwnedPair<Box<str>>>,
    router_paths: RouterPaths,
}

/// A name and a value.
type OwnedPair<N> = (N, Box<[u8]>);

enum OwnedPeer {
    Address(IpAddr),
    Text(Box<str>),
}

impl OwnedAttributes {
    /// Copies the attributes.
    pub fn of(request: &RequestAttributes<'_>) -> Self {
        let RequestAttributes { method, path, peer, headers, attributes, router_paths } = request;
        Self {
            method: method.map(Into::into),
            path: path.map(Into::into),
            peer: peer.map(|peer| match peer {
                Peer::Address(address) => OwnedPeer::Address(address),
                Peer::Text(text) => OwnedPeer::Text(text.into()),
            }),
            headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            attributes: attributes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            router_paths: *router_paths,
        }
    }
}

impl OwnedAttributes {
    /// The attributes, borrowed.
    pub fn borrowed(&self) -> RequestAttributes<'_> {
        RequestAttributes {
            method: self.method.as_deref(),
            path: self.path.as_deref(),
            peer: self.peer(),
            headers: self.headers.iter().map(|(name, value)| (&**name, &**value)).collect(),
            attributes: self.attributes.iter().map(|(name, value)| (&**name, &**value)).collect(),
            router_paths: self.router_paths,
        }
    }
}

impl AttributeSource for OwnedAttributes {
    fn method(&self) -> Option<&[u8]> {
        self.method.as_deref()
    }

    fn path(&self) -> Option<&[u8]> {
        self.path.as_deref()
    }

    fn peer(&self) -> Option<Peer<'_>> {
        self.peer.as_ref().map(|peer| match peer {
            OwnedPeer::Address(address) => Peer::Address(*address),
            OwnedPeer::Text(text) => Peer::Text(text),
        })
    }

    fn header<'a>(&'a self, name: &str, line: &mut dyn FnMut(&'a [u8])) {
        for (header, value) in &self.headers {
            if header.eq_ignore_ascii_case(name.as_bytes()) {
                line(value);
            }
        }
    }

    fn attribute(&self, name: &str) -> Option<&[u8]> {
        self.attributes.iter().rev().find(|(attribute, _)| **attribute == *name).map(|(_, value)| &**value)
    }

    fn router_paths(&self) -> RouterPaths {
        self.router_paths
    }
}
