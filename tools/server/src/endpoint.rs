//! Where a server listens, as text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::ServeError;

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/2, by prior knowledge or by ALPN.
    Http,
    /// RESP2 and RESP3, the protocol of Redis.
    Resp,
}

impl Protocol {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Resp => "resp",
        }
    }
}

/// Where a server listens: `http://127.0.0.1:8180`, `https://[::]:8443`, `unix:/run/limits.sock`, `resp://127.0.0.1:6380`,
/// `resps://0.0.0.0:6380` or `resp+unix:/run/limits-resp.sock`. Port 0 is one that is free.
///
/// ```
/// use polylimit_server::{Endpoint, Protocol};
///
/// let endpoint: Endpoint = "resps://0.0.0.0:6380".parse()?;
/// assert_eq!((endpoint.protocol(), endpoint.is_tls()), (Protocol::Resp, true));
/// # Ok::<(), polylimit_server::ServeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) protocol: Protocol,
    pub(crate) place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Host and port.
    Tcp {
        address: String,
        tls: bool,
    },
    Unix(PathBuf),
}

const SCHEMES: [(&str, Protocol, Option<bool>); 6] = [
    ("http://", Protocol::Http, Some(false)),
    ("https://", Protocol::Http, Some(true)),
    ("resp://", Protocol::Resp, Some(false)),
    ("resps://", Protocol::Resp, Some(true)),
    ("unix:", Protocol::Http, None),
    ("resp+unix:", Protocol::Resp, None),
];

impl Endpoint {
    /// What the listener speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self.place, Place::Tcp { tls: true, .. })
    }

    /// The same with the address that the system has chosen.
    pub(crate) fn at(&self, bound: std::net::SocketAddr) -> Self {
        match &self.place {
            Place::Tcp { tls, .. } => {
                Self { place: Place::Tcp { address: bound.to_string(), tls: *tls }, ..self.clone() }
            }
            Place::Unix(_) => self.clone(),
        }
    }
}

impl FromStr for Endpoint {
    type Err = ServeError;

    fn from_str(text: &str) -> Result<Self, ServeError> {
        let refused = || {
            ServeError::new(format!(
                "listener {text:?} cannot be read: allowed are http://HOST:PORT, https://HOST:PORT, resp://HOST:PORT, resps://HOST:PORT, \
                 unix:/PATH and resp+unix:/PATH"
            ))
        };
        let found = SCHEMES.iter().find_map(|(scheme, protocol, tls)| {
            text.strip_prefix(scheme).map(|rest| (rest, *protocol, *tls))
        });
        let (rest, protocol, tls) = found.ok_or_else(refused)?;
        let place = match tls {
            None if rest.starts_with('/') => Place::Unix(PathBuf::from(rest)),
            None => return Err(refused()),
            Some(tls) => {
                let address = rest.strip_suffix('/').unwrap_or(rest);
                let (host, port) = address.rsplit_once(':').ok_or_else(refused)?;
                if host.is_empty() || host.contains(['/', '@']) || port.parse::<u16>().is_err() {
                    return Err(refused());
                }
                Place::Tcp { address: address.to_owned(), tls }
            }
        };
        Ok(Self { protocol, place })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is = |scheme: &&(&str, Protocol, Option<bool>)| {
            let tls = match self.place {
                Place::Tcp { tls, .. } => Some(tls),
                Place::Unix(_) => None,
            };
            (scheme.1, scheme.2) == (self.protocol, tls)
        };
        f.write_str(SCHEMES.iter().find(is).map_or("", |scheme| scheme.0))?;
        match &self.place {
            Place::Tcp { address, .. } => f.write_str(address),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn endpoints_are_read_and_written() {
        for text in [
            "http://127.0.0.1:80",
            "https://[::]:443",
            "resp://localhost:0",
            "resps://0.0.0.0:6380",
            "unix:/run/a.sock",
            "resp+unix:/run/b.sock",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "127.0.0.1:80",
            "http://",
            "http://host",
            "http://:80",
            "http://host:65536",
            "http://user@host:80",
            "http://host:80/path",
            "redis://host:6379",
            "unix:relative",
            "unix:",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains("resp://HOST:PORT"), "{text}: {error}");
        }
    }
}
