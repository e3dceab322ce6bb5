//! The address of a client behind proxies.

use std::sync::Arc;

use crate::error::{PolylimitError, Result, guarded};

/// The proxies that are trusted to name the client, and the prefix of an address that counts as one client.
#[derive(Debug, uniffi::Object)]
pub struct ClientAddressRules {
    rules: polylimit::http::ClientAddressRules,
}

impl ClientAddressRules {
    pub(crate) fn core(&self) -> &polylimit::http::ClientAddressRules {
        &self.rules
    }
}

#[uniffi::export]
impl ClientAddressRules {
    /// `trust` has networks such as `10.0.0.0/8`, addresses, and the names `loopback`, `link-local` and `private`.
    /// `header` is the one that the trusted proxies write, `x-forwarded-for` or `forwarded`, or one of a single address, `cf-connecting-ip`,
    /// `true-client-ip`, `x-real-ip` or `fly-client-ip`, where nothing reaches the service around the proxy. The prefixes are how many
    /// leading bits of an address are counted as one client, 0 to 32 and 0 to 128; 32 and 64 by default.
    #[uniffi::constructor(default(header = None, ipv4_prefix = None, ipv6_prefix = None))]
    pub fn new(
        trust: Vec<String>,
        header: Option<String>,
        ipv4_prefix: Option<i32>,
        ipv6_prefix: Option<i32>,
    ) -> Result<Arc<Self>> {
        guarded(|| {
            let mut builder = polylimit::http::ClientAddressRules::builder();
            for network in &trust {
                builder = builder.trust(network);
            }
            if let Some(header) = header {
                builder = builder.header(header.parse()?);
            }
            if let Some(bits) = ipv4_prefix {
                builder = builder.ipv4_prefix(prefix("ipv4_prefix", bits)?);
            }
            if let Some(bits) = ipv6_prefix {
                builder = builder.ipv6_prefix(prefix("ipv6_prefix", bits)?);
            }
            Ok(Arc::new(Self { rules: builder.build()? }))
        })
    }

    /// The header that has to be handed to `resolve`, in lower case; none if no proxy is trusted.
    pub fn header(&self) -> Option<String> {
        self.rules.header().map(|header| header.name().to_owned())
    }

    /// What to limit by: one text for all addresses that are counted together. `peer` is the other end of the socket;
    /// `lines` are the values of all lines of the header, in the order they were received. A port, brackets and a zone of the
    /// peer are left out. All peers that are no address are one client, "unknown", and no line is read for them.
    pub fn resolve(&self, peer: String, lines: Vec<String>) -> Result<String> {
        guarded(|| Ok(self.rules.key_of(&peer, lines.iter().map(String::as_bytes))))
    }
}

fn prefix(name: &str, bits: i32) -> Result<u8> {
    u8::try_from(bits).map_err(|_| {
        PolylimitError::InvalidArgument(format!("{name} is {bits}: that many bits no address has"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_parsed_with_port_and_brackets() {
        let rules = ClientAddressRules::new(Vec::new(), None, None, None).unwrap();
        let key = |peer: &str| rules.resolve(peer.to_owned(), Vec::new());
        assert_eq!(key("fe80::1%eth0").unwrap(), "fe80::/64");
        assert_eq!(key("192.0.2.1:80").unwrap(), "192.0.2.1");
        assert_eq!(key("%eth0").unwrap(), "unknown");
    }
}
