use proptest::prelude::*;

use super::*;
use crate::algorithm::testing::SECOND;
use crate::codec::{Bytes, PolicyCodec};
use crate::groups::Group;
use crate::history::Change;
use crate::policy::Policy;

fn table(groups: &[(&str, u8, u8, u8)]) -> Arc<GroupTable> {
    let groups = groups.iter().map(|(name, weight, minimum, maximum)| Group {
        name: (*name).into(),
        weight: *weight,
        minimum: *minimum,
        maximum: *maximum,
    });
    Arc::new(GroupTable::new(groups).unwrap())
}

/// The bucket of these quotas as each of the groups has it, in their order.
fn buckets(quotas: &str, table: &Arc<GroupTable>) -> Vec<GroupedBucket> {
    let policy = Policy::parse("p", quotas).unwrap().with_groups(Some(table)).unwrap();
    let groups = 0..table.groups().len();
    groups
        .map(|own| GroupedBucket::new(&policy.quotas()[0], &Groups { table: Arc::clone(table), own }))
        .collect()
}

fn three() -> Arc<GroupTable> {
    table(&[("a", 5, 50, 100), ("b", 3, 20, 60), ("*", 2, 0, 100)])
}

/// Spends what fits, and lets the group wait where it does not.
fn check(bucket: &GroupedBucket, state: &mut State, now_us: u64, units: u64) -> bool {
    if units <= bucket.remaining(state, now_us) {
        bucket.spend(state, now_us, units);
        return true;
    }
    let none = HeldByGroups::of(&bucket.table, &Reservations::default(), now_us);
    bucket.wait(state, now_us, units, &none);
    false
}

#[test]
fn half_of_the_minimums_burst_is_set_apart() {
    let buckets = buckets("100/second token_bucket burst=200", &three());
    let shares: Vec<_> =
        buckets[0].shares.iter().map(|share| (share.rate, share.burst, share.top_rate)).collect();
    assert_eq!(shares, [(50, 50, 0), (20, 20, 60), (0, 0, 0)]);
    let capacities: Vec<_> = buckets.iter().map(GroupedBucket::capacity).collect();
    assert_eq!(capacities, [50 + 130, 120, 130]);
    for bucket in &buckets {
        assert_eq!(bucket.remaining(&State::default(), SECOND), bucket.capacity());
    }
}

#[test]
fn claim_keeps_units_from_groups_behind() {
    let table = table(&[("a", 1, 0, 100), ("b", 1, 0, 100)]);
    let buckets = buckets("10/second token_bucket", &table);
    let mut state = State::default();
    assert!(check(&buckets[0], &mut state, SECOND, 10));
    assert!(!check(&buckets[1], &mut state, SECOND, 4));
    // The four units that come are those of the group that waits; the one that has just borrowed all is behind it.
    let later_us = SECOND + 500_000;
    assert_eq!(buckets[0].remaining(&state, later_us), 1);
    assert_eq!(buckets[1].remaining(&state, later_us), 5);
    assert_eq!(buckets[1].retry_after_us(&state, SECOND, 4), 400_000);
    // The claim ends one second after they have come.
    assert_eq!(buckets[0].remaining(&state, SECOND + 1_399_999), 6);
    assert_eq!(buckets[0].remaining(&state, SECOND + 1_400_000), 10);
}

#[test]
fn impossible_quotas_are_refused() {
    let refused = |quotas: &str, table: &Arc<GroupTable>| {
        let policy = Policy::parse("p", quotas).unwrap();
        policy.with_groups(Some(table)).unwrap_err().to_string()
    };
    for (quotas, about) in [
        ("10/s", "allowed are token_bucket"),
        ("10/s token_bucket step=5", "without step"),
        ("10/s token_bucket count_denied", "count_denied"),
        ("4/s token_bucket", "minimum of group b is 20%"),
        ("1 concurrent", "less than one unit"),
        ("1000000000000/d token_bucket", "cannot share 1000000000000/day token_bucket exactly"),
    ] {
        let message = refused(quotas, &three());
        assert!(message.contains(about), "{quotas}: {message}");
    }
    let weights = table(&[("a", 97, 0, 100), ("b", 89, 0, 100), ("c", 83, 0, 100), ("d", 79, 0, 100)]);
    assert!(refused("1000000/s token_bucket", &weights).contains("common multiple"));
}

#[test]
fn changed_numbers_keep_what_was_used() {
    let before = buckets("100/second token_bucket", &three());
    let after = buckets("200/second token_bucket", &table(&[("b", 3, 20, 60)]));
    let mut state = State::default();
    before[0].spend(&mut state, SECOND, 40);
    // 25 of the group's own, which is no more, and 15 that it has borrowed.
    assert_eq!(before[0].used(&state, SECOND), 40);
    assert_eq!(after[0].used(&state, SECOND), 40);
    assert_eq!(after[1].remaining(&state, SECOND), after[1].capacity() - 40);
}

/// A group that lost its minimum or its maximum: what it used of its own is repaid at the rate of the others.
#[test]
fn debts_of_settings_that_are_gone_are_borrowed() {
    let before = buckets("100/second token_bucket", &three());
    let after =
        buckets("100/second token_bucket", &table(&[("a", 5, 0, 100), ("b", 3, 20, 100), ("*", 2, 0, 100)]));
    let mut state = State::default();
    before[0].spend(&mut state, SECOND, 40);
    before[1].spend(&mut state, SECOND, 15);
    let present = after[0].bring(&state, SECOND);
    // Of the 40 units 25 were its own; 10 of the others are still b's own, whose most is all there is.
    assert_eq!((present.debts[0].own, present.debts[1].top), (0, 0));
    assert_eq!(present.borrowed, 45 * after[0].unit);
    assert_eq!(after[0].remaining(&state, SECOND), after[0].capacity() - 45);
    assert_eq!(after[0].reset_after_us(&state, SECOND), 550_000);
}

/// Under limits that are not exact in microseconds, time is counted in coarser ticks.
#[test]
fn coarse_ticks_count_the_same_times() {
    let table = table(&[("a", 1, 0, 100), ("b", 1, 0, 100)]);
    let buckets = buckets("1000000/day token_bucket", &table);
    assert!(buckets[0].tick_us > 1);
    let now_us = 86_400 * SECOND;
    let mut state = State::default();
    assert!(check(&buckets[0], &mut state, now_us, 1_000_000));
    assert!(!buckets[0].is_ahead(&state, now_us) && buckets[0].is_ahead(&state, now_us - SECOND));
    assert!(!check(&buckets[1], &mut state, now_us, 10));
    // Ten units come in 864 ms.
    assert_eq!(state.claims_end_after_us(now_us), 864_000 + CLAIM_US);
    let mut moved = state.clone();
    assert!(!buckets[0].rewind(&mut moved, now_us) && buckets[0].rewind(&mut moved, now_us - SECOND));
    assert!(!buckets[0].rewind(&mut moved, now_us - SECOND));
    assert_eq!(moved.claims_end_after_us(now_us - SECOND), 864_000 + CLAIM_US);
}

#[test]
fn claims_that_have_ended_or_are_of_other_weights_are_forgotten() {
    let weights = |weight| table(&[("a", 1, 0, 100), ("b", weight, 0, 100)]);
    let buckets_of = |weight| buckets("10/second token_bucket", &weights(weight));
    let own = buckets_of(1);
    let mut state = State::default();
    assert!(check(&own[0], &mut state, SECOND, 10) && !check(&own[1], &mut state, SECOND, 4));
    let ends_us = SECOND + state.claims_end_after_us(SECOND);
    // A second charge keeps the bucket in use until then.
    own[0].spend(&mut state, SECOND, 40);
    let claim = |bucket: &GroupedBucket, now_us| {
        let debts = bucket.bring(&state, now_us).debts[1];
        (debts.claim, debts.until_us)
    };
    assert_eq!(claim(&own[0], ends_us - 1), (4, ends_us));
    for now_us in [ends_us, ends_us + 1] {
        assert_eq!(claim(&own[0], now_us), (0, 0));
    }
    assert_eq!(claim(&buckets_of(2)[0], ends_us - 1), (0, 0));
}

#[test]
fn only_units_within_its_most_are_kept_for_a_group() {
    // Of 100 units b may have 60.
    let buckets = buckets("100/second token_bucket", &three());
    let claim = |units| {
        let mut state = State::default();
        buckets[1].spend(&mut state, SECOND, 50);
        buckets[2].spend(&mut state, SECOND, 30);
        assert!(!check(&buckets[1], &mut state, SECOND, units));
        state.claims_end_after_us(SECOND) > 0
    };
    assert!(claim(10) && !claim(11));
    // A group without a maximum has no debt towards one.
    let mut state = State::default();
    buckets[2].spend(&mut state, SECOND, 30);
    assert_eq!(state.parts.iter().map(|part| part.debts.top).collect::<Vec<_>>(), [0]);
}

#[test]
fn reserve_of_nothing_leaves_the_claim() {
    let table = table(&[("a", 1, 0, 100), ("b", 1, 0, 100)]);
    let buckets = buckets("10/second token_bucket", &table);
    let none = HeldByGroups::of(&table, &Reservations::default(), SECOND);
    let mut state = State::default();
    assert!(check(&buckets[0], &mut state, SECOND, 10) && !check(&buckets[1], &mut state, SECOND, 4));
    let claim = |state: &State| buckets[1].bring(state, SECOND + 500_000).debts[1].claim;
    buckets[1].reserve(&mut state, SECOND + 500_000, 0, &none);
    assert_eq!(claim(&state), 4);
    buckets[1].reserve(&mut state, SECOND + 500_000, 4, &none);
    assert_eq!(claim(&state), 0);
}

#[test]
fn each_group_waits_by_its_own_claim() {
    let part = |tag, claim, until_us| Part {
        tag: GroupTag([tag; 4]),
        debts: Debts { claim, until_us, ..Debts::default() },
        ..Part::default()
    };
    let state = State { parts: vec![part(1, 3, 5), part(2, 4, 9)], ..State::default() };
    let claim = |tag, now_us| state.waiting(GroupTag([tag; 4]), now_us).map(|debts| debts.claim);
    assert_eq!([claim(1, 4), claim(2, 4), claim(3, 4)], [Some(3), Some(4), None]);
    assert_eq!([claim(1, 5), claim(2, 5)], [None, Some(4)]);
}

/// Who gets a free slot: the group that is further below or less above its minimum, by the weights.
#[test]
fn waiting_groups_get_slots_by_weight() {
    let left = |groups: &[(&str, u8, u8, u8)], alive: [u64; 3]| {
        let table = table(groups);
        let policy = Policy::parse("p", "20 concurrent").unwrap().with_groups(Some(&table)).unwrap();
        let slots = |own| GroupedSlots::new(&policy.quotas()[0], &Groups { table: Arc::clone(&table), own });
        let mut state = State::default();
        slots(1).set_claim(&mut state, SECOND, true);
        let held = HeldByGroups { units: SmallVec::from_elem(0, 3), alive: SmallVec::from_slice(&alive) };
        slots(0).left(&state, SECOND, &held)
    };
    let by_weight = [("a", 1, 0, 100), ("b", 3, 0, 100), ("*", 1, 0, 100)];
    // A slot moves a three times as far back as b: five of b's are before two of a's, and six are not.
    assert_eq!([left(&by_weight, [2, 5, 0]), left(&by_weight, [2, 6, 0])], [13 - 1, 12]);
    let equal = [("a", 1, 0, 100), ("b", 1, 0, 100), ("*", 1, 0, 100)];
    assert_eq!([left(&equal, [3, 2, 0]), left(&equal, [3, 3, 0]), left(&equal, [3, 4, 0])], [15 - 1, 14, 13]);
    // Of b's minimum of 4 slots 2 are kept free; it is served first until it has all 4.
    let minimum = [("a", 1, 0, 100), ("b", 1, 20, 100), ("*", 1, 0, 100)];
    assert_eq!([left(&minimum, [3, 0, 0]), left(&minimum, [3, 1, 0])], [17 - 2, 16 - 1]);
    assert_eq!([left(&minimum, [3, 6, 0]), left(&minimum, [3, 7, 0])], [11 - 1, 10]);
}

/// Units that a group asks for after a time.
fn steps() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    prop::collection::vec((0..400_000_u64, 0..3_usize, 0..80_u64), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_groups_together_get_the_limit(steps in steps()) {
        let buckets = buckets("100/second token_bucket", &three());
        let (mut state, mut now_us, mut admitted) = (State::default(), SECOND, 0);
        for (after_us, group, units) in steps {
            now_us += after_us;
            if check(&buckets[group], &mut state, now_us, units) {
                admitted += units;
            }
            prop_assert!(admitted <= 100 + 100 * (now_us - SECOND) / SECOND);
            let used = buckets[0].used(&state, now_us);
            prop_assert!(used <= 100, "{used} are used");
        }
    }

    #[test]
    fn a_group_has_its_own_whatever_the_others_do(steps in steps(), quiet in 0..2_usize) {
        let buckets = buckets("100/second token_bucket", &three());
        let (mut state, mut now_us) = (State::default(), SECOND);
        for (after_us, group, units) in steps {
            now_us += after_us;
            if group != quiet {
                check(&buckets[group], &mut state, now_us, units);
            }
            prop_assert!(buckets[quiet].remaining(&state, now_us) >= buckets[quiet].shares[quiet].burst);
        }
    }

    #[test]
    fn what_is_left_does_not_shrink_and_waits_are_exact(steps in steps(), later in prop::collection::vec(0..3_000_000_u64, 8)) {
        let buckets = buckets("100/second token_bucket", &three());
        let (mut state, mut now_us) = (State::default(), SECOND);
        for (after_us, group, units) in steps {
            now_us += after_us;
            check(&buckets[group], &mut state, now_us, units);
        }
        let mut later = later;
        later.sort_unstable();
        for bucket in &buckets {
            let left: Vec<_> = later.iter().map(|after_us| bucket.remaining(&state, now_us + after_us)).collect();
            prop_assert!(left.is_sorted(), "{left:?}");
            let wanted = bucket.capacity();
            let wait_us = bucket.retry_after_us(&state, now_us, wanted);
            prop_assert!(bucket.remaining(&state, now_us + wait_us) >= wanted);
            prop_assert!(wait_us == 0 || bucket.remaining(&state, now_us + wait_us - 1) < wanted);
        }
    }

    #[test]
    fn written_states_are_read_again(steps in steps()) {
        let table = three();
        let policy = Policy::parse("p", "100/second token_bucket").unwrap().with_groups(Some(&table)).unwrap();
        let (codec, buckets) = (PolicyCodec::new(&policy, Change::NONE), buckets("100/second token_bucket", &table));
        let (mut state, mut now_us) = (State::default(), SECOND);
        for (after_us, group, units) in steps {
            now_us += after_us;
            check(&buckets[group], &mut state, now_us, units);
        }
        let mut bytes = Bytes::new();
        codec.write(&[crate::algorithm::State::Grouped(Box::new(state.clone()))], &mut bytes);
        let read = codec.read(&bytes, now_us).unwrap();
        let crate::algorithm::State::Grouped(read) = &read[0] else { panic!("{read:?}") };
        prop_assert!(**read == state || state.holds_nothing());
        for length in 0..bytes.len() {
            // A part of a record is no state, or none of this quota.
            if let Ok(read) = codec.read(&bytes[..length], now_us) {
                prop_assert!(read[0].holds_nothing());
            }
        }
    }
}
