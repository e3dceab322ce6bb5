//! When units expire, by hand.

use super::*;
use crate::lease::tests::admitted;
use polylimit_rules::decision::QuotaUsage;
use polylimit_rules::policy::Policy;

const SECOND_US: u64 = 1_000_000;

fn quotas(text: &str) -> Vec<Quota> {
    Policy::parse("p", text).unwrap().quotas().to_vec()
}

/// A reply at that time of the store, with the quotas' times to their reset.
fn replied(now_us: u64, reset_after_us: &[u64]) -> ScriptDecision {
    let views: Vec<_> = reset_after_us
        .iter()
        .map(|us| QuotaUsage { limit: 10, remaining: 5, reset_after_us: *us, over: 0 })
        .collect();
    admitted(1, now_us, &views)
}

/// A span of the store's time as this process waits for it: shorter by a 1024th and a microsecond.
fn shortened(us: u64) -> u64 {
    us - us / 1_024 - 1
}

#[test]
fn idle_time_passes_while_nothing_spent_is_repaid() {
    let mut idle = Idle::since(5);
    assert_eq!([4, 5, 7].map(|us| idle.at(us)), [0, 0, 2]);
    idle.ends(15, 5_000);
    assert_eq!([15, 20, 22].map(|us| idle.at(us)), [10, 10, 12]);
    // What is spent before that is repaid afterwards.
    idle.ends(17, 3_000);
    assert_eq!([17, 23, 25].map(|us| idle.at(us)), [10, 10, 12]);
    idle.begins(18);
    assert_eq!([18, 21].map(|us| idle.at(us)), [10, 13]);
}

#[test]
fn span_is_that_of_a_step_or_a_window() {
    for (text, expected) in [
        ("10/s token_bucket", None),
        ("10/s token_bucket step=2", Some(200_000)),
        ("10/s leaky_bucket", None),
        ("10/s fixed_window", Some(SECOND_US)),
        ("10/s buckets=4", Some(250_000)),
        // A log counts each unit at its microsecond.
        ("10/s sliding_log", Some(1)),
        ("10 concurrent", None),
    ] {
        assert_eq!(span_us(&quotas(text)[0]), expected, "{text}");
    }
}

#[test]
fn units_end_with_the_first_step_or_window_or_while_the_first_bucket_is_repaid() {
    let asked_us = 50;
    for (text, now_us, reset_after_us, left_us, repaid_us) in [
        ("10/s fixed_window", 0, &[SECOND_US][..], Some(SECOND_US), None),
        ("10/s fixed_window", 0, &[300_000], Some(300_000), None),
        // The last of three steps is complete in 250 ms, the next one in 50 ms.
        ("10/s token_bucket step=1", 0, &[250_000], Some(50_000), None),
        ("10/s token_bucket step=1", 0, &[0], Some(100_000), None),
        // Sub-windows begin at multiples of their length.
        ("10/s buckets=4", 7 * SECOND_US + 270_000, &[900_000], Some(230_000), None),
        ("10/s token_bucket", 0, &[400_000], None, Some(400_000)),
        ("10/s token_bucket; 99/m token_bucket", 0, &[400_000, 300_000], None, Some(300_000)),
        ("10/s fixed_window; 99/m token_bucket", 0, &[400_000, 300_000], Some(400_000), Some(300_000)),
        ("10/s fixed_window; 99/m fixed_window", 0, &[400_000, 300_000], Some(300_000), None),
    ] {
        let (quotas, replied) = (quotas(text), replied(now_us, reset_after_us));
        let expected = [left_us, repaid_us].map(|us| us.map_or(u64::MAX, |us| asked_us + shortened(us)));
        let Ends { at_us, repaid_us } = Ends::of(&quotas, &replied, asked_us);
        assert_eq!([at_us, repaid_us], expected, "{text} {reset_after_us:?}");
        assert_eq!(super::repaid_us(&quotas, &replied.decision, asked_us), expected[1], "{text}");
    }
}

#[test]
fn fastest_bucket_repays_a_unit() {
    for (text, period_ns) in [
        ("1000/s token_bucket", 1_000_000),
        ("1000/s token_bucket; 1000/m token_bucket", 1_000_000),
        ("1000/m token_bucket; 1000/s fixed_window", 60_000_000),
        ("0/s token_bucket; 1000/m token_bucket", 60_000_000),
        ("0/s token_bucket", 0),
        ("1000/s token_bucket step=10", 0),
        ("1000/s", 0),
    ] {
        assert_eq!(repays_unit_ns(&quotas(text)), period_ns - period_ns / 1_024, "{text}");
    }
}

#[test]
fn grant_shrinks_in_idle_time_with_the_rest_of_the_debt() {
    let ends = Ends { at_us: u64::MAX, repaid_us: 1_000 };
    let mut grant = Grant::new(100, 0, 0, ends);
    let mut idle = Idle::since(0);
    grant.update(500, idle);
    assert_eq!((grant.units(), grant.parts), (50, 50 << PARTS));
    // It stays while spent units are repaid.
    idle.ends(500, 300_000);
    grant.update(800, idle);
    assert_eq!(grant.units(), 50);
    grant.update(900, idle);
    assert_eq!((grant.units(), grant.parts), (25, 25 << PARTS));
    // More debt of others takes longer to repay; less of it is no news.
    grant.is_repaid_at(1_100);
    grant.is_repaid_at(950);
    grant.spend(5);
    grant.update(1_000, idle);
    assert_eq!(grant.units(), 10);
    grant.update(1_100, idle);
    assert_eq!(grant.parts, 0);
    // Without a bucket nothing is repaid, whatever others report.
    let mut grant = Grant::new(100, 0, 0, Ends::default());
    grant.is_repaid_at(1_000);
    grant.update(900, Idle::since(0));
    assert_eq!(grant.units(), 100);
}

#[test]
fn refund_leaves_what_may_be_of_others() {
    let ends = Ends { at_us: 600, repaid_us: 1_000 };
    let mut grant = Grant::new(100, 0, 0, ends);
    grant.update(200, Idle::since(200));
    // As many as are left once every lease has expired whose process counts them.
    assert_eq!(
        [(200, 0), (200, 400), (599, 1)].map(|(until, age)| grant.refundable(until, age)),
        [100, 50, 50]
    );
    assert_eq!([600, 601].map(|until| grant.refundable(until, 0)), [0, 0]);
}

#[test]
fn units_are_over_at_their_end_or_their_age() {
    let grant = |units| Grant::new(units, 100, 0, Ends { at_us: 500, repaid_us: u64::MAX });
    for (now_us, max_age_us, is_over) in [
        (100, 1, false),
        (101, 1, true),
        (499, 400, false),
        (500, 401, true),
        (500, 400, true),
        (50, 1, false),
    ] {
        assert_eq!(grant(1).is_over(now_us, max_age_us), is_over, "{now_us} {max_age_us}");
        assert!(!grant(0).is_over(now_us, max_age_us));
    }
}
