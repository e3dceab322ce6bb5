//! The `acquire` operation: callers queue for a key and wait without polling.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::error::Error;
use crate::limiter::cancellation::Admission;
use crate::limiter::configured::key_decision::Opening;
use crate::limiter::configured::wait::Wait;
use crate::limiter::deadline::Deadline;
use crate::limiter::{CHECK, KeyCall, Limiter, Shared};
use crate::rules::decision::{Cause, Decision, Source};
use crate::rules::general::kept;
use crate::rules::policy::Policy;
use crate::rules::quota::{Algorithm, Quota};
use crate::rules::request::Request;
use crate::rules::transition::Operation;
use crate::store::request::{Action, StoreRequest};

/// How soon the first caller in line for a reservation asks again: another process may end one of its own at any time.
const ASK_AGAIN_US: u64 = 50_000;
const PEEK: Action = Action::Apply(Operation::Peek);

impl Limiter {
    /// Waits until the request is admitted and, in a leaky bucket, until its turn has come. If the timeout cannot be met,
    /// it returns a denial at once and spends nothing.
    ///
    /// Callers of one limiter that wait for one key under one policy are served in the order in which they came; a
    /// `check` does not queue. Between limiters that share a store, in one process or in several, the order is random:
    /// each waits a random time of at most 1 ms beyond the time at which units come, and the first one to ask gets them.
    /// No waiter polls: it sleeps until its request can be admitted, or until this limiter refunds, resets or changes the
    /// policy. A future that is not polled any more keeps its place, and the callers behind it wait.
    ///
    /// A dropped future leaves the queue. Units that the store has spent for it, because the check was in progress or a
    /// leaky bucket's delay had not passed, are refunded once: at once in a store of this process or host, and in the
    /// background with Redis, after the answer to the check has arrived. They stay spent when that answer does not come
    /// before the deadline, when the refund fails, or when the process ends or the limiter is closed first.
    ///
    /// # Errors
    /// See [`Limiter`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) also when it has to wait by the system
    /// clock outside of a tokio runtime.
    ///
    /// # Panics
    /// When it has to wait in a tokio runtime whose time driver is not enabled.
    pub async fn acquire<'a>(
        &self,
        request: impl Into<Request<'a>>,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let shared = self.shared();
        let call = KeyCall { action: CHECK, request: request.into(), hold: None };
        shared.closing.unless_closed(self.wait_in_line(&call, timeout)).await
    }

    /// Waits in line for a check or a reserve. A configured policy is asked once before: it may admit what its quotas deny.
    pub(super) async fn wait_in_line(
        &self,
        call: &KeyCall<'_>,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let shared = self.shared();
        if let Some(decided) = self.decide_configured(call, Wait::Await) {
            let (decision, _) = decided.await?;
            let waits = decision.wait_us != Decision::NEVER && decision.source != Source::Configuration;
            if decision.allowed || !waits {
                return Ok(decision);
            }
            if let Some(in_force) = shared.configured.in_force()
                && let Some(configured) = in_force.call(call)
                && let Opening::Asked(asked) = self.open(&in_force, configured)?
            {
                let quotas = in_force.quotas(configured.policy, asked.set);
                return self.acquire_while_open(asked.request, quotas, timeout).await;
            }
        }
        let request = shared.key_request(call)?;
        let policy = shared.registry.policy_of(request.id).ok_or_else(Error::no_answer)?;
        self.acquire_while_open(request, &policy, timeout).await
    }

    async fn acquire_while_open(
        &self,
        request: StoreRequest<'_>,
        policy: &Policy,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let shared = self.shared();
        if request.cost == 0 && request.hold.is_none() {
            // A cost of 0 is always allowed, so the caller does not queue.
            return Ok(shared.ask_store(request).await?.0);
        }
        let deadline = Deadline::after(timeout, shared.store.clock());
        let decision = self.acquire_in_queue(shared, request, policy, &deadline).await?;
        // A caller that is admitted to a leaky bucket waits out its delay after it has left the queue.
        if decision.delay_us() > 0 {
            let admission = Admission::new(self, request, &decision);
            deadline.sleep(decision.delay_us()).await;
            admission.keep();
        }
        Ok(decision)
    }

    async fn acquire_in_queue(
        &self,
        shared: &Shared,
        request: StoreRequest<'_>,
        policy: &Policy,
        deadline: &Deadline,
    ) -> Result<Decision, Error> {
        let waiter = shared.wait_queues.join(request.id, request.key, request.cost);
        let ahead = waiter.units_ahead;
        let turn = {
            let mut turn = pin!(waiter.queue.turn.lock());
            // The first poll joins the lock's queue: callers that arrive later get their turn later.
            match poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await {
                Poll::Ready(turn) => Some(turn),
                Poll::Pending => {
                    // The end of a reservation may come at any time, so its callers wait in any case.
                    if ahead > 0 && request.hold.is_none() {
                        let denied = shared.denied_behind(request, policy, ahead).await?;
                        if denied.wait_us > deadline.left_us() {
                            return Ok(denied);
                        }
                    }
                    deadline.can_wait()?;
                    tokio::select! {
                        biased;
                        turn = turn => Some(turn),
                        () = deadline.reached() => None,
                    }
                }
            }
        };
        let Some(_turn) = turn else { return shared.denied_behind(request, policy, ahead).await };
        loop {
            shared.registry.check_open()?;
            let left_us = deadline.left_us();
            if let Some(denied) = shared.denied_turn(request, policy, deadline, left_us).await? {
                return Ok(denied);
            }
            let (decision, _) = match shared.store.ask_caches(request) {
                Some(answer) => answer,
                None => self.ask_uncancelled(request).await?,
            };
            if decision.delay_us() > left_us {
                // Another process was faster: the units are refunded, and the next round denies the request because its
                // turn would come too late.
                let refund = StoreRequest { action: Action::Apply(Operation::Refund), ..request };
                let _ = self.ask_uncancelled(refund).await?;
                continue;
            }
            let may_come_sooner =
                request.hold.is_some() && left_us > 0 && decision.wait_us != Decision::NEVER;
            if decision.allowed || (decision.wait_us > left_us && !may_come_sooner) {
                return Ok(decision);
            }
            deadline.can_wait()?;
            if request.hold.is_some() {
                let wait_us = decision.wait_us.min(left_us).min(ASK_AGAIN_US);
                tokio::select! {
                    () = deadline.sleep(wait_us) => {}
                    () = waiter.queue.recheck.notified() => {}
                }
                continue;
            }
            // Other processes wait for the same microsecond, and timers round it up in the same way each time. Without a
            // random part, one process would always come first.
            let spread_us =
                if shared.store.is_shared() { deadline.spread_us(left_us - decision.wait_us) } else { 0 };
            tokio::select! {
                () = deadline.sleep(decision.wait_us + spread_us) => {}
                () = waiter.queue.recheck.notified() => {}
            }
        }
    }
}

impl Shared {
    /// The denial when the request's turn in a leaky bucket would come after the deadline. Waiting does not help: the
    /// queue drains no faster than the caller's time runs out.
    async fn denied_turn(
        &self,
        request: StoreRequest<'_>,
        policy: &Policy,
        deadline: &Deadline,
        left_us: u64,
    ) -> Result<Option<Decision>, Error> {
        let is_queue = |quota: &Quota| quota.algorithm() == Algorithm::LeakyBucket;
        if !policy.quotas().iter().any(is_queue) {
            return Ok(None);
        }
        let (peeked, _) = self.ask_store(StoreRequest { action: PEEK, ..request }).await?;
        // The turn comes when everything that is in the bucket now has drained.
        let queued = policy.quotas().iter().zip(peeked.quotas()).filter(|(quota, _)| is_queue(quota));
        let turn_after_us = queued.map(|(_, view)| view.reset_after_us).max().unwrap_or(0);
        if turn_after_us > left_us && peeked.retry_after_us().is_some() {
            let wait_us = turn_after_us - left_us;
            return Ok(Some(denied_of(peeked, wait_us)));
        }
        if turn_after_us > 0 {
            deadline.can_wait()?;
        }
        Ok(None)
    }

    /// The denial for a caller behind `ahead` units: the store cannot admit it sooner than those.
    async fn denied_behind(
        &self,
        request: StoreRequest<'_>,
        policy: &Policy,
        ahead: u64,
    ) -> Result<Decision, Error> {
        let (peeked, _) = self.ask_store(StoreRequest { action: PEEK, ..request }).await?;
        if request.hold.is_some() {
            let wait_us =
                if peeked.retry_after_us().is_some() { peeked.wait_us.max(1) } else { Decision::NEVER };
            return Ok(denied_of(peeked, wait_us));
        }
        if peeked.retry_after_us().is_none() {
            return Ok(denied_of(peeked, Decision::NEVER));
        }
        let total = ahead.saturating_add(request.cost);
        let beside = |quota: &Quota| quota.capacity() - kept(quota.capacity(), request.headroom);
        let capacity = policy.quotas().iter().map(beside).min().unwrap_or(0);
        let fitting = StoreRequest { action: PEEK, cost: total.min(capacity), ..request };
        let (fitting, _) = self.ask_store(fitting).await?;
        // A denied caller has to wait at least for the callers ahead, so the wait is never 0.
        let wait_us = no_sooner_us(policy, total, &fitting).max(1);
        Ok(denied_of(peeked, wait_us))
    }
}

/// The denial of a caller in line. Where the store itself would admit it, the callers ahead use the quota up.
fn denied_of(peeked: Decision, wait_us: u64) -> Decision {
    let cause = peeked.cause.or(Some(Cause::Quota));
    Decision { allowed: false, wait_us, cause, ..peeked }
}

/// A time from now before which `units` cannot all be admitted. `fitting` is the decision on as many of them as can be
/// spent at once.
fn no_sooner_us(policy: &Policy, units: u64, fitting: &Decision) -> u64 {
    let fitting_after_us = fitting.retry_after_us().unwrap_or(0);
    // Windows forget the first units again, at the earliest after the time in which they admit their limit once.
    if let Some(forgets_us) = policy.quotas().iter().filter_map(Quota::forgets_after_us).min() {
        let least_us = policy.quotas().iter().map(|quota| quota.least_span_us(units)).max().unwrap_or(0);
        return fitting_after_us.min(forgets_us).max(least_us);
    }
    // Buckets do not forget: units beyond the capacity have to be refilled after the time when the bucket would be full.
    // Each quota counts separately: the callers ahead may come one by one, and then a bucket starts to refill before
    // another quota admits all that fits into it.
    let refilled_us = policy.quotas().iter().zip(fitting.quotas()).filter_map(|(quota, view)| {
        let is_more = units > quota.capacity();
        is_more.then(|| view.reset_after_us.saturating_add(quota.least_span_us(units)))
    });
    refilled_us.max().unwrap_or(0).max(fitting_after_us)
}
