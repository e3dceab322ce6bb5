use super::*;
use crate::traffic::parse_traffic;

const HOUR_US: u64 = 3_600_000_000;

/// The attempts of a source whose requests are all answered alike.
fn attempts(text: &str, seed: u64, end_us: u64, verdict: Verdict) -> (Vec<Attempt>, Ends) {
    let mut clients = Clients::new(&parse_traffic(text).unwrap(), seed, end_us);
    let mut attempts = Vec::new();
    while let Some(attempt) = clients.next() {
        clients.answer(&attempt, verdict);
        attempts.push(attempt);
    }
    (attempts, clients.ends())
}

fn times(text: &str, end_us: u64, verdict: Verdict) -> Vec<u64> {
    attempts(text, 1, end_us, verdict).0.iter().map(|attempt| attempt.time_us).collect()
}

fn denied(retry_after_us: Option<u64>) -> Verdict {
    Verdict { allowed: false, shadowed: false, retry_after_us, delay_us: 0 }
}

#[test]
fn even_requests_have_equal_gaps() {
    let times = times("1 client 4/s", 10_000_000, Verdict::ADMITTED);
    assert_eq!(times.len(), 40);
    assert!(times[0] < 250_000);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 250_000));
}

#[test]
fn poisson_requests_come_at_their_rate_and_their_gaps_are_exponential() {
    let times = times("1 client 10/s poisson", HOUR_US, Verdict::ADMITTED);
    // 36,000 with a standard deviation of 190.
    assert!((35_000..37_000).contains(&times.len()), "{}", times.len());
    // Of exponential gaps, 1 - 1/e are below the mean.
    let short = times.windows(2).filter(|pair| pair[1] - pair[0] < 100_000).count();
    assert!((620..645).contains(&(short * 1000 / times.len())), "{short}");
}

#[test]
fn bursts_come_at_once_again_and_again() {
    let times = times("1 client burst=3 every=5s", 15_000_000, Verdict::ADMITTED);
    assert_eq!(times.len(), 9);
    for burst in times.chunks(3) {
        assert_eq!((burst[0], burst[0]), (burst[1], burst[2]));
    }
    assert_eq!((times[3] - times[0], times[6] - times[3]), (5_000_000, 5_000_000));
}

#[test]
fn zipf_shares_the_rate_of_the_group() {
    let (attempts, _) = attempts("100 clients 2/s zipf=1", 1, HOUR_US, Verdict::ADMITTED);
    let of = |client| attempts.iter().filter(|attempt| attempt.client == client).count();
    assert!((719_000..721_000).contains(&attempts.len()), "{}", attempts.len());
    // The first client has twice the rate of the second, and a hundred times that of the last.
    let (first, second, last) = (of(0), of(1), of(99));
    assert!(first.abs_diff(2 * second) <= 2 && first.abs_diff(100 * last) <= 100, "{first} {second} {last}");
}

#[test]
fn a_group_has_a_start_and_an_end() {
    let times = times("1 client 1/s from=10s to=20s", HOUR_US, Verdict::ADMITTED);
    assert_eq!(times.len(), 10);
    assert!(times[0] >= 10_000_000 && times[9] < 20_000_000);
}

#[test]
fn the_seed_decides_everything() {
    let text = "50 clients 2/s poisson zipf=1.1; cron: 5 clients burst=4 every=7s cost=3";
    let (first, _) = attempts(text, 7, 60_000_000, Verdict::ADMITTED);
    assert_eq!(first, attempts(text, 7, 60_000_000, Verdict::ADMITTED).0);
    assert_ne!(first, attempts(text, 8, 60_000_000, Verdict::ADMITTED).0);
    assert!(first.windows(2).all(|pair| pair[0].time_us <= pair[1].time_us));
    assert!(first.iter().all(|attempt| attempt.cost == if attempt.client < 50 { 1 } else { 3 }));
}

#[test]
fn a_hammering_client_does_not_notice_denials() {
    let text = "3 clients 2/s poisson denied=hammer";
    let times_of = |verdict| times(text, 60_000_000, verdict);
    assert_eq!(times_of(denied(Some(5_000_000))), times_of(Verdict::ADMITTED));
}

#[test]
fn a_waiting_client_repeats_exactly_then() {
    let (attempts, ends) = attempts("1 client 1/s denied=wait", 1, 10_000_000, denied(Some(3_000_000)));
    let first_us = attempts[0].time_us;
    let expected: Vec<u64> = (first_us..10_000_000).step_by(3_000_000).collect();
    assert_eq!(attempts.iter().map(|attempt| attempt.time_us).collect::<Vec<_>>(), expected);
    assert!(attempts.iter().all(|attempt| attempt.first_us == first_us));
    assert!(!attempts[0].is_repeated && attempts[1].is_repeated);
    assert_eq!(ends, Ends { unfinished: 1, ..Ends::default() });
}

#[test]
fn what_no_wait_would_help_is_given_up() {
    let (attempts, ends) = attempts("1 client 1/s denied=wait", 1, 10_000_000, denied(None));
    assert_eq!((attempts.len(), ends.given_up), (10, 10));
}

#[test]
fn a_retrying_client_does_not_look_at_the_decision() {
    let times = times("1 client 1/s denied=retry=100ms", 2_000_000, denied(Some(60_000_000)));
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 100_000) && times.len() > 10);
}

#[test]
fn a_client_leaves() {
    let (attempts, ends) = attempts("5 clients 1/s denied=leave", 1, HOUR_US, denied(Some(1)));
    assert_eq!((attempts.len(), ends.left), (5, 5));
}

#[test]
fn what_follows_an_admitted_repetition_comes_later() {
    let groups = parse_traffic("1 client 1/s denied=wait").unwrap();
    let mut clients = Clients::new(&groups, 1, HOUR_US);
    let first = clients.next().unwrap();
    clients.answer(&first, denied(Some(2_500_000)));
    let second = clients.next().unwrap();
    clients.answer(&second, Verdict::ADMITTED);
    let third = clients.next().unwrap();
    assert_eq!(third.time_us - first.time_us, 3_500_000);
    assert!(!third.is_repeated && third.first_us == third.time_us);
}
