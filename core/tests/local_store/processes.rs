//! Processes share one quota, also when one of them is killed or suspended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polylimit::decision::{Degradation, Source};
use polylimit::metrics::DegradedEvent;
use polylimit::{Request, blocking};

use super::agreement::Random;
use super::child::{ChildProcess, QUOTA};
use super::{Store, skip, times};

const PROCESSES: usize = 8;
const LIMIT: u64 = 100;
const CONTENDED: &str = "200/second token_bucket burst=1";

#[test]
fn threads_of_eight_processes_get_exactly_the_limit() {
    let store = Store::new();
    let mut others: Vec<ChildProcess> =
        (0..PROCESSES).map(|_| ChildProcess::start("rounds", &store.url())).collect();
    for other in &mut others {
        assert_eq!(other.receive().as_deref(), Some("ready"));
    }
    for round in 0..times("POLYLIMIT_LOCAL_ROUNDS", 100) {
        for other in &mut others {
            other.send(&format!("round {round}"));
        }
        let admitted: u64 = others.iter_mut().map(ChildProcess::receive_number).sum();
        assert_eq!(admitted, LIMIT, "round {round}");
    }
}

/// Each thread of a killed process may have been admitted once without a message. The usage stays counted, and no other
/// process waits for the killed one.
#[test]
fn killed_process_holds_no_lock_and_loses_no_usage() {
    const THREADS: u64 = 8;
    let store = Store::new();
    let mut others: Vec<ChildProcess> =
        (1..PROCESSES).map(|_| ChildProcess::start("rounds", &store.url())).collect();
    for other in &mut others {
        assert_eq!(other.receive().as_deref(), Some("ready"));
    }
    let limiter = store.limiter_of_any_size(QUOTA);
    let mut random = Random(42);
    let (mut silent, mut slowest) = (0, Duration::ZERO);
    let rounds = times("POLYLIMIT_LOCAL_KILLS", 60);
    for round in 0..rounds {
        let key = format!("round {round}");
        let mut killed = ChildProcess::start("endless", &store.url());
        assert_eq!(killed.receive().as_deref(), Some("ready"));
        killed.send(&key);
        // The kill falls mostly into its admissions.
        std::thread::sleep(Duration::from_micros(random.below(300)));
        for other in &mut others {
            other.send(&key);
        }
        std::thread::sleep(Duration::from_micros(random.below(300)));
        let started = Instant::now();
        killed.kill();
        let mut admitted: u64 = others.iter_mut().map(ChildProcess::receive_number).sum();
        slowest = slowest.max(started.elapsed());
        while killed.receive().is_some() {
            admitted += 1;
        }
        assert!(admitted <= LIMIT && admitted + THREADS >= LIMIT, "round {round}: {admitted}");
        silent += LIMIT - admitted;
        assert_eq!(limiter.peek(&key).unwrap().remaining(), 0);
        assert_eq!(limiter.refund(polylimit::Request::new(&key).cost(LIMIT)).unwrap().remaining(), LIMIT);
    }
    println!("{rounds} kills, {silent} admissions without a message, slowest round {slowest:?} after a kill");
}

#[test]
fn suspended_process_with_a_lock_is_waited_for_once() {
    let store = Store::new();
    let limiter = store.limiter_of_any_size(QUOTA);
    limiter.reset("key").unwrap();
    let mut other = ChildProcess::start("endless", &store.url());
    other.receive();
    other.send("key");
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        other.signal("-STOP");
        for key in (0..200).map(|key| format!("{key}")).chain(["key".to_owned()]) {
            let decision = limiter.peek(&key).unwrap();
            if decision.degraded().is_some() {
                assert_eq!(
                    (decision.source(), decision.degraded()),
                    (Source::Fallback, Some(Degradation::Busy))
                );
                let started = Instant::now();
                for _ in 0..1_000 {
                    assert_eq!(limiter.peek(&key).unwrap().degraded(), Some(Degradation::Busy));
                }
                assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
                let events = limiter.asynchronous().raw().take_events();
                let [DegradedEvent::Started { cause: Some(cause), .. }] = &events[..] else {
                    panic!("{events:?}")
                };
                assert!(cause.contains("is it stopped?"), "{cause}");
                other.signal("-CONT");
                while limiter.peek(&key).unwrap().degraded().is_some() {
                    assert!(started.elapsed() < Duration::from_secs(60));
                }
                return;
            }
        }
        other.signal("-CONT");
    }
    skip("the process was never suspended while it held a lock");
}

/// Limiters of one runtime stand for processes whose timers expire in a fixed order: here the order is the same however busy
/// the machine is. Without a random part in what each of them waits, the first one takes every unit.
#[test]
fn limiters_whose_timers_expire_in_a_fixed_order_are_admitted_about_equally_often() {
    const WAITING: u64 = 6;
    let store = Store::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let until = Instant::now() + Duration::from_secs(4);
    let admitted = runtime.block_on(async {
        let mut acquiring = tokio::task::JoinSet::new();
        for _ in 0..WAITING {
            let limiter = store.limiter_of_any_size(CONTENDED).asynchronous().clone();
            acquiring.spawn(async move {
                let mut admitted = 0_u64;
                while Instant::now() < until {
                    let decision = limiter.acquire("contended", Duration::from_mins(1)).await.unwrap();
                    admitted += u64::from(decision.allowed());
                }
                admitted
            });
        }
        acquiring.join_all().await
    });
    println!("{admitted:?}");
    assert_fair(&admitted);
}

/// At least a third of an equal part for each.
fn assert_fair(admitted: &[u64]) {
    let (sum, least) = (admitted.iter().sum::<u64>(), admitted.iter().min().unwrap());
    assert!(sum > 0 && least * 3 >= sum / admitted.len() as u64, "{admitted:?}");
}

/// Waiting processes retry at random times, so that none of them is always first.
#[test]
fn processes_that_wait_for_one_key_are_admitted_about_equally_often() {
    const WAITING: usize = 6;
    let store = Store::new();
    let mut others: Vec<ChildProcess> =
        (0..WAITING).map(|_| ChildProcess::start("acquires", &store.url())).collect();
    for other in &mut others {
        assert_eq!(other.receive().as_deref(), Some("ready"));
    }
    for other in &mut others {
        other.send("begin");
    }
    std::thread::sleep(Duration::from_secs(4));
    for other in &mut others {
        other.send("end");
    }
    let admitted: Vec<u64> = others.iter_mut().map(ChildProcess::receive_number).collect();
    println!("{admitted:?}");
    assert_fair(&admitted);
}

/// Acquires one unit after the other until it receives `end`; sends the number of units.
pub(crate) fn acquire_repeatedly(limiter: &blocking::Limiter, send: impl Fn(&str)) {
    let request = Request::new("contended").policy(CONTENDED);
    let ended = AtomicBool::new(false);
    send("ready");
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("begin"));
    std::thread::scope(|scope| {
        let acquiring = scope.spawn(|| {
            let mut admitted = 0_u64;
            while !ended.load(Ordering::Relaxed) {
                admitted += u64::from(limiter.acquire(request, Duration::from_mins(1)).unwrap().allowed());
            }
            admitted
        });
        assert_eq!(lines.next().as_deref(), Some("end"));
        ended.store(true, Ordering::Relaxed);
        send(&acquiring.join().unwrap().to_string());
    });
}
