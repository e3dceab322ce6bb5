//! `close`: ends all calls, and releases threads, descriptors and memory although the limiter is still referenced. And
//! calls of a process that may open no descriptors.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use polylimit::admin::{KeyFilter, ListBudget, PublishOptions};
use polylimit::clock::ManualClock;
use polylimit::document::RequestAttributes;
use polylimit::raw::{Answer, Call, Completions};
use polylimit::reservation::ReserveOptions;
use polylimit::storage::Outage;
use polylimit::{ErrorKind, Limiter, Policy, Request};
use polylimit_test_servers::{Kind, Server};

/// Memory that the allocator may retain.
const RETAINED_KIB: usize = 16 << 10;
const LONG: Duration = Duration::from_secs(600);

/// One test at a time counts the resources of the process.
fn exclusive() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn limiter(url: &str) -> Limiter {
    Limiter::builder().store(url).policy(Policy::parse("api", "1/hour").unwrap()).build().unwrap()
}

/// A server that accepts connections and never replies.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}?deadline=60s", listener.local_addr().unwrap());
    (listener, url)
}

#[derive(Debug)]
struct Resources {
    threads: usize,
    descriptors: usize,
    kib: usize,
}

impl Resources {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        Self { threads: number("Threads:"), descriptors, kib: number("VmRSS:") }
    }

    /// Allows for a few threads and descriptors of other tests, which have started and wait for this one.
    fn is_no_more_than(&self, before: &Self) -> bool {
        self.threads <= before.threads + 5 && self.descriptors <= before.descriptors + 5
    }

    fn assert_no_more_than(&self, before: &Self) {
        assert!(self.is_no_more_than(before), "{before:?} {self:?}");
        assert!(self.kib <= before.kib + RETAINED_KIB, "{before:?} {self:?}");
    }
}

/// Asserts what a call on a closed limiter is answered, on every way to make it.
fn assert_closed(limiter: &Limiter, call: &Call<'_>, runtime: &tokio::runtime::Runtime) {
    let (blocking, completions) = (limiter.blocking(), Completions::new(|| ()));
    let drained = || {
        let mut answers = Vec::new();
        completions.drain(|(), answer| answers.push(answer));
        answers.pop().unwrap()
    };
    let answers = [
        ("call", blocking.raw().call(call)),
        ("call the store", blocking.raw().call_store(call)),
        ("await", runtime.block_on(limiter.raw().call(call))),
        ("await the store", runtime.block_on(limiter.raw().call_store(call))),
        ("start", futures_util::FutureExt::now_or_never(limiter.start(call)).unwrap()),
        ("try", limiter.raw().try_call(call).unwrap()),
        ("submit", completions.submit(limiter, call, ()).unwrap_or_else(drained)),
    ];
    for (way, answer) in answers {
        let results = match (answer, call) {
            // Each request has its own result.
            (Ok(Answer::Decisions(each)), Call::CheckMany(requests)) => {
                assert_eq!(each.len(), requests.len(), "{way}");
                each.into_iter().map(|decided| decided.map(|_| ())).collect()
            }
            // Completions expect that closing fails a call that they start.
            (answer, Call::CheckMany(_)) if way != "submit" => panic!("{way}: {answer:?}"),
            (answer, _) => vec![answer.map(|_| ())],
        };
        for result in results {
            let kind = result.map_err(|error| error.kind());
            assert_eq!(kind, Err(ErrorKind::Closed), "{limiter:?} {call:?} {way}");
        }
    }
}

#[test]
fn every_operation_on_a_closed_limiter_fails_with_closed() {
    let _exclusive = exclusive();
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
        let terms = ReserveOptions::default().terms().unwrap();
        let in_line = ReserveOptions::default().timeout(LONG).terms().unwrap();
        let attributes = RequestAttributes::new().path("/");
        let requests = [key, Request::new("user").policy("5/hour"), Request::new("user").policy("unknown")];
        let (filter, budget) = (KeyFilter::default(), ListBudget::default());
        let mut calls = vec![
            Call::CheckMany(&requests),
            Call::CheckMany(&[]),
            Call::CheckTogether(&requests),
            Call::Decide(&attributes, terms),
            Call::SetEntry("entry", "value"),
            Call::DeleteEntry("entry"),
            Call::Publish("{}", PublishOptions::default()),
            Call::WaitForVersion(1, LONG),
            Call::List(filter, budget, None),
            Call::ScanTop(filter, 1, budget),
            Call::ResetListed(filter, budget, None),
            Call::ExplainRequest(&attributes),
            Call::Ready(LONG),
            Call::Doctor,
        ];
        for request in requests {
            calls.extend([
                Call::Check(request),
                Call::Peek(request),
                Call::Take(request),
                Call::Charge(request),
                Call::Refund(request),
                Call::Reset(request),
                Call::Reserve(request, terms),
                Call::Reserve(request, in_line),
                Call::Commit(request, terms.id, None),
                Call::Cancel(request, terms.id),
                Call::Renew(request, terms.id, LONG),
                Call::Block(request, LONG),
                Call::Acquire(request, LONG),
                Call::Explain(request),
            ]);
        }
        for call in calls {
            assert_closed(&limiter, &call, &runtime);
        }
        for decided in
            blocking.check_many(requests).into_iter().chain(runtime.block_on(limiter.check_many(requests)))
        {
            closed(decided.unwrap_err());
        }
        closed(blocking.check_together(&requests).unwrap_err());
        closed(blocking.reserve(key, ReserveOptions::default()).unwrap_err());
        closed(blocking.admin().fleet().unwrap_err());
        closed(blocking.admin().rollback(1, PublishOptions::default()).unwrap_err());
        closed(blocking.admin().configuration_history(1).unwrap_err());
        closed(limiter.admin().set_document("{}").unwrap_err());
        closed(limiter.admin().matching(&attributes).unwrap_err());
        closed(limiter.admin().set_credentials(None, "word").unwrap_err());
        closed(limiter.set_policy(Policy::parse("other", "1/m").unwrap()).unwrap_err());
        for scope in [None, Some("/login")] {
            for policy in [None, Some("api"), Some("5/hour"), Some("unknown")] {
                closed(limiter.policy_for(policy, scope).unwrap_err());
            }
        }
        closed(limiter.raw().policy_in_request(Some("5/hour")).unwrap_err());
        assert_eq!(limiter.admin().keys(), None, "{url}");
    }
    let name = local.strip_prefix("local:").unwrap();
    for entry in std::fs::read_dir("/dev/shm").unwrap().flatten() {
        if entry.file_name().to_string_lossy().contains(name) {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[test]
fn close_ends_waiting_calls_at_once() {
    let _exclusive = exclusive();
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
        let start = std::thread::scope(|scope| {
            let blocking = limiter.blocking();
            let threads: Vec<_> = calls
                .iter()
                .map(|call| {
                    let (limiter, blocking) = (limiter.clone(), blocking.clone());
                    let waits = scope.spawn(move || blocking.raw().call(call).unwrap_err().kind());
                    let polls = scope.spawn(move || {
                        let runtime =
                            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                        runtime.block_on(limiter.raw().call(call)).unwrap_err().kind()
                    });
                    [waits, polls]
                })
                .collect();
            std::thread::sleep(Duration::from_millis(300));
            let start = Instant::now();
            limiter.close();
            for thread in threads.into_iter().flatten() {
                assert_eq!(thread.join().unwrap(), ErrorKind::Closed, "{url}");
            }
            start
        });
        let mut answered = 0;
        while answered < calls.len() {
            woken.recv_timeout(Duration::from_secs(20)).unwrap();
            completions.drain(|_, answer| {
                assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed, "{url}");
                answered += 1;
            });
        }
        // Far below the deadline and the timeouts of the calls.
        assert!(start.elapsed() < Duration::from_secs(20), "{url}: {:?}", start.elapsed());
    }
}

#[test]
fn ten_thousand_closed_limiters_leave_no_resources() {
    let _exclusive = exclusive();
    let churn = |count| {
        for _ in 0..count {
            let limiter = limiter("memory:");
            assert!(limiter.blocking().check("user").unwrap().allowed());
            limiter.close();
        }
    };
    churn(100);
    let before = Resources::now();
    churn(10_000);
    Resources::now().assert_no_more_than(&before);
}

#[test]
fn closed_limiter_that_is_referenced_holds_no_states() {
    let _exclusive = exclusive();
    let before = Resources::now();
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
    Resources::now().assert_no_more_than(&before);
    drop(closed);
}

#[test]
fn close_releases_threads_and_descriptors_of_waiting_calls() {
    let _exclusive = exclusive();
    let before = Resources::now();
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
            assert!(completions.defer(&limiter, &Call::Ready(LONG), ()).is_none() || url == "memory:");
            completions.flush();
            limiter.close();
            completions.drain(|(), _| {});
            closed.push(limiter);
        }
    }
    drop(listener);
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let after = Resources::now();
        if after.is_no_more_than(&before) {
            break;
        }
        assert!(Instant::now() < until, "{before:?} {after:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// From now on this process may open no further descriptors, or as many as it ever might.
fn allow_descriptors(any: bool) {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, if any { most } else { 0 }, most).unwrap();
}

#[test]
fn calls_decide_and_wait_while_the_process_may_open_no_descriptor() {
    let _exclusive = exclusive();
    let (_listener, redis) = silent();
    let (key, clock) = (Request::new("user"), ManualClock::new(0).unwrap());
    let limiters = ["memory:", &redis].map(|url| {
        let policy = Policy::parse("api", "1/minute fixed_window").unwrap();
        let builder = Limiter::builder().store(url).policy(policy).clock(clock.clone());
        builder.outage("api", Outage::Fallback).build().unwrap().blocking()
    });
    let is_allowed = |answer: Result<Answer, polylimit::Error>| {
        let Ok(Answer::Decision(decision)) = answer else { panic!("{answer:?}") };
        decision.allowed()
    };
    let every = Duration::from_millis(1);
    allow_descriptors(false);
    for limiter in limiters {
        let (raw, acquire) = (limiter.raw(), Call::Acquire(key, LONG));
        assert!(is_allowed(raw.call_store(&Call::Check(key))));
        assert!(!is_allowed(raw.call_until(&Call::Check(key), every, || panic!("it waits")).unwrap()));
        // What has to wait is asked whether to stop, and leaves the queue or waits until it is admitted.
        assert_eq!(raw.call_until(&acquire, every, || true), None);
        let mut asked = 0;
        let waited = raw.call_until(&acquire, every, || {
            asked += 1;
            clock.advance(Duration::from_secs(20)).unwrap();
            false
        });
        assert!(is_allowed(waited.unwrap()) && asked >= 3);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| is_allowed(raw.call_store(&acquire)));
            while !waiting.is_finished() {
                clock.advance(Duration::from_secs(1)).unwrap();
                std::thread::sleep(every);
            }
            assert!(waiting.join().unwrap());
        });
    }
    allow_descriptors(true);
}

#[test]
fn call_on_a_thread_of_a_runtime_waits_without_asking_whether_to_stop() {
    let limiter = limiter("memory:").blocking();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let acquire = Call::Acquire(Request::new("user"), Duration::ZERO);
    for expected in [true, false] {
        let answer = runtime.block_on(async {
            limiter.raw().call_until(&acquire, Duration::ZERO, || panic!("it is asked")).unwrap()
        });
        assert!(matches!(answer, Ok(Answer::Decision(decided)) if decided.allowed() == expected));
    }
}

/// A child that a program forks, as servers do for their workers, has a copy of the limiter, and the connections are the parent's.
#[test]
#[expect(unsafe_code, reason = "a fork is unsafe")]
fn limiter_that_a_forked_child_drops_works_in_the_parent() {
    let _exclusive = exclusive();
    let server = Server::start(Kind::Redis, &[]);
    // With a clock of its own, a limiter has connections of its own.
    let limiter = Limiter::builder().store(&format!("{}?deadline=60s", server.url()));
    let limiter = limiter.policy(Policy::parse("api", "9/hour").unwrap()).clock(ManualClock::new(0).unwrap());
    let limiter = limiter.build().unwrap();
    assert_eq!(limiter.blocking().check("user").unwrap().remaining(), 8);
    // SAFETY: The child drops the limiter and ends.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            drop(limiter);
            // SAFETY: It ends the process, and nothing else.
            unsafe { nix::libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            let (send, answered) = channel();
            std::thread::spawn(move || send.send(limiter.blocking().check("user")).unwrap());
            // Far below the deadline.
            let decision = answered.recv_timeout(Duration::from_secs(30)).unwrap().unwrap();
            assert_eq!((decision.remaining(), decision.degraded()), (7, None));
        }
    }
}
