use std::sync::Arc;

use polylimit_rules::groups::{Group, GroupTable};

use super::*;

fn share(quotas: &str, share_ppm: u32) -> String {
    share_of(&Policy::parse("a", quotas).unwrap(), Ppm(share_ppm)).to_string()
}

#[test]
fn limits_and_bursts_are_cut() {
    let quarter = share("10/s token_bucket burst=20 step=5; 4/m; 0/h; 7/h fixed_window", 250_000);
    assert_eq!(quarter, "a: 2/second token_bucket burst=5; 1/minute; 0/hour; 1/hour fixed_window");
    let policy = Policy::parse("a", "7/h").unwrap();
    assert_eq!(share_of(&policy, Ppm::ALL), policy);
}

#[test]
fn groups_share_a_share_while_each_minimum_is_a_unit() {
    let group = |name: &str, minimum| Group { name: name.into(), weight: 1, minimum, maximum: 100 };
    let table = Arc::new(GroupTable::new([group("a", 50), group("b", 10)]).unwrap());
    let policy = Policy::parse("a", "100/s token_bucket; 20 concurrent").unwrap();
    let policy = policy.with_groups(Some(&table)).unwrap();
    let half = share_of(&policy, Ppm(500_000));
    assert_eq!(half.to_string(), "a: 50/second token_bucket; 10 concurrent");
    assert_eq!(half.groups(), policy.groups());
    assert!(half.quotas().iter().all(Quota::is_grouped));
    // A tenth of two slots is none.
    let tenth = share_of(&policy, Ppm(100_000));
    assert!(tenth.groups().is_none() && !tenth.quotas().iter().any(Quota::is_grouped));
}

#[test]
fn share_of_less_than_one_unit_admits_nothing() {
    for (quotas, expected) in [
        ("3/day", "0/day"),
        ("3/day fixed_window aligned", "0/day fixed_window aligned"),
        ("3/month from=15 zone=Asia/Tokyo", "0/month from=15 zone=Asia/Tokyo"),
        ("3/day sliding_log", "0/day sliding_log"),
        ("3/day token_bucket", "0/day token_bucket"),
        ("3 concurrent", "0 concurrent"),
    ] {
        assert_eq!(share(quotas, 200_000), format!("a: {expected}"));
    }
    assert_eq!(share("1000/h", 1), "a: 0/hour");
}

#[test]
fn slow_rate_of_a_bucket_has_a_longer_period() {
    let share = share_of(&Policy::parse("a", "1/s token_bucket burst=20").unwrap(), Ppm(250_000));
    let quota = &share.quotas()[0];
    assert_eq!((quota.limit(), quota.capacity()), (1, 5));
    assert_eq!(quota.period(), Duration::from_micros(4_000_001));
    // No quota has a period of ten years.
    let yearly = share_of(&Policy::parse("a", "1/365d token_bucket burst=20").unwrap(), Ppm(100_000));
    assert_eq!((yearly.quotas()[0].limit(), yearly.quotas()[0].capacity()), (0, 0));
}

#[test]
fn shares_of_all_processes_are_within_the_whole() {
    for quotas in [
        "3/day",
        "5/15m sliding_log",
        "100/m",
        "7/s token_bucket burst=9",
        "3/m leaky_bucket",
        "8 concurrent",
        "70/month zone=Europe/Berlin",
    ] {
        let whole = Policy::parse("a", quotas).unwrap();
        for processes in [2, 3, 5, 7, 40, 1_000] {
            let share = share_of(&whole, Ppm(1_000_000 / processes));
            let sum = share.quotas()[0].capacity() * u64::from(processes);
            assert!(sum <= whole.quotas()[0].capacity(), "{processes} of {share}: {sum}");
        }
    }
}

/// What the share of every quota is, computed from its numbers alone: rounded down, and of a bucket the rate as well.
#[test]
fn share_of_any_quota_is_the_largest_that_is_within_the_whole() {
    for limit in 0..=9 {
        for ppm in [1, 99_999, 250_000, 333_333, 500_000, 999_999] {
            let cut = |units: u64| units * ppm / 1_000_000;
            for form in [
                "minute",
                "minute fixed_window aligned",
                "minute sliding_log",
                "minute fixed_window count_denied",
                "month",
                "minute buckets=1",
            ] {
                let expected = format!("a: {}/{form}", cut(limit));
                assert_eq!(share(&format!("{limit}/{form}"), u32::try_from(ppm).unwrap()), expected);
            }
            for (excess, algorithm) in [(0, "fixed_window"), (1, "fixed_window"), (4, "sliding_log")] {
                let text = format!("{limit}/minute {algorithm} excess={excess}");
                let Ok(whole) = Policy::parse("a", &text) else { continue };
                let part = &share_of(&whole, Ppm(u32::try_from(ppm).unwrap())).quotas()[0].clone();
                assert_eq!(
                    (part.limit(), part.excess()),
                    (cut(limit), cut(excess).min(cut(limit))),
                    "{text} {ppm}"
                );
            }
            for (algorithm, burst) in ["token_bucket", "leaky_bucket"].into_iter().zip([1, 3, 8, 20]).chain([
                ("token_bucket", 7),
                ("leaky_bucket", 11),
                ("token_bucket", 2_000_000),
            ]) {
                let text = format!("{limit}/minute {algorithm} burst={burst}");
                let Ok(whole) = Policy::parse("a", &text) else { continue };
                bucket_is_cut(&whole.quotas()[0], ppm);
            }
        }
    }
}

/// Asserts that a bucket has the share of its burst, if it has any rate, and the largest rate that is within the share.
fn bucket_is_cut(whole: &Quota, ppm: u64) {
    let part = &quota_of(whole, ppm);
    let context = format!("{ppm} of {whole}: {part}");
    assert_eq!(part.algorithm(), whole.algorithm(), "{context}");
    let burst = whole.capacity() * ppm / 1_000_000;
    let (units, period_us) =
        (u128::from(whole.limit()) * u128::from(ppm), whole.period().as_micros() * 1_000_000);
    // The period of a single unit may be longer than any quota's.
    let is_too_slow = period_us >= units * Quota::MAX_PERIOD.as_micros();
    if burst == 0 || is_too_slow {
        return assert_eq!((part.limit(), part.capacity()), (0, 0), "{context}");
    }
    assert_eq!(part.capacity(), burst, "{context}");
    let is_within = |limit: u64, period_us_of: u128| u128::from(limit) * period_us <= units * period_us_of;
    let part_us = part.period().as_micros();
    assert!(is_within(part.limit(), part_us), "{context}");
    if part.limit() > 1 || part.period() == whole.period() {
        assert!(!is_within(part.limit() + 1, part_us), "{context}");
    } else {
        // A shorter period would be too short, but for the microsecond that is added.
        assert!(!is_within(1, part_us - 2), "{context}");
    }
}

#[test]
fn burst_leaves_out_the_excess() {
    let whole = Policy::parse("a", "10/minute token_bucket burst=20 excess=4").unwrap();
    let half = &share_of(&whole, Ppm(500_000)).quotas()[0].clone();
    assert_eq!((half.limit(), half.excess(), half.capacity()), (5, 2, 12));
}

#[test]
fn penalty_stays() {
    let policy = Policy::parse("a", "10/minute").unwrap();
    let (denials, within_us, block_us) = (3, 60_000_000, 1_000_000);
    let penalty = polylimit_rules::penalty::Penalty {
        denials,
        within_us,
        block_us,
        max_us: block_us,
        forget_us: within_us,
    };
    let policy = policy.with_penalty(Some(penalty));
    assert_eq!(share_of(&policy, Ppm(500_000)).penalty(), Some(&penalty));
}

const ID: PolicyId = PolicyId(3);
const START_US: u64 = 1_700_000_000_000_000;

/// The quotas of a store that keeps those of its fallback with its own.
struct Wrapped(PreparedQuotas);

/// A fallback with half of each limit, and the whole policy.
struct Outages {
    fallback: Fallback,
    policy: Policy,
    clock: polylimit_runtime::clock::ManualClock,
}

impl Outages {
    fn of(quotas: &str) -> Self {
        let clock = polylimit_runtime::clock::ManualClock::new(START_US).unwrap();
        let fallback = Fallback::new(Ppm(500_000), clock.clone().into(), 100, |quotas| {
            quotas.of::<Wrapped>().map(|it| &it.0)
        });
        let policy = Policy::parse("a", quotas).unwrap();
        fallback.set_policy(ID, &policy);
        Self { fallback, policy, clock }
    }

    fn start(&self, outage: Outage, charge: Charge<'_>) -> StoreAnswer {
        let charges = [(outage, self.policy.quotas(), charge)];
        self.fallback.start(&charges, Degradation::Timeout).unwrap().remove(0)
    }

    /// The units that the fallback has left.
    fn left(&self) -> u64 {
        self.start(Outage::Fallback, charge(Operation::Peek, 1)).0.total.remaining
    }

    fn hold(id: &str) -> polylimit_rules::reservation::list::Hold {
        let id = polylimit_rules::reservation::id::ReservationId::new(id).unwrap();
        polylimit_rules::reservation::list::Hold { id, ttl_us: 60_000_000, remember_us: 0 }
    }
}

fn charge(operation: Operation, cost: u64) -> Charge<'static> {
    Charge::new(ID, b"k", Action::Apply(operation), cost)
}

/// A decision of the store: only whether it was admitted matters.
fn decided(allowed: bool) -> Decision {
    let outages = Outages::of("2/day fixed_window");
    Decision { allowed, source: Source::Store, ..outages.start(Outage::Allow, charge(Operation::Check, 1)).0 }
}

#[test]
fn fallback_follows_what_the_store_has_spent() {
    let followed = |operation, cost, allowed, spent| {
        let outages = Outages::of("20/day fixed_window");
        outages.fallback.follow(charge(Operation::Charge, 4), &decided(true), 0);
        outages.fallback.follow(charge(operation, cost), &decided(allowed), spent);
        outages.left()
    };
    // Half of 20, without the 4 that were charged first.
    assert_eq!(followed(Operation::Check, 3, true, 3), 3);
    assert_eq!(followed(Operation::Check, 3, false, 0), 6);
    // What the share does not admit was spent as well.
    assert_eq!(followed(Operation::Check, 9, true, 9), 0);
    assert_eq!(followed(Operation::Take, 5, true, 2), 4);
    assert_eq!(followed(Operation::Take, 5, true, 0), 6);
    assert_eq!(followed(Operation::Peek, 3, true, 0), 6);
    assert_eq!(followed(Operation::Peek, 3, true, 3), 6);
    assert_eq!(followed(Operation::Charge, 3, true, 0), 3);
    assert_eq!(followed(Operation::Charge, 3, false, 0), 6);
    assert_eq!(followed(Operation::Refund, 3, true, 0), 9);
    let outages = Outages::of("20/day fixed_window");
    outages.fallback.follow(charge(Operation::Charge, 4), &decided(true), 0);
    outages.fallback.follow(Charge::new(ID, b"k", Action::Reset, 0), &decided(false), 0);
    assert_eq!(outages.left(), 10);
}

#[test]
fn fallback_follows_commits_of_reservations_that_it_does_not_have() {
    let outages = Outages::of("20/day fixed_window");
    let hold = Outages::hold("r");
    let of_hold = |operation, cost| Charge { hold: Some(&hold), ..charge(operation, cost) };
    let commit = of_hold(Operation::Commit, 3);
    outages.fallback.follow(commit, &decided(true), 0);
    assert_eq!(outages.left(), 7);
    // What was reserved is known to the store only.
    outages.fallback.follow(
        of_hold(Operation::Commit, polylimit_rules::reservation::list::AS_RESERVED),
        &decided(true),
        0,
    );
    assert_eq!(outages.left(), 7);
    // One that it has is committed: its 5 units are set aside until then.
    outages.fallback.follow(of_hold(Operation::Reserve, 5), &decided(true), 0);
    assert_eq!(outages.left(), 2);
    outages.fallback.follow(commit, &decided(true), 0);
    assert_eq!(outages.left(), 4);
    outages.fallback.follow(commit, &decided(false), 0);
    assert_eq!(outages.left(), 4);
}

#[test]
fn share_is_admitted_and_what_exceeds_only_the_share_may_be_retried() {
    let outages = Outages::of("6/day fixed_window");
    let check = |cost| outages.start(Outage::Fallback, charge(Operation::Check, cost));
    let (decision, spent) = check(4);
    assert!(!decision.allowed && spent == 0);
    assert_eq!((decision.wait_us, decision.total.limit), (1_000_000, 3));
    // More than the whole limit is never admitted.
    assert_eq!(check(7).0.wait_us, Decision::NEVER);
    assert_eq!(check(6).0.wait_us, 1_000_000);
    let (decision, spent) = check(3);
    assert!(decision.allowed && spent == 3 && decision.wait_us == 0);
    assert_eq!((decision.source, decision.degraded), (Source::Fallback, Some(Degradation::Timeout)));
    let (decision, spent) = check(1);
    assert!(!decision.allowed && spent == 0);
    // It waits for the end of the window, whatever the outage does.
    assert!(decision.wait_us > 1_000_000 && decision.wait_us != Decision::NEVER, "{decision:?}");
    outages.clock.advance(Duration::from_secs(2 * 86_400)).unwrap();
    assert!(check(3).0.allowed);
}

#[test]
fn policies_without_states_admit_everything_or_nothing() {
    let outages = Outages::of("6/day fixed_window; 8/week fixed_window");
    let hold = Outages::hold("r");
    let of_hold = |operation, cost| Charge { hold: Some(&hold), ..charge(operation, cost) };
    for (outage, asked, admitted, spent) in [
        (Outage::Allow, charge(Operation::Check, 9), true, 9),
        (Outage::Allow, of_hold(Operation::Reserve, 2), true, 2),
        (Outage::Allow, of_hold(Operation::Commit, 2), false, 0),
        (Outage::Allow, of_hold(Operation::Cancel, 0), false, 0),
        (Outage::Allow, of_hold(Operation::Renew, 0), false, 0),
        (Outage::Allow, Charge::new(ID, b"k", Action::Reset, 0), true, 0),
        (Outage::Deny, charge(Operation::Check, 1), false, 0),
        (Outage::Deny, charge(Operation::Check, 0), true, 0),
        (Outage::Deny, of_hold(Operation::Reserve, 0), false, 0),
    ] {
        let (decision, answered) = outages.start(outage, asked);
        assert_eq!((decision.allowed, answered), (admitted, spent), "{outage:?} {asked:?}");
        assert_eq!(decision.wait_us, if admitted { 0 } else { 1_000_000 }, "{outage:?} {asked:?}");
        assert_eq!(decision.degraded, Some(Degradation::Timeout));
        let is_allow = outage == Outage::Allow;
        assert_eq!(decision.source, if is_allow { Source::Allow } else { Source::Deny });
        let (limit, remaining) = (decision.total.limit, decision.total.remaining);
        assert_eq!((limit, remaining), (6, if is_allow { 6 } else { 0 }), "{decision:?}");
    }
    assert_eq!(outages.left(), 3);
}

#[test]
fn request_of_several_policies_is_answered_as_a_whole() {
    let outages = Outages::of("6/day fixed_window");
    let other = PolicyId(4);
    outages.fallback.set_policy(other, &outages.policy);
    let quotas = outages.policy.quotas();
    let of_other = |cost| Charge::new(other, b"k", Action::Apply(Operation::Check), cost);
    let start = |first: Outage, cost: u64, second: Charge<'_>| {
        let charges = [(first, quotas, charge(Operation::Check, cost)), (Outage::Fallback, quotas, second)];
        let answers = outages.fallback.start(&charges, Degradation::Late).unwrap();
        answers.into_iter().map(|(decision, spent)| (decision.allowed, spent)).collect::<Vec<_>>()
    };
    // The policy without states denies: nothing is spent by the other.
    assert_eq!(start(Outage::Deny, 1, of_other(1)), [(false, 0), (true, 0)]);
    // The fallback denies: the policy that allows everything has spent nothing.
    assert_eq!(start(Outage::Allow, 1, of_other(4)), [(true, 0), (false, 0)]);
    assert_eq!(start(Outage::Fallback, 1, of_other(4)), [(true, 0), (false, 0)]);
    // What a policy in shadow denies is spent by the others.
    let shadow = Charge { decides: false, ..of_other(4) };
    assert_eq!(start(Outage::Fallback, 1, shadow), [(true, 1), (false, 0)]);
    let in_shadow = [
        (Outage::Deny, quotas, Charge { decides: false, ..charge(Operation::Check, 1) }),
        (Outage::Fallback, quotas, of_other(1)),
    ];
    let answers = outages.fallback.start(&in_shadow, Degradation::Late).unwrap();
    assert_eq!((answers[0].0.allowed, answers[1].0.allowed, answers[1].1), (false, true, 1));
    assert_eq!(start(Outage::Fallback, 2, of_other(2)), [(true, 2), (true, 2)]);
    assert_eq!(start(Outage::Deny, 0, of_other(0)), [(true, 0), (true, 0)]);
    assert_eq!(outages.left(), 0);
}

#[test]
fn reservation_that_was_made_here_ends_here() {
    let outages = Outages::of("20/day fixed_window");
    let hold = Outages::hold("r");
    let of_hold = |operation, cost| Charge { hold: Some(&hold), ..charge(operation, cost) };
    let reserve = || outages.start(Outage::Fallback, of_hold(Operation::Reserve, 4));
    let answer = |operation, cost| outages.fallback.answer_made(of_hold(operation, cost));
    let is_made = || outages.fallback.made_for(&[of_hold(Operation::Commit, 1)]);
    assert!(answer(Operation::Commit, 1).is_none() && is_made().is_none());
    assert!(reserve().0.allowed);
    assert_eq!((outages.left(), is_made()), (6, Some(Degradation::Timeout)));
    // Another id, and a request without one.
    let other = Outages::hold("s");
    let commit = Charge { hold: Some(&other), ..charge(Operation::Commit, 1) };
    assert!(outages.fallback.answer_made(commit).is_none());
    assert!(outages.fallback.answer_made(charge(Operation::Check, 1)).is_none());
    let (renewed, _) = answer(Operation::Renew, 0).unwrap();
    assert!(renewed.allowed && is_made().is_some());
    assert_eq!((renewed.source, renewed.degraded), (Source::Fallback, Some(Degradation::Timeout)));
    assert!(answer(Operation::Commit, 1).unwrap().0.allowed);
    assert_eq!((outages.left(), is_made()), (9, None));
    assert!(reserve().0.allowed && answer(Operation::Cancel, 0).unwrap().0.allowed);
    assert_eq!((outages.left(), is_made()), (9, None));
    // One that has expired is not there to be renewed, and is forgotten.
    assert!(reserve().0.allowed);
    outages.clock.advance(Duration::from_secs(61)).unwrap();
    assert!(!answer(Operation::Renew, 0).unwrap().0.allowed && is_made().is_none());
    // A reserve that is denied makes none.
    assert!(!outages.start(Outage::Fallback, of_hold(Operation::Reserve, 10)).0.allowed);
    assert!(is_made().is_none());
    // Nor does one that is admitted without states, or that another policy of the request denies.
    assert!(outages.start(Outage::Allow, of_hold(Operation::Reserve, 4)).0.allowed && is_made().is_none());
    let quotas = outages.policy.quotas();
    let together = [
        (Outage::Fallback, quotas, of_hold(Operation::Reserve, 4)),
        (Outage::Deny, quotas, Charge { key: b"other", ..of_hold(Operation::Reserve, 4) }),
    ];
    assert!(
        outages.fallback.start(&together, Degradation::Late).unwrap()[0].0.allowed && is_made().is_none()
    );
}

#[test]
fn reservations_that_have_ended_do_not_accumulate() {
    let outages = Outages::of("10000/day fixed_window");
    let made = &outages.fallback.made;
    let longest_us = polylimit_rules::reservation::list::ReservationTerms::MAX_TTL_US;
    let add = |number: u64, now_us| {
        let hold = Outages::hold(&number.to_string());
        made.add(Charge { hold: Some(&hold), ..charge(Operation::Reserve, 1) }, Degradation::Late, now_us);
    };
    let has = |number: u64| {
        let hold = Outages::hold(&number.to_string());
        made.find(Charge { hold: Some(&hold), ..charge(Operation::Commit, 1) }).is_some()
    };
    (0..1_000).for_each(|number| add(number, START_US));
    (1_000..1_024).for_each(|number| add(number, START_US + 1));
    assert!(has(0) && has(1_023));
    // The 1,025th removes those that have lasted as long as a reservation can.
    add(1_024, START_US + longest_us);
    assert!(!has(0) && !has(999) && has(1_000) && has(1_024));
    // Only twice as many as were kept are looked through again, and never fewer than 1,024.
    (2_000..2_999).for_each(|number| add(number, START_US + longest_us));
    add(3_000, START_US + 2 * longest_us);
    assert!(!has(1_000) && has(3_000) && !has(2_000));
    (4_000..5_500).for_each(|number| add(number, START_US + 2 * longest_us));
    // 1,024 recent ones were kept then, so that the next look is at twice the number.
    (5_500..5_510).for_each(|number| add(number, START_US + 3 * longest_us));
    assert!(has(4_000));
}

#[test]
fn child_begins_without_states_and_with_the_policies() {
    let outages = Outages::of("6/day fixed_window");
    let hold = Outages::hold("r");
    let reserve = Charge { hold: Some(&hold), ..charge(Operation::Reserve, 1) };
    assert!(outages.start(Outage::Fallback, reserve).0.allowed);
    let fallback = outages.fallback.after_fork([(ID, &outages.policy)].into_iter());
    assert!(fallback.made_for(&[reserve]).is_none() && outages.fallback.made_for(&[reserve]).is_some());
    let child = Outages { fallback, policy: outages.policy.clone(), clock: outages.clock.clone() };
    assert_eq!((outages.left(), child.left()), (2, 3));
    outages.fallback.clear();
    assert_eq!(outages.left(), 3);
    outages.fallback.forget_policy(ID);
    let charges = [(Outage::Fallback, outages.policy.quotas(), charge(Operation::Check, 1))];
    assert!(outages.fallback.start(&charges, Degradation::Late).is_err());
}

#[test]
fn effective_quotas_are_cut_as_well() {
    let outages = Outages::of("6/day fixed_window");
    let larger = Policy::parse("a", "20/day fixed_window").unwrap();
    let prepared = PreparedQuotas::new(Wrapped(outages.fallback.prepare_quotas(ID, &larger)));
    let of_key = |cost| Charge { effective: Some(&prepared), ..charge(Operation::Check, cost) };
    let charges = |cost| [(Outage::Fallback, larger.quotas(), of_key(cost))];
    let start = |cost| outages.fallback.start(&charges(cost), Degradation::Late).unwrap().remove(0);
    assert_eq!(start(11).0.wait_us, 1_000_000);
    assert!(start(8).0.allowed);
    // A reservation that only they admit is followed.
    let hold = Outages::hold("r");
    let reserve = Charge { hold: Some(&hold), action: Action::Apply(Operation::Reserve), ..of_key(2) };
    outages.fallback.follow(reserve, &decided(true), 0);
    assert_eq!(start(1).0.total.remaining, 0);
}
