//! Detects when a limiter starts to decide without its store and when the store decides again, and publishes both as
//! events.
//!
//! It sees every decision outside the shortest path. While the store decides, that costs one load of a byte.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, ReentrantMutex};
use tokio::time::timeout;

use crate::limiter::event::{CONFIGURATION, DegradedEvent, Hook};
use crate::store::Store;
use crate::store::redis::doctor::DoctorForAll;
use polylimit_rules::decision::{Decision, Degradation, Source};
use polylimit_rules::error::Error;
use polylimit_rules::units::micros;
use polylimit_runtime::close_signal::CloseSignal;
use polylimit_runtime::driver::new_runtime;
use polylimit_runtime::monotonic::{self, Instant};
use polylimit_store::finding::{Finding, Severity};

/// The limiter decides without the store, or did so less than [`DegradedEvent::CALM`] ago.
const DEGRADED: u8 = 1;
/// The doctor has not examined the store yet.
const UNEXAMINED: u8 = 2;

/// How many events are kept until the program takes them; the oldest are dropped.
const MAX_EVENTS: usize = 64;
/// How long the doctor may take.
const DOCTOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a store cannot decide, as far as it is known.
type Cause<'a> = dyn Fn(Degradation) -> Option<Arc<str>> + 'a;

pub(crate) struct DegradationWatch {
    /// The flags [`DEGRADED`] and [`UNEXAMINED`]; 0 while nothing needs attention.
    attention: AtomicU8,
    made: Instant,
    /// When and why the first decision was made without the store; the event that ends the outage reports both.
    began: Mutex<(u64, Option<Degradation>)>,
    /// When the last decision was made without the store, in microseconds since this watch was created.
    last_us: AtomicU64,
    /// How many decisions were made without the store.
    decisions: AtomicU64,
    /// How long after the first decision the doctor examines the store, and when the first decision was; 0 before.
    doctor_after: Option<Duration>,
    first_us: AtomicU64,
    /// The name of the store in events.
    store: Option<Arc<str>>,
    /// Dropped, with everything that it owns, when the limiter is closed.
    hook: ReentrantMutex<RefCell<Option<Hook>>>,
    kept: Mutex<VecDeque<DegradedEvent>>,
    keeps_any: AtomicBool,
    closing: Arc<CloseSignal>,
}

impl DegradationWatch {
    /// A watch that has the doctor examine the store `doctor_after` its first decision.
    pub(crate) fn new(
        doctor_after: Option<Duration>,
        hook: Option<Hook>,
        store: Option<Arc<str>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            attention: AtomicU8::new(if doctor_after.is_some() { UNEXAMINED } else { 0 }),
            made: monotonic::now(),
            began: Mutex::default(),
            last_us: AtomicU64::new(0),
            decisions: AtomicU64::new(0),
            doctor_after,
            first_us: AtomicU64::new(0),
            store,
            hook: ReentrantMutex::new(RefCell::new(hook)),
            kept: Mutex::default(),
            keeps_any: AtomicBool::new(false),
            closing: Arc::default(),
        })
    }

    /// A watch with the same settings for a forked child.
    pub(crate) fn after_fork(&self) -> Arc<Self> {
        // A thread of the parent that does not exist in this process may hold the lock; then the child has no hook.
        let hook = self.hook.try_lock().and_then(|hook| hook.borrow().clone());
        Self::new(self.doctor_after, hook, self.store.clone())
    }

    /// Records a decision. Returns `true` when it is time to examine the store; the caller then calls [`examine`](Self::examine).
    #[inline]
    #[must_use = "the store is looked at once"]
    pub(crate) fn see(&self, decision: &Decision, store: &Store) -> bool {
        let is_quiet = decision.degraded.is_none() && self.attention.load(Ordering::Relaxed) == 0;
        !is_quiet && self.look(decision, self.now_us(), &|reason| store.cause(reason))
    }

    #[cold]
    fn look(&self, decision: &Decision, now_us: u64, cause: &Cause<'_>) -> bool {
        match decision.degraded {
            Some(reason) => self.went_without(reason, now_us, cause),
            None if decision.source == Source::Store => {
                self.went_with(now_us);
                return self.is_doctor_due(now_us);
            }
            None => {}
        }
        false
    }

    /// Records a decision without the store.
    fn went_without(&self, reason: Degradation, now_us: u64, cause: &Cause<'_>) {
        self.last_us.store(now_us, Ordering::Relaxed);
        self.decisions.fetch_add(1, Ordering::Relaxed);
        if self.is(DEGRADED) || self.attention.fetch_or(DEGRADED, Ordering::Relaxed) & DEGRADED != 0 {
            return;
        }
        *self.began.lock() = (now_us, Some(reason));
        self.publish(DegradedEvent::Started { reason, store: self.store.clone(), cause: cause(reason) });
    }

    /// Records a decision by the store.
    fn went_with(&self, now_us: u64) {
        let last_us = self.last_us.load(Ordering::Relaxed);
        let is_calm = now_us.saturating_sub(last_us) >= micros(DegradedEvent::CALM);
        if !self.is(DEGRADED) || !is_calm {
            return;
        }
        if self.attention.fetch_and(!DEGRADED, Ordering::Relaxed) & DEGRADED != 0 {
            let decisions = self.decisions.swap(0, Ordering::Relaxed);
            // `None` only while the thread of the first such decision has not written it yet.
            let (began_us, Some(reason)) = std::mem::take(&mut *self.began.lock()) else { return };
            let lasted = Duration::from_micros(last_us.saturating_sub(began_us));
            self.publish(DegradedEvent::Ended { reason, lasted, decisions, store: self.store.clone() });
        }
    }

    fn is_doctor_due(&self, now_us: u64) -> bool {
        let Some(after) = self.doctor_after.filter(|_| self.is(UNEXAMINED)) else { return false };
        let first_us = match self.first_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => now_us,
            Err(first_us) => first_us,
        };
        let is_time = now_us.saturating_sub(first_us) >= micros(after);
        is_time && self.attention.fetch_and(!UNEXAMINED, Ordering::Relaxed) & UNEXAMINED != 0
    }

    /// Has the doctor examine the store, on a thread that ends afterwards.
    #[cold]
    pub(crate) fn examine(self: &Arc<Self>, mut doctor: DoctorForAll) {
        let (closing, watch) = (Arc::clone(&self.closing), Arc::downgrade(self));
        let examine = move || {
            let Ok(runtime) = new_runtime() else {
                if let Some(watch) = watch.upgrade() {
                    watch.put_off();
                }
                return;
            };
            let findings = runtime.block_on(async {
                tokio::select! {
                    () = closing.closed() => None,
                    findings = timeout(DOCTOR_TIMEOUT, doctor.examine()) => findings.ok(),
                }
            });
            runtime.shutdown_background();
            let (Some(findings), Some(watch)) = (findings, watch.upgrade()) else { return };
            for (at, finding) in findings.iter().enumerate() {
                // The store was reachable for the first decision. If it no longer is, the decisions report that
                // themselves. The nodes of a cluster may report the same finding.
                let is_problem = finding.severity >= Severity::Problem && finding.subject != "connection";
                if is_problem && !findings[..at].contains(finding) {
                    watch.publish(DegradedEvent::Finding(finding.clone()));
                }
            }
        };
        let thread = std::thread::Builder::new().name("polylimit-doctor".to_owned());
        if thread.spawn(examine).is_err() {
            self.put_off();
        }
    }

    /// The operating system refused a thread or a runtime: the doctor examines the store later, counted from the next
    /// decision.
    fn put_off(&self) {
        self.first_us.store(0, Ordering::Relaxed);
        self.attention.fetch_or(UNEXAMINED, Ordering::Relaxed);
    }

    /// Publishes why the newest configuration is not active, or that nothing prevents it any longer.
    pub(crate) fn report_configuration(&self, obstacle: Option<&Error>, has_limits: bool) {
        let (severity, message) = if let Some(error) = obstacle {
            let until_then =
                if has_limits { "the previous limits stay active" } else { "no limits are active" };
            (Severity::Problem, format!("{error}; {until_then}"))
        } else {
            (Severity::Fine, "the newest limits are active again".to_owned())
        };
        let finding = Finding::new(severity, CONFIGURATION, message);
        self.publish(DegradedEvent::Finding(finding));
    }

    /// Ends an examination in progress, and removes the hook.
    pub(crate) fn close(&self) {
        self.closing.close();
        self.set_hook(None);
    }

    /// Replaces the hook. Once this returns, the previous hook is no longer called, unless the previous hook itself called this.
    pub(crate) fn set_hook(&self, hook: Option<Hook>) {
        let before = self.hook.lock().replace(hook);
        // Dropped after the lock is released: dropping the hook may run code of the user that calls back into this watch.
        drop(before);
    }

    /// Whether [`take`](Self::take) would return events.
    #[inline]
    pub(crate) fn keeps_any(&self) -> bool {
        self.keeps_any.load(Ordering::Relaxed)
    }

    /// Takes the events since the last call.
    pub(crate) fn take(&self) -> Vec<DegradedEvent> {
        let mut kept = self.kept.lock();
        self.keeps_any.store(false, Ordering::Relaxed);
        kept.drain(..).collect()
    }

    pub(crate) fn publish(&self, event: DegradedEvent) {
        #[cfg(feature = "tracing")]
        if event.severity() == Severity::Fine {
            tracing::info!(target: "polylimit", event = event.name(), "{event}");
        } else {
            tracing::warn!(target: "polylimit", event = event.name(), "{event}");
        }
        {
            let hook = self.hook.lock();
            // The hook may itself cause an event or replace the hook, so it is called on a clone.
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

    /// Microseconds since this watch was created; never 0.
    fn now_us(&self) -> u64 {
        micros(monotonic::now().saturating_duration_since(self.made)).max(1)
    }
}

impl Drop for DegradationWatch {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(watch: &DegradationWatch, decision: &Decision, now_us: u64) -> bool {
        watch.look(decision, now_us, &|_| None)
    }
    use polylimit_rules::decision::QuotaUsage;

    const SECOND_US: u64 = 1_000_000;

    fn decision(source: Source, degraded: Option<Degradation>) -> Decision {
        let total = QuotaUsage { limit: 1, remaining: 1, reset_after_us: 0, over: 0 };
        Decision {
            total,
            several: None,
            wait_us: 0,
            allowed: true,
            source,
            degraded,
            cause: None,
            crossed: false,
            elastic: false,
            shadowed: false,
            repeated: false,
        }
    }

    fn by_store() -> Decision {
        decision(Source::Store, None)
    }

    fn without() -> Decision {
        decision(Source::Fallback, Some(Degradation::Late))
    }

    #[test]
    fn store_that_fails_now_and_then_causes_one_event() {
        let (watch, calm_us) = (DegradationWatch::new(None, None, None), micros(DegradedEvent::CALM));
        let started = DegradedEvent::Started { reason: Degradation::Late, store: None, cause: None };
        // One decision in ten, ten times a second, for a minute.
        for tenth in 1..=600 {
            look(&watch, &if tenth % 10 == 0 { without() } else { by_store() }, tenth * SECOND_US / 10);
        }
        assert_eq!(watch.take(), [started]);
        look(&watch, &by_store(), 60 * SECOND_US + calm_us - 1);
        assert!(!watch.keeps_any());
        // A decision by a cache says nothing about the store.
        look(&watch, &decision(Source::DenialCache, None), 70 * SECOND_US);
        assert!(!watch.keeps_any());
        look(&watch, &by_store(), 60 * SECOND_US + calm_us);
        let (reason, lasted) = (Degradation::Late, Duration::from_secs(59));
        assert_eq!(watch.take(), [DegradedEvent::Ended { reason, lasted, decisions: 60, store: None }]);
        assert!(!look(&watch, &by_store(), watch.now_us()) && watch.take().is_empty());
    }

    #[test]
    fn next_outage_is_counted_from_zero() {
        let watch = DegradationWatch::new(None, None, None);
        for round in 1..=3 {
            let start_us = round * 100 * SECOND_US;
            look(&watch, &without(), start_us);
            look(&watch, &without(), start_us + 5 * SECOND_US);
            look(&watch, &by_store(), start_us + 9 * SECOND_US);
            let events = watch.take();
            assert_eq!(events.iter().map(DegradedEvent::name).collect::<Vec<_>>(), ["started", "ended"]);
            assert_eq!((events[1].lasted(), events[1].decisions()), (Duration::from_secs(5), 2));
        }
    }

    #[test]
    fn the_last_events_are_kept() {
        let watch = DegradationWatch::new(None, None, None);
        for round in 1..=100 {
            look(&watch, &without(), round * 100 * SECOND_US);
            look(&watch, &by_store(), (round * 100 + 50) * SECOND_US);
        }
        let events = watch.take();
        assert_eq!((events.len(), events[MAX_EVENTS - 1].name()), (MAX_EVENTS, "ended"));
    }

    #[test]
    fn the_doctor_is_due_once() {
        let watch = DegradationWatch::new(Some(Duration::from_secs(1)), None, None);
        let due = |decision: Decision, now_us| look(&watch, &decision, now_us);
        assert!(!due(without(), 1));
        assert!(!due(without(), 10 * SECOND_US));
        // The doctor's delay starts with the first decision by the store.
        assert!(!due(by_store(), 10 * SECOND_US));
        assert!(!due(by_store(), 11 * SECOND_US - 1));
        assert!(!due(without(), 11 * SECOND_US));
        assert!(due(by_store(), 11 * SECOND_US));
        assert!(!due(by_store(), 20 * SECOND_US));
        assert!(!look(&DegradationWatch::new(None, None, None), &by_store(), 20 * SECOND_US));
    }
}
