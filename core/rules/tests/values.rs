//! The values that callers make and read: requests, decisions, usages, policies, errors and the texts about them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by a panic")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use polylimit_rules::algorithm::State;
use polylimit_rules::decision::{
    Cause, Decision, DecisionParts, Degradation, QuotaUsage, QuotaVerdict, Source, Usage, UsageParts,
};
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::general::KeyOperation;
use polylimit_rules::groups::{Group, GroupTable};
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::report::{printable, report_json};
use polylimit_rules::request::Request;
use polylimit_rules::suggestion::Suggestion;
use polylimit_rules::transition::{Operation, PolicyRules};
use polylimit_rules::words::words;
use polylimit_rules::zone::{Zone, minutes};

#[test]
fn request_has_what_it_was_given() {
    let plain = Request::new("key").policy("api").cost(7);
    assert_eq!((plain.key(), plain.policy_name(), plain.units()), (&b"key"[..], Some("api"), 7));
    assert_eq!((plain.headroom_percent(), plain.plan_name(), plain.is_reserved()), (0, None, false));
    assert!(
        plain.is_plain() && Request::from("key").policy_name().is_none() && Request::from("key").units() == 1
    );
    let full = plain.headroom(20).plan("gold").reserved();
    assert_eq!((full.headroom_percent(), full.plan_name(), full.is_reserved()), (20, Some("gold"), true));
    assert!(!plain.headroom(20).is_plain() && !plain.plan("gold").is_plain());
    // Keys may be secrets.
    let shown = format!("{full:?}");
    assert!(shown.contains("3 bytes") && shown.contains("gold") && !shown.contains("key\""), "{shown}");
}

#[test]
fn request_out_of_bounds_is_refused_by_what_is_wrong() {
    let longest = vec![b'k'; Request::MAX_KEY_LENGTH];
    let too_long = vec![b'k'; Request::MAX_KEY_LENGTH + 1];
    let most = Request::new(&longest).cost(Request::MAX_COST).headroom(99);
    assert!(most.is_valid() && most.checked().is_ok());
    for (request, about) in [
        (most.cost(Request::MAX_COST + 1), "cost is 1000000000001: allowed is 0 to 1000000000000 units"),
        (most.headroom(100), "headroom is 100 %: allowed is 0 to 99 %"),
        (
            Request::new(&too_long).cost(Request::MAX_COST).headroom(99),
            "key has 1048577 bytes: allowed are up to 1048576",
        ),
    ] {
        assert!(!request.is_valid());
        assert_eq!(request.checked().unwrap_err().to_string(), about);
    }
}

const USAGE: QuotaUsage = QuotaUsage { limit: 10, remaining: 3, reset_after_us: 7_000_000, over: 1 };

fn parts<'a>(quotas: &'a [QuotaUsage], quota_waits_us: &'a [Option<u64>]) -> DecisionParts<'a> {
    DecisionParts {
        allowed: false,
        wait_us: Some(5),
        source: Source::Store,
        degraded: None,
        cause: Some(Cause::Quota),
        crossed: false,
        elastic: false,
        shadowed: false,
        remaining: 2,
        quotas,
        quota_waits_us,
    }
}

#[test]
fn decision_has_its_parts() {
    let decision = Decision::from_parts(parts(&[USAGE], &[Some(5)])).unwrap();
    assert_eq!((decision.limit(), decision.remaining(), decision.over()), (10, 2, 1));
    assert_eq!((decision.reset_after_us(), decision.reset_after()), (7_000_000, Duration::from_secs(7)));
    assert_eq!(
        (decision.source(), decision.degraded(), decision.cause()),
        (Source::Store, None, Some(Cause::Quota))
    );
    assert!(!decision.allowed() && !decision.crossed() && !decision.elastic() && !decision.shadowed());
    let flags = DecisionParts {
        crossed: true,
        elastic: true,
        shadowed: true,
        allowed: true,
        ..parts(&[USAGE], &[Some(5)])
    };
    let decision = Decision::from_parts(flags).unwrap();
    assert!(decision.allowed() && decision.crossed() && decision.elastic() && decision.shadowed());
    let degraded = Some(Degradation::Late);
    let decision =
        Decision::from_parts(DecisionParts { degraded, cause: None, ..parts(&[USAGE], &[Some(5)]) }).unwrap();
    assert_eq!((decision.degraded(), decision.cause()), (degraded, None));
}

#[test]
fn wait_is_a_delay_or_a_time_to_retry() {
    let of = |allowed, shadowed, wait_us| {
        let waits = [wait_us];
        let decision = DecisionParts { allowed, shadowed, wait_us, ..parts(&[USAGE], &waits) };
        let decision = Decision::from_parts(decision).unwrap();
        let retry = (decision.retry_after_us(), decision.retry_after().map(|it| it.as_micros()));
        (retry, decision.delay_us(), decision.delay().as_micros())
    };
    assert_eq!(of(false, false, Some(5)), ((Some(5), Some(5)), 0, 0));
    assert_eq!(of(false, false, Some(0)), ((Some(0), None), 0, 0));
    assert_eq!(of(false, false, None), ((None, None), 0, 0));
    assert_eq!(of(true, false, Some(5)), ((Some(0), None), 5, 5));
    // In shadow it is what the denial would be.
    assert_eq!(of(true, true, Some(5)), ((Some(5), Some(5)), 0, 0));
    assert_eq!(of(true, true, None), ((None, None), 0, 0));
}

#[test]
fn parts_that_no_decision_has_are_refused() {
    let refused = |parts: DecisionParts<'_>| Decision::from_parts(parts).unwrap_err().to_string();
    assert!(refused(parts(&[], &[])).contains("no quotas"));
    assert!(refused(parts(&[USAGE], &[])).contains("0 waits of 1 quotas"));
    assert!(refused(parts(&[USAGE], &[None, None])).contains("2 waits of 1 quotas"));
    let forever = DecisionParts { allowed: true, wait_us: None, ..parts(&[USAGE], &[Some(0)]) };
    assert!(refused(forever).contains("waits for ever"));
    assert!(Decision::from_parts(DecisionParts { shadowed: true, ..forever }).is_ok());
    let longest = (1_u64 << 63) - 1;
    let resets = |reset_after_us| QuotaUsage { reset_after_us, ..USAGE };
    for us in [1 << 63, u64::MAX - 1] {
        assert!(
            refused(DecisionParts { wait_us: Some(us), ..parts(&[USAGE], &[Some(0)]) })
                .contains("less than 2^63")
        );
        assert!(refused(parts(&[USAGE], &[Some(us)])).contains("less than 2^63"));
        assert!(refused(parts(&[USAGE, resets(us)], &[Some(0), Some(0)])).contains("less than 2^63"));
        let usage = usage_parts(&[USAGE]);
        assert!(
            Usage::from_parts(UsageParts { quotas: &[resets(us)], ..usage })
                .unwrap_err()
                .to_string()
                .contains("2^63")
        );
    }
    let (quotas, waits) = ([resets(longest)], [Some(longest)]);
    let most = DecisionParts { wait_us: Some(longest), ..parts(&quotas, &waits) };
    assert_eq!(Decision::from_parts(most).unwrap().retry_after_us(), Some(longest));
    assert!(Usage::from_parts(UsageParts { quotas: &[resets(longest)], ..usage_parts(&[USAGE]) }).is_ok());
    assert!(Usage::from_parts(usage_parts(&[])).unwrap_err().to_string().contains("no quotas"));
}

#[test]
fn each_quota_has_its_verdict() {
    let verdict = |retry_after_us| QuotaVerdict { allowed: retry_after_us == Some(0), retry_after_us };
    let of = |parts| Decision::from_parts(parts).unwrap();
    let verdicts = |decision: &Decision| decision.verdicts().collect::<Vec<_>>();
    let denied = of(parts(&[USAGE], &[Some(5)]));
    assert_eq!(verdicts(&denied), [verdict(Some(5))]);
    assert_eq!(denied.only_quota().unwrap().1, verdict(Some(5)));
    assert_eq!(denied.waits_us().as_slice(), [5]);
    // A blocked key's only quota admits, although the decision waits.
    let blocked = of(parts(&[USAGE], &[Some(0)]));
    assert_eq!(verdicts(&blocked), [verdict(Some(0))]);
    assert!(blocked.only_quota().is_none() && blocked != denied);
    let delayed = of(DecisionParts { allowed: true, ..parts(&[USAGE], &[Some(0)]) });
    assert_eq!(
        (verdicts(&delayed), delayed.only_quota().unwrap().1),
        (vec![verdict(Some(0))], verdict(Some(0)))
    );
    let shadowed = of(DecisionParts { allowed: true, shadowed: true, ..parts(&[USAGE], &[Some(5)]) });
    assert_eq!(shadowed.only_quota().unwrap().1, verdict(Some(5)));
    for source in [Source::Configuration, Source::Deny] {
        let decision = of(DecisionParts { source, ..parts(&[USAGE], &[Some(0)]) });
        assert_eq!(decision.only_quota().unwrap().1, verdict(Some(0)), "{source:?}");
    }
    let several = of(parts(&[USAGE, USAGE, USAGE], &[Some(0), None, Some(9)]));
    assert_eq!(verdicts(&several), [verdict(Some(0)), verdict(None), verdict(Some(9))]);
    assert_eq!(several.waits_us().as_slice(), [0, Decision::NEVER, 9]);
    assert!(several.only_quota().is_none() && several.quotas().len() == 3);
    let admitted =
        of(DecisionParts { allowed: true, wait_us: Some(0), ..parts(&[USAGE, USAGE], &[Some(0), Some(0)]) });
    assert_eq!(verdicts(&admitted), [verdict(Some(0)), verdict(Some(0))]);
    let (usage, _) = denied.only_quota().unwrap();
    assert_eq!(usage, QuotaUsage { remaining: 2, ..USAGE });
}

#[test]
fn decisions_are_equal_by_every_part_but_whether_they_repeat() {
    let base = || parts(&[USAGE], &[Some(5)]);
    let one = Decision::from_parts(base()).unwrap();
    assert_eq!(one, one.clone());
    assert_eq!(Decision { repeated: true, ..one.clone() }, one);
    for other in [
        DecisionParts { allowed: true, ..base() },
        DecisionParts { wait_us: Some(6), ..base() },
        DecisionParts { source: Source::Lease, ..base() },
        DecisionParts { degraded: Some(Degradation::Late), ..base() },
        DecisionParts { cause: None, ..base() },
        DecisionParts { crossed: true, ..base() },
        DecisionParts { elastic: true, ..base() },
        DecisionParts { shadowed: true, ..base() },
        DecisionParts { remaining: 1, ..base() },
        DecisionParts { quotas: &[USAGE, USAGE], quota_waits_us: &[Some(5), Some(5)], ..base() },
    ] {
        assert_ne!(Decision::from_parts(other).unwrap(), one);
    }
}

fn usage_parts(quotas: &[QuotaUsage]) -> UsageParts<'_> {
    let (source, degraded) = (Source::Store, None);
    UsageParts { taken: 0, found: false, repeated: false, source, degraded, remaining: 8, quotas }
}

#[test]
fn usage_has_its_parts() {
    let usage = Usage::from_parts(usage_parts(&[USAGE])).unwrap();
    assert_eq!((usage.taken(), usage.found(), usage.repeated()), (0, false, false));
    assert_eq!(
        (usage.remaining(), usage.limit(), usage.quotas()),
        (8, 10, &[QuotaUsage { remaining: 8, ..USAGE }][..])
    );
    let usage =
        Usage::from_parts(UsageParts { taken: 4, found: true, repeated: true, ..usage_parts(&[USAGE]) })
            .unwrap();
    assert_eq!((usage.taken(), usage.found(), usage.repeated()), (4, true, true));
}

#[test]
fn refunded_decision_has_the_usage_of_the_refund() {
    let left = |source| Usage::from_parts(UsageParts { source, ..usage_parts(&[USAGE]) }).unwrap();
    let of = |allowed, source| {
        let waits = [Some(if allowed { 0 } else { 5 })];
        Decision::from_parts(DecisionParts { allowed, source, crossed: true, ..parts(&[USAGE], &waits) })
            .unwrap()
    };
    let after = of(true, Source::Store).refunded(left(Source::Store));
    assert_eq!((after.remaining(), after.delay_us(), after.crossed()), (8, 0, false));
    let after = of(false, Source::Store).refunded(left(Source::Store));
    assert_eq!((after.remaining(), after.retry_after_us(), after.crossed()), (8, Some(5), true));
    assert_eq!(after.verdicts().next().unwrap().retry_after_us, Some(5));
    // An outage policy knows less than the store that has decided.
    assert_eq!(of(true, Source::Store).refunded(left(Source::Allow)).remaining(), 2);
    assert_eq!(of(true, Source::Allow).refunded(left(Source::Allow)).remaining(), 8);
    assert_eq!(of(true, Source::Allow).refunded(left(Source::Store)).remaining(), 8);
}

#[test]
fn policy_keeps_its_settings() {
    let (denials, within_us, block_us) = (3, 60_000_000, 1_000_000);
    let penalty = Penalty { denials, within_us, block_us, max_us: block_us, forget_us: within_us };
    let policy = Policy::parse("api", "10/s token_bucket; 4 concurrent").unwrap();
    assert!(policy.penalty().is_none() && policy.groups().is_none() && policy.is_only_reserved());
    assert!(!Policy::parse("api", "10/s; 100/hour").unwrap().is_only_reserved());
    assert_eq!(policy.to_string(), "api: 10/second token_bucket; 4 concurrent");
    assert_eq!(policy.clone().with_penalty(Some(penalty)).penalty(), Some(&penalty));
    let table = Arc::new(
        GroupTable::new([Group { name: "a".into(), weight: 1, minimum: 50, maximum: 100 }]).unwrap(),
    );
    let grouped = policy.with_penalty(Some(penalty)).with_groups(Some(&table)).unwrap();
    assert_eq!((grouped.groups().unwrap().name(), grouped.penalty()), ("*", Some(&penalty)));
    let own = grouped.groups().unwrap().of(Some("a"));
    assert_eq!(grouped.shared_by(&own).unwrap().groups().unwrap().name(), "a");
    assert!(Policy::is_quotas("10/s") && Policy::is_quotas("4 concurrent") && !Policy::is_quotas("api"));
    assert!(
        Policy::check_name("api").is_ok()
            && Policy::check_name("a b").is_err()
            && Policy::check_name("").is_err()
    );
}

/// The name for clients has at most 64 bytes, whatever the quotas are.
#[test]
fn policy_with_a_scope_has_a_public_name_without_it() {
    let public = |quotas: &str| Policy::one_off(quotas, Some("user")).unwrap().public_name().to_owned();
    assert_eq!(public("100/minute"), "100|minute~04f8");
    assert_eq!(Policy::one_off("100/minute", None).unwrap().public_name(), "100|minute");
    // 59 bytes of quotas are the most that leave room for the four digits and their sign.
    let name = |digits: usize| {
        let ones = "1".repeat(digits);
        public(&format!("{ones}/minute fixed_window; 1111111/hour fixed_window; 5/day"))
    };
    let names: Vec<String> = (5..=10).map(name).collect();
    for name in &names {
        assert!(name.len() <= 64 && name.ends_with("~04f8"), "{name}");
    }
    assert!(names.iter().any(|name| !name.starts_with('#') && name.len() == 64), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with('#') && name.len() == 14), "{names:?}");
}

#[test]
fn errors_are_equal_by_kind_message_and_right() {
    let error = || Error::invalid_argument("a");
    assert_eq!(error(), error());
    assert_ne!(error(), Error::invalid_argument("b"));
    assert_ne!(error(), Error::new(ErrorKind::Internal, "a"));
    assert_ne!(error(), error().of_missing_right());
    assert!(error().of_missing_right().lacks_right() && !error().lacks_right());
    assert_eq!(error().of_missing_right().message(), "a");
    assert_eq!(ErrorKind::Internal.to_string(), ErrorKind::Internal.code());
}

#[test]
fn texts_from_clients_cannot_control_a_terminal() {
    assert_eq!(printable("käse, 日本"), "käse, 日本");
    for hidden in [
        '\u{0}',
        '\u{7f}',
        '\u{85}',
        '\u{ad}',
        '\u{200b}',
        '\u{2028}',
        '\u{202e}',
        '\u{2060}',
        '\u{feff}',
        '\u{e0041}',
    ] {
        assert_eq!(printable(&format!("a{hidden}b")), format!("a{}b", hidden.escape_unicode()));
    }
    assert_eq!(report_json(&["a"]), r#"["a"]"#);
}

#[test]
fn names_that_are_near_are_suggested() {
    let known = ["max_keys", "deadline", "prefix"];
    assert_eq!(Suggestion::nearest("maxKyes", known), Some("max_keys"));
    assert_eq!(Suggestion::nearest("colour", known), None);
}

#[test]
fn zones_are_written_as_they_are_read() {
    for text in ["UTC", "+05:30", "-03:00", "+00:01", "-00:59", "Europe/Berlin"] {
        assert_eq!(Zone::parse(text).unwrap().to_string(), text);
    }
    let (berlin, rome) = (Zone::parse("Europe/Berlin").unwrap(), Zone::parse("Europe/Rome").unwrap());
    assert!(berlin == berlin.clone() && berlin != rome && berlin != Zone::parse("+01:00").unwrap());
    let hash = |zone: &Zone| {
        let mut hasher = DefaultHasher::new();
        zone.hash(&mut hasher);
        hasher.finish()
    };
    assert!(hash(&berlin) == hash(&berlin.clone()) && hash(&berlin) != hash(&rome));
    for (text, expected) in
        [("00:00", Some(0)), ("09:30", Some(570)), ("23:59", Some(1_439)), ("24:00", Some(1_440))]
    {
        assert_eq!(minutes(text), expected, "{text}");
    }
    for text in ["24:01", "12:60", "1:00", "12-00", "ab:cd", "25:00"] {
        assert_eq!(minutes(text), None, "{text}");
    }
}

#[test]
fn states_are_described_in_the_words_of_their_algorithms() {
    const NOW_US: u64 = 1_790_000_000_000_000;
    let of = |quotas: &str, spent: u64| {
        let policy = Policy::parse("p", quotas).unwrap();
        let rules = PolicyRules::new(&policy);
        let mut states: polylimit_rules::codec::States = policy.quotas().iter().map(State::fresh).collect();
        let operation = Operation::Charge;
        let charge = KeyOperation { now_us: NOW_US, operation, cost: spent, headroom: 0, hold: None };
        let (decision, _) = rules.decide(&mut states, charge, None);
        let used = (spent, decision.reset_after_us());
        words(&policy.quotas()[0], &rules.quotas[0].rules, &states[0], used, NOW_US)
    };
    for (quotas, spent, text) in [
        ("0/minute", 0, "the limit is 0: nothing is admitted"),
        ("100/minute token_bucket", 12, "debt 12 of 100, repays 1.67/s"),
        ("10/minute leaky_bucket burst=5", 3, "3 of 5 in the queue, 10/minute leave"),
        ("100/minute token_bucket step=10", 12, "12 of 100 in use, 10 come back every 6s"),
        ("100/minute fixed_window", 12, "12 of 100 in this window, which ends in 1m"),
        ("100/minute fixed_window", 1, "1 of 100 in this window, which ends in 1m"),
        ("100/minute fixed_window", 0, "0 of 100 in a window of 1m"),
        ("100/minute buckets=6", 12, "12 of 100 in the last 1m, counted in 6 parts"),
        ("100/minute sliding_log", 12, "12 of 100 in the last 1m, each at its time"),
        ("5 concurrent", 0, "0 of 5 reservations"),
    ] {
        assert_eq!(of(quotas, spent), text);
    }
    let table = Arc::new(
        GroupTable::new([Group { name: "a".into(), weight: 1, minimum: 50, maximum: 100 }]).unwrap(),
    );
    let policy = Policy::parse("p", "100/10s token_bucket").unwrap().with_groups(Some(&table)).unwrap();
    let (rules, quota) = (PolicyRules::new(&policy), &policy.quotas()[0]);
    let text = words(quota, &rules.quotas[0].rules, &State::fresh(quota), (40, 0), NOW_US);
    assert_eq!(text, "40 of 100 in use by all groups, repays 10/s");
    assert!(of("70/month", 12).starts_with("12 of 70 "), "{}", of("70/month", 12));
}

#[test]
fn decisions_and_usages_are_read_as_they_were_written() {
    let waits = [Some(0), None];
    let denied = Decision::from_parts(parts(&[USAGE, USAGE], &waits)).unwrap();
    let text = serde_json::to_string(&denied).unwrap();
    assert!(text.contains(r#""limit":10,"remaining":2,"over":1,"reset_after_us":7000000"#), "{text}");
    assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), denied);
    let delayed = DecisionParts { allowed: true, ..parts(&[USAGE], &[Some(0)]) };
    let shadowed = DecisionParts { allowed: true, shadowed: true, ..parts(&[USAGE], &[Some(5)]) };
    for parts in [delayed, shadowed] {
        let decision = Decision::from_parts(parts).unwrap();
        let text = serde_json::to_string(&decision).unwrap();
        assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision, "{text}");
    }
    let verdict = denied.verdicts().next().unwrap();
    assert_eq!(
        (verdict.retry_after(), denied.verdicts().nth(1).unwrap().retry_after()),
        (Some(Duration::ZERO), None)
    );
    let several = denied.several.as_ref().unwrap();
    assert_eq!((several.usages().len(), several.denying().collect::<Vec<_>>()), (2, vec![false, true]));
    assert!(Source::Store.asks_store() && Source::Deny.asks_store() && !Source::Configuration.asks_store());
    assert!(!QuotaUsage { over: 3, ..USAGE }.crossed(2) && QuotaUsage { over: 3, ..USAGE }.crossed(3));
    assert!(!QuotaUsage { over: 0, ..USAGE }.crossed(3));
}

#[test]
fn settings_out_of_range_are_refused() {
    use polylimit_rules::quota::Quota;
    let read = |text: &str| text.parse::<Quota>();
    for (text, excess) in [
        ("10/s fixed_window excess=100%", Some(10)),
        ("10/s fixed_window excess=101%", None),
        ("10/s fixed_window excess=1000000000000", Some(1_000_000_000_000)),
        ("10/s fixed_window excess=1000000000001", None),
        ("10/s fixed_window excess=7", Some(7)),
    ] {
        let quota = read(text);
        match excess {
            Some(excess) => assert_eq!(quota.unwrap().excess(), excess, "{text}"),
            None => assert!(quota.is_err(), "{text}"),
        }
    }
    for text in
        ["4 concurrent burst=3", "4 concurrent count_denied", "4 concurrent aligned", "4 concurrent excess=1"]
    {
        assert!(read(text).is_err(), "{text}");
    }
    assert!(
        Quota::builder(4, Duration::from_secs(1)).algorithm("concurrency".parse().unwrap()).build().is_err()
    );
    let quota = read("10/2h token_bucket burst=7 excess=2").unwrap();
    assert_eq!((quota.capacity(), quota.regular_capacity(), quota.excess()), (9, 7, 2));
}

#[test]
fn ids_are_shown_and_costs_of_commits_are_their_own() {
    use polylimit_rules::reservation::id::ReservationId;
    use polylimit_rules::reservation::list::{AS_RESERVED, commit_cost};
    let id = ReservationId::new("job-7").unwrap();
    assert_eq!((id.to_string(), format!("{id:?}")), ("job-7".to_owned(), "ReservationId(job-7)".to_owned()));
    assert_eq!(
        (commit_cost(None), commit_cost(Some(3)), commit_cost(Some(AS_RESERVED))),
        (AS_RESERVED, 3, AS_RESERVED + 1)
    );
}

#[test]
fn texts_of_the_module_have_bounds() {
    use polylimit_rules::history::{Change, PastPolicy};
    use polylimit_rules::wire::{MAX_LENGTH, WirePolicy, write_policy};
    let policy = Policy::parse("policy", "10/s token_bucket").unwrap();
    let past = |number: usize| {
        let one = |at_us: usize| PastPolicy { policy: policy.clone(), at_us: at_us as u64 };
        (0..number).map(one).collect::<Vec<_>>()
    };
    let text = write_policy(&policy, Change::Past(&past(8))).unwrap();
    assert!(WirePolicy::read(&text).is_ok());
    let last = text.lines().last().unwrap();
    assert!(WirePolicy::read(&format!("{text}\n{last}")).is_err());
    let (denials, within_us) = (3, 60_000_000);
    let penalty = Penalty { denials, within_us, block_us: 1_000, max_us: 1_000, forget_us: within_us };
    let text = write_policy(&policy.clone().with_penalty(Some(penalty)), Change::NONE).unwrap();
    let line = text.lines().nth(1).unwrap();
    assert!(WirePolicy::read(&text).is_ok() && WirePolicy::read(&format!("{text}\n{line}")).is_err());
    // A text that is too long is refused for its length.
    let refused = |length: usize| WirePolicy::read(&" ".repeat(length)).unwrap_err().to_string();
    assert!(
        refused(MAX_LENGTH + 1).contains("32769 bytes") && !refused(MAX_LENGTH).contains("bytes: allowed")
    );
}
