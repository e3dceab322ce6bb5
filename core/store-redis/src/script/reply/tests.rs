//! Replies as the scripts write them (lua/main.lua), whole, cut and wrong, and the decisions that follow from them.

use super::*;
use polylimit_rules::codec::Bytes;
use polylimit_rules::history::Change;
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::Hold;

const NONCE: [u8; 6] = *b"nonce!";
const NOW_US: u64 = 1_700_000_000_000_000;

fn number(number: u64, length: usize) -> Vec<u8> {
    number.to_be_bytes()[8 - length..].to_vec()
}

fn reply(status: u8, rest: &[u8]) -> Vec<u8> {
    [&NONCE[..], &number(NOW_US, 7), &[status], rest].concat()
}

fn call(quotas: &str) -> PolicyCall {
    PolicyCall::new(&Policy::parse("p", quotas).unwrap(), Change::NONE)
}

fn entry(operation: Operation, cost: u64, count: u16) -> CallEntry<'static> {
    CallEntry { key: b"k", action: Action::Apply(operation), cost, headroom: 0, count, hold: None }
}

/// The states of a key after an operation on these.
fn after(call: &PolicyCall, mut states: States, entry: CallEntry<'_>) -> States {
    let Action::Apply(operation) = entry.action else { panic!("a reset leaves nothing") };
    let _ = call.rules.decide(&mut states, entry.operation(operation, NOW_US), None);
    states
}

fn charged(call: &PolicyCall, units: u64) -> States {
    let fresh = call.policy.quotas().iter().map(State::fresh).collect();
    after(call, fresh, entry(Operation::Charge, units, 1))
}

fn value(call: &PolicyCall, states: &States) -> Vec<u8> {
    let mut bytes = Bytes::new();
    call.codec.write(states, &mut bytes);
    bytes.to_vec()
}

/// The answer of the general transition.
fn general(spent: u64, found: u8, value: &[u8], views: &[u8]) -> Vec<u8> {
    [&number(spent, 6), &[found][..], &number(value.len() as u64, 3), value, views].concat()
}

fn view(used: u64, newest_us: u64, entries: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = [number(used, 6), number(newest_us, 7), number(entries.len() as u64, 2)].concat();
    for (at_us, units) in entries {
        bytes.extend([number(*at_us, 7), number(*units, 6)].concat());
    }
    bytes
}

/// The answers to these entries; nothing where the bytes are none.
fn read(call: &PolicyCall, reply: &[u8], entries: &[CallEntry<'_>]) -> Option<Vec<EntryAnswer>> {
    let Ok(ScriptReply::Decided { now_us, entries: mut answers }) = read_reply(reply, NONCE) else {
        return None;
    };
    assert_eq!(now_us, NOW_US);
    let read = entries.iter().map(|entry| call.next_answer(&mut answers, entry).ok());
    let read = read.collect::<Option<Vec<_>>>()?;
    answers.finish().ok().map(|()| read)
}

/// What an answer says, in a form that can be compared.
fn said(answer: &EntryAnswer) -> (u64, Found, bool, String) {
    (answer.spent, answer.found, answer.is_applied, format!("{:?}", answer.states))
}

#[test]
fn status_says_what_follows() {
    let kind = |reply: &[u8]| match read_reply(reply, NONCE) {
        Ok(ScriptReply::Late { server_now_us: NOW_US }) => "late".to_owned(),
        Ok(ScriptReply::Elsewhere { now_us: NOW_US }) => "elsewhere".to_owned(),
        Ok(ScriptReply::TimeRefused { error }) => format!("refused: {}", String::from_utf8_lossy(error)),
        Ok(ScriptReply::Decided { now_us: NOW_US, .. }) => "decided".to_owned(),
        Ok(other) => panic!("{other:?}"),
        Err(Malformed) => "malformed".to_owned(),
    };
    for (status, rest, expected) in [
        (1, &b""[..], "late"),
        (1, b"x", "malformed"),
        (3, b"NOPERM", "refused: NOPERM"),
        (5, b"", "elsewhere"),
        (5, b"x", "malformed"),
        (0, b"\0\x02\x03\x04", "decided"),
        (0, b"\0\x02\x03", "malformed"),
        (0, b"\0", "malformed"),
        (2, b"", "decided"),
        (20, b"", "decided"),
    ] {
        assert_eq!(kind(&reply(status, rest)), expected, "{status} {rest:?}");
    }
}

#[test]
fn answer_is_read_by_its_code() {
    let call = call("10/10s token_bucket");
    let states = charged(&call, 4);
    let (bytes, fresh) = (value(&call, &states), charged(&call, 0));
    let (found, nothing) = (format!("{states:?}"), format!("{fresh:?}"));
    let of_checks = entry(Operation::Check, 3, 2);
    let replaced = general(1, 1, &bytes, b"");
    for (code, bytes, expected) in [
        (1, &bytes, (6, Found::States, true, &found)),
        (2, &bytes, (0, Found::States, true, &found)),
        (3, &vec![], (6, Found::States, true, &nothing)),
        (4, &vec![], (0, Found::States, true, &nothing)),
        (5, &general(1, 0, &bytes, b""), (1, Found::States, true, &found)),
        (5, &replaced, (1, Found::Malformed, true, &found)),
        (5, &general(0, 2, b"", b""), (0, Found::Foreign, true, &nothing)),
        (5, &general(0, 3, b"", b""), (0, Found::Newer, true, &nothing)),
        (6, &general(0, 0, &bytes, b""), (0, Found::States, false, &found)),
        (7, &bytes, (0, Found::States, false, &found)),
        (8, &vec![], (0, Found::States, false, &nothing)),
        (9, &vec![], (0, Found::Foreign, false, &nothing)),
        (10, &vec![], (0, Found::Newer, false, &nothing)),
    ] {
        let (spent, kind, is_applied, states) = expected;
        let expected = (spent, kind, is_applied, states.clone());
        let whole = reply(SINGLE_ENTRY + code, bytes);
        let answers = read(&call, &whole, &[of_checks]).unwrap();
        assert_eq!(answers.iter().map(said).collect::<Vec<_>>(), [expected], "{code}");
        for length in 0..whole.len() {
            assert!(read(&call, &whole[..length], &[of_checks]).is_none(), "{code} {length}");
        }
        assert!(read(&call, &[&whole[..], b"x"].concat(), &[of_checks]).is_none(), "{code}");
        assert!(read_reply(&whole, *b"Nonce!").is_err(), "{code}");
    }
    for code in [0, 11, 238] {
        assert!(read(&call, &reply(SINGLE_ENTRY + code, b""), &[of_checks]).is_none(), "{code}");
    }
    assert!(read(&call, &reply(SINGLE_ENTRY + 5, &general(0, 4, b"", b"")), &[of_checks]).is_none());
    // More units than a number has bits for.
    let vast = CallEntry { cost: u64::MAX, ..of_checks };
    assert!(read(&call, &reply(SINGLE_ENTRY + 3, b""), &[vast]).is_none());
}

#[test]
fn each_entry_has_its_answer() {
    let call = call("10/10s token_bucket");
    let bytes = value(&call, &charged(&call, 4));
    let checks = [entry(Operation::Check, 1, 1), entry(Operation::Check, 2, 1)];
    let spent = |reply: &[u8], entries: &[CallEntry<'_>]| {
        let answers = read(&call, reply, entries)?;
        Some(answers.iter().map(|answer| answer.spent).collect::<Vec<_>>())
    };
    let all = reply(2, &[&bytes[..], &bytes].concat());
    assert_eq!(spent(&all, &checks), Some(vec![1, 2]));
    assert_eq!(spent(&all, &checks[..1]), None);
    let each = reply(0, &[&b"\0\x02\x03\x02"[..], &bytes].concat());
    assert_eq!(spent(&each, &checks), Some(vec![1, 0]));
    // An answer too many, and one too few.
    assert_eq!(spent(&reply(0, b"\0\x02\x03\x03"), &checks[..1]), None);
    assert_eq!(spent(&reply(0, b"\0\x01\x03"), &checks), None);
}

#[test]
fn log_is_read_as_far_as_it_matters() {
    let call = call("10/10s token_bucket; 10/10s sliding_log");
    let log = |view: &[u8]| {
        let whole = reply(SINGLE_ENTRY + 5, &general(0, 0, b"", view));
        let mut answers = read(&call, &whole, &[entry(Operation::Check, 1, 1)])?;
        let answer = answers.pop()?;
        assert!(matches!(answer.states[0], State::TokenBucket(_)));
        Some(format!("{:?}", answer.states[1]))
    };
    let of = |entries: &[(u64, u64)]| {
        let log = sliding_log::State::of_parts(entries.iter().copied());
        Some(format!("{:?}", State::SlidingLog(Box::new(log))))
    };
    let last_us = polylimit_rules::units::MAX_US;
    for (used, newest_us, entries, expected) in [
        (0, 0, &[][..], of(&[])),
        (0, 7, &[], of(&[])),
        (5, 7, &[], of(&[(7, 5)])),
        (5, 7, &[(3, 1), (3, 2), (7, 4)], of(&[(3, 1), (3, 2), (7, 4), (7, 5)])),
        // The newest entry stands for all units.
        (5, 7, &[(3, 1), (6, 5)], of(&[(3, 1), (7, 5)])),
        (5, last_us, &[], of(&[(last_us, 5)])),
        (5, last_us + 1, &[], None),
        // Not in order of time, no more units, none, too many, and later than the newest.
        (5, 7, &[(4, 1), (3, 2)], None),
        (5, 7, &[(3, 2), (4, 2)], None),
        (5, 7, &[(3, 2), (4, 1)], None),
        (5, 7, &[(3, 0)], None),
        (5, 7, &[(3, 6)], None),
        (5, 7, &[(8, 1)], None),
    ] {
        assert_eq!(log(&view(used, newest_us, entries)), expected, "{used} {newest_us} {entries:?}");
    }
}

/// What an entry's checks or its operation is answered with: whether it is allowed, what it spent, and whether its states are kept.
fn decided(
    call: &PolicyCall,
    states: States,
    stored: u64,
    is_applied: bool,
    entry: &CallEntry<'_>,
) -> Result<Vec<(bool, u64, bool)>, Error> {
    let answer = EntryAnswer { states, spent: stored, found: Found::States, is_applied };
    let mut all = Vec::new();
    call.decide(answer, NOW_US, entry, |decided| {
        assert_eq!(decided.now_us, NOW_US);
        let seen = decided.seen.as_ref().inspect(|seen| assert_eq!(seen.now_us, NOW_US));
        all.push((decided.decision.allowed, decided.spent, seen.is_some()));
    })?;
    Ok(all)
}

#[test]
fn checks_of_an_entry_are_decided_one_after_the_other() {
    let call = call("10/10s token_bucket");
    let checks = |count| entry(Operation::Check, 4, count);
    let fresh = || charged(&call, 0);
    assert_eq!(decided(&call, fresh(), 4, true, &checks(1)), Ok(vec![(true, 4, false)]));
    // What denied one of them is kept for the denial cache.
    let expected = vec![(true, 4, false), (true, 4, false), (false, 0, true), (false, 0, true)];
    assert_eq!(decided(&call, fresh(), 8, true, &checks(4)), Ok(expected));
    // A difference between script and core is an error, and no decision.
    for spent in [0, 4, 12] {
        let mut answered = 0;
        let answer = EntryAnswer { states: fresh(), spent, found: Found::States, is_applied: true };
        let error = call.decide(answer, NOW_US, &checks(4), |_| answered += 1).unwrap_err();
        assert_eq!((error.kind(), answered), (ErrorKind::Internal, 0));
        let message = format!("the script has spent {spent} units where 8 were to be spent");
        assert_eq!(error.message(), message);
    }
}

#[test]
fn operations_other_than_checks_are_decided_once() {
    let call = call("10/10s token_bucket");
    for (operation, used, stored, expected) in [
        (Operation::Take, 8, 2, (true, 2, false)),
        (Operation::Charge, 8, 0, (true, 0, false)),
        (Operation::Refund, 8, 0, (true, 0, false)),
        // A peek's states show what others would get.
        (Operation::Peek, 8, 0, (false, 0, true)),
        (Operation::Peek, 0, 0, (true, 0, true)),
    ] {
        let of_three = entry(operation, 3, 3);
        let answered = decided(&call, charged(&call, used), stored, true, &of_three);
        assert_eq!(answered, Ok(vec![expected]), "{operation:?} {used}");
    }
    // A reset leaves a key that was never seen, and an operation that was not applied is a peek.
    let reset = CallEntry { action: Action::Reset, ..entry(Operation::Check, 3, 1) };
    assert_eq!(decided(&call, charged(&call, 8), 5, true, &reset), Ok(vec![(true, 0, false)]));
    for (used, allowed) in [(7, true), (8, false)] {
        let answered = decided(&call, charged(&call, used), 0, false, &entry(Operation::Check, 3, 1));
        assert_eq!(answered, Ok(vec![(allowed, 0, false)]), "{used}");
    }
}

/// Only a denial that would change nothing is kept, because the denial cache answers it without the store.
#[test]
fn denials_that_change_states_are_not_kept() {
    let check = entry(Operation::Check, 3, 1);
    let is_kept = |call: &PolicyCall, states: States, check: &CallEntry<'_>| {
        let answered = decided(call, states, 0, true, check).unwrap();
        let [(false, 0, is_kept)] = *answered else { panic!("{answered:?}") };
        is_kept
    };
    let plain = call("10/hour");
    assert!(is_kept(&plain, charged(&plain, 10), &check));
    let reserved = |ttl_us| Hold { id: ReservationId::new("r").unwrap(), ttl_us, remember_us: 0 };
    // A reservation that ends gives units back.
    let hold = reserved(1_000_000);
    let reserve = CallEntry { hold: Some(&hold), ..entry(Operation::Reserve, 1, 1) };
    let states = after(&plain, charged(&plain, 9), reserve);
    assert!(
        !is_kept(&plain, states.clone(), &check) && is_kept(&plain, states, &entry(Operation::Peek, 3, 1))
    );
    let penalty = Penalty {
        denials: 2,
        within_us: 60_000_000,
        block_us: 60_000_000,
        max_us: 60_000_000,
        forget_us: 60_000_000,
    };
    let policy = Policy::parse("p", "10/hour").unwrap().with_penalty(Some(penalty));
    let punishing = PolicyCall::new(&policy, Change::NONE);
    assert!(!is_kept(&punishing, charged(&punishing, 10), &check));
    let hold = Hold::of_block(1_000_000);
    let block = CallEntry { hold: Some(&hold), ..entry(Operation::Block, 0, 1) };
    assert!(is_kept(&punishing, after(&punishing, charged(&punishing, 10), block), &check));
}
