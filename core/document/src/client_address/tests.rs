use polylimit_test_servers::Row;

use crate::client_address::*;

const PROXIES: [&str; 3] = ["10.0.0.0/8", "2001:db8:ffff::/48", "loopback"];

fn rules(header: ForwardingHeader) -> ClientAddressRules {
    let builder = ClientAddressRules::builder().header(header);
    PROXIES.iter().fold(builder, |builder, proxy| builder.trust(proxy)).build().unwrap()
}

fn resolved(rules: &ClientAddressRules, peer: &str, lines: &[&str]) -> ClientAddress {
    rules.resolve(peer.parse().unwrap(), lines.iter().map(|line| line.as_bytes()))
}

/// Peer, lines of the header, expected client.
type Case<'a> = (&'a str, &'a [&'a str], &'a str);

fn check(header: ForwardingHeader, cases: &[Case<'_>]) {
    let rules = rules(header);
    for (peer, lines, expected) in cases {
        let client = resolved(&rules, peer, lines).address().to_string();
        assert_eq!(client, *expected, "peer {peer}, lines {lines:?}");
    }
}

#[test]
fn x_forwarded_for_is_walked_from_the_right_over_trusted_hops() {
    check(
        ForwardingHeader::XForwardedFor,
        &[
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7, 10.0.0.3 ,\t10.0.0.2"], "203.0.113.7"),
            ("::1", &["2001:db8::7, [2001:db8:ffff::1]:443"], "2001:db8::7"),
            // Every hop is trusted: the client is in the trusted network.
            ("10.0.0.1", &["10.0.0.9,10.0.0.2"], "10.0.0.9"),
            ("10.0.0.1", &["203.0.113.7:5678"], "203.0.113.7"),
            ("10.0.0.1", &["fe80::1%eth0"], "fe80::1"),
            // The order of lines is the order of entries.
            ("10.0.0.1", &["203.0.113.7", "10.0.0.3, 10.0.0.2"], "203.0.113.7"),
        ],
    );
}

#[test]
fn peer_may_be_given_as_text() {
    let rules = rules(ForwardingHeader::XForwardedFor);
    for (peer, expected) in [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("[2001:db8::1]:443", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("[fe80::1%eth0]", "fe80::/64"),
        // The header of a trusted peer is read, with a port or without.
        ("10.0.0.1", "203.0.113.7"),
        ("10.0.0.1:80", "203.0.113.7"),
        ("::1", "203.0.113.7"),
    ] {
        assert_eq!(rules.key_of(peer, [&b"203.0.113.7"[..]]), expected, "{peer}");
    }
}

#[test]
fn a_peer_that_is_no_address_is_trusted_with_nothing_and_has_no_budget_of_its_own() {
    let rules = rules(ForwardingHeader::XForwardedFor);
    let too_long = "1".repeat(100_000);
    for peer in
        ["", " ", "-", "unknown", "unix:", "localhost", "127.0.0.1 ", "10.0.0.1,", "%eth0", "\0", &too_long]
    {
        assert_eq!(rules.key_of(peer, [&b"203.0.113.7"[..]]), ClientAddressRules::UNKNOWN, "{peer:?}");
    }
}

#[test]
fn x_forwarded_for_cannot_be_spoofed() {
    check(
        ForwardingHeader::XForwardedFor,
        &[
            // The header of an untrusted peer is ignored.
            ("203.0.113.7", &["198.51.100.1"], "203.0.113.7"),
            ("203.0.113.7", &["127.0.0.1"], "203.0.113.7"),
            ("::ffff:203.0.113.7", &["127.0.0.1"], "203.0.113.7"),
            // Entries by the client are left of those that the proxy appended, on the same line or another.
            ("10.0.0.1", &["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["127.0.0.1, 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["198.51.100.1", "203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["198.51.100.1", "198.51.100.2, 10.0.0.8", "203.0.113.7, 10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", &["198.51.100.1,,,203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["\", 203.0.113.7"], "203.0.113.7"),
            // Proxies are recognised by their bits, in any notation.
            (
                "::ffff:10.0.0.1",
                &["198.51.100.1, 203.0.113.7, ::ffff:a00:2, 64:ff9b::10.0.0.3"],
                "203.0.113.7",
            ),
            ("10.0.0.1", &["198.51.100.1, ::ffff:203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["198.51.100.1, 2001:db8::10.0.0.1"], "2001:db8::a00:1"),
            // A hop that names no address ends the walk.
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, _hidden, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["198.51.100.1, "], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1", ""], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, , 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["198.51.100.1, 010.0.0.2"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, 10.0.0.2/8"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1 10.0.0.2"], "10.0.0.1"),
            ("10.0.0.1", &["for=198.51.100.1"], "10.0.0.1"),
        ],
    );
}

#[test]
fn header_of_one_address_is_that_of_a_trusted_proxy() {
    for header in [
        ForwardingHeader::CfConnectingIp,
        ForwardingHeader::TrueClientIp,
        ForwardingHeader::XRealIp,
        ForwardingHeader::FlyClientIp,
    ] {
        check(
            header,
            &[
                ("203.0.113.7", &["198.51.100.1"], "203.0.113.7"),
                ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
                ("10.0.0.1", &[" 2001:db8::1 "], "2001:db8::1"),
                ("10.0.0.1", &["10.0.0.2"], "10.0.0.2"),
                ("10.0.0.1", &[], "10.0.0.1"),
                ("10.0.0.1", &["unknown"], "10.0.0.1"),
                ("10.0.0.1", &["198.51.100.1, 203.0.113.7"], "10.0.0.1"),
                ("10.0.0.1", &["198.51.100.1", "203.0.113.7"], "10.0.0.1"),
            ],
        );
    }
}

/// What published advisories about other programs describe, and what this one makes of it: the advisory, the peer, the lines of
/// the header, and the key that counts the client.
const ADVISORIES: [(&str, &str, &[&str], &str); 10] = [
    // Gin believed the header of every peer, where no proxy stands before the service.
    ("CVE-2020-28483", "203.0.113.7", &["198.51.100.1"], "203.0.113.7"),
    ("CVE-2020-28483", "203.0.113.7", &["127.0.0.1"], "203.0.113.7"),
    // Traefik removed its own fields when the client named them in `Connection`: the peer is counted then, not nothing.
    ("CVE-2024-45410", "10.0.0.1", &[], "10.0.0.1"),
    ("CVE-2024-45410", "10.0.0.1", &[""], "10.0.0.1"),
    // express-rate-limit masked IPv4-mapped addresses as IPv6, so that all clients shared one budget.
    ("CVE-2026-30827", "::ffff:203.0.113.7", &[], "203.0.113.7"),
    ("CVE-2026-30827", "10.0.0.1", &["::ffff:203.0.113.8"], "203.0.113.8"),
    // A middleware, ipRestriction, did not recognise an IPv4-mapped address by rules for IPv4.
    ("GHSA-xpcf-pg52-r92g", "::ffff:10.0.0.1", &["198.51.100.1, ::ffff:10.0.0.2"], "198.51.100.1"),
    ("GHSA-xpcf-pg52-r92g", "::ffff:203.0.113.7", &["::ffff:127.0.0.1"], "203.0.113.7"),
    // Net::CIDR accepted leading zeros, which other programs read as octal numbers: 012.0.0.1 is no address here.
    ("CVE-2021-4456", "10.0.0.1", &["198.51.100.1, 012.0.0.1"], "10.0.0.1"),
    // Net::CIDR::Lite matched IPv4-mapped addresses to the wrong networks: 11.0.0.1 is in none that is trusted.
    ("CVE-2026-40199", "::ffff:11.0.0.1", &["198.51.100.1"], "11.0.0.1"),
];

#[test]
fn published_advisories_about_other_programs_do_not_apply() {
    let rules = rules(ForwardingHeader::XForwardedFor);
    for (advisory, peer, lines, expected) in ADVISORIES {
        assert_eq!(resolved(&rules, peer, lines).key(), expected, "{advisory}: peer {peer}, lines {lines:?}");
        Row::new("S2", advisory).measured("no bypass").record();
    }
}

#[test]
fn a_walk_that_a_limit_cuts_off_ends_at_the_last_trusted_hop() {
    let hops = |count| (1..=count).rev().map(|i| format!("10.0.1.{i}")).collect::<Vec<_>>().join(",");
    for (line, expected) in [
        (format!("203.0.113.7,{}", hops(31)), "203.0.113.7"),
        (format!("203.0.113.7,{}", hops(32)), "10.0.1.32"),
        (format!("203.0.113.7,{}10.0.1.9", " ".repeat(4080)), "10.0.1.9"),
        (format!("203.0.113.7,{}10.0.1.9", " ".repeat(4090)), "10.0.0.1"),
        (format!("{}, 203.0.113.7", "x".repeat(100_000)), "203.0.113.7"),
        (",".repeat(100_000), "10.0.0.1"),
    ] {
        check(ForwardingHeader::XForwardedFor, &[("10.0.0.1", &[&line], expected)]);
    }
    let lines = vec!["10.0.0.2"; 10_000];
    check(ForwardingHeader::XForwardedFor, &[("10.0.0.1", &lines, "10.0.0.2")]);
}

#[test]
fn forwarded_is_walked_and_cannot_be_spoofed() {
    check(
        ForwardingHeader::Forwarded,
        &[
            ("10.0.0.1", &["for=203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &[r#"For="[2001:db8::7]:443";proto=https, FOR=10.0.0.2"#], "2001:db8::7"),
            ("10.0.0.1", &[r#"for=203.0.113.7;host="a, for=198.51.100.1;b""#], "203.0.113.7"),
            ("10.0.0.1", &[r#"for=203.0.113.7;host="a\", for=198.51.100.1""#], "203.0.113.7"),
            ("10.0.0.1", &["for=198.51.100.1, for=203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["for=198.51.100.1", "for=203.0.113.7", "for=10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", &[r#"for=", for=203.0.113.7"#], "203.0.113.7"),
            ("10.0.0.1", &[r#"for="\, for=203.0.113.7, for=10.0.0.2"#], "203.0.113.7"),
            ("10.0.0.1", &[r#"for="198.51.100.1, for=10.0.0.2"#], "10.0.0.2"),
            ("203.0.113.7", &["for=198.51.100.1"], "203.0.113.7"),
            ("10.0.0.1", &[r#"for=198.51.100.1, for="::ffff:10.0.0.2""#], "198.51.100.1"),
            // Elements left of one that names no address are ignored.
            ("10.0.0.1", &["for=198.51.100.1, for=unknown"], "10.0.0.1"),
            ("10.0.0.1", &[r#"for=198.51.100.1, for="_gazonk", for=10.0.0.2"#], "10.0.0.2"),
            ("10.0.0.1", &["for=198.51.100.1, proto=https"], "10.0.0.1"),
            ("10.0.0.1", &["for=198.51.100.1, for=10.0.0.2;for=10.0.0.3"], "10.0.0.1"),
            ("10.0.0.1", &["for=198.51.100.1, "], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7"], "10.0.0.1"),
        ],
    );
}

#[test]
fn addresses_are_counted_by_prefix() {
    let by = |v4, v6| ClientAddressRules::builder().ipv4_prefix(v4).ipv6_prefix(v6).build().unwrap();
    for (rules, peer, key) in [
        (ClientAddressRules::default(), "203.0.113.7", "203.0.113.7"),
        (ClientAddressRules::default(), "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (ClientAddressRules::default(), "::ffff:203.0.113.7", "203.0.113.7"),
        (ClientAddressRules::default(), "::ffff:cb00:7107", "203.0.113.7"),
        (ClientAddressRules::default(), "64:ff9b::cb00:7107", "203.0.113.7"),
        (ClientAddressRules::default(), "64:ff9b:1::cb00:7107", "64:ff9b:1::/64"),
        (ClientAddressRules::default(), "::1", "::/64"),
        (by(24, 56), "203.0.113.7", "203.0.113.0/24"),
        (by(24, 56), "2001:db8:1:2ff::1", "2001:db8:1:200::/56"),
        (by(0, 0), "203.0.113.7", "0.0.0.0/0"),
        (by(0, 0), "2001:db8::1", "::/0"),
        (by(32, 128), "2001:DB8:0:0::1", "2001:db8::1"),
    ] {
        let client = resolved(&rules, peer, &["198.51.100.1"]);
        assert_eq!(client.key(), key, "{peer}");
        assert_eq!(*client.key_bytes(), *key.as_bytes(), "{peer}");
    }
}

#[test]
fn no_bytes_in_front_change_what_a_trusted_proxy_appended() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    let alphabet = b"for=\"\\,;:[]%. \t1a_\x00\xff";
    for (header, appended) in [
        (ForwardingHeader::XForwardedFor, ", 203.0.113.7:80, ::ffff:10.0.0.2"),
        (ForwardingHeader::Forwarded, r#", for="203.0.113.7:80";host="\",\\", for="[::ffff:10.0.0.2]""#),
    ] {
        let rules = rules(header);
        for _ in 0..5_000 {
            let mut line: Vec<u8> = (0..random() % 24).map(|_| alphabet[random() % alphabet.len()]).collect();
            // Alone it is only a request that must not panic.
            let _ = rules.resolve([10, 0, 0, 1].into(), [&line[..]]);
            line.extend_from_slice(appended.as_bytes());
            let client = rules.resolve([10, 0, 0, 1].into(), [&line[..]]);
            assert_eq!(client.key(), "203.0.113.7", "{}", line.escape_ascii());
        }
    }
    Row::new("S2", "10,000 random headers before what a proxy appends")
        .measured("no bypass, no panic")
        .record();
}

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
fn header_is_not_needed_where_no_proxy_is_trusted() {
    let rules = ClientAddressRules::builder().header(ForwardingHeader::Forwarded);
    assert_eq!(rules.clone().build().unwrap().header(), None);
    assert_eq!(rules.trust("::1").build().unwrap().header(), Some(ForwardingHeader::Forwarded));
    assert_eq!(ClientAddressRules::builder().build().unwrap(), ClientAddressRules::default());
}

#[test]
fn key_of_ipv4_address_is_the_address_as_text() {
    for octet in 0..=255 {
        let address = IpAddr::from([octet, 255 - octet, octet / 3, octet % 11]);
        let client = ClientAddressRules::default().resolve(address, []);
        assert_eq!(client.key(), address.to_string());
        assert_eq!(*client.key_bytes(), *client.key().as_bytes());
    }
}
