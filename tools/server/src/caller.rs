//! Where a request comes from.

use std::net::IpAddr;
use std::sync::Arc;

use http::Extensions;
use rustls_pki_types::CertificateDer;

use crate::access::Identity;

/// Where a request comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    /// The other end of the connection; `None` for a Unix socket.
    pub(crate) peer: Option<IpAddr>,
    /// The user of the other end's process, on a Unix socket.
    pub(crate) uid: Option<u32>,
    /// What the client has shown in the handshake, and was verified.
    pub(crate) certificate: Option<Arc<CertificateDer<'static>>>,
    /// The identity of the client: by its certificate, and in handlers also by its token.
    pub(crate) identity: Option<Identity>,
    /// Whether the listener asks for no token.
    pub(crate) is_open: bool,
    /// The generation of the table of callers that has the identity.
    pub(crate) generation: u64,
}

impl Caller {
    /// The name that the server knows the caller by: that of its token or certificate, or its user on a Unix socket.
    pub(crate) fn known_as(&self) -> Option<String> {
        let name = self.identity.as_ref().map(|identity| identity.name.to_string());
        name.or_else(|| self.uid.map(|uid| format!("uid:{uid}")))
    }

    /// The address of the other end, or `unix`.
    pub(crate) fn place(&self) -> String {
        self.peer.map_or_else(|| "unix".to_owned(), |peer| peer.to_string())
    }

    /// The caller that sent a request, which carries it.
    pub(crate) fn identity_of(extensions: &Extensions) -> Option<&Identity> {
        extensions.get::<Self>()?.identity.as_ref()
    }
}
