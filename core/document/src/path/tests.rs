//! Paths, their normal form and their patterns.

use proptest::prelude::*;

use super::*;

fn normalised(path: &str) -> String {
    String::from_utf8(normalise(path.as_bytes(), RouterPaths::new()).into_owned()).unwrap()
}

#[test]
fn path_has_one_form() {
    for (path, expected) in [
        ("", "/"),
        ("/", "/"),
        ("//", "/"),
        ("/..", "/"),
        ("/../..", "/"),
        ("?a=/b", "/"),
        ("#a", "/"),
        ("*", "/*"),
        ("a/b", "/a/b"),
        ("/a", "/a"),
        ("/a/", "/a"),
        ("/a?", "/a"),
        ("/a/?b", "/a"),
        ("/a#b?c", "/a"),
        ("/a//b/", "/a/b"),
        ("/a/./b", "/a/b"),
        ("/a/b/..", "/a"),
        ("/a/../../b", "/b"),
        ("/a/b/../../c", "/c"),
        ("/a/..b/.c/...", "/a/..b/.c/..."),
        ("/v1/./x/../orders/7?a=/b/c", "/v1/orders/7"),
        ("/v1/%6Frders/7#f", "/v1/orders/7"),
        ("/v1/orders/%2E%2e/orders/7", "/v1/orders/7"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%252fb", "/a%252fb"),
        ("/%zz/%4", "/%zz/%4"),
        ("/%", "/%"),
        ("/%%34", "/%4"),
        ("/a%3Fb%23", "/a?b#"),
        ("/a%20b%C3%A9", "/a b\u{e9}"),
        ("/.well-known/x", "/.well-known/x"),
    ] {
        assert_eq!(normalised(path), expected, "{path}");
        assert!(is_normalised(expected.as_bytes()), "{expected}");
    }
    assert_eq!(*normalise(b"/%FF%00", RouterPaths::new()), *b"/\xff\0");
    for path in ["", "a", "/a/", "//", "/.", "/a/../b"] {
        assert!(!is_normalised(path.as_bytes()), "{path}");
    }
}

#[test]
fn scheme_and_authority_go_first() {
    for (target, expected) in [
        ("http://h/login", "/login"),
        ("HTTPS://user@h:8080/login?x", "/login"),
        ("http://h", "/"),
        ("http://h?x=/y", "/"),
        ("h2+x.y-z://h//a/./b/", "/a/b"),
        ("/http://h/login", "/http:/h/login"),
        ("1http://h/login", "/1http:/h/login"),
        ("http:/login", "/http:/login"),
        ("://h/login", "/:/h/login"),
        ("h:443", "/h:443"),
    ] {
        assert_eq!(normalised(target), expected, "{target}");
    }
}

#[test]
fn router_drops_parameters_and_suffix() {
    let drops_parameters = RouterPaths::new().drop_parameters();
    let drops_suffix = RouterPaths::new().drop_suffix();
    for (router, path, expected) in [
        (drops_parameters, "/login;a=1", "/login"),
        (drops_parameters, "/login;", "/login"),
        (drops_parameters, "/;/login", "/login"),
        (drops_parameters, "/;x/login%3Ba", "/login"),
        (drops_parameters, "/a;b/../login", "/login"),
        (drops_parameters, "/a/..;x/login", "/login"),
        (drops_parameters, "/login.json", "/login.json"),
        (drops_suffix, "/login.json", "/login"),
        (drops_suffix, "/login.json?x=1.2", "/login"),
        (drops_suffix, "/login.%6Ason/", "/login"),
        (drops_suffix, "/v1.0/login.1", "/v1.0/login"),
        (drops_suffix, "/login.json.x", "/login.json"),
        (drops_suffix, "/login.", "/login."),
        (drops_suffix, "/.well-known", "/.well-known"),
        (drops_suffix, "/a/..x", "/a/..x"),
        (drops_suffix, "/login;a=1", "/login;a=1"),
    ] {
        assert_eq!(*normalise(path.as_bytes(), router), *expected.as_bytes(), "{path}");
    }
}

#[test]
fn path_that_routers_read_in_several_ways_has_several_readings() {
    let of = |path: &'static str, router: RouterPaths| {
        let readings = readings(path.as_bytes(), router.every_reading()).into_iter();
        readings.map(|reading| String::from_utf8(reading.compared.into_owned()).unwrap()).collect::<Vec<_>>()
    };
    let plain = RouterPaths::new();
    assert_eq!(of("/v1/login?next=/x/../y%2Fz", plain), ["/v1/login"]);
    assert_eq!(of("/v1/%6Cogin", plain), ["/v1/login"]);
    assert_eq!(of("/api/../static/x", plain), ["/static/x", "/api/../static/x"]);
    assert_eq!(of("/api/%2e%2E/x", plain), ["/x", "/api/../x"]);
    assert_eq!(of("/v1%2flogin", plain), ["/v1%2Flogin", "/v1/login"]);
    assert_eq!(of("/a%2F../b", plain), ["/a%2F../b", "/b", "/a/../b"]);
    let exact = readings(b"/x/../a%2F../b", plain).into_iter().map(|reading| reading.compared);
    assert_eq!(exact.collect::<Vec<_>>(), [&b"/a%2F../b"[..], b"/b"]);
    assert_eq!(of("/v1%252Flogin", plain), ["/v1%252Flogin"]);
    assert_eq!(of("/x\\..%5Clogin", plain), ["/x\\..\\login", "/login", "/x/../login"]);
    assert_eq!(of("/A;x/../LOGIN.JSON", RouterPaths::from_bits(7)), ["/login", "/a/../login"]);
    let reading = &readings(b"/Users/AbC", plain.ignore_case())[0];
    assert_eq!((&*reading.compared, reading.sent()), (&b"/users/abc"[..], &b"/Users/AbC"[..]));
}

#[test]
fn pattern_for_a_router_compares_as_it_does() {
    let router = RouterPaths::from_bits(7);
    for (pattern, path, expected) in [
        ("/Login", "/lOGIN;a.json", true),
        ("/feed.xml", "/feed.json", true),
        ("/a.b/c", "/a.b/c.x", true),
        ("/a.b/c", "/a/c", false),
        ("/a;x=1/{id}", "/a/7.json", true),
        ("/;x", "/", true),
        ("/Static.d/{*rest}", "/static.d/a/b.c", true),
        ("/\u{c9}", "/%C3%A9", true),
    ] {
        let pattern = PathPattern::parse(pattern).unwrap().for_router(router);
        let found = pattern.matches(&readings(path.as_bytes(), router)[0].compared);
        assert_eq!(found, expected, "{pattern:?} and {path}");
    }
}

#[test]
fn usual_path_is_borrowed() {
    for path in ["/", "/v1/orders/7", "/v1/orders/7?a=b%20c", "/a.b/c..d/e#f"] {
        assert!(matches!(normalise(path.as_bytes(), RouterPaths::new()), Cow::Borrowed(_)), "{path}");
    }
}

#[test]
fn pattern_matches_segments_and_the_rest() {
    for (pattern, path, expected) in [
        ("/", "/", true),
        ("/", "/a", false),
        ("/a", "/a", true),
        ("/a", "/A", false),
        ("/a", "/a/b", false),
        ("/a/b", "/a", false),
        ("/v1/orders/{id}", "/v1/orders/7", true),
        ("/v1/orders/{id}", "/v1/orders", false),
        ("/v1/orders/{id}", "/v1/orders/7/8", false),
        ("/{a}/x/{b}", "/1/x/2", true),
        ("/{a}/x/{b}", "/1/y/2", false),
        ("/static/{*rest}", "/static", true),
        ("/static/{*rest}", "/static/a/b", true),
        ("/static/{*rest}", "/statical", false),
        ("/{*rest}", "/", true),
        ("/{*rest}", "/a/b", true),
        ("/{tenant}/files/{*rest}", "/files/a", false),
        ("/a%2Fb", "/a%2Fb", true),
        ("/é", "/é", true),
    ] {
        let matches = PathPattern::parse(pattern).unwrap().matches(path.as_bytes());
        assert_eq!(matches, expected, "{pattern} and {path}");
    }
}

#[test]
fn names_capture_segments_and_the_rest() {
    let pattern = PathPattern::parse("/{tenant}/files/{*rest}").unwrap();
    for (path, rest) in
        [("/acme/files", None), ("/acme/files/a", Some("a")), ("/acme/files/a/b", Some("a/b"))]
    {
        assert!(pattern.matches(path.as_bytes()));
        assert_eq!(pattern.capture("tenant", path.as_bytes()), Some(&b"acme"[..]));
        assert_eq!(pattern.capture("rest", path.as_bytes()), rest.map(str::as_bytes));
        assert_eq!(pattern.capture("files", path.as_bytes()), None);
    }
    assert!(pattern.captures("tenant") && pattern.captures("rest") && !pattern.captures("files"));
    let all = PathPattern::parse("/{*all}").unwrap();
    assert_eq!((all.capture("all", b"/"), all.capture("all", b"/a")), (Some(&b""[..]), Some(&b"a"[..])));
}

#[test]
fn pattern_is_a_normalised_path_with_whole_segments_in_braces() {
    for (text, about) in [
        ("", "start with /"),
        ("*", "start with /"),
        ("a", "start with /"),
        ("/a/", "\"/a/\""),
        ("/a//b", "write \"/a/b\""),
        ("/a?b", "write \"/a\""),
        ("/%41", "write \"/A\""),
        ("/a%2fb", "write \"/a%2Fb\""),
        ("/{*x}/y", "{*x}"),
        ("/{*x}/{*y}", "{*x}"),
        ("/a*", "segment \"a*\""),
        ("/{a}b", "segment \"{a}b\""),
        ("/{a", "segment \"{a\""),
        ("/a}", "segment \"a}\""),
        ("/{}", "segment \"{}\""),
        ("/{*}", "segment \"{*}\""),
        ("/{A}", "segment \"{A}\""),
        ("/{a}/{a}", "twice"),
        ("/{a}/{*a}", "twice"),
    ] {
        let message = PathPattern::parse(text).unwrap_err().message().to_owned();
        assert!(message.contains(about), "{text}: {message}");
    }
    let long = format!("/{}/b%2fc", "a".repeat(50));
    let message = PathPattern::parse(&long).unwrap_err().message().to_owned();
    assert!(message.ends_with("write \"Fc\" in place of \"fc\" in it"), "{message}");
}

proptest! {
    #[test]
    fn any_bytes_have_a_normalised_form(
        path in prop::collection::vec(prop::sample::select(&b"//..%%2FfEe5347?#ab\xff\0"[..]), 0..24),
    ) {
        for bits in 0..8 {
            let router = RouterPaths::from_bits(bits);
            let normalised = normalise(&path, router);
            prop_assert!(is_normalised(&normalised), "{:?}", normalised);
            // An escape may stand for a byte that cuts a path, or be completed by another one. A suffix may follow another.
            if !path.contains(&b'%') && !router.drops_suffix() {
                prop_assert_eq!(&normalise(&normalised, router), &normalised);
            }
        }
    }

    #[test]
    fn each_reading_comes_once_and_the_normal_form_first(
        path in prop::collection::vec(prop::sample::select(&b"//..%%2FfEe5347?#;aB\xff\0"[..]), 0..24),
        bits in 0..8_u32,
    ) {
        let router = RouterPaths::from_bits(bits);
        let all = readings(&path, router.every_reading());
        let exact = readings(&path, router);
        prop_assert!(exact.len() <= 2 && exact.iter().all(|reading| all.contains(reading)));
        prop_assert_eq!(&all[0], &exact[0]);
        prop_assert_eq!(all[0].sent(), &*normalise(&path, router));
        for (at, reading) in all.iter().enumerate() {
            prop_assert!(!all[..at].contains(reading));
            prop_assert!(!router.ignores_case() || *lower_case(reading.sent()) == *reading.compared);
        }
    }

    #[test]
    fn pattern_of_a_path_matches_it_behind_every_router(
        segments in prop::collection::vec("[a-cA-C]{1,3}(;[a-c]{0,2})?(\\.[a-c]{1,2})?", 1..4),
        bits in 0..8_u32,
    ) {
        let router = RouterPaths::from_bits(bits);
        let path = format!("/{}", segments.join("/"));
        let pattern = PathPattern::parse(&path).unwrap().for_router(router);
        let sent = if router.ignores_case() { path.to_uppercase() } else { path };
        prop_assert!(pattern.matches(&readings(sent.as_bytes(), router)[0].compared), "{}", sent);
    }

    #[test]
    fn escaped_letters_are_letters(path in "(/[a-c.]{0,3}){0,5}") {
        let escaped: String = path
            .chars()
            .map(|letter| if letter == '/' { letter.into() } else { format!("%{:02x}", u32::from(letter)) })
            .collect();
        let router = RouterPaths::new();
        prop_assert_eq!(normalise(path.as_bytes(), router), normalise(escaped.as_bytes(), router));
    }
}
