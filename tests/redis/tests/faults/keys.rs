//! Names of keys in Redis: keys with special characters collide neither with each other nor with other parts of a name.

use std::collections::{BTreeMap, BTreeSet};

use polylimit::decision::Source;
use polylimit::{ErrorKind, Limiter, LimiterBuilder, Policy, Request};
use polylimit_redis_tests::{GENEROUS_DEADLINE, options};
use polylimit_test_servers::{Kind, Row, Server};

const QUOTAS: &str = "100/h fixed_window; 100/h sliding_log";
const PREFIXES: [&str; 4] = ["polylimit", "polylimit:1", "polylimit:1:p", "a:"];
const POLICIES: [&str; 5] = ["p", "1", "p%7B", "log", "a"];
const MAX_LENGTH: usize = Request::MAX_KEY_LENGTH;

/// Keys for every prefix and policy, and long keys for one policy.
fn keys() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let texts = [
        "",
        "%",
        "%%",
        "%25",
        "a",
        "a:",
        ":a",
        "a:b",
        "{a}",
        "{}",
        "}{",
        "{",
        "}",
        "a}",
        "a}:log:3600000000",
        "{a}{b}",
        "%7Ba%7D",
        "%7ba%7d",
        "A",
        "#",
        "#a",
        " ",
        "a ",
        " a",
        "a\n",
        "a\r\nFLUSHALL\r\n",
        "\0",
        "\0\0",
        "a\0",
        "\u{e9}",
        "e\u{301}",
        "\u{65e5}\u{672c}",
        "\u{1f600}",
        "\u{202e}a",
        "*",
        "?",
        "[a]",
        "\\",
        "\"",
        "'",
        "polylimit:1:p:{a}",
    ];
    let mut keys: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    keys.extend([vec![0xff], vec![0xc3], vec![0xe9], vec![0xff, 0xfe, 0]]);
    keys.extend([95, 96, 97, 98].map(|length| vec![b'a'; length]));
    keys.push(vec![b'{'; 33]);
    // This looks like the name of a long key in the server.
    keys.push(format!("#{}", "0123456789abcdef0123456789abcdef01234567").into_bytes());
    let mut long = vec![b'x'; MAX_LENGTH];
    let mut longest = vec![long.clone()];
    long[MAX_LENGTH - 1] = b'y';
    longest.push(long.clone());
    long[0] = 0;
    longest.push(long);
    (keys, longest)
}

fn limiter(server: &Server, prefix: &str) -> Limiter {
    let policies = POLICIES.map(|name| Policy::parse(name, QUOTAS).unwrap());
    let builder = policies.into_iter().fold(Limiter::builder(), LimiterBuilder::policy);
    builder.redis(options(&server.url()).deadline(GENEROUS_DEADLINE).prefix(prefix)).build().unwrap()
}

/// The keys of one tuple are in one slot.
#[test]
fn each_tuple_of_prefix_policy_and_key_has_names_of_its_own() {
    let (keys, longest) = keys();
    assert_eq!(keys.iter().chain(&longest).collect::<BTreeSet<_>>().len(), keys.len() + longest.len());
    // This server serves no slots, but computes the slot of a key.
    let slots = Server::start(Kind::Redis, &["cluster-enabled yes"]);
    let server = Server::start(Kind::Redis, &[]);
    let (mut known, mut tuples) = (BTreeSet::new(), 0);
    for prefix in PREFIXES {
        let limiter = limiter(&server, prefix);
        let limiter = limiter.blocking();
        for policy in POLICIES {
            let longest = if policy == "p" { &longest[..] } else { &[] };
            for key in keys.iter().chain(longest) {
                tuples += 1;
                let case =
                    || format!("{prefix} {policy} {:?}", String::from_utf8_lossy(&key[..key.len().min(40)]));
                let request = Request::new(key).policy(policy);
                for remaining in [99, 98] {
                    let decision = limiter.check(request).unwrap();
                    assert_eq!(
                        (decision.source(), decision.remaining()),
                        (Source::Store, remaining),
                        "{}",
                        case()
                    );
                }
            }
        }
    }
    for name in server.query::<Vec<String>>(&["KEYS", "*"]) {
        assert!(known.insert(name));
    }
    assert_eq!(known.len(), 2 * tuples);
    assert_names(&slots, &known, keys.len() + longest.len());
    Row::new("S1", "tuples of prefix, policy and key")
        .decisions(2 * tuples as u64)
        .measured(format!("{tuples} tuples, {} names in Redis, one slot a tuple", known.len()))
        .record();
}

fn assert_names(slots: &Server, names: &BTreeSet<String>, keys: usize) {
    let mut by_tag = BTreeMap::<&str, u16>::new();
    for name in names {
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
        assert!(name.len() <= 200, "{name:?}");
        let (before, rest) = name.split_once('{').unwrap();
        let (tag, after) = rest.split_once('}').unwrap();
        assert!(!tag.is_empty() && !format!("{before}{tag}{after}").contains(['{', '}']), "{name:?}");
        assert!(after.is_empty() || after == ":log:3600000000", "{name:?}");
        let partner =
            if after.is_empty() { format!("{name}:log:3600000000") } else { format!("{before}{{{tag}}}") };
        assert!(names.contains(&partner), "{name:?}");
        let slot: u16 = slots.query(&["CLUSTER", "KEYSLOT", name]);
        assert_eq!(*by_tag.entry(tag).or_insert(slot), slot, "{name:?}");
    }
    assert_eq!(by_tag.len(), keys);
}

#[test]
fn key_beyond_the_maximum_length_is_an_invalid_argument() {
    let server = Server::start(Kind::Valkey, &[]);
    let limiter = limiter(&server, "polylimit").blocking();
    let key = vec![b'x'; MAX_LENGTH + 1];
    let error = limiter.check(Request::new(&key).policy("p")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 0);
}
