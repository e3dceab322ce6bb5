//! One address as a proxy writes it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    fn anything_else_is_no_address() {
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
