//! A client cannot choose its own key by what it writes into a forwarding header.

use std::net::IpAddr;

use polylimit::http::{ClientAddress, ClientAddressRules, ForwardingHeader};

const TRUSTED: [&str; 3] = ["10.0.0.0/8", "2001:db8:ffff::/48", "loopback"];
const PROXY: [u8; 4] = [10, 0, 0, 1];

/// The bytes are the lines of the header, separated by line feeds. Both kinds of header are tried.
pub fn run(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    for (header, appended) in [
        (ForwardingHeader::XForwardedFor, &b", 203.0.113.7:80, ::ffff:10.0.0.2"[..]),
        (ForwardingHeader::Forwarded, br#", for="203.0.113.7:80";host="\",\\", for="[::ffff:10.0.0.2]""#),
    ] {
        let builder = ClientAddressRules::builder().header(header).ipv4_prefix(24).ipv6_prefix(56);
        let rules = TRUSTED.iter().fold(builder, |rules, network| rules.trust(network)).build();
        let rules = rules.expect("the networks are well-formed");

        // The header of a proxy is read, and the result is an address.
        let client = rules.resolve(PROXY.into(), lines.iter().copied());
        assert_well_formed(&rules, client);

        // No other address is trusted.
        let stranger = IpAddr::from([198, 51, 100, 9]);
        assert_eq!(rules.resolve(stranger, lines.iter().copied()).address(), stranger);

        // An entry that a proxy appends to the last line, or adds as a line, is read in the same way with any bytes
        // before it.
        let last = [lines[lines.len() - 1], appended].concat();
        let longer = lines[..lines.len() - 1].iter().copied().chain([&last[..]]).collect::<Vec<_>>();
        let added = lines.iter().copied().chain([&appended[2..]]).collect::<Vec<_>>();
        for lines in [longer, added] {
            assert_eq!(rules.resolve(PROXY.into(), lines).key(), "203.0.113.0/24", "{header:?}");
        }
    }
}

fn assert_well_formed(rules: &ClientAddressRules, client: ClientAddress) {
    let (address, key) = (client.address(), client.key());
    let (first, prefix) = key.split_once('/').expect("a prefix was set for both families");
    assert_eq!(prefix, if address.is_ipv4() { "24" } else { "56" });
    let first: IpAddr = first.parse().expect("a key starts with an address");
    // Resolving a resolved address changes nothing, and all addresses of a network have its key; but the first ones of 64:ff9b::/56 are
    // addresses of IPv4 (NAT64, RFC 6052).
    let nat64 = IpAddr::from([0x64, 0xff9b, 0, 0, 0, 0, 0, 0]);
    for same in [address, first].into_iter().filter(|address| *address != nat64) {
        let again = rules.resolve(same, []);
        assert_eq!((again.address(), again.key()), (same, key.clone()));
    }
}
