//! Waiting until a request is admitted: in line, without polling.

use std::time::Duration;

use super::deadline::Deadline;
use super::{Resolved, Shared};
use crate::decision::Decision;
use crate::error::Error;
use crate::policy::Policy;
use crate::quota::Algorithm;
use crate::request::Request;
use crate::transition::Operation;

impl Shared {
    pub(crate) async fn acquire(&self, request: Request<'_>, timeout: Duration) -> Result<Decision, Error> {
        let request = self.resolve(request)?;
        let deadline = Deadline::after(timeout, self.clock());
        let decision = self.acquire_in_line(request, &deadline).await?;
        // Who is admitted to a leaky bucket waits for its turn there, and no longer stands in line here.
        if decision.delay_us() > 0 {
            deadline.sleep(decision.delay_us()).await;
        }
        Ok(decision)
    }

    async fn acquire_in_line(&self, request: Resolved<'_>, deadline: &Deadline) -> Result<Decision, Error> {
        let place = self.lines.join(request.id, request.key, request.cost);
        let ahead = place.units_ahead();
        if ahead > 0 {
            let denied = self.denied_behind(request, ahead);
            if denied.wait_us > deadline.left_us() {
                return Ok(denied);
            }
            deadline.can_wait()?;
        }
        let _turn = tokio::select! {
            biased;
            turn = place.turn() => turn,
            () = deadline.reached(), if ahead > 0 => return Ok(self.denied_behind(request, ahead)),
        };
        loop {
            let left_us = deadline.left_us();
            let decision = self.attempt(request, deadline, left_us)?;
            if decision.allowed || decision.wait_us > left_us {
                return Ok(decision);
            }
            deadline.can_wait()?;
            tokio::select! {
                () = deadline.sleep(decision.wait_us) => {}
                () = place.sooner() => {}
            }
        }
    }

    /// Checks, unless the request would be admitted to a leaky bucket to wait there for longer than there is time.
    fn attempt(&self, request: Resolved<'_>, deadline: &Deadline, left_us: u64) -> Result<Decision, Error> {
        let Resolved { id, key, cost } = request;
        // The same request would be in time when so much of the queue has drained.
        let too_late = |decision: Decision| {
            let wait_us = decision.wait_us.saturating_sub(left_us);
            Decision { allowed: false, wait_us, ..decision }
        };
        if self.queues(request) {
            let peeked = self.store.decide(id, key, Operation::Peek, cost);
            if peeked.delay_us() > left_us {
                return Ok(too_late(peeked));
            }
            if peeked.delay_us() > 0 {
                deadline.can_wait()?;
            }
        }
        let decision = self.store.decide(id, key, Operation::Check, cost);
        if decision.delay_us() > left_us {
            // Somebody else was faster since the peek: the place in the queue is given back.
            self.store.adjust(id, key, Operation::Refund, cost);
            return Ok(too_late(self.store.decide(id, key, Operation::Peek, cost)));
        }
        Ok(decision)
    }

    /// Whether an admitted request may have to wait for its turn.
    fn queues(&self, request: Resolved<'_>) -> bool {
        let policy = self.registry.policy_of(request.id);
        policy.is_some_and(|policy| {
            policy.quotas().iter().any(|quota| quota.algorithm() == Algorithm::LeakyBucket)
        })
    }

    /// The denial for who stands behind so many units: it cannot be admitted sooner than after them.
    fn denied_behind(&self, request: Resolved<'_>, ahead: u64) -> Decision {
        let Resolved { id, key, cost } = request;
        let peeked = self.store.decide(id, key, Operation::Peek, cost);
        let policy = self.registry.policy_of(id).filter(|_| peeked.retry_after_us().is_some());
        let wait_us = policy.map_or(Decision::NEVER, |policy| {
            let total = ahead.saturating_add(cost);
            let capacity = policy.quotas().iter().map(crate::Quota::capacity).min().unwrap_or(0);
            let fitting = self.store.decide(id, key, Operation::Peek, total.min(capacity));
            no_sooner_us(&policy, total, fitting.retry_after_us().unwrap_or(0))
        });
        Decision { allowed: false, wait_us, ..peeked }
    }
}

/// A time, from now, before which so many units cannot all be admitted, given how long as many of them as can be
/// spent at once have to wait.
fn no_sooner_us(policy: &Policy, units: u64, fitting_after_us: u64) -> u64 {
    let least_us = policy.quotas().iter().map(|quota| quota.least_span_us(units)).max().unwrap_or(0);
    // Windows forget the first units again, at the earliest after the time in which they admit their limit once. A
    // bucket never does: what does not fit at once has to be refilled after that.
    let forgets_us = policy.quotas().iter().filter_map(crate::Quota::forgets_after_us).min();
    match forgets_us {
        None => fitting_after_us.saturating_add(least_us),
        Some(forgets_us) => fitting_after_us.min(forgets_us).max(least_us),
    }
}
