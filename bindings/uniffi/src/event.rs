//! Events of limiters, queued until the language takes them on a thread of its own or after a call.
//!
//! No native thread calls into a language, since not every language allows that.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::decision::Finding;
use crate::number::{Span, signed};

/// An event for operators: the limiter decides without its store, or with it again, or the doctor has a finding.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct DegradedEvent {
    /// The number of the limiter: see `keep_events`.
    pub limiter: i64,
    /// The kind of event: `started`, `ended` or `finding`.
    pub kind: String,
    /// Why the first decision was made without the store, such as `timeout`; nothing for a finding.
    pub reason: Option<String>,
    /// From the first decision that was made without the store to the last one; 0 unless it has ended.
    pub lasted: Span,
    /// How many decisions were made without the store; 0 unless it has ended.
    pub decisions: i64,
    /// How much it matters: `fine` when it is over, otherwise `advice` or `problem`.
    pub severity: String,
    /// What the doctor has found; nothing for anything else.
    pub finding: Option<Finding>,
    /// A sentence for a log. Holds no key, password or URL.
    pub message: String,
}

/// The capacity of the queue. A full queue drops its oldest event.
const MAX_QUEUED: usize = 1024;

/// After a fork, a thread that exists only in the parent may hold the lock for ever.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

static QUEUE: Mutex<VecDeque<DegradedEvent>> = Mutex::new(VecDeque::new());
static HAS_EVENTS: AtomicBool = AtomicBool::new(false);
static QUEUED: Condvar = Condvar::new();
static HAS_TO_RETURN: AtomicBool = AtomicBool::new(false);
static LAST_NUMBER: AtomicI64 = AtomicI64::new(0);

/// Queues the events of a limiter from now on, under the number that this returns.
pub(crate) fn subscribe(limiter: &polylimit::Limiter) -> i64 {
    let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    limiter.on_degraded(move |event| push(number, event));
    number
}

fn push(limiter: i64, event: &polylimit::metrics::DegradedEvent) {
    let Some(mut queue) = QUEUE.try_lock_for(LOCK_TIMEOUT) else { return };
    if queue.len() == MAX_QUEUED {
        queue.pop_front();
    }
    queue.push_back(DegradedEvent {
        limiter,
        kind: event.name().to_owned(),
        reason: event.reason().map(|reason| reason.name().to_owned()),
        lasted: Span::of_us(u64::try_from(event.lasted().as_micros()).unwrap_or(u64::MAX)),
        decisions: signed(event.decisions()),
        severity: event.severity().name().to_owned(),
        finding: event.finding().cloned().map(Into::into),
        message: event.to_string(),
    });
    HAS_EVENTS.store(true, Ordering::Relaxed);
    QUEUED.notify_all();
}

fn take(mut queue: MutexGuard<'_, VecDeque<DegradedEvent>>) -> Vec<DegradedEvent> {
    HAS_EVENTS.store(false, Ordering::Relaxed);
    queue.drain(..).collect()
}

/// Takes the queued events of all limiters of the process, the oldest first. Does not wait: if another thread uses the queue
/// at the moment, nothing is returned.
#[uniffi::export]
pub fn take_events() -> Vec<DegradedEvent> {
    QUEUE.try_lock().map(take).unwrap_or_default()
}

/// As `take_events`, but waits until there are some, or until `stop_waiting_for_events`.
#[uniffi::export]
pub fn wait_for_events() -> Vec<DegradedEvent> {
    let mut queue = QUEUE.lock();
    QUEUED.wait_while(&mut queue, |queue| queue.is_empty() && !HAS_TO_RETURN.load(Ordering::Relaxed));
    HAS_TO_RETURN.store(false, Ordering::Relaxed);
    take(queue)
}

/// Makes `wait_for_events` return, with nothing if there are no events; a thread that does not wait yet does not begin to.
#[uniffi::export]
pub fn stop_waiting_for_events() {
    // Under the lock, so that it cannot come between the look at the queue and the wait.
    let queue = QUEUE.lock();
    HAS_TO_RETURN.store(true, Ordering::Relaxed);
    QUEUED.notify_all();
    drop(queue);
}

/// Whether there are events to take. A function without conversions, for languages that ask after every call.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_uniffi_has_events() -> bool {
    HAS_EVENTS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limiter that has reported a full store.
    fn full() -> (polylimit::Limiter, i64) {
        let policy = polylimit::Policy::parse("api", "5/hour").unwrap();
        let limiter = polylimit::Limiter::builder().policy(policy).option("max_keys", "1").build().unwrap();
        let number = subscribe(&limiter);
        for key in ["one", "another"] {
            assert!(limiter.clone().blocking().check(key).unwrap().allowed());
        }
        (limiter, number)
    }

    #[test]
    fn events_are_taken_once() {
        let (_first, first) = full();
        let (_second, second) = full();
        assert!(polylimit_uniffi_has_events());
        let events: Vec<_> = wait_for_events().into_iter().map(|event| (event.limiter, event.kind)).collect();
        assert_eq!(events, [(first, "started".to_owned()), (second, "started".to_owned())]);
        assert!(!polylimit_uniffi_has_events() && take_events().is_empty());
        let (closed, number) = full();
        closed.close();
        assert_eq!(take_events().into_iter().map(|event| event.limiter).collect::<Vec<_>>(), [number]);
        closed.blocking().check("a third").unwrap_err();
        assert!(!polylimit_uniffi_has_events());
        stop_waiting_for_events();
        assert_eq!(wait_for_events(), []);
    }
}
