//! A limiter that is closed answers nothing any more and gives back what it held, also while it is still referenced.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polylimit::{Call, Completions, ErrorKind, Limiter, Policy, Request};

/// What an allocator keeps, and a busy machine's noise.
const SPARE_KIB: usize = 16 << 10;
const LONG: Duration = Duration::from_secs(600);

/// What this process holds is counted by one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn limiter(url: &str) -> Limiter {
    Limiter::builder().store(url).policy(Policy::parse("api", "1/hour").unwrap()).build().unwrap()
}

/// A server that takes connections and never answers.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}?deadline=60s", listener.local_addr().unwrap());
    (listener, url)
}

#[derive(Debug)]
struct Held {
    threads: usize,
    descriptors: usize,
    kib: usize,
}

impl Held {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        Self { threads: number("Threads:"), descriptors, kib: number("VmRSS:") }
    }

    /// Apart from what a few other tests have meanwhile, which begin and wait for this one.
    fn is_no_more_than(&self, before: &Self) -> bool {
        self.threads <= before.threads + 5 && self.descriptors <= before.descriptors + 5
    }

    fn assert_no_more_than(&self, before: &Self) {
        assert!(self.is_no_more_than(before), "{before:?} {self:?}");
        assert!(self.kib <= before.kib + SPARE_KIB, "{before:?} {self:?}");
    }
}

#[test]
fn every_operation_of_every_store_fails() {
    let _alone = alone();
    let local = format!("local:closing-{}", std::process::id());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_listener, redis) = silent();
    for url in ["memory:", &local, &redis] {
        let limiter = limiter(url);
        limiter.close();
        limiter.close();
        let blocking = limiter.blocking();
        let key = Request::new("user");
        let closed = |error: polylimit::Error| assert_eq!(error.kind(), ErrorKind::Closed, "{url}: {error}");
        for call in [
            Call::Check(key),
            Call::Peek(key),
            Call::Take(key),
            Call::Charge(key),
            Call::Refund(key),
            Call::Reset(key),
            Call::CheckTogether(&[key]),
            Call::Acquire(key, LONG),
            Call::Ready(LONG),
            Call::Doctor,
        ] {
            closed(blocking.call(&call).unwrap_err());
            closed(runtime.block_on(limiter.call(&call)).unwrap_err());
            closed(futures_util::FutureExt::now_or_never(limiter.start(&call)).unwrap().unwrap_err());
        }
        closed(blocking.check_many([key]).remove(0).unwrap_err());
        closed(limiter.set_credentials(None, "word").unwrap_err());
        closed(limiter.set_policy(Policy::parse("other", "1/m").unwrap()).unwrap_err());
        closed(limiter.policy_for(None, None).unwrap_err());
        assert_eq!(limiter.keys(), None, "{url}");
    }
    let name = local.strip_prefix("local:").unwrap();
    for entry in std::fs::read_dir("/dev/shm").unwrap().flatten() {
        if entry.file_name().to_string_lossy().contains(name) {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[test]
fn what_waits_is_told_at_once() {
    let _alone = alone();
    let (_listener, redis) = silent();
    for url in ["memory:", &redis] {
        let limiter = limiter(url);
        let key = Request::new("user");
        if url == "memory:" {
            assert!(limiter.blocking().check(key).unwrap().allowed());
        }
        let calls = match url {
            "memory:" => vec![Call::Acquire(key, 100 * LONG)],
            _ => vec![Call::Check(key), Call::Acquire(key, LONG), Call::Ready(LONG), Call::Doctor],
        };
        let (wake, woken) = channel();
        let completions = Completions::new(move || _ = wake.send(()));
        for (tag, call) in calls.iter().enumerate() {
            assert!(completions.submit(&limiter, call, tag).is_none());
        }
        let began = std::thread::scope(|scope| {
            let blocking = limiter.blocking();
            let threads: Vec<_> = calls
                .iter()
                .map(|call| {
                    let (limiter, blocking) = (limiter.clone(), blocking.clone());
                    let waits = scope.spawn(move || blocking.call(call).unwrap_err().kind());
                    let polls = scope.spawn(move || {
                        let runtime =
                            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                        runtime.block_on(limiter.call(call)).unwrap_err().kind()
                    });
                    [waits, polls]
                })
                .collect();
            std::thread::sleep(Duration::from_millis(300));
            let began = Instant::now();
            limiter.close();
            for thread in threads.into_iter().flatten() {
                assert_eq!(thread.join().unwrap(), ErrorKind::Closed, "{url}");
            }
            began
        });
        let mut answered = 0;
        while answered < calls.len() {
            woken.recv_timeout(Duration::from_secs(20)).unwrap();
            completions.drain(|_, answer| {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed, "{url}");
                answered += 1;
            });
        }
        // Far from its deadline and its timeouts.
        assert!(began.elapsed() < Duration::from_secs(20), "{url}: {:?}", began.elapsed());
    }
}

#[test]
fn ten_thousand_limiters_leave_nothing_behind() {
    let _alone = alone();
    let churn = |count| {
        for _ in 0..count {
            let limiter = limiter("memory:");
            assert!(limiter.blocking().check("user").unwrap().allowed());
            limiter.close();
        }
    };
    churn(100);
    let before = Held::now();
    churn(10_000);
    Held::now().assert_no_more_than(&before);
}

#[test]
fn a_closed_limiter_that_is_referenced_holds_no_states() {
    let _alone = alone();
    let before = Held::now();
    let closed: Vec<_> = (0..40)
        .map(|_| {
            let limiter = limiter("memory:");
            let blocking = limiter.blocking();
            for key in 0..10_000_u32 {
                assert!(blocking.check(&key.to_le_bytes()[..]).unwrap().allowed());
            }
            limiter.close();
            limiter
        })
        .collect();
    // Each has held about a megabyte.
    Held::now().assert_no_more_than(&before);
    drop(closed);
}

#[test]
fn threads_and_descriptors_of_limiters_that_wait_are_given_back() {
    let _alone = alone();
    let before = Held::now();
    let (listener, redis) = silent();
    let mut closed = Vec::new();
    for url in ["memory:", &redis] {
        for _ in 0..50 {
            let limiter = limiter(url);
            if url == "memory:" {
                assert!(limiter.blocking().check("user").unwrap().allowed());
            }
            let completions = Completions::new(|| {});
            let acquire = Call::Acquire(Request::new("user"), 100 * LONG);
            assert!(completions.submit(&limiter, &acquire, ()).is_none());
            assert!(completions.hold(&limiter, &Call::Ready(LONG), ()).is_none() || url == "memory:");
            completions.start_held();
            limiter.close();
            completions.drain(|(), _| {});
            closed.push(limiter);
        }
    }
    drop(listener);
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let after = Held::now();
        if after.is_no_more_than(&before) {
            break;
        }
        assert!(Instant::now() < until, "{before:?} {after:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
