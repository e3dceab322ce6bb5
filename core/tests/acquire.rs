//! `acquire`: waits in a queue without polling, and is denied at once when its timeout is too short.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use polylimit::clock::ManualClock;
use polylimit::raw::{Answer, Call, Completions};
use polylimit::{ErrorKind, Limiter, Policy, Request};

const NOW_US: u64 = 1_800_000_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

fn manual(quotas: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::new(NOW_US).unwrap();
    let policy = Policy::parse("test", quotas).unwrap();
    (Limiter::builder().policy(policy).clock(clock.clone()).build().unwrap(), clock)
}

fn real(quotas: &str) -> Limiter {
    Limiter::builder().policy(Policy::parse("test", quotas).unwrap()).build().unwrap()
}

/// Runs all tasks until every one of them waits.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn waiting_acquire_is_admitted_when_units_are_refilled() {
    let (limiter, clock) = manual("1/second token_bucket");
    assert!(limiter.acquire("user", SECOND).await.unwrap().allowed());
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("user", SECOND).await.unwrap() }
    });
    settle().await;
    clock.set(NOW_US + 999_999).unwrap();
    settle().await;
    assert!(!waiting.is_finished());
    clock.set(NOW_US + 1_000_000).unwrap();
    assert!(waiting.await.unwrap().allowed());
}

#[tokio::test]
async fn acquire_beyond_its_timeout_is_denied_at_once() {
    for quotas in ["1/second token_bucket", "1/second", "1/second fixed_window", "1/second sliding_log"] {
        let (limiter, _) = manual(quotas);
        assert!(limiter.acquire("user", Duration::ZERO).await.unwrap().allowed());
        let denied = limiter.acquire("user", Duration::from_millis(900)).await.unwrap();
        assert!(!denied.allowed() && denied.retry_after().unwrap() > Duration::from_millis(900), "{quotas}");
        let never = limiter.acquire(Request::new("user").cost(2), Duration::MAX).await.unwrap();
        assert!(!never.allowed() && never.retry_after().is_none(), "{quotas}");
    }
}

#[tokio::test]
async fn acquire_behind_too_many_waiters_is_denied_at_once() {
    let (limiter, clock) = manual("1/second token_bucket");
    assert!(limiter.acquire("user", SECOND).await.unwrap().allowed());
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("user", 5 * SECOND).await.unwrap().allowed() })
        })
        .collect();
    settle().await;
    let denied = limiter.acquire("user", 5 * SECOND).await.unwrap();
    assert!(!denied.allowed());
    assert_eq!(denied.retry_after(), Some(6 * SECOND));
    for waiter in waiting {
        settle().await;
        clock.advance(SECOND).unwrap();
        assert!(waiter.await.unwrap());
    }
}

/// Whether waiters are admitted that arrive one after the other, each with a cost and a timeout in microseconds.
async fn acquire_together(limiter: &Limiter, clock: &ManualClock, callers: &[(u64, u64)]) -> Vec<bool> {
    let mut waiting = Vec::new();
    for &(cost, timeout_us) in callers {
        let limiter = limiter.clone();
        waiting.push(tokio::spawn(async move {
            let request = Request::new("user").cost(cost);
            limiter.acquire(request, Duration::from_micros(timeout_us)).await.unwrap().allowed()
        }));
        settle().await;
    }
    let start_us = clock.now_us();
    let mut timeouts_us: Vec<_> = callers.iter().map(|(_, timeout_us)| *timeout_us).collect();
    timeouts_us.sort_unstable();
    for timeout_us in timeouts_us {
        clock.set(start_us + timeout_us).unwrap();
        settle().await;
    }
    let mut admitted = Vec::new();
    for waiter in waiting {
        admitted.push(waiter.await.unwrap());
    }
    admitted
}

#[tokio::test]
async fn acquire_waits_for_admission_in_the_last_microsecond_of_its_timeout() {
    // A token is added every 333,333 1/3 us. Two are left, so that three are available after 333,333 1/3 us, which the clock
    // shows at 333,334. The next two are complete after exactly a second.
    let (limiter, clock) = manual("3/second token_bucket burst=4");
    assert!(limiter.check(Request::new("user").cost(2)).await.unwrap().allowed());
    assert_eq!(acquire_together(&limiter, &clock, &[(3, 333_334), (2, 1_000_000)]).await, [true, true]);
}

#[tokio::test]
async fn estimated_wait_behind_others_is_exact_under_two_quotas() {
    let (limiter, clock) = manual("100/second token_bucket burst=1000; 20/2s token_bucket burst=10");
    let _ = limiter.charge(Request::new("user").cost(8_000)).await.unwrap();
    clock.advance(60 * SECOND).unwrap();
    // The first quota admits a unit 10.01 s from now, and another every 10 ms. The second one admits 10 at once, and then one
    // every 100 ms after the first is spent.
    let mut callers: Vec<_> = (1..=10).map(|place| (1, 10_000_000 + place * 10_000)).collect();
    callers.extend([(1, 10_110_000), (1, 10_210_000)]);
    assert_eq!(acquire_together(&limiter, &clock, &callers).await, [true; 12]);
}

#[tokio::test]
async fn acquire_of_cost_zero_never_waits() {
    for quotas in ["1/hour token_bucket", "1/hour leaky_bucket", "0/hour"] {
        let (limiter, _) = manual(quotas);
        let first = limiter.check("user").await.unwrap();
        let waiting = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire("user", 7_200 * SECOND).await.unwrap() }
        });
        settle().await;
        assert_eq!(waiting.is_finished(), !first.allowed(), "{quotas}");
        assert!(limiter.acquire(Request::new("user").cost(0), Duration::ZERO).await.unwrap().allowed());
        waiting.abort();
    }
}

#[tokio::test]
async fn waiters_are_admitted_in_order_of_arrival() {
    let (limiter, clock) = manual("10/second token_bucket burst=1");
    let served = Arc::new(AtomicUsize::new(0));
    let mut waiting = Vec::new();
    for place in 0..50 {
        let (limiter, served) = (limiter.clone(), Arc::clone(&served));
        waiting.push(tokio::spawn(async move {
            assert!(limiter.acquire("user", 60 * SECOND).await.unwrap().allowed());
            assert_eq!(served.fetch_add(1, Ordering::SeqCst), place);
        }));
        settle().await;
    }
    while served.load(Ordering::SeqCst) < 50 {
        clock.advance(Duration::from_millis(100)).unwrap();
        settle().await;
    }
    for waiter in waiting {
        waiter.await.unwrap();
    }
}

#[tokio::test]
async fn cancelled_waiter_lets_the_next_one_advance() {
    let (limiter, clock) = manual("1/second token_bucket");
    assert!(limiter.acquire("user", SECOND).await.unwrap().allowed());
    let wait = |timeout| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire("user", timeout).await.unwrap().allowed() })
    };
    let first = wait(60 * SECOND);
    settle().await;
    let second = wait(2 * SECOND);
    settle().await;
    first.abort();
    settle().await;
    clock.advance(SECOND).unwrap();
    assert!(second.await.unwrap());
}

#[tokio::test]
async fn refund_reset_or_policy_change_admits_a_waiter_earlier() {
    for event in 0..3 {
        let (limiter, _) = manual("1/hour token_bucket");
        assert!(limiter.acquire("user", SECOND).await.unwrap().allowed());
        let waiting = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire("user", 7_200 * SECOND).await.unwrap().allowed() }
        });
        settle().await;
        match event {
            0 => drop(limiter.refund("user").await.unwrap()),
            1 => drop(limiter.reset("user").await.unwrap()),
            _ => limiter.set_policy(Policy::parse("test", "2/hour token_bucket burst=9").unwrap()).unwrap(),
        }
        assert!(waiting.await.unwrap());
    }
}

#[tokio::test]
async fn acquire_from_a_leaky_bucket_waits_for_its_delay() {
    let (limiter, clock) = manual("2/second leaky_bucket burst=4");
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("user", 2 * SECOND).await.unwrap().delay_us() })
        })
        .collect();
    settle().await;
    // The queue is full. Its last request leaves after 1.5 s, which is more than 1.2 s.
    let denied = limiter.acquire("user", Duration::from_millis(1_200)).await.unwrap();
    assert!(!denied.allowed());
    for (place, waiter) in waiting.into_iter().enumerate() {
        assert_eq!(waiter.await.unwrap(), place as u64 * 500_000);
        clock.advance(Duration::from_millis(500)).unwrap();
    }
    assert_eq!(limiter.peek("user").await.unwrap().remaining(), 4);
}

#[tokio::test]
async fn denied_acquire_from_a_leaky_bucket_spends_nothing() {
    let (limiter, _) = manual("2/second leaky_bucket burst=4");
    for _ in 0..3 {
        assert!(limiter.check("user").await.unwrap().allowed());
    }
    let denied = limiter.acquire("user", SECOND).await.unwrap();
    assert!(!denied.allowed());
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(500)));
    assert_eq!(limiter.peek("user").await.unwrap().remaining(), 1);
}

#[tokio::test]
async fn acquire_waits_by_the_system_clock() {
    let limiter = real("20/second token_bucket burst=1");
    let start = Instant::now();
    for _ in 0..5 {
        assert!(limiter.acquire("user", 60 * SECOND).await.unwrap().allowed());
    }
    assert!(start.elapsed() >= Duration::from_millis(199));
}

#[test]
fn acquire_without_a_runtime_is_an_invalid_argument() {
    let limiter = real("1/hour token_bucket");
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut poll = || {
        let mut acquiring = Box::pin(limiter.acquire("user", 7_200 * SECOND));
        match acquiring.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => answer,
            std::task::Poll::Pending => panic!("acquire waits without a timer"),
        }
    };
    assert!(poll().unwrap().allowed());
    let error = poll().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("tokio runtime"));
}

#[test]
fn blocking_acquire_waits_inside_and_outside_of_a_runtime() {
    let limiter = real("50/second token_bucket burst=1").blocking();
    assert!(limiter.acquire("user", SECOND).unwrap().allowed());
    assert!(limiter.acquire("user", SECOND).unwrap().allowed());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert!(limiter.acquire("user", SECOND).unwrap().allowed());
    });
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..8).map(|_| scope.spawn(|| limiter.acquire("user", 60 * SECOND))).collect();
        for waiter in waiters {
            assert!(waiter.join().unwrap().unwrap().allowed());
        }
    });
    let spent = real("1/day token_bucket").blocking();
    assert!(spent.acquire("user", Duration::ZERO).unwrap().allowed());
    assert!(!spent.acquire("user", Duration::ZERO).unwrap().allowed());
}

/// A leaky bucket in which a first caller is served and a second one waits out its delay of 500 ms.
async fn delayed() -> (Limiter, ManualClock, tokio::task::JoinHandle<()>) {
    let (limiter, clock) = manual("2/second leaky_bucket burst=4");
    assert!(limiter.acquire("user", SECOND).await.unwrap().allowed());
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { drop(limiter.acquire("user", SECOND).await) }
    });
    settle().await;
    assert_eq!(limiter.peek("user").await.unwrap().remaining(), 2);
    (limiter, clock, waiting)
}

#[tokio::test]
async fn dropped_acquire_refunds_its_units_once_during_a_leaky_buckets_delay() {
    let (limiter, _, waiting) = delayed().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(limiter.peek("user").await.unwrap().remaining(), 3);
    settle().await;
    assert_eq!(limiter.peek("user").await.unwrap().remaining(), 3);
}

#[tokio::test]
async fn dropped_acquire_frees_its_place_in_a_leaky_bucket() {
    let (limiter, clock, waiting) = delayed().await;
    let _ = limiter.check(Request::new("user").cost(2)).await.unwrap();
    // Four units are in the queue, so that the fifth would leave it after 2 s.
    let behind = limiter.acquire("user", Duration::from_millis(1_500)).await.unwrap();
    assert!(!behind.allowed());
    waiting.abort();
    drop(waiting.await);
    let behind = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire("user", Duration::from_millis(1_500)).await.unwrap().allowed() }
    });
    settle().await;
    clock.advance(Duration::from_millis(1_500)).unwrap();
    assert!(behind.await.unwrap());
}

#[tokio::test]
async fn acquire_that_waits_out_its_delay_keeps_its_units() {
    let (limiter, clock, waiting) = delayed().await;
    clock.advance(Duration::from_millis(500)).unwrap();
    waiting.await.unwrap();
    // One of two units has left the queue by itself.
    assert_eq!(limiter.peek("user").await.unwrap().remaining(), 3);
}

const HOUR: Duration = Duration::from_secs(3600);

fn fixed_window(clock: &ManualClock) -> Limiter {
    let policy = Policy::parse("api", "1/minute fixed_window").unwrap();
    Limiter::builder().policy(policy).clock(clock.clone()).build().unwrap()
}

fn is_allowed(answer: &Answer) -> bool {
    matches!(answer, Answer::Decision(decision) if decision.allowed())
}

#[test]
fn interrupted_acquire_leaves_the_queue_and_its_callback_may_use_the_limiter() {
    let clock = ManualClock::new(0).unwrap();
    let limiter = fixed_window(&clock).blocking();
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    assert!(is_allowed(
        &limiter.raw().call_until(&acquire, HOUR, || panic!("no wait is needed")).unwrap().unwrap()
    ));
    let mut polls = 0;
    let answer = limiter.raw().call_until(&acquire, Duration::from_millis(1), || {
        polls += 1;
        assert!(limiter.acquire(&format!("another {polls}"), HOUR).unwrap().allowed());
        polls == 3
    });
    assert_eq!((answer, polls), (None, 3));
    clock.advance(Duration::from_secs(60)).unwrap();
    assert!(limiter.check("user").unwrap().allowed());
}

#[test]
fn acquire_that_is_not_interrupted_is_admitted() {
    let clock = ManualClock::new(0).unwrap();
    let limiter = fixed_window(&clock).blocking();
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    assert!(limiter.check("user").unwrap().allowed());
    let answer = limiter.raw().call_until(&acquire, Duration::from_millis(1), || {
        clock.advance(Duration::from_secs(20)).unwrap();
        false
    });
    assert!(is_allowed(&answer.unwrap().unwrap()));
}

#[test]
fn cancelled_acquire_is_never_delivered_and_leaves_the_queue() {
    let clock = ManualClock::new(0).unwrap();
    let limiter = fixed_window(&clock);
    let (wake, woken) = channel();
    let completions = Completions::new(move || _ = wake.send(()));
    assert!(limiter.blocking().check("user").unwrap().allowed());
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    for tag in [1, 2] {
        assert_eq!(completions.submit(&limiter, &acquire, tag), None);
    }
    completions.cancel(&1);
    completions.cancel(&3);
    clock.advance(Duration::from_secs(60)).unwrap();
    let mut tags = Vec::new();
    while completions.pending() > 0 {
        woken.recv_timeout(Duration::from_secs(10)).unwrap();
        completions.drain(|tag, answer| tags.push((tag, is_allowed(&answer.unwrap()))));
    }
    // The first waiter has left the queue, so that the second is admitted.
    assert_eq!(tags, [(2, true)]);
}

#[test]
fn stopped_acquire_refunds_its_units_during_a_leaky_buckets_delay() {
    let clock = ManualClock::new(0).unwrap();
    let policy = Policy::parse("api", "2/second leaky_bucket burst=4").unwrap();
    let limiter = Limiter::builder().policy(policy).clock(clock).build().unwrap().blocking();
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    assert!(limiter.check("user").unwrap().allowed());
    let mut left = None;
    let answer = limiter.raw().call_until(&acquire, Duration::from_millis(1), || {
        left = Some(limiter.peek("user").unwrap().remaining());
        true
    });
    assert_eq!((answer, left), (None, Some(2)));
    assert_eq!(limiter.peek("user").unwrap().remaining(), 3);
}

#[test]
fn cancelled_acquire_refunds_its_units_during_a_leaky_buckets_delay() {
    let clock = ManualClock::new(0).unwrap();
    let policy = Policy::parse("api", "2/second leaky_bucket burst=4").unwrap();
    let limiter = Limiter::builder().policy(policy).clock(clock).build().unwrap();
    let completions = Completions::new(|| {});
    let acquire = Call::Acquire(Request::new("user"), HOUR);
    assert!(limiter.blocking().check("user").unwrap().allowed());
    assert_eq!(completions.submit(&limiter, &acquire, 1), None);
    assert_eq!(limiter.blocking().peek("user").unwrap().remaining(), 2);
    assert!(completions.cancel(&1));
    assert_eq!(limiter.blocking().peek("user").unwrap().remaining(), 3);
}

#[test]
fn cancelled_acquire_gives_back_an_answer_that_the_loop_has_not_taken() {
    let clock = ManualClock::new(0).unwrap();
    let limiter = fixed_window(&clock);
    let blocking = limiter.blocking();
    let completions = Completions::new(|| {});
    for key in ["user", "other"] {
        assert!(blocking.check(key).unwrap().allowed());
    }
    let acquire = |key| Call::Acquire(Request::new(key), HOUR);
    assert_eq!(completions.submit(&limiter, &acquire("user"), 1), None);
    clock.advance(Duration::from_secs(60)).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while blocking.peek("user").unwrap().remaining() > 0 {
        assert!(Instant::now() < end, "the acquire is not admitted");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(blocking.check("other").unwrap().allowed());
    // Starting another call polls the first one, which has finished by then.
    assert_eq!(completions.submit(&limiter, &acquire("other"), 2), None);
    assert!(completions.cancel(&1));
    assert!(!completions.cancel(&1));
    assert_eq!(blocking.peek("user").unwrap().remaining(), 1);
    assert_eq!(completions.pending(), 1);
    completions.drain(|tag, answer| panic!("{tag}: {answer:?}"));
}
