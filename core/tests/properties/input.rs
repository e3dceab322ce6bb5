//! Properties of input: the text form of a quota is canonical and equals the builder; any other input is decided or refused,
//! and never causes a panic.

use std::fmt::Write;
use std::time::Duration;

use polylimit::quota::Algorithm;
use polylimit::{ErrorKind, Policy, Quota, Request};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::generators::{in_us, policy, quota};
use super::session::Session;

/// Numbers in and out of bounds, near the bounds more often than elsewhere.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..=100,
        2 => 0_u64..=10_000_000,
        1 => Quota::MAX_UNITS - 2..=Quota::MAX_UNITS + 2,
        1 => any::<u64>(),
    ]
}

fn period_us() -> impl Strategy<Value = u64> {
    let longest_us = u64::try_from(Quota::MAX_PERIOD.as_micros()).unwrap();
    prop_oneof![
        3 => (0_u64..=60).prop_map(|seconds| seconds * 1_000_000),
        2 => 990_u64..=1_100_000,
        1 => longest_us - 2..=longest_us + 2,
        1 => 0..=2 * longest_us,
    ]
}

/// An algorithm that counts units in a period.
fn rate_algorithm() -> impl Strategy<Value = Algorithm> {
    let rates = Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::Concurrency);
    select(rates.collect::<Vec<_>>())
}

/// Digits in groups of three, separated by underscores.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join("_")
}

proptest! {
    #[test]
    fn text_form_is_canonical(quota in quota()) {
        let text = quota.to_string();
        let read: Quota = text.parse().unwrap();
        prop_assert_eq!(&read, &quota);
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn policy_is_parsed_from_its_text_form(policy in policy()) {
        let text = policy.to_string();
        let quotas = text.strip_prefix("p: ").unwrap();
        prop_assert_eq!(Policy::parse("p", quotas).unwrap(), policy);
    }

    #[test]
    fn other_spellings_of_a_quota_are_equal(
        quota in quota(), space in select(vec![" ", "  ", "\t", "\n \r", "\u{2003}"]),
    ) {
        let mut settings = vec![quota.algorithm().to_string()];
        if matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket) && quota.limit() > 0 {
            settings.push(format!("burst={}", grouped(quota.capacity() - quota.excess())));
        } else if quota.limit() == 0 {
            let text = quota.to_string();
            settings.extend(text.split(' ').find(|word| word.starts_with("burst")).map(str::to_owned));
        }
        settings.extend(quota.step().map(|step| format!("step={}", grouped(step))));
        settings.extend(quota.buckets().map(|buckets| format!("buckets={buckets}")));
        settings.extend(quota.aligned().then(|| "aligned".to_owned()));
        settings.extend(quota.count_denied().then(|| "count_denied".to_owned()));
        settings.extend((quota.excess() > 0).then(|| format!("excess={}", grouped(quota.excess()))));
        settings.reverse();
        let mut text = format!("{space}{}/{}us", grouped(quota.limit()), in_us(&quota));
        for setting in settings {
            write!(text, "{space}{setting}").unwrap();
        }
        prop_assert_eq!(text.parse::<Quota>(), Ok(quota), "{}", text);
    }

    #[test]
    fn builder_and_text_of_concurrency_agree(limit in number()) {
        match (Quota::concurrent(limit), format!("{limit} concurrent").parse::<Quota>()) {
            (Ok(built), Ok(read)) => {
                prop_assert_eq!(built.to_string().parse::<Quota>().unwrap(), built.clone());
                prop_assert_eq!(built, read);
            }
            (Err(refused), Err(unread)) => prop_assert!(unread.message().ends_with(refused.message())),
            (built, read) => prop_assert!(false, "built {:?}, read {:?}", built, read),
        }
    }

    #[test]
    fn builder_and_text_agree(
        limit in number(), period_us in period_us(), algorithm in option::of(rate_algorithm()),
        burst in option::weighted(0.2, number()), step in option::weighted(0.2, number()),
        buckets in option::weighted(0.3, 0_u32..=70), aligned in any::<bool>(), count_denied in any::<bool>(),
        excess in option::weighted(0.2, number()), percent in option::weighted(0.2, 0_u64..=110),
    ) {
        let mut text = format!("{limit}/{period_us}us");
        let mut builder = Quota::builder(limit, Duration::from_micros(period_us));
        if let Some(algorithm) = algorithm {
            write!(text, " {algorithm}").unwrap();
            builder = builder.algorithm(algorithm);
        }
        if let Some(burst) = burst {
            write!(text, " burst={burst}").unwrap();
            builder = builder.burst(burst);
        }
        if let Some(step) = step {
            write!(text, " step={step}").unwrap();
            builder = builder.step(step);
        }
        if let Some(buckets) = buckets {
            write!(text, " buckets={buckets}").unwrap();
            builder = builder.buckets(buckets);
        }
        if let Some(excess) = excess {
            write!(text, " excess={excess}").unwrap();
            builder = builder.excess(excess);
        } else if let Some(percent) = percent {
            write!(text, " excess={percent}%").unwrap();
            builder = builder.excess_percent(percent);
        }
        let aligned = aligned && algorithm == Some(Algorithm::FixedWindow);
        text.push_str(if aligned { " aligned" } else { "" });
        text.push_str(if count_denied { " count_denied" } else { "" });
        let built = builder.aligned(aligned).count_denied(count_denied).build();
        match (built, text.parse::<Quota>()) {
            (Ok(built), Ok(read)) => prop_assert_eq!(built, read),
            (Err(refused), Err(unread)) => {
                // The parser adds the column to the message of the builder.
                prop_assert!(unread.message().ends_with(refused.message()), "{} {}", refused, unread);
                prop_assert!(unread.message().starts_with("quota at column "));
            }
            (built, read) => prop_assert!(false, "{text}: built {built:?}, read {read:?}"),
        }
    }
}

fn decide(request: Request<'_>, policy: &Policy) -> Result<(), ErrorKind> {
    let session = Session::new(policy, 1_700_000_000_000_000);
    let limiter = session.limiter();
    let mut refused = Vec::new();
    refused.extend(limiter.check(request).err());
    // A key with a state is decided on a fast path, for any cost. Invalid requests are refused there, too.
    let _ = limiter.charge(request.cost(1));
    refused.extend(limiter.check(request).err());
    refused.extend(limiter.peek(request).err());
    refused.extend(limiter.take(request).err());
    refused.extend(limiter.charge(request).err());
    refused.extend(limiter.refund(request).err());
    refused.extend(limiter.reset(request).err());
    assert!(refused.is_empty() || refused.len() == 7, "{refused:?}");
    refused.first().map_or(Ok(()), |error| Err(error.kind()))
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in any::<String>()) {
        if let Err(refused) = text.parse::<Quota>() {
            prop_assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            prop_assert!(refused.message().len() < 1_000);
        }
        let _ = Policy::parse(&text, &text);
    }

    #[test]
    fn text_similar_to_a_quota_is_parsed_or_refused(
        text in concat!(
            "[0-9_]{0,30}/?[0-9]{0,21}(us|ms|s|m|h|d|w|week|year)?s?",
            "( *(burst|step|buckets)?=?[0-9_]{0,3}| aligned|;| token_bucket| fixed_window){0,4}",
        ),
    ) {
        match text.parse::<Quota>() {
            Ok(quota) => prop_assert_eq!(quota.to_string().parse::<Quota>(), Ok(quota)),
            Err(refused) => prop_assert!(refused.message().starts_with("quota at column ")),
        }
        if let Ok(policy) = Policy::parse("p", &text) {
            prop_assert!(policy.quotas().len() <= Policy::MAX_QUOTAS);
        }
    }

    #[test]
    fn any_bytes_are_accepted_as_a_key(policy in policy(), key in vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(decide(Request::new(&key), &policy), Ok(()));
    }

    #[test]
    fn any_cost_is_decided_or_refused(policy in policy(), cost in prop_oneof![
        any::<u64>(), 0_u64..10, Request::MAX_COST - 1..Request::MAX_COST + 2, u64::MAX - 1..=u64::MAX
    ]) {
        let expected = if cost <= Request::MAX_COST { Ok(()) } else { Err(ErrorKind::InvalidArgument) };
        prop_assert_eq!(decide(Request::new("k").cost(cost), &policy), expected);
    }

    #[test]
    fn unknown_policy_name_is_refused(name in any::<String>()) {
        let policy = Policy::parse("p", "1/s").unwrap();
        let expected = if name == "p" { Ok(()) } else { Err(ErrorKind::InvalidArgument) };
        prop_assert_eq!(decide(Request::new("k").policy(&name), &policy), expected);
    }
}

#[test]
fn key_beyond_a_mebibyte_is_refused() {
    let policy = Policy::parse("p", "1/s").unwrap();
    let mut key = vec![0_u8; Request::MAX_KEY_LENGTH];
    assert_eq!(decide(Request::new(&key), &policy), Ok(()));
    key.push(0);
    assert_eq!(decide(Request::new(&key), &policy), Err(ErrorKind::InvalidArgument));
}
