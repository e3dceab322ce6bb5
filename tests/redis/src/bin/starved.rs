//! Asks while the system gives this process no descriptors, or too few of them, and when it gives them again; by every face.
//! Says `done` when the outage policy has answered meanwhile, and the store from then on.
//!
//! Usage: `polylimit-starved URL`.

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
use polylimit::{
    Answer, Call, Completions, Decision, Degradation, DegradedEvent, Error, ErrorKind, Limiter, Outage,
    Policy, Request, Source,
};

/// So many descriptors are more than enough.
const ENOUGH: u64 = 64;
const PATIENCE: Duration = Duration::from_secs(20);

fn main() {
    let url = std::env::args().nth(1).unwrap();
    let limiter = |face: &str| {
        // Those of one face share nothing with others.
        let url = format!("{url}?deadline=20s&doctor_after=0&client_name={face}");
        let policy = Policy::parse("starved", "1000000/day fixed_window").unwrap();
        let limiter = Limiter::builder().store(&url).policy(policy).outage("starved", Outage::Fallback);
        limiter.build().unwrap()
    };
    blocking(&limiter("blocking"));
    in_a_runtime(&limiter("runtime"));
    without_a_runtime(&limiter("none"));
    completions(&limiter("submitted"), |completions, limiter, woken| {
        [1, 2].map(|tag| {
            let known = completions.submit(limiter, &check(), tag);
            known.unwrap_or_else(|| drained(completions, woken, 1).remove(0))
        })
    });
    completions(&limiter("held"), |completions, limiter, woken| {
        assert!([1, 2].map(|tag| completions.hold(limiter, &check(), tag)).iter().all(Option::is_none));
        completions.start_held();
        drained(completions, woken, 2).try_into().unwrap()
    });
    for left in 0..ENOUGH / 4 {
        let limiter = limiter(&format!("left{left}")).blocking();
        leave(left);
        let decision = limiter.check("key").unwrap();
        if decision.source() != Source::Store {
            assert_starved(&decision);
        }
        leave(ENOUGH);
        until_stored(|| limiter.check("key").unwrap());
    }
    println!("done");
}

/// The system gives so many descriptors from now on.
fn leave(count: u64) {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    // The lowest that are free are given first.
    let next = u64::try_from(File::open("/dev/null").unwrap().as_raw_fd()).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, next + count, most).unwrap();
    assert_eq!(File::open("/dev/null").is_err(), count == 0);
}

fn assert_starved(decision: &Decision) {
    assert_eq!(
        (decision.source(), decision.degraded(), decision.allowed()),
        (Source::Fallback, Some(Degradation::NoResources), true)
    );
}

fn assert_stored(decision: &Decision) {
    assert_eq!((decision.source(), decision.degraded()), (Source::Store, None));
}

/// Where connecting has failed, the next attempt is made a moment later.
fn until_stored(check: impl Fn() -> Decision) {
    let started = Instant::now();
    while check().source() != Source::Store {
        assert!(started.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
}

fn assert_told(limiter: &Limiter) {
    let [DegradedEvent::Started { reason: Degradation::NoResources, .. }] = limiter.take_events().as_slice()
    else {
        panic!("that was not told")
    };
}

fn blocking(limiter: &Limiter) {
    let face = limiter.blocking();
    leave(0);
    assert_starved(&face.check("key").unwrap());
    assert_told(limiter);
    for decision in face.check_many(["key", "other"]) {
        assert_starved(&decision.unwrap());
    }
    assert_eq!(face.take("key").unwrap().source(), Source::Fallback);
    assert_eq!(face.reset("key").unwrap().source(), Source::Fallback);
    let timeout = Duration::from_secs(1);
    for error in [face.ready(timeout).unwrap_err(), face.acquire("key", timeout).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
        assert!(error.message().contains("descriptors"), "{error}");
    }
    leave(ENOUGH);
    assert_stored(&face.check("key").unwrap());
    face.ready(PATIENCE).unwrap();
}

fn in_a_runtime(limiter: &Limiter) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let check = || runtime.block_on(limiter.check("key")).unwrap();
    leave(0);
    assert_starved(&check());
    assert_told(limiter);
    assert_starved(&runtime.block_on(limiter.acquire("key", Duration::from_secs(1))).unwrap());
    leave(ENOUGH);
    until_stored(check);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn without_a_runtime(limiter: &Limiter) {
    let check = || wait(limiter.check("key")).unwrap();
    let start = || decision(wait(limiter.start(&self::check())));
    leave(0);
    assert_starved(&check());
    assert_starved(&start());
    assert_told(limiter);
    leave(ENOUGH);
    assert_stored(&check());
    assert_stored(&start());
}

fn check() -> Call<'static> {
    Call::Check(Request::new("key"))
}

fn decision(answer: Result<Answer, Error>) -> Decision {
    let Ok(Answer::Decision(decision)) = answer else { panic!("{answer:?}") };
    decision
}

fn drained(completions: &Completions<u32>, woken: &Receiver<()>, count: usize) -> Vec<Result<Answer, Error>> {
    let mut answers = Vec::new();
    while answers.len() < count {
        woken.recv_timeout(PATIENCE).unwrap();
        completions.drain(|_, answer| answers.push(answer));
    }
    answers
}

fn completions(
    limiter: &Limiter,
    ask: impl Fn(&Completions<u32>, &Limiter, &Receiver<()>) -> [Result<Answer, Error>; 2],
) {
    let (wake, woken) = channel();
    let completions = Completions::new(move || _ = wake.send(()));
    leave(0);
    for answer in ask(&completions, limiter, &woken) {
        assert_starved(&decision(answer));
    }
    assert_told(limiter);
    let ready = completions.submit(limiter, &Call::Ready(Duration::from_secs(1)), 3).unwrap();
    assert_eq!(ready.unwrap_err().kind(), ErrorKind::StoreUnavailable);
    assert_eq!(completions.pending(), 0);
    leave(ENOUGH);
    for answer in ask(&completions, limiter, &woken) {
        assert_stored(&decision(answer));
    }
}
