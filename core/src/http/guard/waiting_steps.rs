//! The steps of a check that hold its request in place of a denial, for no longer than the guard's `wait`.
//!
//! A denied request is held until the store would admit it, and is then decided again: a denial has spent nothing, so that the newest
//! decision alone counts. A request that a leaky bucket admits is held until its turn. To hold a request is a call like any other, which the
//! adapter passes to the limiter, so that adapters need no clocks.

use std::time::Duration;

use crate::http::guard::check::{Applied, GuardCheck, Origin, Stage};
use crate::http::guard::waiting::{Then, Waiting};
use crate::limiter::call::{Answer, Call};
use crate::limiter::deadline::Deadline;
use polylimit_rules::decision::{Cause, Decision, Waits};
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::units::micros;

impl GuardCheck {
    /// The call that holds the request, if it is held.
    pub(super) fn waiting_call(&self) -> Option<Call<'static>> {
        let waiting = self.waiting.as_deref().filter(|waiting| waiting.is_held())?;
        Some(Call::Sleep(Duration::from_micros(waiting.for_us)))
    }

    /// Takes the answer to that call.
    pub(super) fn answer_waiting(&mut self, answer: Result<Answer, Error>) {
        let Some(waiting) = &mut self.waiting else { return };
        waiting.for_us = 0;
        match answer {
            Err(error) => self.error = Some(error),
            Ok(_) if waiting.then == Then::Ask => self.ask_again(),
            Ok(_) => {}
        }
    }

    /// Whether the request is held before it is concluded, now that the store has decided.
    #[inline]
    pub(super) fn has_to_wait(&mut self) -> bool {
        !self.guard.shared.options.waiting.wait.is_zero() && self.begin_waiting()
    }

    #[cold]
    fn begin_waiting(&mut self) -> bool {
        let asked = || self.policies.iter().filter(|one| one.origin == Origin::Store);
        let is_waited_for =
            |one: &Applied| one.decision.as_ref().is_some_and(|made| may_wait(&one.policy, made));
        let is_undecided = self.error.is_some() || self.stage != Stage::Asking || asked().next().is_none();
        if is_undecided || self.guard.shared.options.is_dry_run || !asked().all(is_waited_for) {
            return false;
        }
        let left_us = match &self.waiting {
            Some(waiting) => waiting.deadline.left_us(),
            None => micros(self.guard.shared.options.waiting.wait),
        };
        let decisions = || asked().filter_map(|one| one.decision.as_ref());
        let denied_us = decisions().filter(|made| !made.allowed).map(|made| made.wait_us).max();
        if let Some(wait_us) = denied_us {
            return wait_us <= left_us && self.hold(wait_us, Then::Ask);
        }
        // A list of the configuration denies without a decision of a policy.
        let is_denied = self.configured.as_ref().is_some_and(|configured| configured.is_denied());
        let delay_us = decisions().map(Decision::delay_us).max().unwrap_or(0);
        if is_denied || delay_us == 0 {
            return false;
        }
        if delay_us <= left_us && self.hold(delay_us, Then::Proceed) {
            return true;
        }
        self.come_too_late(if delay_us > left_us { left_us } else { 0 });
        false
    }

    /// Holds the request, unless all places are taken.
    fn hold(&mut self, for_us: u64, then: Then) -> bool {
        let store = self.guard.limiter().shared().store();
        let waiting = match &mut self.waiting {
            Some(waiting) => waiting,
            none => {
                let shared = &self.guard.shared;
                let options = &shared.options.waiting;
                let Some(place) = shared.waiting.place(options.max_waiting) else { return false };
                let deadline = Deadline::after(options.wait, store.clock());
                none.insert(Box::new(Waiting { deadline, for_us, then, _place: place }))
            }
        };
        // Several processes that wait for the same units would otherwise all come in the same microsecond.
        let is_spread = then == Then::Ask && store.is_shared();
        let rest_us = waiting.deadline.left_us().saturating_sub(for_us);
        let spread_us = if is_spread { waiting.deadline.spread_us(rest_us) } else { 0 };
        (waiting.for_us, waiting.then) = (for_us.max(1) + spread_us, then);
        true
    }

    /// Has the store decide again about all that it has denied.
    fn ask_again(&mut self) {
        if let Some(configured) = &mut self.configured {
            configured.decided = None;
            self.policies.clear();
            return;
        }
        for one in self.policies.iter_mut().filter(|one| one.origin == Origin::Store) {
            one.origin = Origin::Nowhere;
        }
    }

    /// Turns the admission by a leaky bucket into a denial: the turn of the request comes later than it may be held, which is for
    /// `held_us`. What was spent is given back like that of any other denial.
    fn come_too_late(&mut self, held_us: u64) {
        let late = |policy: &Policy, made: &Decision| {
            let late_us = made.delay_us().checked_sub(held_us).filter(|late_us| *late_us > 0)?;
            Some(denied_for(policy, made.clone(), late_us))
        };
        if self.configured.is_some() {
            return self.come_too_late_configured(late);
        }
        for one in self.policies.iter_mut().filter(|one| one.origin == Origin::Store) {
            if let Some(denied) = one.decision.as_ref().and_then(|made| late(&one.policy, made)) {
                one.decision = Some(denied);
            }
        }
    }

    /// Ends the waiting of a request whose caller waits no longer: the denial holds. Returns whether the request was held.
    pub(super) fn give_up_waiting(&mut self) -> bool {
        let Some(waiting) = self.waiting.take_if(|waiting| waiting.is_held()) else { return false };
        if waiting.then == Then::Proceed {
            self.come_too_late(0);
        }
        true
    }

    /// Gives back what a leaky bucket has admitted, if the client has gone before the turn of its request.
    pub(super) fn leave_line(&mut self) {
        if self.waiting.take().is_some_and(|waiting| waiting.then == Then::Proceed)
            && self.stage == Stage::Asking
        {
            if self.configured.is_some() {
                self.give_back_configured();
            } else {
                self.give_back_unclaimed();
            }
            self.settle_in_background();
        }
    }
}

/// Whether a request with this decision may be held: the store has made it, and if it denies, a time is known after which the same request
/// is admitted, and each attempt is free. A slot of concurrency is freed when another request ends, which no clock knows.
fn may_wait(policy: &Policy, made: &Decision) -> bool {
    if made.source.is_outage() {
        return false;
    }
    if made.allowed {
        return true;
    }
    let is_free = policy.penalty().is_none() && !policy.quotas().iter().any(Quota::count_denied);
    let denying = policy.quotas().iter().zip(made.verdicts()).filter(|(_, verdict)| !verdict.allowed);
    is_free
        && made.wait_us != Decision::NEVER
        && denying.into_iter().all(|(quota, _)| quota.algorithm().is_rate())
}

/// The denial of a request whose turn in a leaky bucket comes too late by this time.
fn denied_for(policy: &Policy, made: Decision, late_us: u64) -> Decision {
    let is_queue = |quota: &Quota| quota.algorithm() == Algorithm::LeakyBucket;
    let each_us: Waits =
        policy.quotas().iter().map(|quota| if is_queue(quota) { late_us } else { 0 }).collect();
    let cause = Some(Cause::Quota);
    Decision { allowed: false, wait_us: late_us, cause, crossed: false, ..made }.with_waits(&each_us)
}
