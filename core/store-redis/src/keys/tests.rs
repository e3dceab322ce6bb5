//! Known keys, and properties of any key.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::keys::*;
use crate::transport::cluster_slots::slot;
use polylimit_rules::request::Request;

fn encoder(secret: Option<&str>) -> KeyEncoder {
    KeyEncoder::new("polylimit", secret.map(|text| Secret::from(Box::from(text))).as_ref())
}

fn key_of(encoder: &KeyEncoder, policy: &str, user_key: &[u8]) -> String {
    let mut out = Vec::new();
    encoder.write(&encoder.policy_prefix(policy), user_key, &mut out);
    String::from_utf8(out).unwrap()
}

fn key(user_key: impl AsRef<[u8]>) -> String {
    key_of(&encoder(None), "api", user_key.as_ref())
}

#[test]
fn readable_keys_stand_for_themselves() {
    for user_key in
        ["user:42", "192.0.2.7", "2001:db8::/64", "a@b.example", "-._~@:/+=,;!$&'()*|", &"x".repeat(96)]
    {
        assert_eq!(key(user_key), format!("polylimit:1:api:{{{user_key}}}"));
    }
}

#[test]
fn other_bytes_are_escaped() {
    let table: [(&[u8], &str); 8] = [
        (b"", "%"),
        (b"%", "%25"),
        (b"#", "%23"),
        (b"{a}", "%7Ba%7D"),
        (b"a b\0\n", "a%20b%00%0A"),
        (b"\"\\`^<>?[]", "%22%5C%60%5E%3C%3E%3F%5B%5D"),
        ("é".as_bytes(), "%C3%A9"),
        (b"\xFF\x7F", "%FF%7F"),
    ];
    for (user_key, tag) in table {
        assert_eq!(key(user_key), format!("polylimit:1:api:{{{tag}}}"));
    }
}

#[test]
fn what_would_be_longer_than_96_bytes_is_hashed() {
    assert_eq!(key([0; 32]).len(), "polylimit:1:api:{}".len() + 96);
    // The first 20 bytes of the output of `sha256sum`.
    assert_eq!(key("x".repeat(97)), "polylimit:1:api:{#19a8f07eeb7f3d0c0b7377e37d72eccde144cefe}");
    assert_eq!(key([0; 33]), "polylimit:1:api:{#7f9c9e31ac8256ca2f258583df262dbc7d6f68f2}");
    assert_eq!(
        key(vec![b'a'; Request::MAX_KEY_LENGTH]),
        "polylimit:1:api:{#9bc1b2a288b26af7257a36277ae3816a7d4f16e8}"
    );
}

#[test]
fn a_secret_hashes_long_keys_only() {
    let long = "x".repeat(97);
    let keyed = encoder(Some("key"));
    // The output of `openssl dgst -sha256 -hmac key`.
    assert_eq!(
        key_of(&keyed, "api", long.as_bytes()),
        "polylimit:1:api:{#a38f18b8d359c77282ef46364ed55bf027ea15af}"
    );
    assert_ne!(
        key_of(&encoder(Some("other")), "api", long.as_bytes()),
        key_of(&keyed, "api", long.as_bytes())
    );
    assert_eq!(key_of(&keyed, "api", b"short"), key("short"));
    assert_eq!(format!("{keyed:?}"), r#"KeyEncoder { prefix: "polylimit", keyed: true }"#);
}

#[test]
fn a_log_key_has_the_slot_of_its_main_key() {
    for user_key in ["", "a", "{", "}{", &"é".repeat(1000)] {
        let main = key(user_key);
        let (_, tag) = main.strip_suffix('}').unwrap().split_once('{').unwrap();
        assert_eq!(slot(main.as_bytes()), slot(tag.as_bytes()));
        assert_eq!(slot(main.as_bytes()), slot(format!("{main}:log:60000000").as_bytes()));
    }
}

#[test]
fn tuples_that_look_alike_do_not_meet() {
    let parts = ["a", "a:1", "a:1:b", "1", "b:1:a", ":", "a:", ":a", "|", "a:log:1"];
    let policies = ["a", "1", "b", "%", "#", "%7B", "a|b"];
    let keys: [&[u8]; 16] = [
        b"",
        b"%",
        b"%25",
        b"%%",
        b"#",
        b"a",
        b"a:1:b",
        b"{a}",
        b"}:log:1",
        b"%7Ba%7D",
        b"a%",
        b" ",
        b"\0",
        b":",
        b"a:",
        b"\xC3\xA9",
    ];
    let mut met = HashMap::new();
    for prefix in parts {
        let encoder = KeyEncoder::new(prefix, None);
        for policy in policies {
            for user_key in keys {
                let tuple = (prefix, policy, user_key);
                assert_eq!(met.insert(key_of(&encoder, policy, user_key), tuple), None, "{tuple:?}");
            }
        }
    }
    assert_eq!(met.len(), parts.len() * policies.len() * keys.len());
}

#[test]
fn what_is_no_main_key_of_the_prefix_is_not_read() {
    let encoder = encoder(None);
    for text in [
        "",
        "polylimit",
        "polylimit:1:api",
        "polylimit:2:api:{a}",
        "shop:1:api:{a}",
        "polylimit:1:api:{a}:log:1",
    ] {
        assert_eq!(encoder.read(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn name_of_a_log_is_read_as_its_main_key() {
    let encoder = encoder(None);
    let long = "x".repeat(97);
    for user_key in ["a", "", "a:log:1", &long] {
        let main = key(user_key);
        let read = encoder.read_stored(main.as_bytes()).unwrap();
        assert_eq!(encoder.read_stored(format!("{main}:log:60000000").as_bytes()).unwrap(), read);
        let mut again = Vec::new();
        encoder.write_stored(&encoder.policy_prefix("api"), read.1.stored(), &mut again);
        assert_eq!(String::from_utf8(again).unwrap(), main);
    }
    for text in ["polylimit:1:api:{#19a8}", "polylimit:1:api:{#}", "polylimit:1:{configuration}:log"] {
        assert_eq!(encoder.read_stored(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn pattern_takes_its_bytes_as_they_are() {
    let encoder = KeyEncoder::new("a*b", None);
    let pattern = |policy, key_prefix: &[u8]| {
        String::from_utf8(encoder.pattern(ScanFilter { policy, key_prefix })).unwrap()
    };
    assert_eq!(pattern(None, b""), r"a\*b:1:*:{*}*");
    assert_eq!(pattern(Some("x^y"), b"user:*[ "), r"a\*b:1:x\^y:{user:\*%5B%20*}*");
}

proptest! {
    #[test]
    fn any_tuple_can_be_read_back(
        prefix in "[-a-z0-9._~@:/+=,;!$&'()*|]{1,64}",
        policy in "[!#$%&'*+.^_`|~a-zA-Z0-9-]{1,64}",
        user_key in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            "[%#{}:a0-9]{0,40}".prop_map(String::into_bytes),
            "[ -~]{80,110}".prop_map(String::into_bytes),
        ],
        secret in proptest::option::of(".{1,70}"),
    ) {
        let secret = secret.map(|text| Secret::from(Box::from(text)));
        let encoder = KeyEncoder::new(&prefix, secret.as_ref());
        let main = key_of(&encoder, &policy, &user_key);
        prop_assert!(main.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(main.matches(['{', '}']).count(), 2);
        let (policy_back, user_key_back) = encoder.read(main.as_bytes()).unwrap();
        prop_assert_eq!(policy_back, policy);
        match user_key_back {
            UserKey::Readable(user_key_back) => prop_assert_eq!(&user_key_back, &user_key),
            UserKey::Hashed => prop_assert!(user_key.len() > 32),
        }
        prop_assert_eq!(is_hashed(&user_key), main.contains("{#"));
    }
}
