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
    /// The generation of the table of callers that has told the identity.
    pub(crate) generation: u64,
}

impl Caller {
    /// The caller that sent a request, which carries it.
    pub(crate) fn identity_of(extensions: &Extensions) -> Option<&Identity> {
        extensions.get::<Self>()?.identity.as_ref()
    }
}
