//! What an application says about a request for the configuration of a limiter.

use std::collections::HashMap;
use std::fmt;

/// One line of a header of a request.
#[derive(Clone, PartialEq, Eq, uniffi::Record)]
pub struct HeaderLine {
    /// Its name, in any case.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What an application says about a request, so that a configuration finds the limits of it. What is left out is absent.
#[derive(Clone, Default, PartialEq, Eq, uniffi::Record)]
pub struct RequestAttributes {
    /// The method, such as `GET`.
    #[uniffi(default)]
    pub method: Option<String>,
    /// The path as the client sent it; a query after it is ignored.
    #[uniffi(default)]
    pub path: Option<String>,
    /// The other end of the socket: an address, with or without a port, or any other text.
    #[uniffi(default)]
    pub peer: Option<String>,
    /// The lines of the headers, in their order.
    #[uniffi(default)]
    pub headers: Vec<HeaderLine>,
    /// What the application knows of the request, such as `user` or `plan`, by names.
    #[uniffi(default)]
    pub attributes: HashMap<String, Vec<u8>>,
    /// What the router ignores in paths, unless the document says it: the sum of 1 (case), 2 (parameters of segments such as `;a=b`) and 4
    /// (a suffix such as `.json`).
    #[uniffi(default = 0)]
    pub router_paths: u32,
}

/// Shows no value: they identify clients.
impl fmt::Debug for RequestAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestAttributes").field("headers", &self.headers.len()).finish_non_exhaustive()
    }
}

impl RequestAttributes {
    pub(crate) fn to_core(&self) -> polylimit::document::RequestAttributes<'_> {
        let mut attributes = polylimit::document::RequestAttributes::new();
        if let Some(method) = &self.method {
            attributes = attributes.method(method);
        }
        if let Some(path) = &self.path {
            attributes = attributes.path(path);
        }
        if let Some(peer) = &self.peer {
            attributes = attributes.peer(peer);
        }
        for line in &self.headers {
            attributes = attributes.header(&line.name, &line.value);
        }
        for (name, value) in &self.attributes {
            attributes = attributes.attribute(name, value);
        }
        attributes.router_paths(polylimit::document::RouterPaths::from_bits(self.router_paths))
    }
}
