//! What the cases do not reach: other versions, other numbers, and reservations whose numbers in front do not suffice.

use super::*;
use crate::history::Change;
use crate::policy::Policy;
use crate::reservation::id::ReservationId;

const NOW_US: u64 = 1_790_000_000_000_000;

fn policy(quotas: &str) -> Policy {
    Policy::parse("p", quotas).unwrap()
}

#[test]
fn every_operation_writes_what_it_changes() {
    for (operation, spent, cost, expected) in [
        (Operation::Check, 1, 1, Written::All),
        (Operation::Take, 2, 5, Written::All),
        (Operation::Check, 0, 1, Written::Changed),
        (Operation::Take, 0, 5, Written::Changed),
        (Operation::Charge, 0, 1, Written::All),
        (Operation::Refund, 0, 1, Written::All),
        (Operation::Charge, 0, 0, Written::Changed),
        (Operation::Refund, 0, 0, Written::Changed),
        (Operation::Commit, 0, 0, Written::All),
        (Operation::Cancel, 0, 0, Written::All),
        (Operation::Renew, 0, 0, Written::All),
        (Operation::Reserve, 0, 3, Written::AllIfReserved),
        (Operation::Block, 0, 0, Written::Changed),
    ] {
        assert_eq!(Written::by(operation, spent, cost), expected, "{operation:?} {spent} {cost}");
    }
}

/// A key under a policy, in Redis.
struct Key {
    rules: PolicyRules,
    codec: PolicyCodec,
    value: Bytes,
    /// As the last operation that has written something has it.
    lives_until_us: u64,
}

impl Key {
    fn of(policy: &Policy) -> Self {
        let codec = PolicyCodec::new(policy, Change::NONE);
        Self { rules: PolicyRules::new(policy), codec, value: Bytes::new(), lives_until_us: 0 }
    }

    fn apply(&mut self, operation: Operation, cost: u64, now_us: u64, hold: Option<&Hold>) -> bool {
        let request = KeyOperation { now_us, operation, cost, headroom: 0, hold };
        let value = self.codec.cut(&self.value).unwrap();
        let mut states = self.codec.states(&value, now_us).unwrap();
        let (decision, applied) = self.rules.decide(&mut states, request, None);
        let mut next = Bytes::new();
        if applied.written {
            let written = Written::by(operation, applied.spent, cost);
            self.lives_until_us = self.codec.write_value(&value, &states, written, now_us, &mut next);
            drop(value);
            self.value = next;
        }
        decision.allowed
    }

    fn held(&self, operation: KeyOperation<'_>) -> Option<(u64, u64)> {
        let mut out = Bytes::new();
        let held =
            self.codec.change_held(&self.rules, &self.codec.cut(&self.value).unwrap(), operation, &mut out);
        assert_eq!(held.is_none(), out.is_empty());
        held
    }
}

fn hold(id: &str) -> Hold {
    Hold { id: ReservationId::new(id).unwrap(), ttl_us: 10_000_000, remember_us: 0 }
}

/// A record that was written under other numbers stays as it was found, unless its state changes.
#[test]
fn records_of_other_numbers_are_kept_until_they_change() {
    let mut before = Key::of(&policy("30/10s token_bucket; 5/7s token_bucket"));
    assert!(before.apply(Operation::Check, 3, NOW_US, None));
    let mut after = Key::of(&policy("20/10s token_bucket; 4/7s token_bucket"));
    after.value = before.value.clone();
    // A denial of what never fits changes nothing, and a reserve brings everything to the present.
    assert!(!after.apply(Operation::Check, 50, NOW_US, None));
    assert_eq!(after.value, before.value);
    let block = Hold::of_block(5_000_000);
    assert!(after.apply(Operation::Block, 0, NOW_US, Some(&block)));
    assert!(after.value.starts_with(&before.value) && after.value.len() > before.value.len());
    assert!(after.apply(Operation::Charge, 1, NOW_US, None));
    assert!(!after.value.starts_with(&before.value));
    let mut reserved = Key::of(&policy("20/10s token_bucket; 4/7s token_bucket"));
    reserved.value = before.value.clone();
    assert!(reserved.apply(Operation::Reserve, 0, NOW_US, Some(&hold("r"))));
    assert!(!reserved.value.starts_with(&before.value));
    // One that finds its reservation adds none, and so leaves the records.
    let found = reserved.value.clone();
    assert!(reserved.apply(Operation::Reserve, 0, NOW_US, Some(&hold("r"))));
    assert_eq!(reserved.value, found);
}

/// Records of a form or a limit that would be written differently now.
#[test]
fn records_are_kept_whatever_would_be_written_now() {
    let old = policy("4/7s token_bucket; 6/10s token_bucket step=3");
    let new = policy("3/7s token_bucket; 12/10s token_bucket step=3");
    let mut before = Key::of(&old);
    assert!(before.apply(Operation::Check, 3, NOW_US, None));
    let step_at = before.value.iter().position(|byte| *byte == Form::SteppedBucket as u8).unwrap();
    let forms = [before.value[0], before.value[step_at]];
    assert_eq!(forms, [Form::ShortBucket as u8, Form::SteppedBucket as u8]);
    let block = Hold::of_block(5_000_000);
    let mut after = Key { value: before.value.clone(), ..Key::of(&new) };
    assert!(after.apply(Operation::Block, 0, NOW_US, Some(&block)));
    assert!(after.value.starts_with(&before.value));
    // Where the time of the change is not known, a record of steps has to name the limit that it counts under from now on.
    let codec = PolicyCodec::new(&new, Change::Now(std::slice::from_ref(&old)));
    let mut changed = Key { value: before.value.clone(), codec, ..Key::of(&new) };
    assert!(changed.apply(Operation::Block, 0, NOW_US, Some(&block)));
    assert!(changed.value.starts_with(&before.value[..step_at]));
    let limit_at = step_at + 5 + 6 + 7;
    assert_eq!(before.value[limit_at..][..5], [0, 0, 0, 0, 6]);
    assert_eq!(changed.value[limit_at..][..5], [0, 0, 0, 0, 12]);
}

/// The scripts' fast path knows the form of a bucket's record by its quota.
#[test]
fn form_of_a_bucket_is_that_of_its_largest_debt() {
    for (quota, form) in [
        ("10/s token_bucket", Form::ShortBucket),
        ("10/10d token_bucket", Form::Bucket),
        ("7/10s leaky_bucket", Form::Bucket),
    ] {
        let mut key = Key::of(&policy(quota));
        assert!(key.apply(Operation::Check, 1, NOW_US, None));
        assert_eq!(key.value[0], form as u8, "{quota}");
    }
}

/// Until a multiple of the period, or of 10 s, after which nothing counts.
#[test]
fn keys_live_until_nothing_counts() {
    let second = 1_000_000;
    let mut blocked = Key::of(&policy("10/s token_bucket"));
    assert!(blocked.apply(Operation::Block, 0, NOW_US, Some(&Hold::of_block(60 * second))));
    assert_eq!(blocked.lives_until_us, NOW_US + 70 * second);
    for (quota, at_us, lives_until_us) in [
        ("10/20s", NOW_US, NOW_US + 40 * second),
        // The last of the sub-windows before a multiple of the period counts until the next one.
        ("10/20s", NOW_US - 1, NOW_US + 40 * second),
        ("10/20s", NOW_US - 2 * second - 1, NOW_US + 20 * second),
        ("10/20s token_bucket", NOW_US - 2 * second, NOW_US + 20 * second),
        ("10/20s token_bucket", NOW_US - 2 * second - 1, NOW_US),
        ("10/20s fixed_window", NOW_US - 5, NOW_US - 5 + 20 * second),
    ] {
        let mut key = Key::of(&policy(quota));
        assert!(key.apply(Operation::Check, 1, at_us, None));
        let read_us = key.codec.lives_until_us(&key.codec.cut(&key.value).unwrap());
        assert_eq!((key.lives_until_us, read_us), (lives_until_us, lives_until_us), "{quota} {at_us}");
    }
}

#[test]
fn reservation_is_added_if_the_last_is_new() {
    let list = |ids: &[(&str, u64)]| {
        let one = |(id, ends_us): &(&str, u64)| crate::reservation::list::Reservation {
            id: ReservationId::new(id).unwrap(),
            units: 1,
            ends_us: *ends_us,
            ttl_us: 10_000_000,
            remember_us: 0,
        };
        Reservations(ids.iter().map(one).collect())
    };
    let record = |list: &Reservations| {
        let mut out = Bytes::from_slice(&[RESERVATIONS, 0, 0, 0, 0, 0, 0, 0]);
        write_reservations(list, &mut out);
        out
    };
    let later = NOW_US + 5;
    let before = record(&list(&[("a", later)]));
    let added = |after: &[(&str, u64)]| is_added(Some(&before), Some(&list(after)), NOW_US);
    assert!(added(&[("a", later), ("b", later)]) && !added(&[("a", later)]) && !added(&[]));
    let ended = record(&list(&[("a", NOW_US)]));
    assert!(is_added(Some(&ended), Some(&list(&[("a", later)])), NOW_US));
    let ends = record(&list(&[("a", NOW_US + 1)]));
    assert!(!is_added(Some(&ends), Some(&list(&[("a", later)])), NOW_US));
    assert!(is_added(None, Some(&list(&[("a", later)])), NOW_US) && !is_added(None, None, NOW_US));
}

#[test]
fn numbers_in_front_suffice_only_where_nothing_else_is_asked() {
    let mut key = Key::of(&policy("10/hour token_bucket; 9/2h fixed_window"));
    assert!(key.apply(Operation::Reserve, 2, NOW_US, Some(&hold("r"))));
    let request =
        |operation, cost, hold| KeyOperation { now_us: NOW_US + 1, operation, cost, headroom: 0, hold };
    let (own, other) = (hold("r"), hold("s"));
    let end_of_other = Hold::of_end(other.id);
    let end = Hold::of_end(hold("r").id);
    assert_eq!(key.held(request(Operation::Check, 3, None)).map(|held| held.0), Some(3));
    assert!(key.held(request(Operation::Check, 8, None)).is_none());
    assert!(key.held(request(Operation::Check, 0, None)).is_none());
    assert!(key.held(request(Operation::Peek, 3, None)).is_none());
    assert!(key.held(request(Operation::Reserve, 3, Some(&other))).is_some());
    assert!(key.held(request(Operation::Reserve, 2, Some(&own))).is_none());
    assert_eq!(key.held(request(Operation::Commit, 2, Some(&end))).map(|held| held.0), Some(0));
    assert!(key.held(request(Operation::Commit, 2, Some(&end_of_other))).is_none());
    assert!(key.held(KeyOperation { headroom: 1, ..request(Operation::Check, 3, None) }).is_none());
    // At the time of its end, and before it was made, all of it is read.
    let at = |now_us| KeyOperation { now_us, ..request(Operation::Check, 3, None) };
    let ends_us = NOW_US + hold("r").ttl_us;
    assert!(key.held(at(ends_us - 1)).is_some() && key.held(at(ends_us)).is_none());
    assert!(key.held(at(NOW_US)).is_some() && key.held(at(NOW_US - 1)).is_none());
    // A commit that is remembered, and what other records say, need all of it as well.
    let mut remembering = Key::of(&policy("10/hour token_bucket"));
    assert!(remembering.apply(
        Operation::Reserve,
        2,
        NOW_US,
        Some(&Hold { remember_us: 5_000, ..hold("r") })
    ));
    assert!(remembering.held(request(Operation::Commit, 2, Some(&end))).is_none());
    assert!(remembering.held(request(Operation::Check, 2, None)).is_some());
    assert!(remembering.apply(Operation::Reserve, 2, NOW_US, Some(&other)));
    assert!(remembering.apply(Operation::Commit, 2, NOW_US, Some(&end)));
    assert!(remembering.held(request(Operation::Check, 2, None)).is_none());
    let mut blocked = Key::of(&policy("10/hour token_bucket"));
    assert!(blocked.apply(Operation::Reserve, 2, NOW_US, Some(&hold("r"))));
    assert!(blocked.apply(Operation::Block, 0, NOW_US - 1, Some(&Hold::of_block(1_000))));
    assert!(blocked.held(request(Operation::Check, 2, None)).is_none());
    let minute = 60_000_000;
    let penalty =
        crate::penalty::Penalty { denials: 9, within_us: minute, block_us: 1, max_us: 1, forget_us: minute };
    let mut penalized = Key::of(&policy("10/hour token_bucket").with_penalty(Some(penalty)));
    assert!(penalized.apply(Operation::Reserve, 2, NOW_US, Some(&hold("r"))));
    assert!(penalized.held(request(Operation::Check, 2, None)).is_none());
}

#[test]
fn numbers_in_front_have_bounds() {
    let sums = |number, last_us| Sums { number, made_us: 0, first_us: 0, last_us, units: 0 };
    let fits = |number: u64, last_us, length: usize| sums(number, last_us).fit(&vec![0; length]);
    assert!(fits(1, MAX_US, 62) && !fits(0, MAX_US, 62) && !fits(1, MAX_US + 1, 62) && !fits(1, MAX_US, 61));
    assert!(
        fits(2, 0, 86) && !fits(2, 0, 85) && fits(1_000, 0, 38 + 24_000) && !fits(1_001, 0, 38 + 24 * 1_001)
    );
}

#[test]
fn records_of_a_later_version_are_kept_or_refused() {
    let policy = policy("5/day fixed_window; 7/h");
    let key = Key::of(&policy);
    let later = |tag: Tag| {
        let mut bytes = Bytes::from_slice(&[12]);
        bytes.extend_from_slice(&tag.0);
        bytes.extend_from_slice(&[0, 0, 8]);
        put(&mut bytes, NOW_US + 9, 7);
        bytes.push(1);
        bytes
    };
    for quota in policy.quotas() {
        let of_quota = later(Tag::of(quota));
        assert_eq!(key.codec.cut(&of_quota).unwrap_err(), Unreadable::Newer);
        let both = [&of_quota[..], &later(Tag([9; 4]))].concat();
        assert_eq!(key.codec.cut(&both).unwrap_err(), Unreadable::Newer);
    }
    let mut kept = Key { value: later(Tag([9; 4])), ..Key::of(&policy) };
    assert_eq!(kept.codec.lives_until_us(&kept.codec.cut(&kept.value).unwrap()), NOW_US + 9);
    assert!(kept.apply(Operation::Check, 1, NOW_US, None));
    assert!(kept.value.ends_with(&later(Tag([9; 4]))) && kept.value.len() > 16);
    assert_eq!(key.codec.cut(&kept.value[..kept.value.len() - 1]).unwrap_err(), Unreadable::Malformed);
}
