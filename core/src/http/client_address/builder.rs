//! Builds client address rules and checks them.

use crate::error::Error;
use crate::http::client_address::network::Network;
use crate::http::client_address::{ClientAddressRules, ForwardingHeader};

/// The settings of [`ClientAddressRules`] before they are checked; made by [`ClientAddressRules::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes rules only when `build` is called"]
pub struct ClientAddressRulesBuilder {
    // `build` reports the first text that is no network, like every other mistake.
    trusted: Result<Vec<Network>, Error>,
    header: Option<ForwardingHeader>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
}

impl ClientAddressRulesBuilder {
    pub(crate) fn new() -> Self {
        Self { trusted: Ok(Vec::new()), header: None, ipv4_prefix: 32, ipv6_prefix: 64 }
    }

    /// Trusts the proxies of a network to report the address that called them.
    ///
    /// A network is an address (`192.0.2.1`), an address and a prefix length with no bit set after the prefix
    /// (`10.0.0.0/8`, `2001:db8::/32`), or a name: `loopback` (127.0.0.0/8, `::1`), `link-local`
    /// (169.254.0.0/16, `fe80::/10`) or `private` (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 of RFC 1918,
    /// `fc00::/7` of RFC 4193). An IPv4-mapped or NAT64 network stands for the IPv4 network in it.
    /// `0.0.0.0/0` and `::/0` are refused: if every address were trusted, a client could choose its own address.
    pub fn trust(mut self, network: &str) -> Self {
        if let Ok(trusted) = &mut self.trusted {
            match Network::parse_trusted(network) {
                Ok(mut networks) => trusted.append(&mut networks),
                Err(error) => self.trusted = Err(error),
            }
        }
        self
    }

    /// The one header that the trusted proxies write. It must be the one that they do write: a proxy passes on any other
    /// header as the client sent it. There is no default.
    pub fn header(mut self, header: ForwardingHeader) -> Self {
        self.header = Some(header);
        self
    }

    /// How many leading bits of an IPv4 address are counted as one client, 0 to 32; 32 by default.
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        self.ipv4_prefix = bits;
        self
    }

    /// How many leading bits of an IPv6 address are counted as one client, 0 to 128; 64 by default.
    ///
    /// A subscriber is given at least a /64, and often a /56 or a /48 (RFC 6177), and can use any address in it.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Checks every setting and makes the rules.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with the value and what is allowed: a text that is no
    /// network, more than [`MAX_TRUSTED`](ClientAddressRules::MAX_TRUSTED) networks, networks without a header, a prefix
    /// out of range.
    pub fn build(self) -> Result<ClientAddressRules, Error> {
        let trusted = self.trusted?;
        if trusted.len() > ClientAddressRules::MAX_TRUSTED {
            let read = trusted.len();
            return Err(Error::invalid_argument(format!(
                "{read} trusted networks; allowed are at most 1024"
            )));
        }
        if self.header.is_none() && !trusted.is_empty() {
            return Err(Error::invalid_argument(
                "trusted networks without a header; choose the one that the proxies write, \
                 \"x-forwarded-for\" or \"forwarded\"",
            ));
        }
        Ok(ClientAddressRules {
            trusted: trusted.into(),
            header: self.header,
            ipv4_prefix: checked_prefix("ipv4_prefix", self.ipv4_prefix, 32)?,
            ipv6_prefix: checked_prefix("ipv6_prefix", self.ipv6_prefix, 128)?,
        })
    }
}

fn checked_prefix(name: &str, bits: u8, most: u8) -> Result<u8, Error> {
    if bits > most {
        return Err(Error::invalid_argument(format!("{name} is {bits}; allowed are 0 to {most} bits")));
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(builder: ClientAddressRulesBuilder) -> String {
        builder.build().unwrap_err().message().to_owned()
    }

    #[test]
    fn mistakes_are_refused_and_named() {
        let builder = ClientAddressRules::builder;
        let x_forwarded_for = || builder().header(ForwardingHeader::XForwardedFor);
        assert!(message(builder().trust("loopback")).contains("without a header"));
        assert!(message(x_forwarded_for().trust("all").trust("10.0.0.1/8")).contains(r#""all""#));
        assert_eq!(message(builder().ipv4_prefix(33)), "ipv4_prefix is 33; allowed are 0 to 32 bits");
        assert_eq!(message(builder().ipv6_prefix(129)), "ipv6_prefix is 129; allowed are 0 to 128 bits");
        let many = (0..1025).fold(x_forwarded_for(), |rules, _| rules.trust("10.0.0.1"));
        assert_eq!(message(many), "1025 trusted networks; allowed are at most 1024");
    }

    #[test]
    fn a_header_nobody_may_write_is_not_asked_for() {
        let rules = ClientAddressRules::builder().header(ForwardingHeader::Forwarded);
        assert_eq!(rules.clone().build().unwrap().header(), None);
        assert_eq!(rules.trust("::1").build().unwrap().header(), Some(ForwardingHeader::Forwarded));
        assert_eq!(ClientAddressRules::builder().build().unwrap(), ClientAddressRules::default());
    }
}
