//! Direct calls on real limiters, with requests as a language writes them and with bytes that no language writes.

use std::collections::HashMap;

use super::*;
use crate::guard::Guard;
use crate::guard::GuardOptions;
use crate::request::Policy;
use crate::settings::{ManualClock, Settings};

const CHECK: u8 = 1;

fn limiter(quotas: &str, clock: Option<Arc<ManualClock>>) -> Arc<Limiter> {
    let policy = Policy { name: "api".to_owned(), quotas: quotas.to_owned(), outage: None, lease: None };
    let settings = Settings {
        store: Some("memory:".to_owned()),
        policies: vec![policy],
        options: HashMap::new(),
        clock,
        document: None,
    };
    Limiter::new(settings).unwrap()
}

fn header(operation: u8, waits: u8, queue: u64, tag: u64, timeout_us: i64) -> Vec<u8> {
    let mut bytes = vec![operation, waits, 0, 0, 0, 0, 0, 0];
    for number in [queue, tag, timeout_us.cast_unsigned()] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

fn push(bytes: &mut Vec<u8>, text: Option<&[u8]>) {
    bytes.extend(text.map_or(u32::MAX, |text| u32::try_from(text.len()).unwrap()).to_le_bytes());
    bytes.extend(text.unwrap_or_default());
}

fn push_request(bytes: &mut Vec<u8>, key: &str, policy: Option<&[u8]>, cost: Option<i64>) {
    bytes.push(cost.is_some().into());
    bytes.extend(cost.unwrap_or(0).to_le_bytes());
    bytes.extend(0_i32.to_le_bytes());
    push(bytes, Some(key.as_bytes()));
    push(bytes, policy);
}

/// Performs the call, and returns its number and the buffer after it.
fn perform_in(target: u64, request: &[u8], capacity: usize) -> (i32, Vec<u8>) {
    let mut buffer = request.to_vec();
    buffer.resize(capacity, 0);
    // SAFETY: the buffer is there, and the tests give targets of their operations.
    let number =
        unsafe { polylimit_direct_call(target, buffer.as_mut_ptr(), u32::try_from(capacity).unwrap()) };
    if let Ok(length) = usize::try_from(number) {
        buffer.truncate(length);
    }
    (number, buffer)
}

fn answer_to(target: u64, request: &[u8]) -> Vec<u8> {
    let (number, answer) = perform_in(target, request, 4096);
    assert!(number >= 0, "{number}");
    answer
}

fn check(limiter: &Limiter, policy: Option<&[u8]>, cost: Option<i64>) -> Vec<u8> {
    let mut request = header(CHECK, TRY | WAIT, 0, 0, 0);
    push_request(&mut request, "key", policy, cost);
    answer_to(limiter.address().cast_unsigned(), &request)
}

fn number_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn decision_has_its_layout() {
    let limiter = limiter("3/minute; 5/hour", None);
    let answer = check(&limiter, Some(b"api"), Some(2));
    assert_eq!(answer.len(), 1 + 48 + 2 * 40);
    assert_eq!(answer[..5], [1, 1, 0, 0, 0]);
    assert_eq!((number_at(&answer, 5), number_at(&answer, 13), number_at(&answer, 29)), (1, 0, 0));
    assert_eq!(answer[45..49], 2_u32.to_le_bytes());
    assert_eq!((number_at(&answer, 49), number_at(&answer, 89)), (3, 5));
    let denied = check(&limiter, None, Some(9));
    assert_eq!((denied[1], number_at(&denied, 13)), (0, -1));
    // The verdicts of the quotas: both never, then only the first for a time.
    assert_eq!([81, 121].map(|at| number_at(&denied, at)), [-1, -1]);
    let denied = check(&limiter, None, Some(2));
    let [first, second] = [81, 121].map(|at| number_at(&denied, at));
    assert!(first > 0 && first == number_at(&denied, 13), "{first}");
    assert_eq!(second, 0);
}

#[test]
fn decision_is_read_as_it_was_written() {
    let limiter = limiter("2/minute leaky_bucket; 10/hour sliding_log", None);
    for cost in [1, 1, 1, 100] {
        let answer = check(&limiter, None, Some(cost));
        let decision = Reader::new(&answer[1..]).decision().unwrap();
        let mut again = [0; 256];
        let mut writer = Writer::new(&mut again);
        writer.decision(&decision);
        assert_eq!(writer.end(), Ok(answer.len() - 1));
        assert_eq!(again[..answer.len() - 1], answer[1..]);
    }
}

#[test]
fn invalid_arguments_are_errors_with_their_message() {
    let limiter = limiter("3/minute", None);
    let message = |answer: Vec<u8>| {
        assert_eq!(answer[..2], [0, 1], "{answer:?}");
        String::from_utf8(answer[6..].to_vec()).unwrap()
    };
    assert_eq!(message(check(&limiter, None, Some(-1))), "cost is -1: allowed is 0 or more");
    assert!(message(check(&limiter, Some(b"apy"), None)).contains("apy"));
    assert!(message(check(&limiter, Some(b"\xff"), None)).contains("UTF-8"));
    let closed = answer_to(0, &header(CHECK, TRY, 0, 0, 0));
    assert_eq!(closed[..2], [0, 4]);
}

#[test]
fn bytes_that_are_no_request_are_refused() {
    let limiter = limiter("3/minute", None);
    let address = limiter.address().cast_unsigned();
    let mut seed = 1_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..20_000 {
        // The addresses of handles are the caller's: those would be random as well.
        let operation = u8::try_from(1 + random() % 12).unwrap();
        // An acquire of random bytes may wait for its whole timeout, and 0 is none.
        let mut request = header(operation, TRY | WAIT, 0, 0, 0);
        while request.len() < 256 {
            // Small lengths get further than others.
            let word = if random() % 2 == 0 { random() } else { random() % 40 };
            request.extend(word.to_le_bytes());
        }
        let (number, _) = perform_in(address, &request, 256);
        assert!(number >= 0 || number == TOO_LARGE, "{number}");
    }
    let (number, _) = perform_in(address, &header(CHECK, TRY, 0, 0, 0), 32);
    assert_eq!(number, NO_BUFFER);
    assert_eq!(answer_to(address, &header(200, TRY, 0, 0, 0))[..2], [0, 5]);
}

#[test]
fn answer_that_does_not_fit_is_fetched() {
    let limiter = limiter("3/minute", None);
    let mut request = header(CHECK_MANY, TRY | WAIT, 0, 0, 0);
    request.extend(9_u32.to_le_bytes());
    for at in 0..9 {
        push_request(&mut request, "k", None, Some(if at == 4 { -1 } else { 1 }));
    }
    let (number, buffer) = perform_in(limiter.address().cast_unsigned(), &request, 320);
    assert_eq!(number, TOO_LARGE);
    let kept = number_at(&buffer, 0).cast_unsigned();
    let length = u32::from_le_bytes(buffer[8..12].try_into().unwrap()) as usize;
    let answer = answer_to(kept, &header(FETCH, 0, 0, 0, 0));
    assert_eq!(answer.len(), length);
    assert_eq!(answer[..5], [3, 9, 0, 0, 0]);
    let kinds = [0, 1, 2, 3].map(|at| answer[5 + at * 89]);
    assert_eq!(kinds, [1; 4]);
    assert_eq!(answer[5 + 4 * 89], 0);
}

#[test]
fn acquire_waits_in_a_queue_and_leaves_it() {
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let limiter = limiter("1/minute fixed_window", Some(Arc::clone(&clock)));
    let address = limiter.address().cast_unsigned();
    let mut open = header(OPEN_QUEUE, 0, 0, 0, 0);
    open.extend((-1_i64).to_le_bytes());
    let queue = number_at(&answer_to(0, &open), 0).cast_unsigned();
    check(&limiter, None, None);
    for tag in [7, 8] {
        let mut acquire = header(ACQUIRE, TRY | SUBMIT, queue, tag, 3_600_000_000);
        push_request(&mut acquire, "key", None, None);
        assert_eq!(perform_in(address, &acquire, 256).0, PENDING);
    }
    let take = |timeout_us| answer_to(queue, &header(TAKE, 0, 0, 0, timeout_us));
    assert_eq!(take(1), [0; 4]);
    assert_eq!(answer_to(queue, &header(CANCEL, 0, 0, 7, 0)), [1]);
    assert_eq!(answer_to(queue, &header(CANCEL, 0, 0, 7, 0)), [0]);
    clock.advance(Span::of_us(60_000_000)).unwrap();
    let taken = take(30_000_000);
    assert_eq!((taken[0], number_at(&taken, 4), taken[12], taken[13]), (1, 8, 1, 1));
    assert_eq!(take(1), [0; 4]);
    assert!(answer_to(queue, &header(STOP_WAITING, 0, 0, 0, 0)).is_empty());
    assert_eq!(take(i64::MAX), [0; 4]);
    assert!(answer_to(queue, &header(CLOSE_QUEUE, 0, 0, 0, 0)).is_empty());
}

/// The facts of a request from this address, without a key.
fn facts(guard: &Guard, peer: &str) -> Vec<u8> {
    let mut facts = guard.address().to_le_bytes().to_vec();
    facts.extend([0; 9]);
    push(&mut facts, None);
    push(&mut facts, Some(peer.as_bytes()));
    push(&mut facts, None);
    facts.extend([0; 4 + 4 + 1 + 4]);
    push(&mut facts, None);
    facts.extend([0; 4]);
    facts
}

#[test]
fn guard_restores_the_check_around_another_one() {
    let limiter = limiter("2/hour", None);
    let guard = limiter.guard(GuardOptions { cost: Some(2), ..GuardOptions::default() }).unwrap();
    let inner = limiter
        .guard(GuardOptions { policies: Some(vec!["0/hour".to_owned()]), ..GuardOptions::default() })
        .unwrap();
    let decide = |facts: &[u8], outer: &[u8]| {
        let mut request = header(32, TRY | WAIT, 0, 0, 0);
        request.extend(facts);
        request.extend(outer);
        answer_to(0, &request)
    };
    let known = facts(&guard, "192.0.2.1");
    let admitted = decide(&known, &[0]);
    // The check is no object.
    assert_eq!(
        (admitted[..2].to_vec(), number_at(&admitted, 2), number_at(&admitted, 10)),
        (vec![16, 0], 0, 0)
    );
    let decisions = &admitted[18..18 + 4 + 48 + 40];
    let left = || number_at(&decide(&facts(&guard, "192.0.2.2"), &[0]), 26);
    assert_eq!(left(), 0);
    let outer = [&[2], &*known, decisions].concat();
    let denied = decide(&facts(&inner, "192.0.2.1"), &outer);
    assert_eq!(denied[..2], [16, 1]);
    let kept = [2, 10].map(|at| number_at(&denied, at).cast_unsigned());
    assert!(kept.iter().all(|address| *address != 0));
    // The denial has refunded what the outer guard has spent.
    assert_eq!(decide(&known, &[0])[1], 0);
    for check in kept {
        assert!(answer_to(check, &header(37, 0, 0, 0, 0)).is_empty());
    }
    let mut finish = header(35, TRY | WAIT, 0, 0, 0);
    finish.push(0);
    finish.extend(&known);
    finish.extend(decisions);
    assert_eq!(answer_to(0, &finish)[0], 17);
    assert_eq!(decide(&known, &[0])[1], 0);
}

#[test]
fn decision_of_the_caller_has_fields_and_a_problem() {
    let quotas = "2/minute";
    let limiter = limiter(quotas, None);
    let ask = |operation: u8, cost: i64, more: &dyn Fn(&mut Vec<u8>)| {
        let mut request = header(operation, TRY, 0, 0, 0);
        request.extend(1_u32.to_le_bytes());
        push(&mut request, Some(b"api"));
        push(&mut request, Some(quotas.as_bytes()));
        request.extend(&check(&limiter, None, Some(cost))[1..]);
        more(&mut request);
        answer_to(0, &request)
    };
    let fields = ask(48, 1, &|request| {
        push(request, Some(b"legacy x-ratelimit-reset="));
    });
    let mut expected = vec![18, 2, 0, 0, 0];
    for text in ["x-ratelimit-limit", "2", "x-ratelimit-remaining", "1"] {
        push(&mut expected, Some(text.as_bytes()));
    }
    assert_eq!(fields, expected);
    let problem = |cost| {
        ask(49, cost, &|request| {
            request.push(1);
            request.extend(cost.to_le_bytes());
            push(request, None);
        })
    };
    assert_eq!(problem(1), [19, 0, 0, 0, 0]);
    assert_eq!(problem(2)[..9], [19, 1, 0, 0, 0, 173, 1, 0, 0]);
}

#[test]
fn denials_that_differ_in_nothing_are_the_same_bytes() {
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let limiter = limiter("0/hour", Some(clock));
    let guard = limiter.guard(GuardOptions::default()).unwrap();
    let decide = || {
        let mut request = header(32, TRY | WAIT, 0, 0, 0);
        request.extend(facts(&guard, "192.0.2.1"));
        request.push(0);
        answer_to(0, &request)
    };
    let first = decide();
    assert_eq!(first[..2], [16, 1]);
    for _ in 0..64 {
        assert_eq!(decide(), first);
    }
}

/// The handle, the id and the first bytes of the decision in the answer to a reserve.
fn reserved(answer: &[u8]) -> (u64, Vec<u8>, u8) {
    assert_eq!(answer[0], 6, "{answer:?}");
    let length = u32::from_le_bytes(answer[9..13].try_into().unwrap()) as usize;
    (number_at(answer, 1).cast_unsigned(), answer[13..13 + length].to_vec(), answer[13 + length])
}

fn reserve_request(waits: u8, queue: u64, tag: u64, id: Option<&[u8]>, flags: u8) -> Vec<u8> {
    let mut request = header(12, waits, queue, tag, 0);
    push_request(&mut request, "key", None, Some(10));
    push(&mut request, id);
    request.push(flags);
    request.extend([0; 16]);
    request
}

fn end_request(operation: u8, spent: Option<i64>, handle: u64, id: &[u8]) -> Vec<u8> {
    let mut request = header(operation, TRY | WAIT, 0, 0, 0);
    push_request(&mut request, "key", None, spent);
    request.extend(handle.to_le_bytes());
    push(&mut request, Some(id));
    request
}

fn remaining(limiter: &Limiter) -> i64 {
    let mut peek = header(2, TRY | WAIT, 0, 0, 0);
    push_request(&mut peek, "key", None, None);
    number_at(&answer_to(limiter.address().cast_unsigned(), &peek), 5)
}

#[test]
fn released_handle_ends_its_reservation() {
    let limiter = limiter("1 concurrent; 100/hour", None);
    let address = limiter.address().cast_unsigned();
    // The last one commits at its end.
    for (flags, left) in [(0, 100), (4, 90)] {
        let (handle, id, decision) = reserved(&answer_to(address, &reserve_request(TRY, 0, 0, None, flags)));
        assert_eq!((id.len(), decision), (32, 1));
        let denied = reserved(&answer_to(address, &reserve_request(TRY, 0, 0, Some(b"other"), 0)));
        assert_eq!(denied, (0, b"other".to_vec(), 0));
        assert_eq!(answer_to(handle, &header(18, TRY, 0, 0, 0)), [0]);
        assert!(answer_to(handle, &header(17, TRY, 0, 0, 0)).is_empty());
        assert_eq!(remaining(&limiter), left);
    }
}

#[test]
fn commit_through_a_handle_leaves_it_nothing_to_end() {
    let limiter = limiter("1 concurrent; 100/hour", None);
    let address = limiter.address().cast_unsigned();
    let (handle, id, _) = reserved(&answer_to(address, &reserve_request(TRY, 0, 0, None, 4)));
    let refused = answer_to(address, &end_request(13, Some(-1), handle, &id));
    assert_eq!(refused[..2], [0, 1]);
    let found = |spent| answer_to(address, &end_request(13, Some(spent), handle, &id))[1] & 4 != 0;
    assert_eq!([found(30), found(30)], [true, false]);
    let mut end = end_request(16, None, handle, &id);
    end.push(0);
    assert_eq!(answer_to(address, &end), [4]);
    answer_to(handle, &header(17, TRY, 0, 0, 0));
    assert_eq!(remaining(&limiter), 70);
}

#[test]
fn submitted_reserve_has_a_handle() {
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let limiter = limiter("1 concurrent", Some(Arc::clone(&clock)));
    let address = limiter.address().cast_unsigned();
    let mut open = header(OPEN_QUEUE, 0, 0, 0, 0);
    open.extend((-1_i64).to_le_bytes());
    let queue = number_at(&answer_to(0, &open), 0).cast_unsigned();
    let (first, ..) = reserved(&answer_to(address, &reserve_request(TRY, 0, 0, None, 0)));
    let mut waiting = reserve_request(SUBMIT, queue, 7, None, 0);
    waiting[24..32].copy_from_slice(&3_600_000_000_i64.to_le_bytes());
    assert_eq!(perform_in(address, &waiting, 256).0, PENDING);
    assert_eq!(remaining(&limiter), 0);
    answer_to(first, &header(17, TRY, 0, 0, 0));
    let taken = answer_to(queue, &header(TAKE, 0, 0, 0, 30_000_000));
    assert_eq!((taken[0], number_at(&taken, 4)), (1, 7));
    let (second, ..) = reserved(&taken[12..]);
    assert_eq!(remaining(&limiter), 0);
    answer_to(second, &header(17, TRY, 0, 0, 0));
    assert_eq!(remaining(&limiter), 1);
    assert!(answer_to(queue, &header(CLOSE_QUEUE, 0, 0, 0, 0)).is_empty());
}

/// Options of a list: only keys with this prefix.
fn push_options(request: &mut Vec<u8>, prefix: &[u8]) {
    push(request, None);
    push(request, Some(prefix));
    push(request, None);
    request.extend([0; 4 * 9]);
}

#[test]
fn report_is_told_in_its_form() {
    let limiter = limiter("3/minute", None);
    let address = limiter.address().cast_unsigned();
    check(&limiter, None, Some(2));
    let list = |prefix: &[u8], form: u8| {
        let mut request = header(40, TRY | WAIT, 0, 0, 0);
        push_options(&mut request, prefix);
        request.push(form);
        answer_to(address, &request)
    };
    let json = list(b"k", 0);
    assert_eq!(json[0], 10);
    let page: serde_json::Value = serde_json::from_slice(&json[5..]).unwrap();
    assert_eq!((&page["keys"][0]["key"], &page["keys"][0]["quotas"][0]["used"]), (&"key".into(), &2.into()));
    let record = list(b"k", 1);
    let (filter, budget) = (polylimit::admin::KeyFilter::default(), polylimit::admin::ListBudget::default());
    let page = limiter.core().admin().list(&filter, &budget, None).unwrap();
    let told = crate::reports::record::<crate::reports::KeyPage>(&page).unwrap();
    let mut bytes = Vec::new();
    <crate::reports::KeyPage as uniffi::Lower<crate::UniFfiTag>>::write(told, &mut bytes);
    // The time until the key is forgotten passes meanwhile.
    assert_eq!((record[0], record.len()), (10, 5 + bytes.len()));
    assert!(list(b"other", 0)[5..].starts_with(br#"{"keys":[],"#));
    assert_eq!(list(b"k", 2)[..2], [0, 5]);
    let mut top = header(45, TRY, 0, 0, 0);
    top.extend(5_i64.to_le_bytes());
    assert!(answer_to(address, &top)[5..].starts_with(br#"{"denied":[],"#));
}
