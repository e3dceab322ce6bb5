//! A log that is changed in its bytes is the same as one whose entries are all read. That the bytes are those that scripts write is shown
//! on servers: tests/redis/tests/agreement/logs.rs.

use fastrand::Rng;

use super::*;
use crate::algorithm::{QuotaRules, Rules};
use crate::codec::{read_log, write_log};

const NOW_US: u64 = 1_790_000_000_000_000;

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// The value after a change.
fn changed(mut value: Vec<u8>, change: LogChange) -> Vec<u8> {
    match change {
        LogChange::Nothing => value,
        LogChange::Delete => Vec::new(),
        LogChange::Set(bytes) => bytes.to_vec(),
        LogChange::Write(at, bytes) => {
            assert!(at <= value.len() && at + bytes.len() >= value.len());
            value.truncate(at);
            value.extend_from_slice(&bytes);
            value
        }
    }
}

/// The entries that count: each with its time and the units up to it.
fn entries(log: &QuotaRules, state: &State, now_us: u64) -> Vec<(u64, u64)> {
    let mut state = state.clone();
    log.spend(&mut state, now_us, 0);
    let State::SlidingLog(state) = state else { panic!("a log") };
    let (before, entries) = state.parts();
    entries.map(|(at_us, total)| (at_us, total.wrapping_sub(before))).collect()
}

#[test]
fn log_in_its_bytes_is_the_same_as_one_that_is_read() {
    for (seed, quota) in [(1, quota("900/s sliding_log")), (2, quota("3_000_000_000/s sliding_log"))] {
        let mut random = Rng::with_seed(seed);
        let rules = QuotaRules::new(&quota, None);
        let (mut value, mut full, mut now_us) = (Vec::new(), State::fresh(&quota), NOW_US);
        let mut written_in_part = 0;
        for step in 0..5_000 {
            let mut log = Log::read(&quota, &value, now_us);
            let mut state = State::SlidingLog(Box::new(log.state()));
            assert_eq!(rules.remaining(&state, now_us), rules.remaining(&full, now_us));
            assert_eq!(rules.reset_after_us(&state, now_us), rules.reset_after_us(&full, now_us));
            let units = random.u64(0..4);
            let is_refund = units > 0 && random.u8(..20) == 0;
            for state in [&mut state, &mut full] {
                if is_refund {
                    rules.refund(state, now_us, units);
                } else if (1..=rules.remaining(state, now_us)).contains(&units) {
                    rules.spend(state, now_us, units);
                } else {
                    rules.rewind(state, now_us);
                }
            }
            let State::SlidingLog(after) = &state else { panic!("a log") };
            log.follow(after, is_refund.then_some(units));
            assert_eq!(log.is_written(), after.is_written());
            let (change, _) = log.change();
            written_in_part += u64::from(matches!(change, LogChange::Write(..)));
            value = changed(value, change);
            if step % 10 == 0 {
                let read = if value.is_empty() { None } else { read_log(&value) };
                let read = State::SlidingLog(Box::new(read.unwrap_or_default()));
                assert_eq!(entries(&rules, &read, now_us), entries(&rules, &full, now_us));
            }
            now_us = match random.u16(..2_000) {
                0 => now_us - random.u64(..3_000_000),
                1 => now_us + random.u64(..2_000_000),
                _ => now_us + random.u64(..1_500),
            };
        }
        assert!(written_in_part > 500, "{written_in_part}");
    }
}

#[test]
fn view_has_the_entries_that_are_wanted() {
    let quota = quota("100/minute sliding_log");
    let state = sliding_log::State::of_parts([(NOW_US, 3), (NOW_US + 10, 5), (NOW_US + 20, 9)]);
    let mut bytes = Bytes::new();
    write_log(&state, &mut bytes);
    let log = Log::read(&quota, &bytes, NOW_US + 30);
    let view = |wanted: &[u64]| {
        let mut out = Bytes::new();
        log.put_view(wanted.iter().copied(), &mut out).unwrap();
        let mut view = Reader(&out);
        let head = (view.number(6).unwrap(), view.number(7).unwrap() - NOW_US);
        let number = view.number(2).unwrap();
        let each = |_| (view.number(7).unwrap() - NOW_US, view.number(6).unwrap());
        let entries: Vec<(u64, u64)> = (0..number).map(each).collect();
        assert!(view.is_empty());
        (head, entries)
    };
    assert_eq!(view(&[]), ((9, 20), vec![]));
    // Two amounts with one entry, one above all units, and none.
    assert_eq!(view(&[0, 1, 3, 4, 10]), ((9, 20), vec![(0, 3), (10, 5)]));
    assert_eq!(view(&[9]), ((9, 20), vec![(20, 9)]));
    let mut out = Bytes::new();
    Log::read(&quota, &[], NOW_US).put_view([1], &mut out).unwrap();
    assert_eq!(out[..], [0; 15]);
}

#[test]
fn log_that_no_version_has_written_counts_as_full() {
    let quota = quota("7/minute sliding_log");
    let good = [0, 1, 2, 3, 4, 5, 6, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    let now_us = 0x0102_0304_0506 + 1;
    assert!(!Log::read(&quota, &good, now_us).is_healed());
    let longer = [&good[..], &[0]].concat();
    let other_width = [&good[..7], &[5], &good[8..]].concat();
    let no_units = [&good[..21], &[0]].concat();
    let late = [&[255], &good[1..]].concat();
    for bad in [&good[..21], &good[..12], &good[..3], &longer, &other_width, &no_units, &late] {
        let log = Log::read(&quota, bad, now_us);
        assert!(log.is_healed() && log.is_written(), "{bad:?}");
        assert_eq!(log.state().units(), 7);
        let (change, until_us) = log.change();
        let value = changed(Vec::new(), change);
        let read = read_log(&value).unwrap();
        assert_eq!(read.parts().1.collect::<Vec<_>>(), [(now_us, 7)]);
        assert!(until_us.unwrap() > now_us + 60_000_000);
    }
}

#[test]
fn key_lives_longer_where_its_newest_entry_needs_it() {
    let quota = quota("9/10s sliding_log");
    let after = |value: &[u8], now_us: u64| {
        let mut log = Log::read(&quota, value, now_us);
        let mut state = State::SlidingLog(Box::new(log.state()));
        QuotaRules::new(&quota, None).spend(&mut state, now_us, 1);
        let State::SlidingLog(state) = state else { panic!("a log") };
        log.follow(&state, None);
        let (change, until_us) = log.change();
        (changed(value.to_vec(), change), until_us)
    };
    let (value, until_us) = after(&[], NOW_US + 1);
    assert_eq!(until_us, Some(NOW_US + 20_000_000));
    let (value, until_us) = after(&value, NOW_US + 9_999_999);
    assert_eq!(until_us, None);
    assert_eq!(after(&value, NOW_US + 10_000_000).1, Some(NOW_US + 30_000_000));
}

#[test]
fn only_denials_and_refunds_ask_for_entries() {
    let quota = quota("10/minute sliding_log");
    let state = sliding_log::State::of_parts([(NOW_US, 8)]);
    let mut bytes = Bytes::new();
    write_log(&state, &mut bytes);
    let log = Log::read(&quota, &bytes, NOW_US + 30);
    let wanted = |operation, cost, headroom, is_allowed| {
        let request = KeyOperation { now_us: NOW_US + 30, operation, cost, headroom, hold: None };
        log.wanted(&[], &log.state(), request, is_allowed).to_vec()
    };
    assert_eq!(wanted(Operation::Check, 3, 0, false), [1]);
    assert_eq!(wanted(Operation::Peek, 3, 20, false), [3]);
    // It never fits, or nothing has to go.
    assert!(
        wanted(Operation::Check, 11, 0, false).is_empty()
            && wanted(Operation::Check, 3, 90, false).is_empty()
    );
    assert!(
        wanted(Operation::Check, 2, 0, true).is_empty() && wanted(Operation::Check, 0, 0, false).is_empty()
    );
    assert!(
        wanted(Operation::Take, 3, 0, true).is_empty() && wanted(Operation::Charge, 3, 0, false).is_empty()
    );
    assert_eq!(wanted(Operation::Refund, 3, 0, true), [5]);
    assert!(
        wanted(Operation::Refund, 8, 0, true).is_empty() && wanted(Operation::Refund, 0, 0, true).is_empty()
    );
}
