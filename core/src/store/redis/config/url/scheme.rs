//! The scheme of a URL: the kind of target, and whether it uses TLS.

use crate::error::{Error, excerpt};
use crate::store::redis::config::url::refused;

/// The kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Server,
    Socket,
    Sentinel,
    Cluster,
}

/// One scheme.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheme {
    name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) tls: bool,
}

const SCHEMES: [Scheme; 7] = [
    Scheme { name: "redis", kind: Kind::Server, tls: false },
    Scheme { name: "rediss", kind: Kind::Server, tls: true },
    Scheme { name: "redis+unix", kind: Kind::Socket, tls: false },
    Scheme { name: "redis-sentinel", kind: Kind::Sentinel, tls: false },
    Scheme { name: "rediss-sentinel", kind: Kind::Sentinel, tls: true },
    Scheme { name: "redis-cluster", kind: Kind::Cluster, tls: false },
    Scheme { name: "rediss-cluster", kind: Kind::Cluster, tls: true },
];

impl Scheme {
    /// Splits a URL into its scheme and the rest. Schemes are case-insensitive.
    pub(crate) fn split(url: &str) -> Result<(Self, &str), Error> {
        let (read, rest) = match url.split_once("://") {
            Some((name, rest)) => (name, Some(rest)),
            None => (url, None),
        };
        let scheme = SCHEMES.into_iter().find(|scheme| scheme.name.eq_ignore_ascii_case(read));
        if let (Some(scheme), Some(rest)) = (scheme, rest) {
            return Ok((scheme, rest));
        }
        let known = SCHEMES.map(|scheme| format!("{}://", scheme.name)).join(", ");
        let known = format!("{known}, and without a server memory:, local:<name>, file:///<path>");
        // A text without a scheme may begin with a user name.
        let named =
            rest.is_some() && !url.contains('@') && read.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let read =
            if named { format!("begins with {}", excerpt(read)) } else { "has no known scheme".to_owned() };
        Err(refused(&format!("{read}: allowed are {known}")))
    }
}
