use std::future::poll_fn;
use std::sync::mpsc::channel;
use std::thread::{scope, sleep};
use std::time::Instant;

use super::*;
use crate::park::is_overdue;
use crate::sleep::at_most;

#[test]
fn waiting_caller_gets_another_runtime_when_the_driving_thread_is_suspended() {
    let driver = Driver::new().unwrap();
    let first = driver.running().unwrap();
    let (suspended, is_suspended) = channel();
    let (go_on, goes_on) = channel();
    scope(|scope| {
        scope.spawn(|| {
            let suspended_in_it = async move {
                suspended.send(()).unwrap();
                goes_on.recv().unwrap();
            };
            driver.block_on(suspended_in_it).unwrap();
        });
        is_suspended.recv().unwrap();
        let deadline = Instant::now() + Duration::from_millis(20);
        let missed = poll_fn(|_| if is_overdue(deadline) { Poll::Ready(()) } else { Poll::Pending });
        driver.block_on(missed).unwrap();
        assert!(!Arc::ptr_eq(&first, &driver.running().unwrap()));
        // The runtime's timers fire.
        driver.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await }).unwrap();
        go_on.send(()).unwrap();
    });
    driver.close();
    assert!(driver.running().is_err());
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn waiting_threads_keep_their_deadlines_while_the_driving_thread_is_suspended() {
    let (seat, runtime) = (Seat::default(), runtime());
    let (suspended, is_suspended) = channel();
    let (go_on, goes_on) = channel();
    scope(|scope| {
        scope.spawn(|| {
            seat.block_on(&runtime, async move {
                suspended.send(()).unwrap();
                goes_on.recv().unwrap();
            });
        });
        is_suspended.recv().unwrap();
        let never = std::future::pending::<()>();
        let waited = seat.block_on(&runtime, at_most(Duration::from_millis(20), never));
        assert!(waited.output.is_none());
        let deadline = Instant::now() + Duration::from_millis(20);
        let overdue = poll_fn(|_| if park::is_overdue(deadline) { Poll::Ready(()) } else { Poll::Pending });
        assert!(seat.block_on(&runtime, overdue).is_late);
        go_on.send(()).unwrap();
    });
}

#[test]
fn waiting_thread_takes_the_seat_when_it_is_free() {
    let (seat, runtime) = (Seat::default(), runtime());
    for _ in 0..20 {
        scope(|scope| {
            for thread in 0..4 {
                let (seat, runtime) = (&seat, &runtime);
                // Timers fire only while a thread drives.
                scope.spawn(move || {
                    let timers = async {
                        for _ in 0..3 {
                            tokio::time::sleep(Duration::from_millis(1 + thread)).await;
                        }
                    };
                    assert!(!seat.block_on(runtime, timers).is_late);
                });
            }
            sleep(Duration::from_millis(1));
        });
    }
}
