//! Sees whether a limiter decides with its store, and tells when that begins to be otherwise and when it ends.
//!
//! It looks at every decision that is not made in the shortest way. While all is well that is one load of a byte.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, ReentrantMutex};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::limiter::event::{DegradedEvent, Hook};
use crate::rules::decision::{Decision, Degradation, Source};
use crate::runtime::monotonic;
use crate::store::finding::Severity;
use crate::store::redis::doctor::DoctorForAll;

/// Decisions are made without the store, or were until a moment ago.
const DEGRADED: u8 = 1;
/// The store has not been looked at yet.
const UNEXAMINED: u8 = 2;

/// So many events are kept until they are taken; of more, the oldest go.
const MAX_EVENTS: usize = 64;
/// The doctor gives up after that.
const DOCTOR_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct DegradationWatch {
    /// What there is to look after; 0 while all is well.
    attention: AtomicU8,
    made: Instant,
    /// When the first decision was made without the store, and why; told along with the end.
    began: Mutex<(u64, Option<Degradation>)>,
    /// When the last decision was made without the store, in microseconds since it was made.
    last_us: AtomicU64,
    /// How many were.
    decisions: AtomicU64,
    /// How long after the first decision the store is looked at, and when that was; 0 before.
    doctor_after: Option<Duration>,
    first_us: AtomicU64,
    /// Let go of when the limiter is closed, along with what it holds.
    hook: ReentrantMutex<RefCell<Option<Hook>>>,
    kept: Mutex<VecDeque<DegradedEvent>>,
    keeps_any: AtomicBool,
    /// Has no permits; closed along with the limiter.
    open: Arc<Semaphore>,
}

impl DegradationWatch {
    /// Of a store that is to be looked at so long after its first decision.
    pub(crate) fn new(doctor_after: Option<Duration>, hook: Option<Hook>) -> Arc<Self> {
        Arc::new(Self {
            attention: AtomicU8::new(if doctor_after.is_some() { UNEXAMINED } else { 0 }),
            made: monotonic::now(),
            began: Mutex::default(),
            last_us: AtomicU64::new(0),
            decisions: AtomicU64::new(0),
            doctor_after,
            first_us: AtomicU64::new(0),
            hook: ReentrantMutex::new(RefCell::new(hook)),
            kept: Mutex::default(),
            keeps_any: AtomicBool::new(false),
            open: Arc::new(Semaphore::new(0)),
        })
    }

    /// The same for a process that was forked from this one.
    pub(crate) fn after_fork(&self) -> Arc<Self> {
        // A thread that is not in this process may hold it.
        let hook = self.hook.try_lock().and_then(|hook| hook.borrow().clone());
        Self::new(self.doctor_after, hook)
    }

    /// Sees a decision. Says whether it is time to have the store looked at.
    #[inline]
    #[must_use = "the store is looked at once"]
    pub(crate) fn see(&self, decision: &Decision) -> bool {
        let is_quiet = decision.degraded.is_none() && self.attention.load(Ordering::Relaxed) == 0;
        !is_quiet && self.look(decision, self.now_us())
    }

    #[cold]
    fn look(&self, decision: &Decision, now_us: u64) -> bool {
        match decision.degraded {
            Some(reason) => self.went_without(reason, now_us),
            None if decision.source == Source::Store => {
                self.went_with(now_us);
                return self.is_doctor_due(now_us);
            }
            None => {}
        }
        false
    }

    /// A decision was made without the store.
    fn went_without(&self, reason: Degradation, now_us: u64) {
        self.last_us.store(now_us, Ordering::Relaxed);
        self.decisions.fetch_add(1, Ordering::Relaxed);
        if self.is(DEGRADED) || self.attention.fetch_or(DEGRADED, Ordering::Relaxed) & DEGRADED != 0 {
            return;
        }
        *self.began.lock() = (now_us, Some(reason));
        self.tell(DegradedEvent::Started { reason });
    }

    /// A decision was made by the store.
    fn went_with(&self, now_us: u64) {
        let last_us = self.last_us.load(Ordering::Relaxed);
        let is_calm = now_us.saturating_sub(last_us) >= CALM_US;
        if !self.is(DEGRADED) || !is_calm {
            return;
        }
        if self.attention.fetch_and(!DEGRADED, Ordering::Relaxed) & DEGRADED != 0 {
            let decisions = self.decisions.swap(0, Ordering::Relaxed);
            // Not there only if the decision that began it has not come that far.
            let (began_us, Some(reason)) = std::mem::take(&mut *self.began.lock()) else { return };
            let lasted = Duration::from_micros(last_us.saturating_sub(began_us));
            self.tell(DegradedEvent::Ended { reason, lasted, decisions });
        }
    }

    fn is_doctor_due(&self, now_us: u64) -> bool {
        let Some(after) = self.doctor_after.filter(|_| self.is(UNEXAMINED)) else { return false };
        let first_us = match self.first_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => now_us,
            Err(first_us) => first_us,
        };
        let is_time = u128::from(now_us.saturating_sub(first_us)) >= after.as_micros();
        is_time && self.attention.fetch_and(!UNEXAMINED, Ordering::Relaxed) & UNEXAMINED != 0
    }

    /// Has the doctor look at the store, on a thread that does nothing else and ends soon.
    #[cold]
    pub(crate) fn examine(self: &Arc<Self>, mut doctor: DoctorForAll) {
        let (open, watch) = (Arc::clone(&self.open), Arc::downgrade(self));
        let examine = move || {
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
                if let Some(watch) = watch.upgrade() {
                    watch.put_off();
                }
                return;
            };
            let findings = runtime.block_on(async {
                tokio::select! {
                    _ = open.acquire() => None,
                    findings = timeout(DOCTOR_TIMEOUT, doctor.examine()) => findings.ok(),
                }
            });
            runtime.shutdown_background();
            let mut told = Vec::new();
            for finding in findings.into_iter().flatten() {
                // It was reached before, and may have gone since: that is told where decisions need it.
                let is_told = finding.severity >= Severity::Problem && finding.subject != "connection";
                // Those of a cluster have it in common.
                if is_told && !told.contains(&finding) {
                    told.push(finding);
                }
            }
            if let Some(watch) = watch.upgrade() {
                for finding in told {
                    watch.tell(DegradedEvent::Finding(finding));
                }
            }
        };
        let started = std::thread::Builder::new().name("polylimit-doctor".to_owned()).spawn(examine);
        if started.is_err() {
            self.put_off();
        }
    }

    /// The system gives no thread, or not what it takes: the store is looked at later, as if it were used only now.
    fn put_off(&self) {
        self.first_us.store(0, Ordering::Relaxed);
        self.attention.fetch_or(UNEXAMINED, Ordering::Relaxed);
    }

    /// Ends a look at the store that is under way, and calls the hook no more.
    pub(crate) fn close(&self) {
        self.open.close();
        self.set_hook(None);
    }

    /// Calls another hook from now on: once this returns, the one before is called no more, unless it is what calls this.
    pub(crate) fn set_hook(&self, hook: Option<Hook>) {
        let before = self.hook.lock().replace(hook);
        // It may be the last owner of things that call others.
        drop(before);
    }

    /// Whether [`take`](Self::take) has something to give.
    #[inline]
    pub(crate) fn keeps_any(&self) -> bool {
        self.keeps_any.load(Ordering::Relaxed)
    }

    /// The events that were not taken yet.
    pub(crate) fn take(&self) -> Vec<DegradedEvent> {
        let mut kept = self.kept.lock();
        self.keeps_any.store(false, Ordering::Relaxed);
        kept.drain(..).collect()
    }

    fn tell(&self, event: DegradedEvent) {
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "polylimit", event = event.name(), "{event}");
        {
            let hook = self.hook.lock();
            // It may itself come here, or set another.
            let current = hook.borrow().clone();
            if let Some(current) = current {
                current.call(&event);
            }
        }
        let mut kept = self.kept.lock();
        if kept.len() == MAX_EVENTS {
            kept.pop_front();
        }
        kept.push_back(event);
        self.keeps_any.store(true, Ordering::Relaxed);
    }

    fn is(&self, what: u8) -> bool {
        self.attention.load(Ordering::Relaxed) & what != 0
    }

    /// Microseconds since this was made; never 0.
    fn now_us(&self) -> u64 {
        u64::try_from(monotonic::now().saturating_duration_since(self.made).as_micros())
            .unwrap_or(u64::MAX)
            .max(1)
    }
}

impl Drop for DegradationWatch {
    fn drop(&mut self) {
        self.close();
    }
}

#[expect(clippy::cast_possible_truncation, reason = "it is 3 seconds")]
const CALM_US: u64 = DegradedEvent::CALM.as_micros() as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::decision::QuotaUsage;

    const SECOND_US: u64 = 1_000_000;

    fn decision(source: Source, degraded: Option<Degradation>) -> Decision {
        let total = QuotaUsage { limit: 1, remaining: 1, reset_after_us: 0 };
        Decision { total, several: None, wait_us: 0, allowed: true, source, degraded }
    }

    fn by_store() -> Decision {
        decision(Source::Store, None)
    }

    fn without() -> Decision {
        decision(Source::Fallback, Some(Degradation::Late))
    }

    #[test]
    fn a_store_that_fails_now_and_then_is_told_of_once() {
        let watch = DegradationWatch::new(None, None);
        let started = DegradedEvent::Started { reason: Degradation::Late };
        // One decision in ten, ten times a second, for a minute.
        for tenth in 1..=600 {
            watch.look(&if tenth % 10 == 0 { without() } else { by_store() }, tenth * SECOND_US / 10);
        }
        assert_eq!(watch.take(), [started]);
        watch.look(&by_store(), 60 * SECOND_US + CALM_US - 1);
        assert!(!watch.keeps_any());
        // What is known without asking the store says nothing of it.
        watch.look(&decision(Source::DenialCache, None), 70 * SECOND_US);
        assert!(!watch.keeps_any());
        watch.look(&by_store(), 60 * SECOND_US + CALM_US);
        let (reason, lasted) = (Degradation::Late, Duration::from_secs(59));
        assert_eq!(watch.take(), [DegradedEvent::Ended { reason, lasted, decisions: 60 }]);
        assert!(!watch.see(&by_store()) && watch.take().is_empty());
    }

    #[test]
    fn the_next_time_is_counted_anew() {
        let watch = DegradationWatch::new(None, None);
        for round in 1..=3 {
            let start_us = round * 100 * SECOND_US;
            watch.look(&without(), start_us);
            watch.look(&without(), start_us + 5 * SECOND_US);
            watch.look(&by_store(), start_us + 9 * SECOND_US);
            let told = watch.take();
            assert_eq!(told.iter().map(DegradedEvent::name).collect::<Vec<_>>(), ["started", "ended"]);
            assert_eq!((told[1].lasted(), told[1].decisions()), (Duration::from_secs(5), 2));
        }
    }

    #[test]
    fn the_last_events_are_kept() {
        let watch = DegradationWatch::new(None, None);
        for round in 1..=100 {
            watch.look(&without(), round * 100 * SECOND_US);
            watch.look(&by_store(), (round * 100 + 50) * SECOND_US);
        }
        let told = watch.take();
        assert_eq!((told.len(), told[MAX_EVENTS - 1].name()), (MAX_EVENTS, "ended"));
    }

    #[test]
    fn the_doctor_is_due_once() {
        let watch = DegradationWatch::new(Some(Duration::from_secs(1)), None);
        let due = |decision: Decision, now_us| watch.look(&decision, now_us);
        assert!(!due(without(), 1));
        assert!(!due(without(), 10 * SECOND_US));
        // Its time runs from the first decision of the store.
        assert!(!due(by_store(), 10 * SECOND_US));
        assert!(!due(by_store(), 11 * SECOND_US - 1));
        assert!(!due(without(), 11 * SECOND_US));
        assert!(due(by_store(), 11 * SECOND_US));
        assert!(!due(by_store(), 20 * SECOND_US));
        assert!(!DegradationWatch::new(None, None).look(&by_store(), 20 * SECOND_US));
    }
}
