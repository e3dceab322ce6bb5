//! The `acquire` operation: callers queue for a key and wait without polling.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::error::Error;
use crate::limiter::cancellation::{Admission, ask_to_the_end};
use crate::limiter::deadline::Deadline;
use crate::limiter::{CHECK, Limiter, Shared};
use crate::rules::decision::Decision;
use crate::rules::policy::Policy;
use crate::rules::quota::{Algorithm, Quota};
use crate::rules::request::Request;
use crate::rules::transition::Operation;
use crate::store::request::{Action, StoreRequest};

impl Limiter {
    pub(crate) async fn acquire_unless_closed(
        &self,
        request: Request<'_>,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let shared = self.shared();
        shared.closing.unless_closed(shared.acquire_while_open(self, request, timeout)).await
    }
}

/// `limiter` is the limiter that owns this `Shared`; work that outlives the caller needs a clone of it.
impl Shared {
    async fn acquire_while_open(
        &self,
        limiter: &Limiter,
        request: Request<'_>,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let request = self.request(CHECK, request)?;
        if request.cost == 0 {
            // A cost of 0 is always allowed, so the caller does not queue.
            return Ok(self.ask_store(request).await?.0);
        }
        let deadline = Deadline::after(timeout, self.clock());
        let decision = self.acquire_in_line(limiter, request, &deadline).await?;
        // A caller that is admitted to a leaky bucket waits out its delay after it has left the queue.
        if decision.delay_us() > 0 {
            let admission = Admission::new(limiter, request, &decision);
            deadline.sleep(decision.delay_us()).await;
            admission.keep();
        }
        Ok(decision)
    }

    async fn acquire_in_line(
        &self,
        limiter: &Limiter,
        request: StoreRequest<'_>,
        deadline: &Deadline,
    ) -> Result<Decision, Error> {
        let place = self.wait_queues.join(request.id, request.key, request.cost);
        let ahead = place.units_ahead();
        let turn = {
            let mut turn = pin!(place.turn());
            // The first poll joins the lock's queue: callers that arrive later get their turn later.
            match poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await {
                Poll::Ready(turn) => Some(turn),
                Poll::Pending => {
                    if ahead > 0 {
                        let denied = self.denied_behind(request, ahead).await?;
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
        let Some(_turn) = turn else { return self.denied_behind(request, ahead).await };
        loop {
            self.registry.check_open()?;
            let left_us = deadline.left_us();
            if let Some(denied) = self.denied_turn(request, deadline, left_us).await? {
                return Ok(denied);
            }
            let (decision, _) = match self.store.ask_caches(request) {
                Some(answer) => answer,
                None => ask_to_the_end(limiter, request).await?,
            };
            if decision.delay_us() > left_us {
                // Another process was faster: the units are refunded, and the next round denies the request because its
                // turn would come too late.
                let refund = StoreRequest { action: Action::Apply(Operation::Refund), ..request };
                let _ = ask_to_the_end(limiter, refund).await?;
                continue;
            }
            if decision.allowed || decision.wait_us > left_us {
                return Ok(decision);
            }
            deadline.can_wait()?;
            // Other processes wait for the same microsecond, and timers round it up in the same way each time. Without a
            // random part, one process would always come first.
            let spread_us =
                if self.store.is_shared() { deadline.spread_us(left_us - decision.wait_us) } else { 0 };
            tokio::select! {
                () = deadline.sleep(decision.wait_us + spread_us) => {}
                () = place.recheck() => {}
            }
        }
    }

    /// The denial when the request's turn in a leaky bucket would come after the deadline. Waiting does not help: the
    /// queue drains no faster than the caller's time runs out.
    async fn denied_turn(
        &self,
        request: StoreRequest<'_>,
        deadline: &Deadline,
        left_us: u64,
    ) -> Result<Option<Decision>, Error> {
        let policy = self.registry.policy_of(request.id);
        let is_queue = |quota: &Quota| quota.algorithm() == Algorithm::LeakyBucket;
        let Some(policy) = policy.filter(|policy| policy.quotas().iter().any(is_queue)) else {
            return Ok(None);
        };
        let (peeked, _) = self.ask_store(StoreRequest { action: PEEK, ..request }).await?;
        // The turn comes when everything that is in the bucket now has drained.
        let queued = policy.quotas().iter().zip(peeked.quotas()).filter(|(quota, _)| is_queue(quota));
        let turn_after_us = queued.map(|(_, view)| view.reset_after_us).max().unwrap_or(0);
        if turn_after_us > left_us && peeked.retry_after_us().is_some() {
            let wait_us = turn_after_us - left_us;
            return Ok(Some(Decision { allowed: false, wait_us, ..peeked }));
        }
        if turn_after_us > 0 {
            deadline.can_wait()?;
        }
        Ok(None)
    }

    /// The denial for a caller behind `ahead` units: the store cannot admit it sooner than those.
    async fn denied_behind(&self, request: StoreRequest<'_>, ahead: u64) -> Result<Decision, Error> {
        let (peeked, _) = self.ask_store(StoreRequest { action: PEEK, ..request }).await?;
        let policy = self.registry.policy_of(request.id).filter(|_| peeked.retry_after_us().is_some());
        let Some(policy) = policy else {
            return Ok(Decision { allowed: false, wait_us: Decision::NEVER, ..peeked });
        };
        let total = ahead.saturating_add(request.cost);
        let capacity = policy.quotas().iter().map(Quota::capacity).min().unwrap_or(0);
        let fitting = StoreRequest { action: PEEK, cost: total.min(capacity), ..request };
        let (fitting, _) = self.ask_store(fitting).await?;
        // A denied caller has to wait at least for the callers ahead, so the wait is never 0.
        let wait_us = no_sooner_us(&policy, total, &fitting).max(1);
        Ok(Decision { allowed: false, wait_us, ..peeked })
    }
}

const PEEK: Action = Action::Apply(Operation::Peek);

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
