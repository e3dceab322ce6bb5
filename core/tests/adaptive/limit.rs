//! What a limit does with calls: places, windows, bounds, hooks, panics and threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use polylimit::ErrorKind;
use polylimit::adaptive::{AdaptiveLimit, AdaptiveLimitBuilder, Call};
use polylimit::clock::ManualClock;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const START_US: u64 = 1_700_000_000_000_000;

fn clock() -> ManualClock {
    ManualClock::new(START_US).unwrap()
}

/// How the calls of a window end.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Success,
    Failure,
    Drop,
}

/// Plays a window: this number of calls at the same time, for as long as `latency`, often enough for a measurement.
fn window(limit: &AdaptiveLimit, clock: &ManualClock, calls: u32, latency: Duration, end: End) {
    for _ in 0..10_u32.div_ceil(calls).max(2) {
        let calls: Vec<Call> = (0..calls).map_while(|_| limit.try_begin()).collect();
        clock.advance(latency).unwrap();
        for call in calls {
            match end {
                End::Success => call.succeeded(),
                End::Failure => call.failed(),
                End::Drop => drop(call),
            }
        }
    }
    assert_eq!(limit.in_flight(), 0);
}

const FAST: Duration = Duration::from_millis(50);
const SLOW: Duration = Duration::from_millis(400);

/// Both algorithms, between 2 and 100, on their own clocks.
fn both() -> [(AdaptiveLimit, ManualClock); 2] {
    let build = |set: fn(AdaptiveLimitBuilder) -> AdaptiveLimitBuilder| {
        let clock = clock();
        let builder = AdaptiveLimit::builder(2..=100).initial(20).clock(clock.clone());
        (set(builder).build().unwrap(), clock)
    };
    [build(|builder| builder.aimd(Duration::from_millis(200))), build(AdaptiveLimitBuilder::gradient)]
}

#[test]
fn limit_grows_to_its_bound_under_load_shrinks_when_slow_and_recovers() {
    for (limit, clock) in both() {
        for _ in 0..1000 {
            window(&limit, &clock, limit.limit(), FAST, End::Success);
        }
        assert_eq!(limit.limit(), 100, "{limit:?}");
        for _ in 0..40 {
            window(&limit, &clock, limit.limit(), SLOW, End::Success);
        }
        let shrunk = limit.limit();
        assert!((2..=20).contains(&shrunk), "{limit:?}");
        for _ in 0..200 {
            window(&limit, &clock, limit.limit(), FAST, End::Success);
        }
        assert_eq!(limit.limit(), 100, "{limit:?}");
    }
}

#[test]
fn failures_shrink_the_limit_by_a_tenth_each_window_down_to_its_bound() {
    for (limit, clock) in both() {
        window(&limit, &clock, 20, FAST, End::Failure);
        assert_eq!(limit.limit(), 18);
        // Also where the limit is not the constraint.
        window(&limit, &clock, 1, FAST, End::Failure);
        assert!((15..=16).contains(&limit.limit()), "{limit:?}");
        for _ in 0..100 {
            window(&limit, &clock, limit.limit(), FAST, End::Failure);
        }
        assert_eq!(limit.limit(), 2);
        for _ in 0..50 {
            window(&limit, &clock, limit.limit(), FAST, End::Success);
        }
        assert!(limit.limit() > 20, "{limit:?}");
    }
}

#[test]
fn load_below_half_of_the_limit_does_not_change_it() {
    for (limit, clock) in both() {
        for _ in 0..100 {
            window(&limit, &clock, 9, FAST, End::Success);
        }
        assert_eq!(limit.limit(), 20);
        window(&limit, &clock, 10, FAST, End::Success);
        window(&limit, &clock, 10, FAST, End::Success);
        window(&limit, &clock, 11, FAST, End::Success);
        assert!(limit.limit() > 20, "{limit:?}");
    }
}

#[test]
fn dropped_calls_are_not_measured() {
    for (limit, clock) in both() {
        for _ in 0..100 {
            window(&limit, &clock, 20, SLOW, End::Drop);
        }
        assert_eq!((limit.limit(), limit.in_flight()), (20, 0));
    }
}

#[test]
fn tolerated_failures_are_none_if_set_to_zero() {
    for (percent, limit_after) in [(5, 101), (0, 90)] {
        let clock = clock();
        let builder = AdaptiveLimit::builder(2..=200).initial(100).tolerated_failures(percent);
        let limit = builder.aimd(SLOW).clock(clock.clone()).build().unwrap();
        let calls: Vec<_> = (0..100).map(|_| limit.try_begin().unwrap()).collect();
        clock.advance(FAST * 2).unwrap();
        // The window ends with the first call after its time that is at least the tenth.
        let mut calls = calls.into_iter();
        clock.set(START_US + 1).unwrap();
        calls.by_ref().take(98).for_each(Call::succeeded);
        calls.next().unwrap().failed();
        clock.set(START_US + 100_000).unwrap();
        calls.next().unwrap().succeeded();
        assert_eq!(limit.limit(), limit_after);
    }
}

#[test]
fn full_limit_admits_nothing_until_a_call_ends() {
    let limit = AdaptiveLimit::builder(2..=2).build().unwrap();
    let first = limit.try_begin().unwrap();
    let _second = limit.try_begin().unwrap();
    assert!(limit.try_begin().is_none());
    assert_eq!(limit.in_flight(), 2);
    drop(first);
    assert!(limit.clone().try_begin().is_some());
}

#[test]
fn calls_of_a_limit_that_shrank_end_before_others_begin() {
    let clock = clock();
    let limit = AdaptiveLimit::builder(1..=20).initial(20).clock(clock.clone()).build().unwrap();
    let mut calls: Vec<_> = (0..20).map(|_| limit.try_begin().unwrap()).collect();
    clock.advance(FAST * 2).unwrap();
    calls.drain(..10).for_each(Call::failed);
    assert_eq!((limit.limit(), limit.in_flight()), (18, 10));
    let began: Vec<_> = std::iter::from_fn(|| limit.try_begin()).collect();
    assert_eq!(began.len(), 8);
}

#[test]
fn panics_and_cancelled_futures_free_their_place() {
    let limit = AdaptiveLimit::builder(1..=1).build().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _call = limit.try_begin().unwrap();
        panic!("of the test");
    }));
    assert!(panicked.is_err());
    assert_eq!(limit.in_flight(), 0);

    let of_future = limit.clone();
    let mut future = Box::pin(async move {
        let call = of_future.try_begin().unwrap();
        std::future::pending::<()>().await;
        call.succeeded();
    });
    assert!(future.as_mut().now_or_never().is_none());
    assert_eq!(limit.in_flight(), 1);
    drop(future);
    assert_eq!(limit.in_flight(), 0);
}

#[test]
fn clock_that_goes_back_measures_nothing_wrong() {
    for (limit, clock) in both() {
        let call = limit.try_begin().unwrap();
        clock.set(5).unwrap();
        call.succeeded();
        for _ in 0..40 {
            window(&limit, &clock, 20, FAST, End::Success);
        }
        assert!(limit.limit() >= 20, "{limit:?}");
        clock.set(ManualClock::MAX_US).unwrap();
        clock.set(0).unwrap();
        window(&limit, &clock, 20, FAST, End::Success);
    }
}

#[test]
fn hook_runs_once_for_each_change_and_may_use_the_limit() {
    let clock = clock();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let own: Arc<Mutex<Option<AdaptiveLimit>>> = Arc::default();
    let (of_hook, own_of_hook) = (Arc::clone(&seen), Arc::clone(&own));
    let limit = AdaptiveLimit::builder(2..=22)
        .initial(20)
        .aimd(SLOW)
        .clock(clock.clone())
        .on_change(move |n| {
            let limit = own_of_hook.lock().unwrap().clone().unwrap();
            // It would wait forever if a lock were held.
            limit.try_begin().unwrap().failed();
            of_hook.lock().unwrap().push((n, limit.limit()));
        })
        .build()
        .unwrap();
    *own.lock().unwrap() = Some(limit.clone());
    for _ in 0..8 {
        window(&limit, &clock, 20, FAST, End::Success);
    }
    // 22 is the bound: no change, no call of the hook.
    assert_eq!(*seen.lock().unwrap(), [(21, 21), (22, 22)]);
    own.lock().unwrap().take();
}

#[test]
fn hook_that_panics_runs_again_with_the_next_limit() {
    let clock = clock();
    let seen = Arc::new(AtomicU32::new(0));
    let of_hook = Arc::clone(&seen);
    let hook = move |n| {
        of_hook.store(n, Ordering::SeqCst);
        assert!(n != 21, "the hook of the test");
    };
    let builder = AdaptiveLimit::builder(2..=100).initial(20).aimd(SLOW).clock(clock.clone());
    let limit = builder.on_change(hook).build().unwrap();
    let calls: Vec<_> = (0..20).map(|_| limit.try_begin().unwrap()).collect();
    clock.advance(FAST * 2).unwrap();
    let panicked =
        calls.into_iter().filter_map(|call| catch_unwind(AssertUnwindSafe(|| call.succeeded())).err());
    assert_eq!(panicked.count(), 1);
    assert_eq!((limit.in_flight(), seen.load(Ordering::SeqCst)), (0, 21));
    window(&limit, &clock, 20, FAST, End::Success);
    assert_eq!(seen.load(Ordering::SeqCst), 22);
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let plain = || AdaptiveLimit::builder(1..=10);
    #[expect(clippy::reversed_empty_ranges, reason = "what a caller may get wrong")]
    let refused = [
        (AdaptiveLimit::builder(0..=10), "bounds 0..=10: they are 1 to 1000000, the lower one first"),
        (AdaptiveLimit::builder(11..=10), "bounds 11..=10"),
        (AdaptiveLimit::builder(1..=u32::MAX), "bounds 1..=4294967295"),
        (plain().initial(0), "initial limit 0: it is within the bounds, 1 to 10"),
        (plain().initial(11), "initial limit 11"),
        (plain().window(Duration::ZERO), "window 0ns: it is 1 ms to 1 h"),
        (plain().window(Duration::MAX), "it is 1 ms to 1 h"),
        (plain().aimd(Duration::ZERO), "latency 0ns"),
        (plain().aimd(Duration::MAX), "so it is 1 us to 1 day"),
        (plain().tolerated_failures(51), "tolerated failures 51 %: they are 0 to 50 % of the calls"),
    ];
    for (builder, message) in refused {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(message), "{error}");
        assert!(error.to_string().contains("adaptive limit with "), "{error}");
    }
    for accepted in
        [AdaptiveLimit::builder(AdaptiveLimit::MAX..=AdaptiveLimit::MAX), plain().aimd(FAST).gradient()]
    {
        accepted.tolerated_failures(50).build().unwrap();
    }
}

/// What a caller does; numbers choose a call in flight and a time.
#[derive(Clone, Debug)]
enum Step {
    Begin,
    Succeed(usize),
    Fail(usize),
    Drop(usize),
    Advance(u32),
    Set(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Begin),
        3 => any::<usize>().prop_map(Step::Succeed),
        1 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::Drop),
        3 => (0..200_000_u32).prop_map(Step::Advance),
        1 => (0..=ManualClock::MAX_US).prop_map(Step::Set),
    ];
    vec(step, 0..400)
}

proptest! {
    /// Whatever callers and clocks do: N stays within its bounds, and a call begins exactly when fewer than N are in flight.
    #[test]
    fn limit_stays_within_its_bounds(
        (min, max) in (1..40_u32).prop_flat_map(|min| (Just(min), min..60)),
        latency_us in option::of(1..400_000_u64),
        tolerated in 0..=50_u32,
        steps in steps(),
    ) {
        let clock = clock();
        let builder = AdaptiveLimit::builder(min..=max).tolerated_failures(tolerated).clock(clock.clone());
        let builder = match latency_us {
            Some(latency_us) => builder.aimd(Duration::from_micros(latency_us)),
            None => builder,
        };
        let limit = builder.window(Duration::from_millis(1)).build().unwrap();
        let mut calls: Vec<Call> = Vec::new();
        let take = |calls: &mut Vec<Call>, at: usize| {
            let at = at.checked_rem(calls.len())?;
            Some(calls.swap_remove(at))
        };
        for step in steps {
            let before = limit.limit();
            match step {
                Step::Begin => {
                    let begun = limit.try_begin();
                    prop_assert_eq!(begun.is_some(), calls.len() < before as usize);
                    calls.extend(begun);
                }
                Step::Succeed(at) => take(&mut calls, at).into_iter().for_each(Call::succeeded),
                Step::Fail(at) => take(&mut calls, at).into_iter().for_each(Call::failed),
                Step::Drop(at) => drop(take(&mut calls, at)),
                Step::Advance(by_us) => {
                    // At the latest time that the clock can show it stands.
                    let _ = clock.advance(Duration::from_micros(by_us.into()));
                }
                Step::Set(now_us) => clock.set(now_us).unwrap(),
            }
            let n = limit.limit();
            prop_assert!((min..=max).contains(&n), "{} is not in {}..={}", n, min, max);
            // One window changes it by a tenth and a call at most.
            prop_assert!(n.abs_diff(before) <= before / 10 + 1, "{} after {}", n, before);
            prop_assert_eq!(limit.in_flight() as usize, calls.len());
        }
    }
}

/// Eight threads and a limit that only grows: whatever was in flight was at most the limit afterwards.
#[test]
fn threads_never_exceed_the_limit_and_leave_nothing_behind() {
    let hooks = Arc::new(AtomicUsize::new(0));
    let newest = Arc::new(AtomicU32::new(2));
    let (of_hook, newest_of_hook) = (Arc::clone(&hooks), Arc::clone(&newest));
    let limit = AdaptiveLimit::builder(2..=6)
        .aimd(Duration::from_secs(3600))
        .window(Duration::from_millis(1))
        .on_change(move |n| {
            of_hook.fetch_add(1, Ordering::SeqCst);
            newest_of_hook.store(n, Ordering::SeqCst);
        })
        .build()
        .unwrap();
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..2_000 {
                    let Some(call) = limit.try_begin() else {
                        refused.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                        continue;
                    };
                    let in_flight = limit.in_flight();
                    let n = limit.limit();
                    assert!(in_flight <= n && n <= 6, "{in_flight} of {n}");
                    thread::yield_now();
                    if round % 7 == 0 { drop(call) } else { call.succeeded() }
                }
            });
        }
    });
    assert_eq!(limit.in_flight(), 0);
    // The last change reached the hook, whichever thread made it.
    assert_eq!(newest.load(Ordering::SeqCst), limit.limit());
    assert!(hooks.load(Ordering::SeqCst) <= 4);
}
