//! Where a request comes from.

use std::net::IpAddr;

use crate::access::Identity;

/// Where a request comes from.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The other end of the connection; `None` for a Unix socket.
    pub(crate) peer: Option<IpAddr>,
    /// Who the client is: by its certificate, and in handlers also by its token.
    pub(crate) identity: Option<Identity>,
}
