//! Renews reservations in the background while their handles live.
//!
//! One task for each limiter renews all of them: each every third of its ttl, those that are due together in one batch. The
//! task ends when no handle is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limiter::configured::in_force::InForce;
use crate::limiter::deadline::Deadline;
use crate::store::Store;
use polylimit_rules::decision::Decision;
use polylimit_rules::reservation::list::{Hold, ReservationTerms};
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::{Action, Charge, PolicyId, StoreAnswer};

/// Renewals that are due within this time are made together.
const TOGETHER_US: u64 = 5_000;

/// The reservations of a limiter that are renewed.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    state: Mutex<RenewalState>,
    /// Wakes the task when a renewal is added that may be due earlier, and when the limiter is closed.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct RenewalState {
    renewed: Vec<Arc<Renewed>>,
    is_running: bool,
}

/// A reservation that is renewed.
#[derive(Debug)]
pub(crate) struct Renewed {
    policy: PolicyId,
    key: Box<[u8]>,
    /// The plan of the request.
    plan: Option<Box<str>>,
    hold: Hold,
    /// Whether an outage policy made the reservation, in this process.
    is_local: bool,
    times: Mutex<Times>,
    is_lost: AtomicBool,
    is_over: AtomicBool,
}

#[derive(Debug)]
struct Times {
    /// When it is renewed next.
    due: Deadline,
    /// When the reservation ends as far as this process knows.
    ends: Deadline,
    /// When its handle is too old to be renewed.
    max_age: Deadline,
}

/// The times of a reservation after a renewal.
#[derive(Debug)]
pub(crate) struct Next {
    due: Deadline,
    ends: Deadline,
}

/// Keeps a reservation renewed until it is dropped; created by [`Limiter::keep_renewed`].
#[derive(Debug)]
#[must_use = "a dropped renewal ends"]
pub(crate) struct Renewal(Arc<Renewed>);

impl Renewal {
    /// Whether the reservation is known to have ended: a renewal did not find it, or its time has passed without a renewal.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Acquire) || self.0.times.lock().ends.left_us() == 0
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

impl Renewals {
    /// Adds a reservation that was just made by this decision. The second part of the result is whether the task has to be started.
    pub(crate) fn add(
        &self,
        (policy, key, plan): (PolicyId, &[u8], Option<&str>),
        terms: &ReservationTerms,
        max_age: Duration,
        decision: &Decision,
        clock: &Clock,
    ) -> (Renewal, bool) {
        let ReservationTerms { id, ttl, .. } = *terms;
        // An earlier reservation of this id may end at any moment, so it is renewed at once.
        let due = if decision.repeated { Duration::ZERO } else { ttl / 3 };
        let renewed = Arc::new(Renewed {
            policy,
            key: key.into(),
            plan: plan.map(Into::into),
            hold: Hold::of_renewal(id, ttl),
            is_local: decision.source.is_outage(),
            times: Mutex::new(Times {
                due: Deadline::after(due, clock),
                ends: Deadline::after(ttl, clock),
                max_age: Deadline::after(max_age, clock),
            }),
            is_lost: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let mut state = self.state.lock();
        state.renewed.push(Arc::clone(&renewed));
        let starts = !std::mem::replace(&mut state.is_running, true);
        drop(state);
        self.changed.notify_one();
        (Renewal(renewed), starts)
    }

    /// Called when the task could not be started.
    pub(crate) fn not_started(&self) {
        self.state.lock().is_running = false;
    }

    /// When the next renewal is due; `None` ends the task.
    pub(crate) fn next(&self) -> Option<Deadline> {
        let mut state = self.state.lock();
        state.renewed.retain(|renewed| renewed.is_renewed());
        let due = state.renewed.iter().map(|renewed| renewed.times.lock().due.clone());
        let next = due.min_by_key(Deadline::left_us);
        state.is_running = next.is_some();
        next
    }

    /// The reservations to renew now. One may have become too old, or its handle may have ended, since [`next`](Self::next).
    pub(crate) fn due(&self) -> Vec<Arc<Renewed>> {
        let is_due = |renewed: &&Arc<Renewed>| {
            renewed.is_renewed() && renewed.times.lock().due.left_us() <= TOGETHER_US
        };
        self.state.lock().renewed.iter().filter(is_due).cloned().collect()
    }
}

impl Renewed {
    fn is_renewed(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
            && !self.is_lost.load(Ordering::Acquire)
            && self.times.lock().max_age.left_us() > 0
    }

    pub(crate) fn charge<'a>(&'a self, in_force: Option<&'a InForce>, store: &Store) -> Charge<'a> {
        let action = Action::Apply(Operation::Renew);
        let plan = self.plan.as_deref();
        let effective = in_force.and_then(|in_force| in_force.quotas_of(self.policy, &self.key, plan, store));
        Charge { hold: Some(&self.hold), effective, ..Charge::new(self.policy, &self.key, action, 0) }
    }

    /// When the reservation is renewed next and when it ends, if it is renewed now.
    pub(crate) fn next(&self, clock: &Clock) -> Next {
        let ttl = Duration::from_micros(self.hold.ttl_us);
        Next { due: Deadline::after(ttl / 3, clock), ends: Deadline::after(ttl, clock) }
    }

    /// Records the store's answer. Without one, the next attempt is made as if this one had succeeded, as long as the
    /// reservation lasts by this process's clock.
    pub(crate) fn answered(&self, answer: Option<&StoreAnswer>, next: Next) {
        let mut times = self.times.lock();
        // During an outage the store's reservations cannot be renewed, and those of this process are not the store's.
        let decided = answer.filter(|(decision, _)| decision.source.is_outage() == self.is_local);
        match decided {
            Some((decision, _)) if decision.allowed => times.ends = next.ends,
            Some(_) => self.is_lost.store(true, Ordering::Release),
            None if times.ends.left_us() == 0 => self.is_lost.store(true, Ordering::Release),
            None => {}
        }
        times.due = next.due;
    }
}
