//! The text form of a quota is canonical, and says what the builder says.

use std::fmt::Write;
use std::time::Duration;

use polylimit::{Algorithm, Policy, Quota};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::quotas::{in_us, policy, quota};

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

/// Digits with an underscore between every third, as people write them.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join("_")
}

proptest! {
    #[test]
    fn the_text_form_is_canonical(quota in quota()) {
        let text = quota.to_string();
        let read: Quota = text.parse().unwrap();
        prop_assert_eq!(&read, &quota);
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn a_policy_is_read_back_from_its_quotas(policy in policy()) {
        let text = policy.to_string();
        let quotas = text.strip_prefix("p: ").unwrap();
        prop_assert_eq!(Policy::parse("p", quotas).unwrap(), policy);
    }

    #[test]
    fn other_ways_to_write_a_quota_mean_the_same(
        quota in quota(), space in select(vec![" ", "  ", "\t", "\n \r", "\u{2003}"]),
    ) {
        let mut settings = vec![quota.algorithm().to_string()];
        if matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket) && quota.limit() > 0 {
            settings.push(format!("burst={}", grouped(quota.capacity())));
        } else if quota.limit() == 0 {
            let text = quota.to_string();
            settings.extend(text.split(' ').find(|word| word.starts_with("burst")).map(str::to_owned));
        }
        settings.extend(quota.step().map(|step| format!("step={}", grouped(step))));
        settings.extend(quota.buckets().map(|buckets| format!("buckets={buckets}")));
        settings.extend(quota.aligned().then(|| "aligned".to_owned()));
        settings.extend(quota.count_denied().then(|| "count_denied".to_owned()));
        settings.reverse();
        let mut text = format!("{space}{}/{}us", grouped(quota.limit()), in_us(&quota));
        for setting in settings {
            write!(text, "{space}{setting}").unwrap();
        }
        prop_assert_eq!(text.parse::<Quota>(), Ok(quota), "{}", text);
    }

    #[test]
    fn the_builder_and_the_text_agree(
        limit in number(), period_us in period_us(), algorithm in option::of(select(Algorithm::ALL.to_vec())),
        burst in option::weighted(0.2, number()), step in option::weighted(0.2, number()),
        buckets in option::weighted(0.3, 0_u32..=70), aligned in any::<bool>(), count_denied in any::<bool>(),
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
        let aligned = aligned && algorithm == Some(Algorithm::FixedWindow);
        text.push_str(if aligned { " aligned" } else { "" });
        text.push_str(if count_denied { " count_denied" } else { "" });
        let built = builder.aligned(aligned).count_denied(count_denied).build();
        match (built, text.parse::<Quota>()) {
            (Ok(built), Ok(read)) => prop_assert_eq!(built, read),
            (Err(refused), Err(unread)) => {
                // The text says the same, and in which column.
                prop_assert!(unread.message().ends_with(refused.message()), "{} {}", refused, unread);
                prop_assert!(unread.message().starts_with("quota at column "));
            }
            (built, read) => prop_assert!(false, "{text}: built {built:?}, read {read:?}"),
        }
    }
}
