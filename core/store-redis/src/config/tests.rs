//! The table of options, and combinations of URL and code.

use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;

use crate::config::*;
use polylimit_store::option::StoreOption;
use polylimit_store::outage::Outage;
use polylimit_store::share::Ppm;

fn options(url: &str) -> RedisOptions {
    RedisOptions::parse(url).unwrap()
}

fn refusal(options: &RedisOptions) -> String {
    options.check().unwrap_err().to_string()
}

#[test]
fn every_default_is_allowed_and_every_option_can_be_set() {
    for option in RedisOptions::ALL {
        let StoreOption { name, default, .. } = *option;
        let scheme = match name {
            name if name.starts_with("tls_") => "rediss://h",
            name if name.starts_with("sentinel_") => "redis-sentinel://h/s",
            "address_map" | "topology_refresh" => "redis-sentinel://h/s",
            _ => "redis://h",
        };
        let fingerprint = "ab".repeat(32);
        let text = default.unwrap_or(match name {
            "tls_fingerprint" => &fingerprint,
            "address_map" => "a:1=b:2,c=d",
            _ => "text",
        });
        let set = options(scheme).set(name, text).unwrap();
        let parsed = options(&format!("{scheme}?{name}={text}"));
        assert_eq!(format!("{set:?}"), format!("{parsed:?}"));
        assert_eq!(format!("{set:?}").contains(&format!("{name}: ***")), option.secret);
        // The same value in both is allowed, and so is setting it again.
        let both = parsed.set(name, text).unwrap().set(name, text).unwrap();
        let complete = both.settings().is_ok() || refusal(&both).contains("is given without");
        assert!(complete, "{name}: {}", refusal(&both));
        assert!(!option.about.is_empty() && option.about.ends_with('.'));
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = RedisOptions::ALL.iter().map(|option| option.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RedisOptions::ALL.len());
}

#[test]
fn the_defaults() {
    let settings = options("redis://h").settings().unwrap();
    assert_eq!(settings.deadline, Duration::from_millis(50));
    assert_eq!(settings.first_connect_max, Duration::from_secs(1));
    assert_eq!((settings.outage, settings.fallback_share), (Outage::Fallback, Ppm(1_000_000)));
    assert_eq!((&*settings.prefix, &*settings.client_name), ("polylimit", "polylimit"));
    assert!(settings.key_secret.is_none());
    assert_eq!((settings.max_in_flight, settings.max_outstanding_bytes), (16_384, 16 << 20));
    assert_eq!(settings.max_connection_age, Duration::from_secs(600));
    assert_eq!(settings.breaker_failures, 3);
    assert_eq!(settings.reconnect_min, Duration::from_millis(5));
    assert_eq!(settings.reconnect_max, Duration::from_millis(200));
    assert_eq!(settings.keepalive, Duration::from_secs(15));
    assert_eq!(settings.topology_refresh, Duration::from_secs(30));
}

#[test]
fn every_setter_sets_its_option() {
    let options = options("rediss-sentinel://h/s")
        .deadline(Duration::from_secs(1))
        .outage(Outage::Deny)
        .fallback_share(0.25)
        .prefix("p")
        .db(7)
        .client_name("me".to_owned())
        .max_in_flight(9)
        .max_outstanding_bytes(65_536)
        .max_connection_age(Duration::ZERO)
        .breaker_failures(5)
        .reconnect_min(Duration::from_millis(2))
        .reconnect_max(Duration::from_millis(3))
        .keepalive(Duration::from_secs(4))
        .topology_refresh(Duration::from_secs(6))
        .username("u")
        .password("p@/")
        .key_secret("k")
        .tls_ca("ca")
        .tls_cert(PathBuf::from("cert"))
        .tls_key("key")
        .tls_server_name("n")
        .sentinel_username("su")
        .sentinel_password("sp");
    assert_eq!(
        format!("{options:?}"),
        "RedisOptions { location: Location { endpoints: Sentinel { service: \"s\", sentinels: [Endpoint { host: \"h\", \
         port: 26379 }] }, tls: true }, deadline: 1s, outage: deny, fallback_share: 0.25, prefix: \"p\", db: 7, client_name: \
         \"me\", max_in_flight: 9, max_outstanding_bytes: 64KiB, max_connection_age: 0, breaker_failures: 5, reconnect_min: \
         2ms, reconnect_max: 3ms, keepalive: 4s, topology_refresh: 6s, username: ***, password: ***, key_secret: ***, \
         tls_ca: \"ca\", tls_cert: \"cert\", tls_key: \"key\", tls_server_name: \"n\", sentinel_username: ***, \
         sentinel_password: *** }"
    );
    let settings = options.settings().unwrap();
    assert_eq!((settings.max_connection_age, settings.fallback_share), (Duration::ZERO, Ppm(250_000)));
    let target = settings.target.clone();
    assert!(matches!(target.endpoints, Endpoints::Sentinel { .. }));
    let tls = target.tls.unwrap();
    assert_eq!((tls.trust, tls.server_name), (Trust::File("ca".into()), Some("n".into())));
    assert_eq!(tls.identity, Some(Identity { certificate: "cert".into(), key: "key".into() }));
    let revealed = |credentials: Option<Credentials>| {
        let Credentials { username, password } = credentials.unwrap();
        (username.unwrap().reveal().to_owned(), password.reveal().to_owned())
    };
    assert_eq!(revealed(target.credentials), ("u".into(), "p@/".into()));
    assert_eq!(revealed(target.sentinel_credentials), ("su".into(), "sp".into()));
    assert_eq!((target.database, settings.key_secret.as_ref().unwrap().reveal()), (7, "k"));
}

#[test]
fn values_in_code_have_the_same_ranges() {
    let table = [
        (
            options("redis://h").deadline(Duration::from_micros(999)),
            "deadline is 999us: allowed is 1ms to 60s, as a whole number of us, ms, s, m or h",
        ),
        (
            options("redis://h").deadline(Duration::MAX),
            "deadline is 18446744073709551615999999us: allowed is 1ms to 60s, as a whole number of us, ms, s, m or h",
        ),
        (
            options("redis://h").fallback_share(f64::NAN),
            "fallback_share is 0: allowed is more than 0, up to 1, with at most 6 decimals",
        ),
        (options("redis://h").max_in_flight(0), "max_in_flight is 0: allowed is 1 to 1000000"),
        (
            options("redis://h").max_outstanding_bytes(usize::MAX),
            "max_outstanding_bytes is 18446744073709551615: allowed is 64KiB to 1024MiB, as a whole number of bytes, KiB or \
             MiB",
        ),
        (
            options("redis://h").prefix(""),
            "prefix is \"\": allowed is 1 to 64 letters, digits and -._~@:/+=,;!$&'()*|",
        ),
        (
            options("redis://h").password(""),
            "password is out of range (not shown): allowed is 1 to 16384 bytes",
        ),
        (options("rediss://h").tls_ca("a\0b"), "tls_ca is \"a\\0b\": allowed is the path of a file"),
    ];
    for (options, message) in table {
        assert_eq!(refusal(&options), message);
    }
}

#[test]
fn code_and_url_have_to_agree() {
    let url = "redis://u:p@h/1?deadline=20ms&outage=deny&fallback_share=0.5";
    options(url)
        .deadline(Duration::from_micros(20_000))
        .password("p")
        .fallback_share(0.5)
        .db(1)
        .check()
        .unwrap();
    let table = [
        (
            options(url).deadline(Duration::from_secs(1)),
            "deadline is 1s in code and 20ms in the store URL: leave one out",
        ),
        (
            options(url).outage(Outage::Allow),
            "outage is allow in code and deny in the store URL: leave one out",
        ),
        (options(url).db(0), "db is 0 in code and 1 in the store URL: leave one out"),
        (
            options(url).fallback_share(0.25),
            "fallback_share is 0.25 in code and 0.5 in the store URL: leave one out",
        ),
        (options(url).password("q"), "password in code differs from the one in the store URL: leave one out"),
    ];
    for (options, message) in table {
        assert_eq!(refusal(&options), message);
    }
    // The text after a secret may be part of it.
    let hidden = options("redis://h?key_secret=k&prefix=a").prefix("b");
    assert_eq!(refusal(&hidden), "prefix in code differs from the one in the store URL: leave one out");
    let hidden = format!("{:?}", options("redis://h/1?prefix=a&key_secret=k&client_name=a"));
    assert!(hidden.ends_with("prefix: \"a\", db: 1, client_name: ***, key_secret: *** }"), "{hidden}");
    // The last call in code counts.
    options(url).db(0).db(1).check().unwrap();
    // A user name in the URL and a password in code are a common combination.
    options("redis://u@h").password("p").check().unwrap();
}

#[test]
fn names_and_texts_are_checked_at_once() {
    let set = |name, text| options("redis://h").set(name, text).unwrap_err().to_string();
    assert_eq!(set("pasword", "hunter2"), "option \"pasword\" is not known: did you mean password?");
    assert_eq!(set("outage", "Deny"), "outage is \"Deny\": allowed is fallback, allow or deny");
    assert_eq!(set("password", ""), "password is out of range (not shown): allowed is 1 to 16384 bytes");
    // A text is stored as it is.
    let secret = options("redis://h")
        .set("key_secret", "%40&#")
        .unwrap()
        .settings()
        .unwrap()
        .key_secret
        .clone()
        .unwrap();
    assert_eq!(secret.reveal(), "%40&#");
}

/// Begins and ends each secret in these tests, so that a part of a secret is detected as well; any delimiter may stand in
/// between.
const MARK: &str = "Zq7x";

/// All output that the URL leads to.
fn shown(url: &str) -> String {
    match RedisOptions::parse(url) {
        Err(error) => format!("{error} {error:?}"),
        Ok(options) => {
            let checked = options.check().map_err(|error| error.to_string());
            let conflict = options.clone().password("other").key_secret("other").check();
            let other_prefix = options.clone().prefix("other").check();
            format!("{options:?} {options:#?} {checked:?} {conflict:?} {other_prefix:?}")
        }
    }
}

fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9]{0,8}",
        "[@:/?#&=%,;\\[\\] ]{0,3}",
        "[@:/?#&=%,a1]{0,12}",
        Just("://".to_owned()),
        Just("@h:1/0?prefix=".to_owned()),
        Just("&deadline=".to_owned()),
        Just("&x=".to_owned()),
        Just("&prefix=".to_owned()),
        Just("%2".to_owned()),
        ".{0,12}",
    ]
    .prop_map(|text| format!("{MARK}{text}{MARK}"))
}

fn scheme() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "redis://",
        "rediss://",
        "redis+unix://",
        "redis-sentinel://",
        "rediss-sentinel://",
        "redis-cluster://",
        "rediss-cluster://",
        "redis:",
        "redis:/",
        "http://",
        "",
    ])
}

fn tail() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "h",
        "h:1/0",
        "h:x",
        "h,g:2",
        "h,g/s/1",
        "/run/s",
        "h?deadline=1s",
        "h?deadline=x",
        "h?prefix=a@b",
        "h/x?y=z",
        "[::1",
        "h#x",
        "h?password=p",
        "h/0?db=1",
        "h %",
        "h?tls_ca=a",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn user_info_is_not_shown(scheme in scheme(), user in secret(), password in secret(), form in 0..4, tail in tail()) {
        let url = match form {
            0 => format!("{scheme}{user}:{password}@{tail}"),
            1 => format!("{scheme}:{password}@{tail}"),
            2 => format!("{scheme}{user}@{tail}"),
            _ => format!("{scheme}{user}:@{tail}"),
        };
        let shown = shown(&url);
        prop_assert!(!shown.contains(MARK), "{url}: {shown}");
    }

    #[test]
    fn secret_parameters_are_not_shown(
        scheme in scheme(),
        name in prop::sample::select(vec![
            "password", "username", "key_secret", "sentinel_password", "sentinel_username", "PASSWORD", "passwd", "secret",
            "pwd", "deadline=1s&password", "x=1&password", "deadline=1s;password", "deadline=1s?password",
        ]),
        secret in secret(),
        host in prop::sample::select(vec!["h", "h/0", "h/s", "u:p@h", "", "h:x", "/run/s"]),
        tail in prop::sample::select(vec!["", "&deadline=1s", "&deadline=x", "&x=y", "&password=p", "&x", "&db=%"]),
    ) {
        let url = format!("{scheme}{host}?{name}={secret}{tail}");
        let shown = shown(&url);
        prop_assert!(!shown.contains(MARK), "{url}: {shown}");
    }

    #[test]
    fn secrets_in_code_are_not_shown(name in "x[a-z_]{0,20}", secret in secret()) {
        for name in ["password", "username", "key_secret", "sentinel_username", "sentinel_password", &name] {
            let set = RedisOptions::parse("redis-sentinel://h/s?password=p&key_secret=k").unwrap().set(name, &secret);
            let shown = match set {
                Ok(options) => format!("{options:?} {:?}", options.check()),
                Err(error) => error.to_string(),
            };
            prop_assert!(!shown.contains(MARK), "{name}: {shown}");
        }
    }

    #[test]
    fn any_text_is_options_or_refused(scheme in scheme(), text in prop_oneof![".{0,60}", "[@:/?#&=%,a1\\[\\]]{0,40}"]) {
        if let Err(error) = RedisOptions::parse(&format!("{scheme}{text}")) {
            prop_assert_eq!(error.kind(), polylimit_rules::error::ErrorKind::InvalidArgument);
            prop_assert!(error.message().len() < 1_000 && !error.message().ends_with('.'));
        }
        let _ = RedisOptions::parse(&text);
    }
}

#[test]
fn source_of_a_configuration_is_given_with_the_store_and_is_no_setting_of_it() {
    let plain = options("redis://h");
    let given = options("redis://h?configuration=store+file:/limits.toml&copy=/copy");
    assert!(plain.settings().unwrap() == given.settings().unwrap(), "limiters share connections");
    assert_eq!(plain.source().unwrap(), (None, None));
    let source = (Some("store+file:/limits.toml".into()), Some(PathBuf::from("/copy")));
    assert_eq!(given.source().unwrap(), source);
    assert_eq!(plain.set("configuration", "store").unwrap().source().unwrap().0.as_deref(), Some("store"));
    for text in ["", "file", "redis", "file:"] {
        let error = RedisOptions::parse(&format!("redis://h?configuration={text}")).unwrap_err();
        let expected = format!("configuration is {text:?}: allowed is file:PATH, store or store+file:PATH");
        assert_eq!(error.message(), expected);
    }
    let differs = given.clone().configuration("store");
    assert!(
        refusal(&differs).contains("configuration is \"store\" in code and \"store+file:/limits.toml\" in")
    );
    assert!(refusal(&given.copy("/other")).contains("copy is \"/other\" in code"));
}
