//! Counts of many threads, threads that come and go, and forks.

#![expect(unsafe_code, reason = "a fork is unsafe")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use polylimit::{Limiter, Request};

use super::{count, policy};

const CHECKS: u64 = 500;

fn limiter() -> Limiter {
    let limiter = Limiter::builder().policy(policy("bucket", "1000000/s token_bucket"));
    limiter.policy(policy("two", "1000/day; 2000/week")).build().unwrap()
}

/// Checks from one thread; half of them are denied.
fn check(limiter: &Limiter, key: &str) {
    let limiter = limiter.blocking();
    for number in 0..CHECKS {
        let cost = if number % 2 == 0 { 3 } else { 2_000_000 };
        for name in ["bucket", "two"] {
            let request = Request::new(key).policy(name).cost(cost);
            assert_eq!(limiter.check(request).unwrap().allowed(), cost == 3);
        }
    }
}

fn assert_counts(limiter: &Limiter, threads: u64) {
    for name in ["bucket", "two"] {
        let made = |result| count(limiter, "decisions_total", &[name, result, "store"]);
        assert_eq!((made("allowed"), made("denied")), (threads * CHECKS / 2, threads * CHECKS / 2), "{name}");
        let units = |result| count(limiter, "units_total", &[name, result, "store"]);
        assert_eq!(units("allowed"), threads * CHECKS / 2 * 3, "{name}");
        assert_eq!(units("denied"), threads * CHECKS / 2 * 2_000_000, "{name}");
    }
    assert_eq!(count(limiter, "denials_total", &["two", "1000/day"]), threads * CHECKS / 2);
    assert_eq!(count(limiter, "denials_total", &["two", "2000/week"]), threads * CHECKS / 2);
}

#[test]
fn nothing_is_lost_of_more_threads_than_have_counts_of_their_own() {
    let limiter = limiter();
    let barrier = Barrier::new(150);
    thread::scope(|scope| {
        for number in 0..150 {
            let (limiter, barrier) = (&limiter, &barrier);
            scope.spawn(move || {
                barrier.wait();
                check(limiter, &format!("key {number}"));
                // All threads are there at a time.
                barrier.wait();
            });
        }
    });
    assert_counts(&limiter, 150);
}

#[test]
fn nothing_is_lost_of_threads_that_come_and_go() {
    let limiter = limiter();
    thread::scope(|scope| {
        for number in 0..8 {
            let limiter = &limiter;
            scope.spawn(move || {
                for round in 0..50 {
                    thread::scope(|scope| {
                        scope.spawn(move || check(limiter, &format!("key {number} {round}")));
                    });
                }
            });
        }
    });
    assert_counts(&limiter, 8 * 50);
}

/// Counts when its thread ends, after most of what belongs to the thread is gone.
struct AtTheEnd(Limiter, String);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        check(&self.0, &self.1);
    }
}

#[test]
fn a_thread_counts_until_it_has_ended() {
    thread_local! {
        static FIRST: std::cell::RefCell<Option<AtTheEnd>> = const { std::cell::RefCell::new(None) };
    }
    let limiter = limiter();
    for number in 0..20 {
        let limiter = limiter.clone();
        thread::spawn(move || {
            // Made before the thread counts, and so dropped after what it has for that.
            FIRST.set(Some(AtTheEnd(limiter.clone(), format!("last {number}"))));
            check(&limiter, &format!("first {number}"));
        })
        .join()
        .unwrap();
    }
    assert_counts(&limiter, 2 * 20);
}

#[test]
fn a_forked_child_counts_what_it_decides_itself() {
    let limiter = limiter();
    check(&limiter, "parent");
    // SAFETY: the child makes decisions, reads counts and exits.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let made = catch_unwind(AssertUnwindSafe(|| {
                assert_eq!(count(&limiter, "decisions_total", &[""]), 0);
                thread::scope(|scope| {
                    for number in 0..100 {
                        let limiter = &limiter;
                        scope.spawn(move || check(limiter, &format!("child {number}")));
                    }
                    check(&limiter, "child");
                });
                assert_counts(&limiter, 101);
                // A limiter that the child has made.
                let own = self::limiter();
                check(&own, "own");
                assert_counts(&own, 1);
            }));
            std::process::exit(i32::from(made.is_err()));
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            assert_counts(&limiter, 1);
        }
    }
}
