//! The attributes of a request, as JavaScript passes them.

use napi::Env;
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;
use polylimit::document::{RequestAttributes, RouterPaths};

use crate::error::Result;
use crate::text::owned_bytes;

/// What an application knows of a request under a name.
#[napi(object, object_to_js = false)]
pub struct AttributeRow<'env> {
    pub name: String,
    /// Text or bytes.
    pub value: Unknown<'env>,
}

/// The attributes of a request.
#[napi(object, object_to_js = false)]
pub struct AttributesRow<'env> {
    pub method: Option<String>,
    pub path: Option<String>,
    pub peer: Option<String>,
    /// Names and values in turn.
    pub headers: Vec<String>,
    pub attributes: Vec<AttributeRow<'env>>,
}

/// The same, with their bytes.
pub(crate) struct ReadAttributes {
    method: Option<String>,
    path: Option<String>,
    peer: Option<String>,
    router_paths: RouterPaths,
    headers: Vec<String>,
    attributes: Vec<(String, Vec<u8>)>,
}

impl AttributesRow<'_> {
    pub(crate) fn read(self, env: Env) -> Result<ReadAttributes> {
        let Self { method, path, peer, headers, attributes } = self;
        let attributes = read_rows(env, attributes)?;
        Ok(ReadAttributes { method, path, peer, router_paths: RouterPaths::new(), headers, attributes })
    }
}

/// Reads rows, which are arguments of the current call.
fn read_rows(env: Env, rows: Vec<AttributeRow<'_>>) -> Result<Vec<(String, Vec<u8>)>> {
    let read = |AttributeRow { name, value }: AttributeRow<'_>| {
        let bytes = owned_bytes(&name, env, value)?;
        Ok((name, bytes))
    };
    rows.into_iter().map(read).collect()
}

impl ReadAttributes {
    /// The attributes of a request whose method, path, peer, router properties as bits, and names and values of headers each have
    /// a line. An empty line is an absent value.
    pub(crate) fn of_lines(env: Env, request: &str, rows: Vec<AttributeRow<'_>>) -> Result<Self> {
        let mut lines = request.split('\n').map(ToOwned::to_owned);
        let mut next = || lines.next().filter(|line| !line.is_empty());
        let (method, path, peer) = (next(), next(), next());
        let bits = next().and_then(|bits| bits.parse().ok()).unwrap_or_default();
        let attributes = read_rows(env, rows)?;
        let router_paths = RouterPaths::from_bits(bits);
        Ok(Self { method, path, peer, router_paths, headers: lines.collect(), attributes })
    }

    pub(crate) fn attributes(&self) -> RequestAttributes<'_> {
        let mut request = RequestAttributes::new().router_paths(self.router_paths);
        if let Some(method) = &self.method {
            request = request.method(method);
        }
        if let Some(path) = &self.path {
            request = request.path(path);
        }
        if let Some(peer) = &self.peer {
            request = request.peer(peer);
        }
        for pair in self.headers.chunks_exact(2) {
            request = request.header(&pair[0], &pair[1]);
        }
        for (name, value) in &self.attributes {
            request = request.attribute(name, value);
        }
        request
    }
}
