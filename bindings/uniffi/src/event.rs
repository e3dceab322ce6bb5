//! What limiters tell of themselves: kept here until the language comes for it, on a thread of its own or after a call.
//!
//! So no thread of ours calls into a language: not every one allows that.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::decision::Finding;
use crate::number::signed;
use crate::span::Span;

/// What a limiter tells its operators: that it decides without its store, or with it again, or what keeps its limits from
/// being held.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct DegradedEvent {
    /// The number of the limiter: see `keep_events`.
    pub limiter: i64,
    /// What has happened: `started`, `ended` or `finding`.
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

/// So many are kept; of more, the oldest go.
const MOST_KEPT: usize = 1024;

/// A thread that is not in a forked process may hold the lock for ever.
const PATIENCE: Duration = Duration::from_millis(100);

static UNTOLD: Mutex<VecDeque<DegradedEvent>> = Mutex::new(VecDeque::new());
static IS_ANY_UNTOLD: AtomicBool = AtomicBool::new(false);
static TOLD: Condvar = Condvar::new();
static LAST_NUMBER: AtomicI64 = AtomicI64::new(0);

/// Has what a limiter tells kept here from now on, under the number that this gives.
pub(crate) fn keep_of(limiter: &polylimit::Limiter) -> i64 {
    let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    limiter.on_degraded(move |event| keep(number, event));
    number
}

fn keep(limiter: i64, event: &polylimit::DegradedEvent) {
    let Some(mut untold) = UNTOLD.try_lock_for(PATIENCE) else { return };
    if untold.len() == MOST_KEPT {
        untold.pop_front();
    }
    untold.push_back(DegradedEvent {
        limiter,
        kind: event.name().to_owned(),
        reason: event.reason().map(|reason| reason.name().to_owned()),
        lasted: Span::of_us(u64::try_from(event.lasted().as_micros()).unwrap_or(u64::MAX)),
        decisions: signed(event.decisions()),
        severity: event.severity().name().to_owned(),
        finding: event.finding().cloned().map(Into::into),
        message: event.to_string(),
    });
    IS_ANY_UNTOLD.store(true, Ordering::Relaxed);
    TOLD.notify_all();
}

fn take(mut untold: MutexGuard<'_, VecDeque<DegradedEvent>>) -> Vec<DegradedEvent> {
    IS_ANY_UNTOLD.store(false, Ordering::Relaxed);
    untold.drain(..).collect()
}

/// The events of all limiters of the process that were not taken yet, the oldest first. Does not wait: what another thread
/// takes or keeps just now comes later.
#[uniffi::export]
pub fn take_events() -> Vec<DegradedEvent> {
    UNTOLD.try_lock().map(take).unwrap_or_default()
}

/// As `take_events`, but waits until there are some.
#[uniffi::export]
pub fn wait_for_events() -> Vec<DegradedEvent> {
    let mut untold = UNTOLD.lock();
    TOLD.wait_while(&mut untold, |untold| untold.is_empty());
    take(untold)
}

/// Whether there are events to take: for languages that ask after every call, and would pay more for any other function.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_uniffi_has_events() -> bool {
    IS_ANY_UNTOLD.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limiter that has told that it is full.
    fn full() -> (polylimit::Limiter, i64) {
        let policy = polylimit::Policy::parse("api", "5/hour").unwrap();
        let limiter = polylimit::Limiter::builder().policy(policy).option("max_keys", "1").build().unwrap();
        let number = keep_of(&limiter);
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
        let told: Vec<_> = wait_for_events().into_iter().map(|event| (event.limiter, event.kind)).collect();
        assert_eq!(told, [(first, "started".to_owned()), (second, "started".to_owned())]);
        assert!(!polylimit_uniffi_has_events() && take_events().is_empty());
        let (closed, number) = full();
        closed.close();
        assert_eq!(take_events().into_iter().map(|event| event.limiter).collect::<Vec<_>>(), [number]);
        closed.blocking().check("a third").unwrap_err();
        assert!(!polylimit_uniffi_has_events());
    }
}
