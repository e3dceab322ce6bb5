use proptest::prelude::*;

use crate::Policy;
use crate::algorithm::{Rules, State};
use crate::codec::{
    Bytes, PolicyCodec, Reader, States, Tag, Unreadable, read_log, unknown_until_us, write_log,
};
use crate::general::KeyOperation;
use crate::history::{Change, PastPolicy};
use crate::transition::{Operation, PolicyRules};

const NOW_US: u64 = 1_790_000_000_000_000;

fn policy(quotas: &str) -> Policy {
    Policy::parse("p", quotas).unwrap()
}

fn policies() -> impl Strategy<Value = Policy> {
    let quotas = [
        "5/m token_bucket",
        "97/m leaky_bucket",
        "999983/day token_bucket burst=7",
        "10/m token_bucket step=5",
        "5/m fixed_window",
        "5/month from=31 zone=America/New_York; 3/day zone=Asia/Tokyo",
        "5/m",
        "1000/h buckets=60",
        "0/m fixed_window; 0/h; 0/day token_bucket; 0/m token_bucket step=2",
        "5/m token_bucket; 7/h; 9/day fixed_window aligned; 4/m sliding_log",
        "5/m token_bucket; 5/m leaky_bucket; 3/s token_bucket step=3",
    ];
    prop::sample::select(quotas.map(policy).to_vec())
}

fn superseded() -> impl Strategy<Value = Vec<PastPolicy>> {
    let one = (policies(), 0..=2 * NOW_US).prop_map(|(policy, at_us)| PastPolicy { policy, at_us });
    prop::collection::vec(one, 0..4)
}

fn operations() -> impl Strategy<Value = Vec<(Operation, u64, u64)>> {
    let operation = prop::sample::select(vec![Operation::Check, Operation::Charge, Operation::Refund]);
    prop::collection::vec((operation, 1_u64..=12, 0_u64..=20_000_000), 0..12)
}

fn written(codec: &PolicyCodec, states: &[State]) -> Bytes {
    let mut bytes = Bytes::new();
    codec.write(states, &mut bytes);
    bytes
}

fn log_bytes(state: &crate::algorithm::sliding_log::State) -> Bytes {
    let mut bytes = Bytes::new();
    write_log(state, &mut bytes);
    bytes
}

/// Every quota's usage at some time.
fn views(rules: &PolicyRules, states: &[State], now_us: u64) -> Vec<(u64, u64, u64)> {
    let view = |(quota, state): (&crate::transition::QuotaNumbers, &State)| {
        let room = quota.rules.room(state, now_us);
        (quota.rules.remaining(state, now_us), room, quota.rules.reset_after_us(state, now_us))
    };
    rules.quotas.iter().zip(states).map(view).collect()
}

proptest! {
    #[test]
    fn what_was_written_is_read(policy in policies(), operations in operations(), to in policies()) {
        let (rules, codec) = (PolicyRules::new(&policy), PolicyCodec::new(&policy, Change::NONE));
        let mut states: States = policy.quotas().iter().map(State::fresh).collect();
        let mut now_us = NOW_US;
        for (operation, cost, later_us) in operations {
            now_us += later_us;
            rules.apply(&mut states, now_us, operation, cost);
        }
        let bytes = written(&codec, &states);
        let mut read = codec.read(&bytes, now_us).unwrap();
        for (read, state) in read.iter_mut().zip(&states) {
            if let (State::SlidingLog(read), State::SlidingLog(state)) = (read, state)
                && state.parts().1.len() > 0
            {
                **read = read_log(&log_bytes(state)).unwrap();
            }
        }
        for then_us in [now_us, now_us + 1, now_us + 7_000_000, now_us.saturating_sub(60_000_000)] {
            prop_assert_eq!(views(&rules, &read, then_us), views(&rules, &states, then_us));
        }
        prop_assert_eq!(written(&codec, &read), bytes.clone());
        // Another policy reads the records that it knows and skips the rest.
        prop_assert!(PolicyCodec::new(&to, Change::NONE).read(&bytes, now_us).is_ok());
    }

    #[test]
    fn any_bytes_are_states_or_none(
        policy in policies(), superseded in superseded(), bytes in prop::collection::vec(any::<u8>(), 0..80),
        operations in operations(),
    ) {
        try_bytes(&policy, &superseded, &bytes, &operations)?;
        if let Some(state) = read_log(&bytes) {
            prop_assert!(state.parts().1.len() <= bytes.len());
        }
    }

    #[test]
    fn records_of_any_numbers_are_states_or_none(
        policy in policies(), superseded in superseded(), bytes in prop::collection::vec(any::<u8>(), 40),
        form in 1_u8..=7, small in any::<bool>(), operations in operations(),
    ) {
        for quota in policy.quotas() {
            let mut record = vec![form];
            record.extend(if form < 6 { Tag::of(quota) } else { Tag::OF_KEY }.0);
            if form >= 6 {
                // One reservation with an id of 5 bytes, or blocks.
                record.extend([0, 0, if form == 6 { 53 } else { 23 }]);
            }
            if form == 6 {
                record.extend([0, 1]);
            }
            if form == 5 {
                record.extend([1 + bytes[0] % 2, 1 + bytes[1] % 2]);
            }
            // Otherwise most times would be beyond what a clock can show.
            record.extend(if small { [0, 6] } else { [bytes[2], bytes[3]] });
            record.extend(&bytes[4..]);
            let sliding = 20 + usize::from(1 + bytes[0] % 2) * usize::from(1 + bytes[1] % 2);
            record.truncate([17, 25, 23, 18, sliding, 100, 31][usize::from(form) - 1]);
            if form == 6 {
                record.truncate(10);
                record.extend([[0; 28].as_slice(), &bytes[..17], &[5], b"names"].concat());
            }
            try_bytes(&policy, &superseded, &record, &operations)?;
        }
    }
}

/// Reads any bytes; the states that they mean can be operated on.
fn try_bytes(
    policy: &Policy,
    superseded: &[PastPolicy],
    bytes: &[u8],
    operations: &[(Operation, u64, u64)],
) -> Result<(), TestCaseError> {
    let (rules, codec) = (PolicyRules::new(policy), PolicyCodec::new(policy, Change::Past(superseded)));
    let Ok(mut states) = codec.read(bytes, NOW_US) else { return Ok(()) };
    prop_assert!(states.len() - policy.quotas().len() <= 2);
    let mut now_us = NOW_US;
    for &(operation, cost, later_us) in operations {
        now_us += later_us;
        let request = KeyOperation { now_us, operation, cost, headroom: 0, hold: None };
        let (decision, _) = rules.decide(&mut states, request, None);
        prop_assert!(decision.remaining() <= policy.quotas()[0].capacity());
    }
    prop_assert!(codec.read(&written(&codec, &states), now_us).is_ok());
    Ok(())
}

#[test]
fn bucket_record_is_short_where_a_microsecond_repays_one_and_debt_fits() {
    for (quotas, length) in [
        ("100/m token_bucket; 7/m sliding_log", 17),
        ("100/day token_bucket", 17),
        ("100/week token_bucket", 25),
        ("7/s token_bucket", 25),
    ] {
        let policy = policy(quotas);
        let mut states: States = policy.quotas().iter().map(State::fresh).collect();
        // The charge saturates the use.
        PolicyRules::new(&policy).apply(&mut states, NOW_US, Operation::Charge, 10_000);
        assert_eq!(written(&PolicyCodec::new(&policy, Change::NONE), &states).len(), length, "{quotas}");
    }
}

#[test]
fn records_in_order_are_read_from_the_front_and_others_are_refused() {
    let policy = policy("5/m token_bucket; 5/m; 4/m fixed_window");
    let (rules, codec) = (PolicyRules::new(&policy), PolicyCodec::new(&policy, Change::NONE));
    let mut states: States = policy.quotas().iter().map(State::fresh).collect();
    rules.apply(&mut states, NOW_US, Operation::Check, 3);
    let bytes = written(&codec, &states);
    let followed = [&bytes[..], b"more"].concat();
    let mut rest = Reader(&followed);
    let read = codec.read_in_order(&mut rest, NOW_US).unwrap();
    assert_eq!((written(&codec, &read), rest.0), (bytes.clone(), b"more".as_slice()));
    assert!(codec.read_in_order(&mut Reader(&bytes[..bytes.len() - 1]), NOW_US).is_none());
    let other = PolicyCodec::new(&self::policy("4/m fixed_window; 5/m token_bucket; 5/m"), Change::NONE);
    assert!(other.read_in_order(&mut Reader(&bytes), NOW_US).is_none());
}

#[test]
fn what_ran_out_under_superseded_numbers_does_not_come_back() {
    let (before, after) = (policy("2/s token_bucket step=1"), policy("1/s token_bucket step=1"));
    let mut states: States = before.quotas().iter().map(State::fresh).collect();
    PolicyRules::new(&before).apply(&mut states, NOW_US, Operation::Charge, 2);
    let bytes = written(&PolicyCodec::new(&before, Change::NONE), &states);
    for (after_us, used) in [(999_999, 1), (1_000_000, 0)] {
        let superseded = [PastPolicy { policy: before.clone(), at_us: NOW_US + after_us }];
        for change in [Change::Past(&superseded), Change::Now(std::slice::from_ref(&before))] {
            let states = PolicyCodec::new(&after, change).read(&bytes, NOW_US + after_us).unwrap();
            assert_eq!(
                PolicyRules::new(&after).quotas[0].rules.remaining(&states[0], NOW_US + 1_000_000),
                1 - used,
                "{change:?}"
            );
        }
    }
}

#[test]
fn tag_follows_the_identity_and_never_changes() {
    let tag = |text: &str| Tag::of(&text.parse().unwrap()).0;
    assert_eq!(tag("5/m token_bucket"), tag("7/m token_bucket burst=9 count_denied"));
    assert_ne!(tag("5/m token_bucket"), tag("5/m leaky_bucket"));
    assert_ne!(tag("5/m token_bucket"), tag("5/m token_bucket step=5"));
    assert_ne!(tag("5/m buckets=1"), tag("5/m buckets=2"));
    // Stored states depend on this value.
    assert_eq!(tag("5/m token_bucket"), [24, 112, 56, 51]);
}

/// A record of a form of a later version.
fn later(form: u8, tag: Tag, until_us: u64, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(7 + content.len()).unwrap().to_be_bytes();
    [&[form][..], &tag.0, &length[1..], &until_us.to_be_bytes()[1..], content].concat()
}

#[test]
fn records_of_a_later_version_are_kept_where_they_belong_to_no_quota_of_the_policy() {
    let codec = PolicyCodec::new(&policy("5/day fixed_window; 7/h"), Change::NONE);
    let used = policy("5/day fixed_window");
    let mut states: States = used.quotas().iter().map(State::fresh).collect();
    PolicyRules::new(&used).quotas[0].rules.spend(&mut states[0], NOW_US, 3);
    let known = written(&PolicyCodec::new(&used, Change::NONE), &states);
    let of_key = later(10, Tag::OF_KEY, NOW_US + 7, b"abc");
    let of_other = later(255, Tag([1, 2, 3, 4]), NOW_US + 9, b"");
    for bytes in [[&known, &of_key[..], &of_other].concat(), [&of_key[..], &known, &of_other].concat()] {
        let mut unknown = Vec::new();
        let read = codec.read_and_keep(&bytes, NOW_US, &mut unknown).unwrap();
        assert_eq!(written(&codec, &read), known);
        assert_eq!(unknown, [&of_key[..], &of_other].concat());
        assert_eq!(unknown_until_us(&bytes), NOW_US + 9);
    }
    assert_eq!(unknown_until_us(&known), 0);
}

#[test]
fn a_quota_whose_record_a_later_version_has_written_is_not_read() {
    let policy = policy("5/day fixed_window; 7/h");
    let codec = PolicyCodec::new(&policy, Change::NONE);
    for quota in policy.quotas() {
        for form in 10..=255 {
            let bytes = later(form, Tag::of(quota), NOW_US, b"count");
            assert_eq!(codec.read(&bytes, NOW_US).unwrap_err(), Unreadable::Newer, "{form}");
            // Nothing of a record is enough to go on.
            let cut = codec.read(&bytes[..bytes.len() - 1], NOW_US);
            assert_eq!(cut.unwrap_err(), Unreadable::Malformed, "{form}");
        }
    }
    let short = [&[10][..], &Tag::OF_KEY.0, &[0, 0, 6], &[0; 6]].concat();
    assert_eq!(codec.read(&short, NOW_US).unwrap_err(), Unreadable::Malformed);
}

mod bounds;
