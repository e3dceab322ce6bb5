//! For any URL: no panic, and no part of a secret in a message or in `Debug`.
//!
//! The secrets begin and end with a mark, so that a part of one is detected as well, and may contain any delimiter in
//! between.

use proptest::prelude::*;

use crate::store::redis::config::*;

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
            prop_assert_eq!(error.kind(), crate::error::ErrorKind::InvalidArgument);
            prop_assert!(error.message().len() < 1_000 && !error.message().ends_with('.'));
        }
        let _ = RedisOptions::parse(&text);
    }
}
