//! Lists of keys, resets of listed keys and explanations, on the memory store and the local store.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "listing/explanations.rs"]
mod explanations;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use polylimit::admin::{KeyFilter, KeyName, KeyPage, ListBudget, ListedKey};
use polylimit::clock::ManualClock;
use polylimit::raw::{Answer, Call};
use polylimit::reservation::ReserveOptions;
use polylimit::{ErrorKind, Limiter, LimiterBuilder, Policy, Request, blocking};

const NOW_US: u64 = 1_800_000_000_000_000;

/// A store of its own for a test; a file is removed at the end.
pub(crate) struct Store(Option<std::path::PathBuf>);

impl Store {
    /// One of each kind that this system has.
    pub(crate) fn each() -> Vec<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/polylimit-listing-{}-{number}", std::process::id());
        if cfg!(target_os = "linux") { vec![Self(None), Self(Some(path.into()))] } else { vec![Self(None)] }
    }

    fn is_shared(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn builder(&self) -> LimiterBuilder {
        match &self.0 {
            None => Limiter::builder(),
            Some(path) => Limiter::builder().store(&format!("file://{}?size=16MiB", path.display())),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

pub(crate) fn policy(name: &str, quotas: &str) -> Policy {
    Policy::parse(name, quotas).unwrap()
}

fn clock() -> ManualClock {
    ManualClock::new(NOW_US).unwrap()
}

/// All pages of a list, with how often each key is in them.
fn all(
    limiter: &blocking::Limiter,
    filter: &KeyFilter<'_>,
    entries: usize,
) -> BTreeMap<(String, KeyName), Vec<ListedKey>> {
    let budget = ListBudget::default().entries(entries);
    let (mut keys, mut cursor): (BTreeMap<_, Vec<ListedKey>>, _) = (BTreeMap::new(), None);
    loop {
        let page = limiter.admin().list(filter, &budget, cursor.as_deref()).unwrap();
        assert!(page.keys.len() <= entries + 1_000, "{}", page.keys.len());
        for key in page.keys {
            keys.entry((key.policy.to_string(), key.key.clone())).or_default().push(key);
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return keys;
        }
    }
}

fn names(page: &KeyPage) -> Vec<&[u8]> {
    let mut names: Vec<_> = page.keys.iter().filter_map(|key| key.key.bytes()).collect();
    names.sort_unstable();
    names
}

#[test]
fn every_key_is_listed_once_over_all_pages() {
    for store in Store::each() {
        let limiter = store
            .builder()
            .policy(policy("a", "10/hour token_bucket"))
            .policy(policy("b", "10/hour; 5/day sliding_log"))
            .build()
            .unwrap()
            .blocking();
        let long = [b'x'; 500];
        let mut keys: Vec<Vec<u8>> = (0..1_000).map(|key| format!("user:{key}").into_bytes()).collect();
        // A key of 32 bytes is no digest.
        keys.extend([Vec::new(), vec![0xFF, 0], vec![7; 32], vec![9; 128], long.to_vec()]);
        for key in &keys {
            for policy in ["a", "b"] {
                assert!(limiter.check(Request::new(key).policy(policy)).unwrap().allowed());
            }
        }
        for entries in [1, 64, 5_000] {
            let listed = all(&limiter, &KeyFilter::default(), entries);
            assert_eq!(listed.len(), 2 * keys.len());
            assert!(listed.values().all(|times| times.len() == 1));
            for key in &keys {
                let is_long = key.len() > 128;
                let name = |policy: &str| (policy.to_owned(), KeyName::Bytes(key.clone()));
                assert_eq!(listed.contains_key(&name("a")), !is_long, "{} bytes", key.len());
                let [listed] = &listed.get(&name("b")).cloned().unwrap_or_default()[..] else { continue };
                let used: Vec<_> = listed.quotas.iter().map(|quota| (quota.used, quota.remaining)).collect();
                assert_eq!(used, [(1, 9), (1, 4)]);
                assert_eq!((&*listed.quotas[1].quota, listed.used_percent), ("5/day sliding_log", 20));
            }
            let digests = listed.keys().filter(|(_, key)| key.bytes().is_none()).count();
            assert_eq!(digests, 2);
        }
        // A long key that is looked at by its digest has its own use.
        let _ = limiter.charge(Request::new(&long).policy("a").cost(4)).unwrap();
        let page = limiter.admin().list(
            &KeyFilter::default().policy("a").at_least_used(50),
            &ListBudget::default(),
            None,
        );
        let page = page.unwrap();
        assert!(matches!(&page.keys[..], [only] if only.key.bytes().is_none() && only.quotas[0].used == 5));
    }
}

#[test]
fn filter_takes_policy_prefix_and_use() {
    for store in Store::each() {
        let limiter =
            store.builder().policy(policy("a", "4/hour")).policy(policy("a2", "4/hour")).build().unwrap();
        let limiter = limiter.blocking();
        for (policy, key, cost) in [("a", "u:1", 1), ("a", "u:2", 3), ("a", "v:1", 4), ("a2", "u:1", 4)] {
            let _ = limiter.charge(Request::new(key).policy(policy).cost(cost)).unwrap();
        }
        let _ = limiter.check(Request::new("u:9").policy("3/day")).unwrap();
        let listed = |filter: KeyFilter<'_>| {
            let page = limiter.admin().list(&filter, &ListBudget::default(), None).unwrap();
            names(&page).into_iter().map(|name| String::from_utf8(name.to_vec()).unwrap()).collect::<Vec<_>>()
        };
        let filter = KeyFilter::default;
        assert_eq!(listed(filter()), ["u:1", "u:1", "u:2", "u:9", "v:1"]);
        assert_eq!(listed(filter().policy("a")), ["u:1", "u:2", "v:1"]);
        assert_eq!(listed(filter().policy("a").key_prefix("u:")), ["u:1", "u:2"]);
        assert_eq!(listed(filter().at_least_used(75)), ["u:1", "u:2", "v:1"]);
        assert_eq!(listed(filter().policy("a").key_prefix("u:").at_least_used(76)), Vec::<String>::new());
        assert_eq!(listed(filter().policy("3 per 24h")), ["u:9"]);
        assert_eq!(listed(filter().policy("none")), Vec::<String>::new());
        let top = limiter.admin().scan_top(&filter().policy("a"), 2, &ListBudget::default()).unwrap();
        assert_eq!(top.keys.iter().map(|key| key.used_percent).collect::<Vec<_>>(), [100, 75]);
    }
}

#[test]
fn key_is_left_out_once_nothing_of_it_counts() {
    for store in Store::each() {
        let clock = clock();
        let limiter =
            store.builder().clock(clock.clone()).policy(policy("a", "2/minute token_bucket")).build();
        let limiter = limiter.unwrap().blocking();
        let page = || limiter.admin().list(&KeyFilter::default(), &ListBudget::default(), None).unwrap();
        let _ = limiter.check("spent").unwrap();
        let _ = limiter.admin().block("blocked", Duration::from_secs(100)).unwrap();
        let reserved = limiter.reserve(Request::new("reserved").cost(2), ReserveOptions::default()).unwrap();
        let _ = limiter.check("reset").unwrap();
        let _ = limiter.reset("reset").unwrap();
        let before = page();
        assert_eq!(names(&before), [&b"blocked"[..], b"reserved", b"spent"]);
        let of = |name: &[u8]| before.keys.iter().find(|key| key.key.bytes() == Some(name)).unwrap();
        assert_eq!((of(b"spent").expires_after_us, of(b"spent").used_percent), (Some(30_000_000), 50));
        let blocked = of(b"blocked");
        assert_eq!(
            (blocked.blocked_for_us, blocked.used_percent, blocked.quotas[0].used),
            (100_000_000, 100, 0)
        );
        let of_reserved = of(b"reserved");
        assert_eq!((of_reserved.reservations, of_reserved.reserved_units), (1, 2));
        assert_eq!((of_reserved.used_percent, of_reserved.quotas[0].used), (100, 0));
        reserved.cancel_blocking().unwrap();
        clock.advance(Duration::from_micros(29_999_999)).unwrap();
        assert_eq!(names(&page()), [&b"blocked"[..], b"spent"]);
        clock.advance(Duration::from_micros(1)).unwrap();
        assert_eq!(names(&page()), [&b"blocked"[..]]);
        clock.advance(Duration::from_secs(70)).unwrap();
        assert!(page().keys.is_empty());
    }
}

#[test]
fn limiter_with_other_policies_lists_what_it_can_read_from_names() {
    for store in Store::each().iter().filter(|store| store.is_shared()) {
        let writer = store.builder().policy(policy("a", "10/hour")).build().unwrap().blocking();
        for policy in ["a", "10/minute token_bucket burst=20; 100/day"] {
            let _ = writer.check(Request::new("user").policy(policy)).unwrap();
        }
        let scoped = writer.asynchronous().policy_for(Some("5/day"), Some("GET /login")).unwrap();
        let _ = writer.check(Request::new("user").policy(scoped.name()).cost(2)).unwrap();
        let reader = store.builder().policy(policy("other", "1/hour")).build().unwrap().blocking();
        let page = reader.admin().list(&KeyFilter::default(), &ListBudget::default(), None).unwrap();
        let mut read: Vec<(&str, Vec<u64>)> = page
            .keys
            .iter()
            .map(|key| (&*key.policy, key.quotas.iter().map(|quota| quota.used).collect()))
            .collect();
        read.sort();
        let one_off = "10|minute+token_bucket+burst.20&100|day";
        assert_eq!(read, [(one_off, vec![1, 1]), (scoped.name(), vec![2]), ("a", vec![])]);
        let unknown = page.keys.iter().find(|key| &*key.policy == "a").unwrap();
        assert!(unknown.expires_after_us.is_some_and(|us| us > 3_000_000_000), "{unknown:?}");
        // No policy was registered for the list.
        assert_eq!(reader.asynchronous().policies().len(), 1);
        let reset = reader.admin().reset_listed(&KeyFilter::default(), &ListBudget::default(), None).unwrap();
        assert_eq!((reset.reset, reset.unknown, reset.cursor), (2, 1, None));
        let left = writer.admin().list(&KeyFilter::default(), &ListBudget::default(), None).unwrap();
        assert!(matches!(&left.keys[..], [only] if &*only.policy == "a"));
    }
}

#[test]
fn listed_keys_are_reset() {
    for store in Store::each() {
        let limiter =
            store.builder().policy(policy("a", "10/hour; 10/day sliding_log")).build().unwrap().blocking();
        let long = "u:".to_owned() + &"x".repeat(200);
        let keys: Vec<String> =
            (0..2_000).map(|key| format!("u:{key}")).chain(["v:1".to_owned(), long]).collect();
        for key in &keys {
            let _ = limiter.check(key).unwrap();
        }
        let (mut cursor, mut reset) = (None, 0);
        let (filter, budget) = (KeyFilter::default().key_prefix("u:"), ListBudget::default().entries(100));
        for _ in 0..1_000 {
            let page = limiter.admin().reset_listed(&filter, &budget, cursor.as_deref()).unwrap();
            reset += page.reset;
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!((reset, cursor), (2_000, None));
        // What the long key begins with cannot be known.
        assert_eq!(all(&limiter, &KeyFilter::default(), 1_000).len(), 2);
        let all = limiter.admin().reset_listed(&KeyFilter::default(), &ListBudget::default(), None).unwrap();
        assert_eq!((all.reset, all.unknown), (2, 0));
        assert_eq!(limiter.peek(keys.last().unwrap()).unwrap().remaining(), 10);
    }
}

#[test]
fn keys_that_were_there_before_are_listed_while_the_table_grows() {
    for store in Store::each() {
        let limiter = store.builder().policy(policy("a", "10/hour")).build().unwrap().blocking();
        for key in 0..2_000 {
            let _ = limiter.check(&format!("old:{key}")).unwrap();
        }
        let budget = ListBudget::default().entries(50);
        let filter = KeyFilter::default().key_prefix("old:");
        let (mut cursor, mut listed, mut made) = (None, std::collections::HashSet::new(), 0);
        loop {
            let page = limiter.admin().list(&filter, &budget, cursor.as_deref()).unwrap();
            listed.extend(page.keys.into_iter().map(|key| key.key));
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
            // Until the tables have doubled more than once.
            if made < 20_000 {
                for key in made..made + 500 {
                    let _ = limiter.check(&format!("new:{key}")).unwrap();
                }
                made += 500;
            }
        }
        assert_eq!(listed.len(), 2_000);
    }
}

#[test]
fn key_with_an_override_is_listed_by_its_own_numbers() {
    for store in Store::each() {
        let document = r#"{"polylimit": 1, "policies": {"api": {"quotas": "10/minute", "overrides": {"bob": "40/minute"}}}}"#;
        let limiter = store.builder().document(document).build().unwrap().blocking();
        for key in ["alice", "bob"] {
            let _ = limiter.check(Request::new(key).cost(10)).unwrap();
        }
        let page = limiter.admin().list(&KeyFilter::default(), &ListBudget::default(), None).unwrap();
        let mut used: Vec<_> =
            page.keys.iter().map(|key| (key.used_percent, &*key.quotas[0].quota)).collect();
        used.sort_unstable();
        assert_eq!(used, [(25, "40/minute"), (100, "10/minute")]);
    }
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let limiter = Limiter::builder().policy(policy("a", "10/hour")).build().unwrap().blocking();
    let (filter, budget) = (KeyFilter::default(), ListBudget::default());
    let refused = |filter: KeyFilter<'_>, budget: ListBudget, cursor: Option<&str>| {
        let error = limiter.admin().list(&filter, &budget, cursor).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    };
    assert_eq!(refused(filter, budget.entries(0), None), "entries of a list is 0: allowed is 1 or more");
    assert_eq!(refused(filter, budget.examined(0), None), "examined of a list is 0: allowed is 1 or more");
    assert_eq!(
        refused(filter, budget.pace_percent(101), None),
        "pace_percent of a list is 101: allowed is 1 to 100"
    );
    assert!(refused(filter, budget, Some("x")).starts_with("the cursor cannot be read"));
    assert!(refused(filter.policy("1/x"), budget, None).contains("column"));
    for key in 0..200 {
        let _ = limiter.check(&format!("{key}")).unwrap();
    }
    let cursor = limiter.admin().list(&filter, &budget.entries(1), None).unwrap().cursor.unwrap();
    assert!(refused(filter.key_prefix("u"), budget, Some(&cursor)).contains("another filter"));
    // A place in another store means nothing: the list begins.
    let other = Limiter::builder().policy(policy("a", "10/hour")).build().unwrap().blocking();
    let _ = other.check("user").unwrap();
    assert_eq!(other.admin().list(&filter, &budget, Some(&cursor)).unwrap().keys.len(), 1);
    limiter.asynchronous().close();
    assert_eq!(limiter.admin().list(&filter, &budget, None).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn reports_are_answers_of_calls_and_have_one_form_as_json() {
    let clock = clock();
    let limiter =
        Limiter::builder().clock(clock).policy(policy("a", "4/minute token_bucket")).build().unwrap();
    let _ = limiter.blocking().charge(Request::new(&[0xFF_u8]).cost(2)).unwrap();
    let list = Call::List(KeyFilter::default(), ListBudget::default(), None);
    let Some(Ok(Answer::Keys(page))) = limiter.raw().try_call(&list) else { unreachable!("no page") };
    assert_eq!(
        serde_json::to_string(&page).unwrap(),
        r#"{"keys":[{"policy":"a","key_base64":"/w==","quotas":[{"quota":"4/minute token_bucket","limit":4,"capacity":4,"used":2,"remaining":2,"reset_after_us":30000000}],"used_percent":50,"reservations":0,"reserved_units":0,"blocked_for_us":0,"expires_after_us":30000000}],"examined":1,"cursor":null}"#
    );
    let explain = Call::Explain(Request::new(&[0xFF_u8]).cost(3));
    let Ok(Answer::Explanation(explained)) = limiter.blocking().raw().call(&explain) else {
        unreachable!("no answer")
    };
    let json: serde_json::Value = serde_json::to_value(&explained).unwrap();
    assert_eq!(
        (&json["cause"], &json["quotas"][0]["words"], &json["mode"]),
        (&"quota".into(), &"debt 2 of 4, repays 4/minute".into(), &"on".into())
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let reset = limiter.start(&Call::ResetListed(KeyFilter::default(), ListBudget::default(), None));
    let Ok(Answer::KeysReset(reset)) = runtime.block_on(reset) else { unreachable!("no answer") };
    assert_eq!(
        serde_json::to_string(&reset).unwrap(),
        r#"{"reset":1,"unknown":0,"examined":1,"cursor":null}"#
    );
    // No key is shown where it might be logged.
    let _ = limiter.blocking().check("secret").unwrap();
    let page = limiter.blocking().raw().call(&list).unwrap();
    let explained = limiter.blocking().admin().explain("secret").unwrap();
    for shown in [
        format!("{page:?}"),
        format!("{explained:?}"),
        format!("{:?}", KeyFilter::default().key_prefix("secret")),
    ] {
        assert!(!shown.contains("secret"), "{shown}");
    }
}

#[test]
fn keys_are_counted_whichever_way_they_are_checked() {
    for store in Store::each() {
        let limiter = store.builder().policy(policy("a", "10/hour")).observe_keys(4).build().unwrap();
        assert!(limiter.admin().top_keys(10).denied.is_empty());
        let blocking = limiter.blocking();
        for _ in 0..4_000 {
            let _ = blocking.check("one by one").unwrap();
            let _ = blocking.check_many(["together", "together", "one by one"]);
            let _ = blocking.check(Request::new("admitted").cost(0)).unwrap();
        }
        let top = limiter.admin().top_keys(10);
        let mut denied: Vec<_> = top.denied.iter().map(|key| key.key.bytes().unwrap()).collect();
        denied.sort_unstable();
        assert_eq!(denied, [&b"one by one"[..], b"together"]);
        assert!(
            top.denied.iter().all(|key| (6_000..10_000).contains(&key.count) && key.error == 0),
            "{top:?}"
        );
        assert!(top.admitted.iter().any(|key| key.key.bytes() == Some(b"admitted")));
        assert_eq!(
            (limiter.admin().top_keys(1).denied.len(), top.counters, top.half_life_us),
            (1, 4, 60_000_000)
        );
        let explained = blocking.admin().explain("together").unwrap();
        assert!(explained.denials.is_some_and(|count| count >= 6_000) && explained.denials_error == Some(0));
    }
    let off = Limiter::builder().policy(policy("a", "0/hour")).build().unwrap();
    for _ in 0..1_000 {
        let _ = off.blocking().check("user").unwrap();
    }
    assert!(off.admin().top_keys(10).denied.is_empty());
    for wrong in ["65537", "x", "-1"] {
        let error = Limiter::builder().option("observe_keys", wrong).build().unwrap_err();
        assert!(error.message().contains("0 (none) to 65536"), "{error}");
    }
}
