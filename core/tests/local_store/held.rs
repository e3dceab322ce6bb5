//! What waits while another process, or another thread, holds a lock of the file: calls of event loops and tasks do, and their threads
//! go on meanwhile.

#![expect(clippy::panic, reason = "tests")]

use std::fs::{File, OpenOptions};
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::pin::{Pin, pin};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use polylimit::admin::{KeyFilter, ListBudget};
use polylimit::decision::{Degradation, Source};
use polylimit::document::RequestAttributes;
use polylimit::raw::{Answer, Call, Completions};
use polylimit::reservation::ReserveOptions;
use polylimit::{Decision, Error, Limiter, Policy, Request};

use super::Store;
use super::child::{ChildProcess, QUOTA};
use super::owners::{LOCK_AT, lock_for};

const LONG: Duration = Duration::from_secs(60);
const LIMIT: u64 = 100;

/// Attempts what has to be done within the second for which a process that runs may hold a lock: on a machine that stops for as long,
/// another attempt is made.
fn in_time(what: &str, attempt: impl Fn() -> Result<(), String>) {
    within(Duration::from_millis(500), what, attempt);
}

fn within(time: Duration, what: &str, attempt: impl Fn() -> Result<(), String>) {
    for _ in 0..100 {
        let started = Instant::now();
        match attempt() {
            Ok(()) => return,
            Err(problem) => assert!(started.elapsed() >= time, "{what}: {problem}"),
        }
    }
    panic!("{what}: this machine stops again and again");
}

/// The lock of the first shard, held in the name of this process: see [`in_time`].
struct Held<'a>(&'a Store);

impl<'a> Held<'a> {
    fn by_this_process(store: &'a Store) -> Self {
        Self::by(store, std::process::id())
    }

    fn by(store: &'a Store, process: u32) -> Self {
        lock_for(store, process);
        Self(store)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let file = OpenOptions::new().write(true).open(&self.0.0).unwrap();
        file.write_all_at(&[0; 8], LOCK_AT).unwrap();
    }
}

/// An event loop, without the loop.
struct Loop {
    completions: Completions<u32>,
    woken: Receiver<()>,
}

impl Loop {
    fn new() -> Self {
        let (wake, woken) = channel();
        Self { completions: Completions::new(move || _ = wake.send(())), woken }
    }

    fn start(&self, limiter: &Limiter, call: &Call<'_>, tag: u32) -> Option<Result<Answer, Error>> {
        limiter.raw().try_call(call).or_else(|| self.completions.submit(limiter, call, tag))
    }

    /// Waits for the only answer.
    fn answer(&self) -> Result<Answer, Error> {
        let mut answered = None;
        loop {
            self.woken.recv_timeout(LONG).unwrap();
            self.completions.drain(|_, answer| answered = Some(answer));
            if let Some(answered) = answered {
                return answered;
            }
        }
    }
}

fn expect(is_so: bool, problem: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(problem.to_owned()) }
}

fn decision(answer: Result<Answer, Error>) -> Decision {
    match answer {
        Ok(Answer::Decision(decision)) => decision,
        other => panic!("{other:?}"),
    }
}

fn limiter(store: &Store) -> Limiter {
    let limiter = store.limiter(QUOTA);
    let _ = limiter.peek("key").unwrap();
    limiter.asynchronous().clone()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Each time the loop comes, the call looks at the lock once and leaves: it never waits for the verdict.
#[test]
fn loop_goes_on_until_the_holder_is_known_to_be_suspended() {
    let store = Store::new();
    let limiter = limiter(&store);
    let mut other = ChildProcess::start("opens", &store.url());
    assert_eq!(other.receive().as_deref(), Some("ready"));
    other.signal("-STOP");
    let check = Call::Check(Request::new("key"));
    // Two looks at the holder, with two milliseconds before each.
    within(Duration::from_millis(4), "suspended", || {
        drop(Held::by(&store, other.id()));
        let _ = limiter.blocking().peek("key").unwrap();
        std::mem::forget(Held::by(&store, other.id()));
        let event_loop = Loop::new();
        expect(event_loop.start(&limiter, &check, 1).is_none(), "answered at once")?;
        let many = Call::CheckMany(&[Request::new("key")]);
        expect(event_loop.start(&limiter, &many, 2).is_none(), "answered at once")?;
        expect(event_loop.completions.defer(&limiter, &check, 3).is_none(), "answered at once")?;
        event_loop.completions.flush();
        assert_eq!(event_loop.completions.pending(), 3);
        let (mut answers, mut wakes) = (Vec::new(), 0);
        while answers.len() < 3 {
            event_loop.woken.recv_timeout(LONG).unwrap();
            wakes += 1;
            event_loop.completions.drain(|_, answer| answers.push(answer));
        }
        for answer in answers {
            let decision = match answer {
                Ok(Answer::Decisions(decisions)) => decisions.into_iter().next().unwrap().unwrap(),
                other => decision(other),
            };
            assert_eq!((decision.source(), decision.degraded()), (Source::Fallback, Some(Degradation::Busy)));
        }
        // From now on the outage policy answers at once.
        until("the holder is known", || event_loop.start(&limiter, &check, 4).is_some());
        expect(wakes >= 2, "a look at the holder was waited for")
    });
    other.kill();
    until("the lock is taken over", || limiter.blocking().peek("key").unwrap().source() == Source::Store);
}

/// Every kind of call waits for the lock without its loop, and is answered by the store.
#[test]
fn loop_gets_the_answer_of_the_store_when_the_lock_is_free() {
    let store = Store::new();
    let document = r#"{"polylimit": 1, "policies": {"p": {"quotas": "100/day"}}, "rules": [{"apply": [{"policy": "p", "key": "{user}"}]}]}"#;
    let builder = || {
        let policy = Policy::parse("test", QUOTA).unwrap();
        Limiter::builder().store(&store.url()).local_size(1 << 20).policy(policy)
    };
    let plain = builder().build().unwrap();
    let configured = builder().document(document).build().unwrap();
    let key = Request::new("key").policy("test");
    let of_document = Request::new("key").policy("p");
    let terms = ReserveOptions::default().terms().unwrap();
    let id = terms.id;
    let both = [key, Request::new("other").policy("test")];
    let attributes = RequestAttributes::new().attribute("user", "bob");
    let (filter, budget) = (KeyFilter::default(), ListBudget::default());
    let calls = [
        (&plain, Call::Check(key)),
        (&plain, Call::Peek(key)),
        (&plain, Call::Take(key)),
        (&plain, Call::Charge(key)),
        (&plain, Call::Refund(key)),
        (&plain, Call::Reserve(key, terms)),
        (&plain, Call::Renew(key, id, LONG)),
        (&plain, Call::Commit(key, id, None)),
        (&plain, Call::Cancel(key, id)),
        (&plain, Call::Block(key, Duration::ZERO)),
        (&plain, Call::Reset(key)),
        (&plain, Call::CheckMany(&both)),
        (&plain, Call::CheckTogether(&both)),
        (&plain, Call::Acquire(key, LONG)),
        (&plain, Call::List(filter, budget, None)),
        (&plain, Call::ScanTop(filter, 3, budget)),
        (&plain, Call::ResetListed(filter, budget, None)),
        (&plain, Call::Explain(key)),
        (&configured, Call::Check(of_document)),
        (&configured, Call::CheckMany(&[of_document, of_document])),
        (&configured, Call::Decide(&attributes, terms)),
        (&configured, Call::ExplainRequest(&attributes)),
    ];
    for limiter in [&plain, &configured] {
        let _ = limiter.blocking().peek(key).unwrap();
    }
    for (limiter, call) in calls {
        in_time(&format!("{call:?}"), || {
            let event_loop = Loop::new();
            let held = Held::by_this_process(&store);
            expect(event_loop.start(limiter, &call, 1).is_none(), "answered while the lock is held")?;
            expect(event_loop.completions.pending() == 1, "not pending")?;
            drop(held);
            let answer = format!("{:?}", event_loop.answer());
            expect(answer.starts_with("Ok") && !answer.contains("Busy"), &answer)
        });
    }
}

/// Ends a reservation; whether that waits for the lock.
type End<'a> = &'a dyn Fn(polylimit::reservation::Reservation) -> bool;

/// Whatever ends a reservation while the lock is held reaches the store when it is free.
#[test]
fn end_of_a_reservation_outlives_its_caller() {
    let store = Store::new();
    let limiter = limiter(&store);
    let left = || limiter.blocking().peek("key").unwrap().remaining();
    let reserve = || {
        let reserved = limiter.blocking().reserve(Request::new("key").cost(9), ReserveOptions::default());
        reserved.unwrap()
    };
    let event_loop = Loop::new();
    let by_drop: End<'_> = &|reservation| {
        drop(reservation);
        true
    };
    let by_cancelled_call: End<'_> = &|mut reservation| {
        event_loop.start(&limiter, &reservation.cancel_call(), 7).is_none()
            && event_loop.completions.cancel(&7)
    };
    let by_loop_that_ends: End<'_> =
        &|mut reservation| Loop::new().start(&limiter, &reservation.cancel_call(), 7).is_none();
    let by_dropped_future: End<'_> = &|mut reservation| waits(limiter.start(&reservation.cancel_call()));
    let by_dropped_task: End<'_> = &|reservation| waits(Box::pin(reservation.cancel()));
    let ends = [
        ("drop", by_drop),
        ("cancelled call", by_cancelled_call),
        ("loop that ends", by_loop_that_ends),
        ("dropped future", by_dropped_future),
        ("dropped task", by_dropped_task),
    ];
    for (way, end) in ends {
        in_time(way, || {
            limiter.blocking().reset("key").unwrap();
            let reservation = reserve();
            assert_eq!(left(), LIMIT - 9);
            let held = Held::by_this_process(&store);
            let is_pending = end(reservation);
            drop(held);
            expect(is_pending, "the end does not wait for the lock")?;
            let started = Instant::now();
            while left() < LIMIT {
                expect(started.elapsed() < LONG, "the reservation is not ended")?;
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
    }
}

/// Whether a future waits when it is polled for the first time, outside of any runtime. Drops it.
fn waits<F: Future + Unpin>(mut future: F) -> bool {
    Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[test]
fn cancelled_calls_charge_nothing() {
    let store = Store::new();
    let limiter = limiter(&store);
    let key = Request::new("key");
    let terms = ReserveOptions::default().terms().unwrap();
    let calls = [
        Call::Check(key),
        Call::Take(key),
        Call::Charge(key),
        Call::Reserve(key, terms),
        Call::CheckMany(&[key, key]),
        Call::CheckTogether(&[key, key]),
        Call::Acquire(key, LONG),
    ];
    for call in calls {
        in_time(&format!("{call:?}"), || {
            limiter.blocking().reset(key).unwrap();
            let event_loop = Loop::new();
            let held = Held::by_this_process(&store);
            expect(event_loop.start(&limiter, &call, 1).is_none(), "answered while the lock is held")?;
            assert!(event_loop.completions.cancel(&1));
            expect(waits(limiter.start(&call)), "answered while the lock is held")?;
            drop(held);
            assert_eq!(event_loop.completions.pending(), 0);
            event_loop.completions.drain(|_, answer| panic!("{answer:?}"));
            expect(limiter.blocking().peek(key).unwrap().remaining() == LIMIT, "charged")
        });
    }
}

/// A call on several keys that waits for the second one has charged the first, and gives it back; the charges of a request are applied
/// together, once all their locks are free.
#[test]
fn call_on_several_keys_that_is_cancelled_gives_back() {
    let store = Store::new();
    let policy = Policy::parse("test", QUOTA).unwrap();
    let builder = Limiter::builder().store(&store.url()).local_size(2 << 20).policy(policy);
    let limiter = builder.build().unwrap();
    let _ = limiter.blocking().peek("key").unwrap();
    let names: Vec<String> = (0..64).map(|number| number.to_string()).collect();
    in_time("cancelled", || {
        let held = Held::by_this_process(&store);
        let is_free = |name: &&String| limiter.raw().try_call(&Call::Peek(Request::new(*name))).is_some();
        let (free, locked): (Vec<_>, Vec<_>) = names.iter().partition(is_free);
        expect(!free.is_empty() && !locked.is_empty(), "no key of each kind")?;
        let both = [Request::new(free[0]), Request::new(locked[0])];
        for (call, charged) in [(Call::CheckTogether(&both), 0), (Call::CheckMany(&both), 1)] {
            let left = || limiter.blocking().peek(both[0]).unwrap().remaining();
            let event_loop = Loop::new();
            expect(event_loop.start(&limiter, &call, 1).is_none(), "answered while the lock is held")?;
            expect(left() == LIMIT - charged, "the first key is charged otherwise")?;
            assert!(event_loop.completions.cancel(&1));
            assert_eq!(left(), LIMIT);
        }
        drop(held);
        expect(limiter.blocking().peek(both[1]).unwrap().remaining() == LIMIT, "the second key is charged")
    });
}

struct Sends(std::sync::mpsc::Sender<()>);

impl std::task::Wake for Sends {
    fn wake(self: std::sync::Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// Neither a runtime nor its timer is needed.
#[test]
fn task_waits_on_any_executor() {
    let store = Store::new();
    let limiter = limiter(&store);
    let (wake, woken) = channel();
    let waker = Waker::from(std::sync::Arc::new(Sends(wake)));
    in_time("check", || {
        let held = Held::by_this_process(&store);
        let mut check = pin!(limiter.check("key"));
        let mut context = Context::from_waker(&waker);
        expect(check.as_mut().poll(&mut context).is_pending(), "answered while the lock is held")?;
        drop(held);
        loop {
            woken.recv_timeout(LONG).unwrap();
            if let Poll::Ready(decision) = check.as_mut().poll(&mut context) {
                return expect(decision.unwrap().source() == Source::Store, "not answered by the store");
            }
        }
    });
}

/// A process may be suspended while it opens the file.
#[test]
fn loop_goes_on_while_another_process_opens_the_file() {
    let store = Store::new();
    let _ = store.limiter(QUOTA).peek("key").unwrap();
    let file = File::options().read(true).write(true).open(&store.0).unwrap();
    let opening = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap(),
        l_start: 1 << 40,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_OFD_SETLK(&opening)).unwrap();
    let limiter = store.limiter(QUOTA).asynchronous().clone();
    let event_loop = Loop::new();
    let check = Call::Check(Request::new("key"));
    assert_eq!(event_loop.start(&limiter, &check, 1), None);
    assert_eq!(limiter.admin().keys(), None);
    drop(file);
    assert_eq!(decision(event_loop.answer()).source(), Source::Store);
}
