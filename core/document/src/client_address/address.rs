//! Addresses and networks, and their notations: by proxies, by web servers and in settings.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use polylimit_rules::error::{Error, excerpt};

/// All addresses that share the first `prefix` bits of `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    /// The first address of the network: no bit after the prefix is set.
    first: IpAddr,
    prefix: u8,
}

impl Network {
    /// The address, if the network is a single IPv4 address.
    pub(crate) fn whole_ipv4(self) -> Option<Ipv4Addr> {
        match self.first {
            IpAddr::V4(address) if self.prefix == 32 => Some(address),
            _ => None,
        }
    }

    pub(crate) fn is_ipv4(self) -> bool {
        self.first.is_ipv4()
    }

    /// How many leading bits the addresses share.
    pub(crate) fn prefix(self) -> u8 {
        self.prefix
    }

    const LOOPBACK: [Self; 2] = [Self::v4(127, 0, 8), Self::v6(0, 1, 128)];
    const LINK_LOCAL: [Self; 2] = [Self::v4(169, 254, 16), Self::v6(0xfe80, 0, 10)];
    const PRIVATE: [Self; 4] =
        [Self::v4(10, 0, 8), Self::v4(172, 16, 12), Self::v4(192, 168, 16), Self::v6(0xfc00, 0, 7)];

    const fn v4(a: u8, b: u8, prefix: u8) -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::new(a, b, 0, 0)), prefix }
    }

    const fn v6(first: u16, last: u16, prefix: u8) -> Self {
        Self { first: IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, last)), prefix }
    }

    /// The network with this prefix length that contains an address.
    pub(crate) fn around(address: IpAddr, prefix: u8) -> Self {
        let first = match address {
            IpAddr::V4(v4) => {
                let host_bits = 32_u32.saturating_sub(prefix.into());
                Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(host_bits).unwrap_or(0)).into()
            }
            IpAddr::V6(v6) => {
                let host_bits = 128_u32.saturating_sub(prefix.into());
                Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(host_bits).unwrap_or(0)).into()
            }
        };
        Self { first, prefix }
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        // Masking keeps the address family, so an address of the other family is never equal.
        Self::around(address, self.prefix) == self
    }

    /// The networks of a text: one in CIDR notation, or those of a name.
    pub(crate) fn parse_trusted(text: &str) -> Result<Vec<Self>, Error> {
        match text {
            "loopback" => return Ok(Self::LOOPBACK.to_vec()),
            "link-local" => return Ok(Self::LINK_LOCAL.to_vec()),
            "private" => return Ok(Self::PRIVATE.to_vec()),
            _ => {}
        }
        let network = Self::parse_as(
            text,
            "trusted network",
            "an address, a network such as \"10.0.0.0/8\", \"loopback\", \"link-local\" and \"private\"",
        )?;
        if network.prefix == 0 {
            let read = excerpt(text);
            return Err(Error::invalid_argument(format!(
                "trusted network {read} contains every address, so each client could choose its own address"
            )));
        }
        Ok(vec![network])
    }

    /// The network of a text in CIDR notation; an address is the network of it alone.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_as(text, "network", "an address and a network such as \"10.0.0.0/8\"")
    }

    fn parse_as(text: &str, what: &str, allowed: &str) -> Result<Self, Error> {
        let read = excerpt(text);
        let refuse = || Error::invalid_argument(format!("{what} is {read}; allowed are {allowed}"));
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => most,
            // Digits only: `parse` alone would take a sign.
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|bits| *bits <= most).ok_or_else(refuse)?
            }
            Some(_) => return Err(refuse()),
        };
        let network = Self::around(address, prefix);
        if network.first != address {
            // Either the address or the prefix is a typing error, and a guess could trust a whole network instead of a
            // single proxy, or deny one.
            return Err(Error::invalid_argument(format!(
                "{what} is {read}, which has bits set after its prefix; write {network} for the \
                 network or {address} for the one address"
            )));
        }
        // An IPv4 network written as IPv6 becomes IPv4, like the addresses that are compared with it.
        match (normalise(address), prefix.checked_sub(96)) {
            (first @ IpAddr::V4(_), Some(prefix)) if address.is_ipv6() => Ok(Self { first, prefix }),
            _ => Ok(network),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.first.is_ipv4() { 32 } else { 128 };
        if self.prefix == whole { self.first.fmt(f) } else { write!(f, "{}/{}", self.first, self.prefix) }
    }
}

/// The IPv4 address in the last 32 bits of an IPv4-mapped address (`::ffff:0:0/96`, RFC 4291, section 2.5.5.2) or of a
/// NAT64 address with the well-known prefix (`64:ff9b::/96`, RFC 6052, section 2.1); any other address unchanged.
///
/// This depends on the bits, not on the notation: `::ffff:a00:1` is `10.0.0.1` too, and `2001:db8::10.0.0.1` is not.
pub(crate) fn normalise(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => address,
    }
}

/// The address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:443`.
///
/// A port is digits or obfuscated (RFC 7239, section 6), and is dropped. IPv6 without brackets has no port. IPv4 is four
/// decimal numbers without leading zeros, since some parsers read those as octal.
pub(crate) fn parse_node(node: &[u8]) -> Option<IpAddr> {
    let node = str::from_utf8(node).ok()?;
    if let Some(bracketed) = node.strip_prefix('[') {
        let (address, after) = bracketed.split_once(']')?;
        if !after.is_empty() && !is_port(after.strip_prefix(':')?) {
            return None;
        }
        return parse_ipv6(address);
    }
    match node.split_once(':') {
        None => parse_ipv4(node),
        Some((_, rest)) if rest.contains(':') => parse_ipv6(node),
        Some((address, port)) => is_port(port).then(|| parse_ipv4(address))?,
    }
}

/// The address of a peer, in the notation of a server or of a proxy.
pub(crate) fn parse_peer(peer: &str) -> Option<IpAddr> {
    // The zone of a socket's address names a link of this host.
    let address = peer.split_once('%').map_or(peer, |(address, _)| address);
    address.parse().ok().or_else(|| parse_node(peer.as_bytes()))
}

fn parse_ipv4(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// A zone (`fe80::1%eth0`, RFC 4007) is valid on link-local addresses only, and has a meaning only for the host that
/// wrote it: there it is dropped; with any other address the text is no address.
fn parse_ipv6(text: &str) -> Option<IpAddr> {
    let (text, zone) = text.split_once('%').map_or((text, None), |(text, zone)| (text, Some(zone)));
    let address: Ipv6Addr = text.parse().ok()?;
    let zone_fits = zone.is_none_or(|zone| address.is_unicast_link_local() && is_name(zone, b"-._~"));
    zone_fits.then_some(IpAddr::V6(address))
}

fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(obfuscated) => is_name(obfuscated, b"._-"),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_name(text: &str, also: &[u8]) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || also.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        Network::parse_trusted(text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn networks_are_read_and_written() {
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.5", "10.0.0.5"),
            ("10.0.0.5/32", "10.0.0.5"),
            ("2001:DB8:0::/32", "2001:db8::/32"),
            ("::1", "::1"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:a00:5", "10.0.0.5"),
            ("64:ff9b::192.0.2.0/120", "192.0.2.0/24"),
            ("64:ff9b::/64", "64:ff9b::/64"),
            ("fe80::/10", "fe80::/10"),
        ] {
            assert_eq!(texts(text), [expected], "{text}");
        }
        assert_eq!(texts("loopback"), ["127.0.0.0/8", "::1"]);
        assert_eq!(texts("link-local"), ["169.254.0.0/16", "fe80::/10"]);
        assert_eq!(texts("private"), ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]);
    }

    #[test]
    fn anything_else_is_refused_with_the_reason() {
        for text in
            ["", "all", "*", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/-1", "::/129", "10.0.0/8"]
        {
            let message = Network::parse_trusted(text).unwrap_err().message().to_owned();
            assert!(message.starts_with(&format!("trusted network is {text:?}; allowed")), "{message}");
        }
        for text in ["0.0.0.0/0", "::/0", "::ffff:0:0/96", "64:ff9b::/96"] {
            assert!(Network::parse_trusted(text).unwrap_err().message().contains("every address"), "{text}");
        }
        let message = Network::parse_trusted("10.0.0.5/8").unwrap_err().message().to_owned();
        assert!(message.contains("write 10.0.0.0/8 for the network or 10.0.0.5 for"), "{message}");
    }

    #[test]
    fn a_network_contains_its_addresses_and_no_others() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.255.255", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "a00::", false),
            ("192.0.2.128/25", "192.0.2.127", false),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::", false),
            ("::/1", "0.0.0.0", false),
        ] {
            let contains = Network::parse(network).unwrap().contains(address.parse().unwrap());
            assert_eq!(contains, expected, "{address} in {network}");
        }
    }

    #[test]
    fn an_address_is_read_with_or_without_its_port() {
        for (node, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("192.0.2.1:_x.9", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("2001:DB8:0::1:443", "2001:db8::1:443"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
            ("::", "::"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:443", "fe80::1"),
        ] {
            assert_eq!(parse_node(node.as_bytes()), Some(expected.parse().unwrap()), "{node}");
        }
    }

    #[test]
    fn other_text_is_no_address() {
        for node in [
            "",
            "-",
            "unknown",
            "_hidden",
            "localhost",
            "unix:",
            "192.0.2",
            "192.0.2.1.",
            "192.0.2.256",
            "010.0.0.1",
            "0x7f.0.0.1",
            "2130706433",
            "192.0.2.1/32",
            "192.0.2.1:",
            "192.0.2.1:+1",
            "192.0.2.1:123456",
            "192.0.2.1:80:80",
            "192.0.2.1 192.0.2.2",
            "192.0.2.1%eth0",
            "[192.0.2.1]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]443",
            "[2001:db8::1]:",
            "[[::1]]",
            "2001:db8::1%eth0",
            "fe80::1%",
            "fe80::1%a b",
            ":::",
            "2001:db8::1::2",
            "192.0.2.1\0",
            "\u{661}.0.0.1",
        ] {
            assert_eq!(parse_node(node.as_bytes()), None, "{node}");
        }
        assert_eq!(parse_node(b"192.0.2.1\xff"), None);
    }
}
