//! The least and the most that each number of a record may be, and the bytes of logs.

use super::*;
use crate::codec::is_short;
use crate::codec::record::put;
use crate::units::MAX_US;

/// A record of a form: its head, and its numbers with their widths.
fn record(quotas: &str, form: u8, numbers: &[(u64, usize)]) -> Bytes {
    let quota = policy(quotas).quotas()[0].clone();
    let mut out = Bytes::new();
    out.push(form);
    out.extend_from_slice(&Tag::of(&quota).0);
    for (number, width) in numbers {
        put(&mut out, *number, *width);
    }
    out
}

/// Asserts that a record is read while each of its numbers is from its least to its most, and malformed otherwise.
fn has_bounds(quotas: &str, form: u8, bounds: &[(u64, u64, usize)]) {
    let codec = PolicyCodec::new(&policy(quotas), Change::NONE);
    let numbers = |changed: usize, to: u64| -> Vec<(u64, usize)> {
        let each = bounds.iter().enumerate();
        each.map(|(at, (_, most, width))| (if at == changed { to } else { *most }, *width)).collect()
    };
    let is_read = |changed, to| codec.read(&record(quotas, form, &numbers(changed, to)), NOW_US).is_ok();
    for (at, (least, most, width)) in bounds.iter().enumerate() {
        let context = format!("{quotas}, number {at}");
        assert!(is_read(at, *least) && is_read(at, *most), "{context}");
        assert!(*least == 0 || !is_read(at, least - 1), "{context}");
        let widest = u64::MAX >> (64 - 8 * width);
        assert!(*most == widest || (!is_read(at, most + 1) && !is_read(at, widest)), "{context}");
    }
}

#[test]
fn numbers_of_records_have_bounds() {
    let (units, debt) = (1_000_000_000_000, (1 << 53) - 1 + 1);
    has_bounds("5/m token_bucket", 1, &[(0, MAX_US, 7), (0, (1 << 40) - 1, 5)]);
    has_bounds("5/m token_bucket", 2, &[(0, MAX_US, 7), (0, debt, 7), (1, units, 5), (0, 0, 1)]);
    has_bounds("5/m token_bucket step=5", 3, &[(0, (1 << 48) - 1, 6), (0, MAX_US, 7), (1, units, 5)]);
    has_bounds("5/m fixed_window", 4, &[(0, (1 << 48) - 1, 6), (0, MAX_US, 7)]);
    let newest = MAX_US / 30_000_000;
    has_bounds(
        "5/m buckets=2",
        5,
        &[
            (6, 6, 1),
            (2, 2, 1),
            (0, newest, 7),
            (0, (1 << 48) - 1, 6),
            (0, (1 << 48) - 1, 6),
            (0, (1 << 48) - 1, 6),
        ],
    );
    let codec = PolicyCodec::new(&policy("5/m buckets=2"), Change::NONE);
    for width in 1..=6_u8 {
        let head = [(width.into(), 1), (2, 1), (newest, 7), (3, 6)];
        let mut bytes = record("5/m buckets=2", 5, &head);
        bytes.extend(std::iter::repeat_n(0, 2 * usize::from(width)));
        assert!(codec.read(&bytes, NOW_US).is_ok(), "{width}");
    }
    assert!(codec.read(&record("5/m buckets=2", 5, &[(0, 1), (2, 1), (newest, 7), (3, 6)]), NOW_US).is_err());
}

#[test]
fn tick_of_a_bucket_is_a_power_of_ten() {
    let codec = PolicyCodec::new(&policy("5/m token_bucket"), Change::NONE);
    let read = |at: u64, exponent: u64| {
        let numbers = [(at, 7), (1_000, 7), (5, 5), (exponent, 1)];
        codec.read(&record("5/m token_bucket", 2, &numbers), NOW_US).is_ok()
    };
    for exponent in 0..=13 {
        let last = MAX_US / 10_u64.pow(u32::try_from(exponent).unwrap());
        assert!(read(last, exponent) && !read(last + 1, exponent), "{exponent}");
    }
    assert!(!read(0, 14) && !read(0, 255));
}

#[test]
fn record_of_another_algorithm_is_malformed() {
    let one = "5/m token_bucket";
    let stepped = "5/m token_bucket step=5";
    for (quotas, form) in [
        (one, 3),
        (one, 4),
        (one, 5),
        (stepped, 1),
        (stepped, 2),
        (stepped, 4),
        ("5/m", 1),
        ("5/m", 4),
        ("5/m fixed_window", 5),
    ] {
        let numbers = [(1, 7), (1, 7), (1, 5), (0, 1), (0, 7), (0, 7)];
        let width = [17, 25, 23, 18, 21][usize::from(form) - 1];
        let mut bytes = record(quotas, form, &numbers);
        bytes.truncate(width);
        let codec = PolicyCodec::new(&policy(quotas), Change::NONE);
        assert_eq!(codec.read(&bytes, NOW_US).unwrap_err(), Unreadable::Malformed, "{quotas} {form}");
    }
}

#[test]
fn all_records_are_short_where_the_largest_debt_fits() {
    for (quota, expected) in [
        // Eight times the capacity fit: 8 * 137,438,953,471 < 2^40.
        ("1/137438953471us token_bucket", true),
        ("1/137438953472us token_bucket", false),
        ("1/1000s token_bucket burst=137", true),
        ("1/1000s token_bucket burst=138", false),
        ("2/1000s leaky_bucket burst=274", true),
        ("2/1000s leaky_bucket burst=275", false),
        // A microsecond repays 7.
        ("7/s token_bucket", false),
        ("100/day token_bucket", true),
    ] {
        assert_eq!(is_short(&quota.parse().unwrap()), expected, "{quota}");
    }
}

#[test]
fn bucket_that_had_run_out_when_its_numbers_were_superseded_is_fresh() {
    for (before, after, spent, ends_us) in [
        ("100/m token_bucket", "7/m token_bucket", 1, 600_000),
        ("7/s token_bucket", "9/s token_bucket", 3, 428_572),
        ("1000/week token_bucket", "999/week token_bucket", 2, 1_209_600_000),
        ("100/m leaky_bucket", "77/m leaky_bucket", 3, 1_800_000),
        ("2/s token_bucket step=1", "1/s token_bucket step=1", 2, 1_000_000),
        ("20/s token_bucket step=10", "10/s token_bucket step=10", 11, 1_000_000),
        ("20/s token_bucket step=10", "10/s token_bucket step=10", 100, 5_000_000),
        // Counted in ticks of ten microseconds: a unit takes a year.
        ("1/52w token_bucket burst=100", "4/52w token_bucket burst=100", 2, 62_899_200_000_000),
    ] {
        let (before, after) = (policy(before), policy(after));
        let mut states: States = before.quotas().iter().map(State::fresh).collect();
        PolicyRules::new(&before).apply(&mut states, NOW_US, Operation::Charge, spent);
        let bytes = written(&PolicyCodec::new(&before, Change::NONE), &states);
        let is_fresh = |past: &[PastPolicy]| {
            let codec = PolicyCodec::new(&after, Change::Past(past));
            codec.read(&bytes, NOW_US + ends_us).unwrap()[0].holds_nothing()
        };
        let past =
            |policy: &Policy, after_us: u64| PastPolicy { policy: policy.clone(), at_us: NOW_US + after_us };
        assert!(is_fresh(&[past(&before, ends_us)]) && !is_fresh(&[past(&before, ends_us - 1)]), "{before}");
        // Numbers under which it was not written say nothing; a short record names none.
        let other = policy(&after.quotas()[0].to_string().replacen(char::is_numeric, "4", 1));
        let is_short = bytes.len() == 17 && crate::history::repays_one(&other.quotas()[0]);
        assert_eq!(is_fresh(&[past(&other, ends_us)]), is_short, "{before}");
        assert!(!is_fresh(&[]), "{before}");
        // What was written under the numbers of now counts until it ends.
        let codec = PolicyCodec::new(&before, Change::Past(&[]));
        assert!(!codec.read(&bytes, NOW_US + ends_us).unwrap()[0].holds_nothing());
        let again = [past(&after, 1), past(&before, ends_us)];
        let codec = PolicyCodec::new(&before, Change::Past(&again));
        assert!(!codec.read(&bytes, NOW_US + ends_us).unwrap()[0].holds_nothing(), "{before}");
    }
}

#[test]
fn stepped_bucket_of_changed_quotas_of_a_key_has_run_out_by_now() {
    let (before, after) = (policy("20/s token_bucket step=10"), policy("10/s token_bucket step=10"));
    let frozen = policy("0/s token_bucket step=10");
    for (spent, ends_us) in [(1, 500_000), (10, 500_000), (11, 1_000_000), (20, 1_000_000)] {
        let mut states: States = before.quotas().iter().map(State::fresh).collect();
        PolicyRules::new(&before).apply(&mut states, NOW_US, Operation::Charge, spent);
        let bytes = written(&PolicyCodec::new(&before, Change::NONE), &states);
        let is_fresh = |policy: &Policy, now_us: u64| {
            let codec = PolicyCodec::new(policy, Change::Now(&[]));
            codec.read(&bytes, now_us).unwrap()[0].holds_nothing()
        };
        let ends_us = NOW_US + ends_us;
        assert!(is_fresh(&after, ends_us) && !is_fresh(&after, ends_us - 1), "{spent}");
        assert!(!is_fresh(&before, ends_us) && !is_fresh(&frozen, ends_us), "{spent}");
        assert!(!is_fresh(&after, NOW_US) && !is_fresh(&after, NOW_US - 5_000_000), "{spent}");
    }
}

#[test]
fn log_has_the_width_of_its_units() {
    let state = |entries: &[(u64, u64)]| crate::algorithm::sliding_log::State::of_parts(entries.to_vec());
    let bytes = |entries: &[(u64, u64)]| log_bytes(&state(entries)).to_vec();
    let at = |us: u64| us.to_be_bytes()[1..].to_vec();
    let two = bytes(&[(NOW_US, 3), (NOW_US + 258, 7)]);
    let expected =
        [&at(NOW_US)[..], &[4], &[0; 4], &[0; 6], &[0, 0, 0, 3], &[0, 0, 0, 0, 1, 2], &[0, 0, 0, 7]].concat();
    assert_eq!(two, expected);
    assert_eq!(bytes(&[(NOW_US, (1 << 31) - 1)])[7], 4);
    for units in [1 << 31, (1 << 31) + 1, 1 << 40] {
        let wide = bytes(&[(NOW_US, units)]);
        assert_eq!((wide[7], wide.len()), (6, 8 + 6 + 12));
        assert_eq!(log_bytes(&read_log(&wide).unwrap()).to_vec(), wide);
    }
    assert_eq!(bytes(&[]), [0_u8; 0]);
}

#[test]
fn log_of_impossible_numbers_is_malformed() {
    let log = |origin_us: u64, width: u8, entries: &[(u64, u64)]| {
        let width_of = usize::from(width).min(8);
        let mut out = Bytes::new();
        put(&mut out, origin_us, 7);
        out.push(width);
        put(&mut out, 0, width_of);
        for (at_us, total) in entries {
            put(&mut out, *at_us, 6);
            put(&mut out, *total, width_of);
        }
        read_log(&out).map(|state| state.parts().1.collect::<Vec<_>>())
    };
    assert_eq!(log(NOW_US, 4, &[(0, 3), (5, 7)]), Some(vec![(NOW_US, 3), (NOW_US + 5, 7)]));
    assert_eq!(log(NOW_US, 6, &[(4, 1), (4, 2)]), Some(vec![(NOW_US + 4, 1), (NOW_US + 4, 2)]));
    // Totals wrap, and what was spent is the difference.
    assert_eq!(log(NOW_US, 4, &[(0, 5), (1, 4)]), Some(vec![(NOW_US, 5), (NOW_US + 1, 4 + (1 << 32))]));
    assert!(log(MAX_US, 4, &[]).is_some() && log(MAX_US + 1, 4, &[]).is_none());
    assert!(log(NOW_US, 4, &[(5, 3), (4, 7)]).is_none());
    for width in [0, 1, 3, 5, 7, 8] {
        assert!(log(NOW_US, width, &[(0, 3)]).is_none(), "{width}");
    }
}

/// A record with a length, of a key or of a quota that groups share.
fn with_length(form: u8, tag: Tag, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&[form][..], &tag.0, &length[1..], content].concat()
}

#[test]
fn numbers_of_groups_have_bounds() {
    use crate::groups::{Group, GroupTable};
    use crate::quota::shares::MAX_PLACE;
    let group = Group { name: "a".into(), weight: 1, minimum: 50, maximum: 100 };
    let table = std::sync::Arc::new(GroupTable::new([group]).unwrap());
    let policy = policy("5/m token_bucket").with_groups(Some(&table)).unwrap();
    let (codec, tag) = (PolicyCodec::new(&policy, Change::NONE), Tag::of(&policy.quotas()[0]));
    let (debt, served) = (1 << 53, 2 * MAX_PLACE);
    let bounds: [(u64, u64, usize); 14] = [
        (0, MAX_US, 7),
        (0, 0, 1),
        (0, 1_000_000_000_000, 5),
        (0, (1 << 48) - 1, 6),
        (0, debt, 7),
        (1, 1, 1),
        (0, u64::from(u32::MAX), 4),
        (0, debt, 7),
        (0, (1 << 40) - 1, 5),
        (0, debt, 7),
        (0, (1 << 40) - 1, 5),
        (served - MAX_PLACE, served + MAX_PLACE, 7),
        (0, (1 << 40) - 1, 5),
        (0, MAX_US, 7),
    ];
    let is_read = |changed: usize, to: u64| {
        let mut content = Bytes::new();
        for (at, (_, most, width)) in bounds.iter().enumerate() {
            put(&mut content, if at == changed { to } else { *most }, *width);
        }
        codec.read(&with_length(9, tag, &content), NOW_US).is_ok()
    };
    for (at, (least, most, width)) in bounds.iter().enumerate() {
        assert!(is_read(at, *least) && is_read(at, *most), "{at}");
        assert!(*least == 0 || !is_read(at, least - 1), "{at}");
        let widest = u64::MAX >> (64 - 8 * width);
        assert!(*most == widest || (!is_read(at, most + 1) && !is_read(at, widest)), "{at}");
    }
}

#[test]
fn blocks_are_read_as_they_were_written_and_brought_into_their_bounds() {
    use crate::codec::has_blocks;
    use crate::penalty::BlockRecord;
    let codec = PolicyCodec::new(&policy("5/m fixed_window"), Change::NONE);
    let content = |until_us, level| {
        let mut content = Bytes::new();
        for (number, width) in [(until_us, 7), (9_000, 6), (NOW_US, 7), (300, 2), (level, 1)] {
            put(&mut content, number, width);
        }
        content
    };
    let read = |bytes: &[u8]| {
        let states = codec.read(bytes, NOW_US).unwrap();
        assert_eq!(states.len(), 2);
        match &states[1] {
            State::Block(record) => (**record, written(&codec, &states).to_vec()),
            other => panic!("{other:?}"),
        }
    };
    let bytes = with_length(7, Tag::OF_KEY, &content(NOW_US + 9_000, 3));
    let record =
        BlockRecord { until_us: NOW_US + 9_000, length_us: 9_000, since_us: NOW_US, count: 300, level: 3 };
    assert_eq!(read(&bytes), (record, bytes.clone()));
    let beyond = read(&with_length(7, Tag::OF_KEY, &content(MAX_US + 1, 200))).0;
    assert_eq!((beyond.until_us, beyond.level), (MAX_US, BlockRecord::MAX_LEVEL));
    let longer = [&content(NOW_US, 3)[..], &[0]].concat();
    assert_eq!(codec.read(&with_length(7, Tag::OF_KEY, &longer), NOW_US).unwrap_err(), Unreadable::Malformed);
    assert!(has_blocks(&bytes) && !has_blocks(&[]) && !has_blocks(&bytes[..9]));
    assert!(has_blocks(&[&later(10, Tag::OF_KEY, 1, b""), &bytes[..]].concat()));
    // Nothing is written of an empty record.
    let mut states = codec.read(&[], NOW_US).unwrap();
    states.push(State::Block(Box::default()));
    assert!(written(&codec, &states).is_empty());
}

#[test]
fn records_of_a_key_have_no_tag() {
    let codec = PolicyCodec::new(&policy("5/m fixed_window"), Change::NONE);
    for form in 6..=8 {
        let mut unknown = Vec::new();
        let bytes = with_length(form, Tag([0, 0, 0, 7]), &[0; 23]);
        let states = codec.read_and_keep(&bytes, NOW_US, &mut unknown).unwrap();
        assert_eq!((states.len(), unknown), (1, bytes), "{form}");
    }
    let one = [
        &[0, 1][..],
        &[0; 28],
        &NOW_US.to_be_bytes()[1..],
        &[0, 0, 0, 0, 9],
        &[0, 0, 0, 0, 4],
        &[0, 0, 0, 0, 0],
        &[2],
        b"id",
    ]
    .concat();
    for (form, is_commit) in [(6, false), (8, true)] {
        let states = codec.read(&with_length(form, Tag::OF_KEY, &one), NOW_US).unwrap();
        let (list, commits) = match &states[1] {
            State::Reservations(list) => (list, false),
            State::Commits(list) => (list, true),
            other => panic!("{other:?}"),
        };
        assert_eq!((list.0.len(), list.0[0].units, commits), (1, 4, is_commit));
        let mut out = Bytes::new();
        crate::codec::record::write_reservations(list, &mut out);
        assert_eq!((&out[..2], &out[30..]), (&one[..2], &one[30..]));
        // The numbers in front: when the last was made, the first and the last end, and the units.
        let numbers: Vec<u64> = (0..4).map(|at| Reader(&out[2 + 7 * at..]).number(7).unwrap()).collect();
        assert_eq!(numbers, [NOW_US - 9, NOW_US, NOW_US, 4]);
        let cut = with_length(form, Tag::OF_KEY, &one[..one.len() - 1]);
        assert_eq!(codec.read(&cut, NOW_US).unwrap_err(), Unreadable::Malformed);
    }
}

#[test]
fn history_keeps_the_last_eight() {
    use crate::history::History;
    let numbered = |limit: u64| policy(&format!("{limit}/m"));
    let mut history = History::default();
    for limit in 1..=20 {
        history = history.then(&numbered(limit), limit);
        let limits: Vec<u64> = history.iter().map(|past| past.policy.quotas()[0].limit()).collect();
        assert_eq!(limits, (limit.saturating_sub(7).max(1)..=limit).collect::<Vec<_>>());
        assert_eq!(history.last().unwrap().at_us, limit);
    }
}

/// A store that keeps states asks the history directly.
#[test]
fn states_run_out_as_their_records_do() {
    use crate::history::{has_run_out, past_of, ran_out};
    for (before, after, spent, ends_us) in [
        ("7/s token_bucket", "9/s token_bucket", 3, 428_572),
        ("2/s token_bucket step=1", "1/s token_bucket step=1", 2, 1_000_000),
    ] {
        let (before, after) = (policy(before), policy(after));
        let mut states: States = before.quotas().iter().map(State::fresh).collect();
        PolicyRules::new(&before).apply(&mut states, NOW_US, Operation::Charge, spent);
        let quota = &after.quotas()[0];
        let limit = before.quotas()[0].limit();
        let has_ended = |at_us: u64| {
            let past = [PastPolicy { policy: before.clone(), at_us }];
            ran_out(&states[0], limit, quota, &past_of(quota, &past))
        };
        assert!(has_ended(NOW_US + ends_us) && !has_ended(NOW_US + ends_us - 1), "{before}");
        assert!(!ran_out(&states[0], limit, quota, &[]), "{before}");
        let is_stepped = quota.step().is_some();
        assert_eq!(has_run_out(&states[0], limit, quota, NOW_US + ends_us), is_stepped, "{before}");
        assert!(!has_run_out(&states[0], limit, quota, NOW_US + ends_us - 1), "{before}");
    }
    let window = policy("5/m fixed_window");
    let fresh = State::fresh(&window.quotas()[0]);
    assert!(!ran_out(&fresh, 5, &window.quotas()[0], &[]));
}

#[test]
fn bucket_of_a_limit_of_0_stays_as_it_was_written() {
    let (before, frozen) = (policy("7/s token_bucket"), policy("0/s token_bucket"));
    let mut states: States = before.quotas().iter().map(State::fresh).collect();
    PolicyRules::new(&before).apply(&mut states, NOW_US, Operation::Charge, 3);
    let bytes = written(&PolicyCodec::new(&before, Change::NONE), &states);
    let past = [PastPolicy { policy: before, at_us: NOW_US + 9_000_000 }];
    let codec = PolicyCodec::new(&frozen, Change::Past(&past));
    assert!(!codec.read(&bytes, NOW_US + 9_000_000).unwrap()[0].holds_nothing());
    let repays_one = |quota: &str| crate::history::repays_one(&quota.parse().unwrap());
    assert!(repays_one("1/52w token_bucket") && !repays_one("1/52w token_bucket burst=100"));
    assert!(!repays_one("0/s token_bucket") && !repays_one("7/s token_bucket"));
}

#[test]
fn records_of_another_quota_are_not_those_in_order() {
    let (one, other) = (policy("5/m token_bucket"), policy("5/h token_bucket"));
    let mut states: States = one.quotas().iter().map(State::fresh).collect();
    PolicyRules::new(&one).apply(&mut states, NOW_US, Operation::Charge, 3);
    let bytes = written(&PolicyCodec::new(&one, Change::NONE), &states);
    assert!(PolicyCodec::new(&one, Change::NONE).read_in_order(&mut Reader(&bytes), NOW_US).is_some());
    assert!(PolicyCodec::new(&other, Change::NONE).read_in_order(&mut Reader(&bytes), NOW_US).is_none());
    // A window has as many counts as its quota has parts.
    let window = "5/m buckets=2";
    let codec = PolicyCodec::new(&policy(window), Change::NONE);
    for parts in 1..=3_u64 {
        let mut bytes = record(window, 5, &[(1, 1), (parts, 1), (7, 7), (0, 6)]);
        bytes.extend(std::iter::repeat_n(0, usize::try_from(parts).unwrap()));
        assert_eq!(codec.read(&bytes, NOW_US).is_ok(), parts == 2, "{parts}");
    }
}
