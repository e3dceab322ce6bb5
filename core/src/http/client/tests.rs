use crate::http::client::*;

const SECOND: Duration = Duration::from_secs(1);
const NO_FIELDS: [(&str, &str); 0] = [];

fn throttle(max_wait: Duration) -> Throttle {
    let backoff = Backoff::builder().base(SECOND / 10).max_retries(2).max_wait(max_wait).build().unwrap();
    Throttle::new(backoff)
}

fn get(throttle: &Throttle) -> Attempts {
    throttle.start(b"host", "GET", true, None).unwrap()
}

/// The wait of the next step; zero if the request may continue.
fn wait(attempts: &mut Attempts) -> Duration {
    match attempts.step() {
        Step::Wait(wait) => wait,
        _ => Duration::ZERO,
    }
}

fn admit(attempts: &mut Attempts) {
    assert!(matches!(attempts.step(), Step::Acquire(_)));
    attempts.acquired(true, None);
    assert_eq!(attempts.step(), Step::Send);
}

#[test]
fn a_request_is_acquired_then_sent_and_its_response_returned() {
    let throttle = throttle(60 * SECOND);
    let mut attempts = throttle.start(b"host", "GET", true, Some(5 * SECOND)).unwrap();
    let Step::Acquire(timeout) = attempts.step() else { panic!() };
    assert!(timeout <= 5 * SECOND && !timeout.is_zero());
    attempts.acquired(true, None);
    assert_eq!(attempts.step(), Step::Send);
    assert!(!attempts.responded(200, [("retry-after", "30")]));
    // Retry-After of a success asks for no pause.
    admit(&mut get(&throttle));
}

#[test]
fn a_wait_of_the_server_holds_back_the_key_and_the_retry() {
    let throttle = throttle(60 * SECOND);
    let mut first = get(&throttle);
    admit(&mut first);
    assert!(first.responded(429, [("retry-after", "30")]));
    // The retry has its jitter, other requests of the key wait until the pause is over, other keys do not wait.
    let retry = wait(&mut first);
    assert!(retry > 15 * SECOND && retry <= 30 * SECOND + SECOND / 10, "{retry:?}");
    let other = wait(&mut get(&throttle));
    assert!(other > 15 * SECOND && other <= 30 * SECOND, "{other:?}");
    admit(&mut throttle.start(b"other", "GET", true, None).unwrap());
    // A shorter pause does not replace it.
    let mut second = throttle.start(b"host", "POST", false, None).unwrap();
    assert!(!second.responded(429, [("retry-after", "1")]));
    assert!(wait(&mut get(&throttle)) > 15 * SECOND);
}

#[test]
fn a_pause_that_begins_while_a_request_queues_holds_it_back() {
    let throttle = throttle(60 * SECOND);
    let mut queued = get(&throttle);
    assert!(matches!(queued.step(), Step::Acquire(_)));
    assert!(get(&throttle).responded(503, [("retry-after", "30")]));
    queued.acquired(true, None);
    assert!(wait(&mut queued) > 15 * SECOND);
    // When it is over, the request does not acquire again.
    assert_eq!(queued.step_at(monotonic::now() + 31 * SECOND), Step::Send);
}

#[test]
fn fields_with_nothing_left_pause_the_key_after_any_status() {
    let throttle = throttle(60 * SECOND);
    assert!(
        !get(&throttle).responded(200, [("ratelimit", r#""a";r=0;t=30"#), ("ratelimit", r#""b";r=1;t=50"#)])
    );
    let pause = wait(&mut get(&throttle));
    assert!(pause > 15 * SECOND && pause <= 30 * SECOND, "{pause:?}");
    assert!(!get(&throttle).responded(404, [("ratelimit", r#""a";r=5;t=3600"#)]));
    assert!(wait(&mut get(&throttle)) <= 30 * SECOND);
}

#[test]
fn retry_after_of_an_error_pauses_the_key() {
    let throttle = throttle(60 * SECOND);
    for status in [100_u16, 200, 304, 399, 400, 403, 413, 502, 599] {
        let start = || throttle.start(&status.to_be_bytes(), "POST", false, None).unwrap();
        assert!(!start().responded(status, [("retry-after-ms", "30000")]), "{status}");
        assert_eq!(wait(&mut start()) > 15 * SECOND, status >= 400, "{status}");
    }
}

#[test]
fn a_response_is_retried_when_body_method_bound_and_deadline_allow_it() {
    let throttle = throttle(60 * SECOND);
    let retried = |method, replayable, status, retry_after: &'static [u8]| {
        let key = format!("{method} {replayable} {status}");
        let mut attempts = throttle.start(key.as_bytes(), method, replayable, Some(50 * SECOND)).unwrap();
        attempts.responded(status, [("Retry-After", retry_after)])
    };
    assert!(retried("GET", true, 429, b"25") && retried("GET", true, 503, b"25"));
    assert!(!retried("GET", true, 429, b"51"));
    assert!(!retried("GET", false, 429, b"1"));
    assert!(retried("POST", true, 429, b"1") && !retried("POST", true, 503, b"1"));
    assert!(retried("PUT", true, 503, b"1") && !retried("PUT", false, 503, b"1"));
    // Refused without a look at the body, as 429 is.
    assert!(retried("POST", true, 403, b"1") && !retried("POST", true, 403, b"soon"));
    for status in [200, 301, 404, 500, 502, 504] {
        assert!(!retried("GET", true, status, b"1"), "{status}");
    }
    // Without a time the backoff alone decides, and its retries are counted.
    let mut attempts = throttle.start(b"no time", "GET", true, None).unwrap();
    for ceiling in [SECOND / 10, SECOND / 5] {
        assert!(attempts.responded(429, NO_FIELDS));
        assert!(wait(&mut attempts) <= ceiling + Duration::from_micros(1));
    }
    assert!(!attempts.responded(429, NO_FIELDS));
    admit(&mut throttle.start(b"no time", "GET", true, None).unwrap());
}

#[test]
fn jitter_is_cut_at_the_deadline_and_no_retry_begins_after_it() {
    let throttle = throttle(2 * SECOND);
    let mut attempts = get(&throttle);
    let now = monotonic::now();
    let left = attempts.deadline - now;
    assert!(attempts.backs_off(Some(left), now, u64::MAX));
    assert_eq!(attempts.not_before, Some(attempts.deadline));
    assert!(!attempts.backs_off(None, attempts.deadline, 0));
    assert!(!attempts.backs_off(Some(3 * SECOND), now, 0));
}

#[test]
fn a_pause_beyond_the_deadline_refuses_at_once() {
    let throttle = throttle(5 * SECOND);
    assert!(!get(&throttle).responded(429, [("retry-after", "30")]));
    let mut attempts = get(&throttle);
    let Step::Refuse(refusal) = attempts.step() else { panic!() };
    assert!(refusal.retry_after().unwrap() > 15 * SECOND);
    let (before, after) = refusal.message().split_once(": ").unwrap();
    assert_eq!(before, "the server asked for a wait of 30 s with status 429");
    assert!(
        after.contains("this request may wait") && after.ends_with("raise them or come back later"),
        "{after}"
    );
    // The attempts are over.
    assert_eq!(attempts.step_at(monotonic::now() + 60 * SECOND), Step::Refuse(refusal));
}

#[test]
fn a_denial_of_the_limiter_refuses() {
    let mut attempts = get(&throttle(5 * SECOND));
    attempts.acquired(false, Some(Duration::from_micros(12_000_001)));
    let Step::Refuse(refusal) = attempts.step() else { panic!() };
    let message = refusal.to_string();
    assert!(
        message.starts_with("the client's limiter asks for a wait of 12.001 s, and this request may"),
        "{message}"
    );
    let mut attempts = get(&throttle(5 * SECOND));
    attempts.acquired(false, None);
    let Step::Refuse(refusal) = attempts.step() else { panic!() };
    assert_eq!(refusal.retry_after(), None);
    assert!(refusal.message().contains("never admits"));
}

#[test]
fn pauses_of_any_length_and_number_are_bounded() {
    let throttle = throttle(5 * SECOND);
    for value in [&b"18446744073709551616"[..], b"99999999999", b"soon", b"\xff", b""] {
        assert!(!get(&throttle).responded(429, [("retry-after", value)]) || value.len() <= 4);
    }
    for key in 0..2 * MAX_PAUSES {
        let mut attempts = throttle.start(&key.to_le_bytes(), "GET", true, None).unwrap();
        attempts.responded(429, [("retry-after", if key == 0 { "9000" } else { "60" })]);
    }
    let pauses = throttle.shared.pauses.lock();
    assert_eq!(pauses.len(), MAX_PAUSES);
    // The longest ones are kept.
    assert!(pauses.contains_key(&b"host"[..]) && pauses.contains_key(&0_usize.to_le_bytes()[..]));
}

#[test]
fn neither_errors_nor_debug_show_a_key() {
    let throttle = throttle(SECOND);
    let mut attempts = throttle.start(b"secret", "GET", true, None).unwrap();
    attempts.responded(429, [("retry-after", "30")]);
    let shown = format!(
        "{throttle:?} {attempts:?} {:?}",
        throttle.start(b"secret", "GET", true, None).unwrap().step()
    );
    assert!(shown.contains("Refuse") && !shown.contains("secret"), "{shown}");
    let long = vec![b'x'; Request::MAX_KEY_LENGTH + 1];
    assert_eq!(
        throttle.start(&long, "GET", true, None).unwrap_err().kind(),
        crate::ErrorKind::InvalidArgument
    );
}
