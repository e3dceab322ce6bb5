//! Makes decisions through every interface while the process may open no file descriptors or too few, and when it may open
//! them again. Prints `done` if the outage policy answered meanwhile, and the store afterwards.
//!
//! Usage: `polylimit-descriptor-limit URL`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]

use std::fs::File;
use std::future::Future;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use polylimit::decision::{Degradation, Source};
use polylimit::metrics::DegradedEvent;
use polylimit::raw::{Answer, Call, Completions};
use polylimit::storage::Outage;
use polylimit::{Decision, Error, ErrorKind, Limiter, Policy, Request};

/// More descriptors than a limiter needs.
const ENOUGH: u64 = 64;
const TIMEOUT: Duration = Duration::from_secs(20);

fn main() {
    let url = std::env::args().nth(1).unwrap();
    let limiter = |name: &str| {
        // Another client name gives a limiter connections of its own.
        let url = format!("{url}?deadline=20s&doctor_after=0&client_name={name}");
        let policy = Policy::parse("p", "1000000/day fixed_window").unwrap();
        let limiter = Limiter::builder().store(&url).policy(policy).outage("p", Outage::Fallback);
        limiter.build().unwrap()
    };
    test_blocking(&limiter("blocking"));
    test_interruptible(&limiter("interruptible"));
    test_runtime(&limiter("runtime"));
    test_without_runtime(&limiter("none"));
    test_completions(&limiter("submitted"), |completions, limiter, woken| {
        [1, 2].map(|tag| {
            let decided = completions.submit(limiter, &check(), tag);
            decided.unwrap_or_else(|| drain(completions, woken, 1).remove(0))
        })
    });
    test_completions(&limiter("held"), |completions, limiter, woken| {
        assert!([1, 2].map(|tag| completions.defer(limiter, &check(), tag)).iter().all(Option::is_none));
        completions.flush();
        drain(completions, woken, 2).try_into().unwrap()
    });
    for count in 0..ENOUGH / 4 {
        let limiter = limiter(&format!("count{count}")).blocking();
        allow_descriptors(count);
        let decision = limiter.check("key").unwrap();
        if decision.source() != Source::Store {
            assert_no_resources(&decision);
        }
        allow_descriptors(ENOUGH);
        until_from_store(|| limiter.check("key").unwrap());
    }
    println!("done");
}

/// From now on this process may open only this number of further descriptors.
fn allow_descriptors(count: u64) {
    let (_, maximum) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, maximum, maximum).unwrap();
    // The system assigns the lowest free descriptor.
    let next = u64::try_from(File::open("/dev/null").unwrap().as_raw_fd()).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, next + count, maximum).unwrap();
    assert_eq!(File::open("/dev/null").is_err(), count == 0);
}

fn assert_no_resources(decision: &Decision) {
    assert_eq!(
        (decision.source(), decision.degraded(), decision.allowed()),
        (Source::Fallback, Some(Degradation::NoResources), true)
    );
}

fn assert_from_store(decision: &Decision) {
    assert_eq!((decision.source(), decision.degraded()), (Source::Store, None));
}

/// Waits for the next attempt to connect after one has failed.
fn until_from_store(check: impl Fn() -> Decision) {
    let started = Instant::now();
    while check().source() != Source::Store {
        assert!(started.elapsed() < TIMEOUT);
        thread::sleep(Duration::from_millis(1));
    }
}

fn assert_event(limiter: &Limiter) {
    let [DegradedEvent::Started { reason: Degradation::NoResources, .. }] =
        limiter.raw().take_events().as_slice()
    else {
        panic!("expected one started event")
    };
}

fn test_blocking(limiter: &Limiter) {
    let face = limiter.blocking();
    allow_descriptors(0);
    assert_no_resources(&face.check("key").unwrap());
    assert_event(limiter);
    for decision in face.check_many(["key", "other"]) {
        assert_no_resources(&decision.unwrap());
    }
    assert_eq!(face.take("key").unwrap().source(), Source::Fallback);
    assert_eq!(face.reset("key").unwrap().source(), Source::Fallback);
    let timeout = Duration::from_secs(1);
    let error = face.ready(timeout).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().contains("descriptors"), "{error}");
    assert_no_resources(&face.acquire("key", timeout).unwrap());
    allow_descriptors(ENOUGH);
    assert_from_store(&face.check("key").unwrap());
    face.ready(TIMEOUT).unwrap();
}

/// Calls that may be interrupted, as the bindings make them.
fn test_interruptible(limiter: &Limiter) {
    let face = limiter.blocking();
    let every = Duration::from_millis(1);
    let call = |call: &Call<'_>| face.raw().call_until(call, every, || false).unwrap();
    let timeout = Duration::from_secs(60);
    allow_descriptors(0);
    for calls in [check(), Call::Acquire(Request::new("key"), timeout)] {
        assert_no_resources(&decision(call(&calls)));
    }
    assert_event(limiter);
    let Ok(Answer::Decisions(decisions)) = call(&Call::CheckMany(&[Request::new("key")])) else { panic!() };
    assert_no_resources(decisions[0].as_ref().unwrap());
    assert_eq!(call(&Call::Ready(timeout)).unwrap_err().kind(), ErrorKind::StoreUnavailable);
    // What has to wait is asked whether to stop, and waits until it is admitted.
    let one = |name| Request::new(name).policy("1/second fixed_window");
    assert!(decision(call(&Call::Acquire(one("stopped"), timeout))).allowed());
    assert!(face.raw().call_until(&Call::Acquire(one("stopped"), timeout), every, || true).is_none());
    assert!(decision(call(&Call::Acquire(one("stopped"), timeout))).allowed());
    allow_descriptors(ENOUGH);
    assert_from_store(&decision(call(&check())));
}

fn test_runtime(limiter: &Limiter) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let check = || runtime.block_on(limiter.check("key")).unwrap();
    allow_descriptors(0);
    assert_no_resources(&check());
    assert_event(limiter);
    assert_no_resources(&runtime.block_on(limiter.acquire("key", Duration::from_secs(1))).unwrap());
    allow_descriptors(ENOUGH);
    until_from_store(check);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn drive<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn test_without_runtime(limiter: &Limiter) {
    let check = || drive(limiter.check("key")).unwrap();
    let start = || decision(drive(limiter.start(&self::check())));
    allow_descriptors(0);
    assert_no_resources(&check());
    assert_no_resources(&start());
    assert_event(limiter);
    allow_descriptors(ENOUGH);
    assert_from_store(&check());
    assert_from_store(&start());
}

fn check() -> Call<'static> {
    Call::Check(Request::new("key"))
}

fn decision(answer: Result<Answer, Error>) -> Decision {
    let Ok(Answer::Decision(decision)) = answer else { panic!("{answer:?}") };
    decision
}

fn drain(completions: &Completions<u32>, woken: &Receiver<()>, count: usize) -> Vec<Result<Answer, Error>> {
    let mut answers = Vec::new();
    while answers.len() < count {
        woken.recv_timeout(TIMEOUT).unwrap();
        completions.drain(|_, answer| answers.push(answer));
    }
    answers
}

fn test_completions(
    limiter: &Limiter,
    ask: impl Fn(&Completions<u32>, &Limiter, &Receiver<()>) -> [Result<Answer, Error>; 2],
) {
    let (wake, woken) = channel();
    let completions = Completions::new(move || _ = wake.send(()));
    allow_descriptors(0);
    for answer in ask(&completions, limiter, &woken) {
        assert_no_resources(&decision(answer));
    }
    assert_event(limiter);
    let ready = completions.submit(limiter, &Call::Ready(Duration::from_secs(1)), 3).unwrap();
    assert_eq!(ready.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    assert_eq!(completions.pending(), 0);
    allow_descriptors(ENOUGH);
    for answer in ask(&completions, limiter, &woken) {
        assert_from_store(&decision(answer));
    }
}
