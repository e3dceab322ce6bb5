//! Calls as values, and their delivery to event loops of other languages.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "calls/each.rs"]
mod each;

use std::future::Future;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use polylimit::clock::ManualClock;
use polylimit::raw::{Answer, Call, Completions};
use polylimit::redis::Lease;
use polylimit::{Decision, Error, ErrorKind, Limiter, Policy, Request};

const TIMEOUT: Duration = Duration::from_secs(10);

fn limiter(clock: &ManualClock) -> Limiter {
    let policy = Policy::parse("api", "2/minute fixed_window").unwrap();
    Limiter::builder().policy(policy).clock(clock.clone()).build().unwrap()
}

fn clock() -> ManualClock {
    ManualClock::new(1_700_000_000_000_000).unwrap()
}

fn decision(answer: Result<Answer, Error>) -> Decision {
    match answer {
        Ok(Answer::Decision(decision)) => decision,
        other => panic!("{other:?}"),
    }
}

/// Completions of an event loop, and a channel that receives its wake-ups.
fn completions() -> (Completions<u32>, Receiver<()>) {
    let (wake, woken) = channel();
    (Completions::new(move || _ = wake.send(())), woken)
}

#[test]
fn call_that_needs_no_wait_is_answered_at_once() {
    let limiter = limiter(&clock());
    let (completions, _woken) = completions();
    let key = Request::new("user");
    assert!(decision(completions.submit(&limiter, &Call::Check(key), 1).unwrap()).allowed());
    assert!(decision(limiter.raw().try_call(&Call::Check(key)).unwrap()).allowed());
    assert!(!limiter.raw().try_check(key).unwrap().allowed());
    assert!(!decision(limiter.blocking().raw().call(&Call::Check(key))).allowed());
    let Some(Ok(Answer::Usage(usage))) = limiter.raw().try_call(&Call::Refund(key.cost(9))) else { panic!() };
    assert_eq!(usage.remaining(), 2);
    let Some(Ok(Answer::Decisions(decisions))) = limiter.raw().try_call(&Call::CheckMany(&[key, key, key]))
    else {
        panic!()
    };
    let allowed: Vec<_> = decisions.into_iter().map(|decision| decision.unwrap().allowed()).collect();
    assert_eq!(allowed, [true, true, false]);
    assert_eq!(completions.pending(), 0);
}

#[test]
fn waiting_calls_are_delivered_after_a_wake_up() {
    let clock = clock();
    let limiter = limiter(&clock);
    let (completions, woken) = completions();
    let acquire = |user| Call::Acquire(Request::new(user).cost(2), Duration::from_secs(100));
    for user in ["a", "b", "c"] {
        assert!(decision(completions.submit(&limiter, &acquire(user), 0).unwrap()).allowed());
    }
    for (user, tag) in [("a", 1), ("b", 2), ("c", 3)] {
        assert_eq!(completions.submit(&limiter, &acquire(user), tag), None);
    }
    assert_eq!(completions.pending(), 3);
    completions.drain(|tag, answer| panic!("{tag}: {answer:?}"));
    assert!(woken.try_recv().is_err(), "no unit is refilled yet");
    clock.advance(Duration::from_secs(60)).unwrap();
    let mut tags = Vec::new();
    while tags.len() < 3 {
        woken.recv_timeout(Duration::from_secs(10)).unwrap();
        completions.drain(|tag, answer| {
            assert!(decision(answer).allowed());
            tags.push(tag);
        });
    }
    tags.sort_unstable();
    assert_eq!((tags, completions.pending()), (vec![1, 2, 3], 0));
}

#[test]
fn stopped_event_loop_delays_no_other_loop() {
    let clock = clock();
    let limiter = limiter(&clock);
    let acquire = Call::Acquire(Request::new("user").cost(2), Duration::from_secs(1000));
    let ((stopped, _ignored), (running, woken)) = (completions(), completions());
    assert!(decision(stopped.submit(&limiter, &acquire, 0).unwrap()).allowed());
    for (completions, tag) in [(&stopped, 1), (&running, 2), (&stopped, 3), (&running, 4)] {
        assert_eq!(completions.submit(&limiter, &acquire, tag), None);
    }
    for tag in [2, 4] {
        // The calls of the two loops alternate in the queue.
        for _ in 0..2 {
            until_remaining(&limiter, 0);
            clock.advance(Duration::from_secs(60)).unwrap();
        }
        woken.recv_timeout(TIMEOUT).unwrap();
        let mut answers = Vec::new();
        running.drain(|tag, answer| answers.push((tag, decision(answer).allowed())));
        assert_eq!(answers, [(tag, true)]);
    }
    let mut answers = Vec::new();
    stopped.drain(|tag, answer| answers.push((tag, decision(answer).allowed())));
    answers.sort_unstable();
    assert_eq!(answers, [(1, true), (3, true)]);
}

/// Waits until this number of units remain.
fn until_remaining(limiter: &Limiter, remaining: u64) {
    let start = Instant::now();
    while limiter.blocking().peek("user").unwrap().remaining() != remaining {
        assert!(start.elapsed() < TIMEOUT);
        std::thread::yield_now();
    }
}

#[test]
fn abandoned_call_leaves_the_queue_at_once() {
    let policy = Policy::parse("api", "2/minute token_bucket").unwrap();
    let limiter = Limiter::builder().policy(policy).clock(clock()).build().unwrap();
    let acquire = Call::Acquire(Request::new("user").cost(2), Duration::from_secs(100));
    let (completions, _woken) = completions();
    assert!(decision(completions.submit(&limiter, &acquire, 0).unwrap()).allowed());
    for tag in 1..1000 {
        // The timeout allows for one waiter. A second one would be denied at once.
        assert_eq!(completions.submit(&limiter, &acquire, tag), None);
        assert!(completions.cancel(&tag));
        assert!(!completions.cancel(&tag));
    }
    assert_eq!(completions.submit(&limiter, &acquire, 0), None);
    assert!(!decision(answer_of(&completions, &limiter, &acquire)).allowed());
}

#[test]
fn call_abandoned_after_admission_returns_its_units() {
    let clock = clock();
    let limiter = limiter(&clock);
    let acquire = Call::Acquire(Request::new("user").cost(2), Duration::from_secs(100));
    let (completions, woken) = completions();
    assert!(decision(completions.submit(&limiter, &acquire, 0).unwrap()).allowed());
    assert_eq!(completions.submit(&limiter, &acquire, 1), None);
    clock.advance(Duration::from_secs(60)).unwrap();
    // Another thread has admitted the call, and the loop has not drained it.
    woken.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(limiter.blocking().peek("user").unwrap().remaining(), 0);
    assert!(completions.cancel(&1));
    assert_eq!(limiter.blocking().peek("user").unwrap().remaining(), 2);
    completions.drain(|tag, answer| panic!("{tag}: {answer:?}"));
    assert_eq!(completions.pending(), 0);
}

/// Waits for the answer to a call.
fn answer_of(completions: &Completions<u32>, limiter: &Limiter, call: &Call<'_>) -> Result<Answer, Error> {
    const TAG: u32 = u32::MAX;
    let mut answer = limiter.raw().try_call(call).or_else(|| completions.submit(limiter, call, TAG));
    let start = Instant::now();
    loop {
        if let Some(answer) = answer {
            return answer;
        }
        assert!(start.elapsed() < TIMEOUT);
        completions.drain(|tag, delivered| {
            if tag == TAG {
                answer = Some(delivered);
            }
        });
    }
}

#[test]
fn timers_run_without_a_runtime_of_the_caller() {
    let policy = Policy::parse("api", "1/20ms fixed_window").unwrap();
    let limiter = Limiter::builder().policy(policy).build().unwrap();
    let (completions, woken) = completions();
    let acquire = Call::Acquire(Request::new("user"), Duration::from_secs(100));
    let mut admitted = 0;
    for tag in 0..3 {
        admitted += u32::from(completions.submit(&limiter, &acquire, tag).is_some());
    }
    while completions.pending() > 0 {
        woken.recv_timeout(Duration::from_secs(10)).unwrap();
        completions.drain(|_, answer| admitted += u32::from(decision(answer).allowed()));
    }
    assert_eq!(admitted, 3);
}

#[test]
fn quotas_in_a_request_are_a_policy_of_their_own() {
    let limiter = limiter(&clock());
    let check =
        |policy| decision(limiter.raw().try_call(&Call::Check(Request::new("user").policy(policy))).unwrap());
    assert_eq!(check("5/minute").remaining(), 4);
    assert_eq!(check(" 5/60s ").remaining(), 3);
    assert_eq!(check("6/minute").remaining(), 5);
    // A request without a policy uses the only named one.
    assert_eq!(decision(limiter.raw().try_call(&Call::Check(Request::new("user"))).unwrap()).remaining(), 1);
    assert_eq!(limiter.policy("5/minute").unwrap().name(), "5|minute");
    assert_eq!(limiter.policies().len(), 3);
    let refused =
        limiter.raw().try_call(&Call::Check(Request::new("user").policy("5/decade"))).unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    limiter.set_policy(Policy::parse("7|minute", "8/minute").unwrap()).unwrap();
    let refused = limiter.blocking().check(Request::new("user").policy("7/minute")).unwrap_err();
    assert!(refused.message().contains("give that one another name"));
}

#[test]
fn limiter_without_policies_accepts_quotas_in_requests() {
    let limiter = Limiter::builder().build().unwrap().blocking();
    assert_eq!(limiter.check(Request::new("user").policy("3/m")).unwrap().remaining(), 2);
    let refused = limiter.check("user").unwrap_err();
    assert!(refused.message().contains("name quotas, such as 100/minute"), "{refused}");
}

#[test]
fn option_names_and_values_are_checked() {
    let builder = || Limiter::builder().policy(Policy::parse("api", "1/m").unwrap());
    let refused = |limiter: Result<Limiter, Error>| limiter.unwrap_err().message().to_owned();
    let one_key = builder().option("max_keys", "1").build().unwrap().blocking();
    for user in ["a", "b", "c"] {
        let _ = one_key.check(user).unwrap();
    }
    assert!(one_key.check("d").unwrap().degraded().is_some());
    assert!(builder().store("redis://localhost").option("deadline", "20ms").build().is_ok());
    let redis = || builder().store("redis://localhost");
    assert!(redis().option("outage.api", "deny").option("lease.api", "auto").build().is_ok());
    assert!(refused(redis().option("outage.api", "open").build()).contains("\"open\" is not known"));
    assert!(
        refused(redis().option("lease.other", "10").build()).ends_with("policy \"other\": there are api")
    );
    assert!(refused(redis().option("outage.apl", "deny").build()).ends_with("did you mean api?"));
    assert!(refused(builder().option("max_keys", "-1").build()).contains("from 1 up"));
    let nearest = "option \"max_kyes\" is not known: did you mean max_keys?";
    assert_eq!(refused(builder().option("max_kyes", "1").build()), nearest);
    assert_eq!(refused(builder().store("memory:?max_kyes=1").build()), nearest);
    assert!(refused(builder().option("outge.api", "deny").build()).ends_with("did you mean outage.api?"));
    assert!(refused(builder().option("colour", "red").build()).contains("allowed are max_keys, "));
    let secret = redis().option("password", "hunter2");
    assert!(format!("{secret:?}").contains("password") && !format!("{secret:?}").contains("hunter2"));
    let theirs = "option \"keyPrefix\" is not known: use prefix";
    assert_eq!(refused(builder().option("keyPrefix", "app").build()), theirs);
    assert_eq!(refused(redis().option("keyPrefix", "app").build()), theirs);
    let url = "redis://localhost?socket_timeout=1s";
    let theirs = "store URL: option \"socket_timeout\" is not known: use deadline";
    assert_eq!(refused(builder().store(url).build()), theirs);
    assert!(refused(builder().store("redis://h").option("deadline", "1").build()).contains("ms"));
    for option in polylimit::LimiterBuilder::options() {
        assert!(!option.about.is_empty() && !option.allowed.is_empty(), "{}", option.name);
    }
}

/// The settings of production work in a test, which changes the URL alone; what has no effect is reported once.
#[test]
fn options_of_another_store_are_checked_and_have_no_effect() {
    // A local store has outages as well.
    for (store, name, outage) in [("memory:", "memory", "outage.api, "), ("local:unused", "local", "")] {
        let builder = || Limiter::builder().store(store).policy(Policy::parse("api", "1/m").unwrap());
        let (sent, events) = channel();
        let limiter = builder()
            .option("deadline", "20ms")
            .option("password", "hunter2")
            .option("deadline", "30ms")
            .option("outage.api", "deny")
            .lease("api", Lease::auto())
            .report(Duration::from_secs(5))
            .on_degraded(move |event| sent.send(event.to_string()).unwrap())
            .build()
            .unwrap();
        let expected = format!(
            "options: options deadline, password, {outage}lease.api and report have no effect on the {name} store"
        );
        assert_eq!(events.try_iter().collect::<Vec<_>>(), [expected]);
        drop(limiter);
        for (option, text) in [("deadline", "20"), ("outage.api", "open"), ("lease.api", "-1"), ("db", "x")] {
            let refused = builder().option(option, text).build().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{option}");
        }
        assert!(builder().option("lease.other", "auto").build().is_err());
        assert!(builder().option("configuration", "store").build().is_err(), "limits would be missing");
    }
    let of_the_url = Limiter::builder().store("memory:?max_keys=1&deadline=20ms&prefix=a%2Fb");
    let of_the_url = of_the_url.policy(Policy::parse("api", "1/m").unwrap()).build().unwrap().blocking();
    let decisions = ["a", "b", "c", "d"].map(|user| of_the_url.check(user).unwrap());
    assert!(decisions[3].degraded().is_some(), "max_keys holds");
    for url in ["redis://localhost", "memory:"] {
        let other = Limiter::builder().store(url).policy(Policy::parse("api", "1/m").unwrap());
        assert!(other.clone().local_size(1 << 20).build().is_ok());
        assert!(other.clone().option("local_size", "1MiB").build().is_ok());
        assert!(other.option("local_size", "1KB").build().is_err());
    }
}

#[test]
fn closed_limiter_describes_itself_and_decides_nothing() {
    let limiter = limiter(&clock());
    let decided = decision(limiter.raw().try_call(&Call::Check(Request::new("user"))).unwrap());
    assert!(decided.allowed());
    limiter.close();
    assert_eq!(limiter.policy("api").unwrap().name(), "api");
    assert_eq!(limiter.policies().len(), 1);
    assert!(limiter.policy("other").is_none());
    assert!(!limiter.metrics().is_empty());
    assert!(limiter.admin().top_keys(1).denied.is_empty());
    assert!(limiter.admin().configuration().is_none());
    assert!(limiter.policy_for(Some("1/m"), None).is_err());
}

#[test]
fn closed_limiter_answers_every_call_with_closed() {
    let clock = clock();
    let limiter = limiter(&clock);
    let (completions, woken) = completions();
    let acquire = Call::Acquire(Request::new("user"), Duration::from_secs(100));
    for tag in 0..2 {
        assert!(completions.submit(&limiter, &acquire, tag).is_some());
    }
    assert_eq!(completions.submit(&limiter, &acquire, 2), None);
    limiter.close();
    limiter.clone().close();
    woken.recv_timeout(Duration::from_secs(10)).unwrap();
    completions.drain(|_, answer| assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed));
    assert_eq!(completions.pending(), 0);
    for request in
        [Request::new("user"), Request::new("user").policy("api"), Request::new("user").policy("1/m")]
    {
        assert_eq!(limiter.blocking().check(request).unwrap_err().kind(), ErrorKind::Closed);
    }
    let changed = limiter.set_policy(Policy::parse("other", "1/m").unwrap());
    assert_eq!(changed.unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn close_answers_pending_calls() {
    // A server that accepts connections and never replies.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}?deadline=60s", silent.local_addr().unwrap());
    let limiter =
        Limiter::builder().store(&url).policy(Policy::parse("api", "2/minute").unwrap()).build().unwrap();
    let (completions, woken) = completions();
    assert!(completions.submit(&limiter, &Call::Check(Request::new("user")), 1).is_none());
    limiter.close();
    let mut answers = Vec::new();
    while answers.is_empty() {
        woken.recv_timeout(Duration::from_secs(30)).unwrap();
        completions.drain(|tag, answer| answers.push((tag, answer.unwrap_err().kind())));
    }
    assert_eq!(answers, [(1, ErrorKind::Closed)]);
}

/// Waits for the next answers, with their tags.
fn next_answers(completions: &Completions<u32>, woken: &Receiver<()>) -> Vec<(u32, Result<Answer, Error>)> {
    let mut answers = Vec::new();
    while answers.is_empty() {
        woken.recv_timeout(Duration::from_secs(30)).unwrap();
        completions.drain(|tag, answer| answers.push((tag, answer)));
    }
    answers
}

#[test]
fn deferred_calls_are_started_together() {
    let clock = clock();
    let limiter = limiter(&clock);
    let (completions, woken) = completions();
    let acquire = Call::Acquire(Request::new("user"), Duration::from_secs(90));
    // A call that needs no wait is answered without completions.
    assert!(limiter.raw().try_call(&Call::Check(Request::new("user"))).is_some());
    for tag in 1..3 {
        assert_eq!(completions.defer(&limiter, &acquire, tag), None);
    }
    assert_eq!(completions.pending(), 2);
    completions.drain(|tag, _| panic!("{tag} was not started"));
    completions.flush();
    let answers = next_answers(&completions, &woken);
    assert!(
        matches!(&answers[..], [(1, Ok(Answer::Decision(decision)))] if decision.allowed()),
        "{answers:?}"
    );
    assert_eq!(completions.pending(), 1);
    clock.advance(Duration::from_secs(60)).unwrap();
    let answers = next_answers(&completions, &woken);
    assert!(
        matches!(&answers[..], [(2, Ok(Answer::Decision(decision)))] if decision.allowed()),
        "{answers:?}"
    );
    assert_eq!(completions.pending(), 0);
    completions.flush();
}

#[test]
fn deferred_calls_are_answered_when_the_limiter_is_closed() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}?deadline=60s", silent.local_addr().unwrap());
    let limiter =
        || Limiter::builder().store(&url).policy(Policy::parse("api", "2/minute").unwrap()).build().unwrap();
    let (completions, woken) = completions();
    let check = Call::Check(Request::new("user"));
    // The limiter is closed after the start of a call, and before it. A deferred call is dropped.
    let started = limiter();
    assert!(completions.defer(&started, &check, 1).is_none());
    completions.flush();
    started.close();
    let answers = next_answers(&completions, &woken);
    assert!(matches!(&answers[..], [(1, Err(error))] if error.kind() == ErrorKind::Closed), "{answers:?}");
    let held = limiter();
    assert!(completions.defer(&held, &check, 2).is_none());
    held.close();
    completions.flush();
    let answers = next_answers(&completions, &woken);
    assert!(matches!(&answers[..], [(2, Err(error))] if error.kind() == ErrorKind::Closed), "{answers:?}");
    assert_eq!(completions.pending(), 0);
    assert!(completions.defer(&limiter(), &check, 3).is_none());
    drop(completions);
}

#[test]
fn call_is_a_future_that_any_executor_can_poll() {
    let clock = clock();
    let limiter = limiter(&clock);
    let key = Request::new("user");
    let run = |call: Call<'_>| futures_util::FutureExt::now_or_never(limiter.start(&call));
    for _ in 0..2 {
        assert!(decision(run(Call::Check(key)).unwrap()).allowed());
    }
    let mut waiting = std::pin::pin!(limiter.start(&Call::Acquire(key, Duration::from_secs(90))));
    let (woken, wake) = channel();
    let waker = std::task::Waker::from(std::sync::Arc::new(Woken(woken)));
    let mut context = std::task::Context::from_waker(&waker);
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_secs(60)).unwrap();
    loop {
        if let std::task::Poll::Ready(answer) = waiting.as_mut().poll(&mut context) {
            assert!(decision(answer).allowed());
            break;
        }
        wake.recv_timeout(Duration::from_secs(30)).unwrap();
    }
    limiter.close();
    assert_eq!(run(Call::Check(key)).unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

/// A waker that sends a message.
struct Woken(std::sync::mpsc::Sender<()>);

impl std::task::Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        _ = self.0.send(());
    }
}

#[test]
fn sleep_lasts_for_its_time_by_the_clock_of_the_limiter_or_until_that_is_closed() {
    let clock = clock();
    let limiter = limiter(&clock);
    let (completions, woken) = completions();
    let sleep = |seconds| Call::Sleep(Duration::from_secs(seconds));
    assert_eq!(limiter.raw().try_call(&sleep(60)), None);
    assert_eq!(completions.submit(&limiter, &sleep(60), 1), None);
    assert_eq!(completions.submit(&limiter, &sleep(61), 2), None);
    assert_eq!(completions.submit(&limiter, &sleep(61), 3), None);
    assert!(completions.cancel(&3) && !completions.cancel(&3));
    clock.advance(Duration::from_secs(60)).unwrap();
    let mut answers = Vec::new();
    while answers.is_empty() {
        woken.recv_timeout(TIMEOUT).unwrap();
        completions.drain(|tag, answer| answers.push((tag, answer)));
    }
    assert_eq!((answers, completions.pending()), (vec![(1, Ok(Answer::Ready))], 1));
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| limiter.blocking().raw().call(&sleep(3600)));
        limiter.close();
        assert_eq!(blocked.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
    let mut closed = Vec::new();
    while closed.is_empty() {
        woken.recv_timeout(TIMEOUT).unwrap();
        completions.drain(|tag, answer| closed.push((tag, answer.unwrap_err().kind())));
    }
    assert_eq!(closed, [(2, ErrorKind::Closed)]);
    let limiter = Limiter::builder().build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let slept = runtime.block_on(limiter.raw().call(&Call::Sleep(Duration::from_millis(1))));
    assert_eq!(slept, Ok(Answer::Ready));
    assert_eq!(limiter.blocking().raw().call(&Call::Sleep(Duration::from_millis(1))), Ok(Answer::Ready));
}
