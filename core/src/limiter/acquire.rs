//! The `acquire` operation: callers queue for a key and wait without polling.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::slice;
use std::task::Poll;
use std::time::Duration;

use crate::limiter::cancellation::Admission;
use crate::limiter::configured::key_decision::waits;
use crate::limiter::configured::key_steps::Opening;
use crate::limiter::deadline::{AskedAt, Deadline};
use crate::limiter::tally::counts::OperationKind;
use crate::limiter::{CHECK, KeyCall, Limiter, RESERVE, Shared};
use polylimit_rules::decision::{Cause, Decision, QuotaUsage, Waits};
use polylimit_rules::error::Error;
use polylimit_rules::general::kept;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::request::Request;
use polylimit_rules::transition::Operation;
use polylimit_store::charge::{Action, Charge, Wait, only};

/// How soon the first caller in line for a reservation calls the store again: another process may end one of its
/// reservations at any time.
const ASK_AGAIN_US: u64 = 50_000;
const PEEK: Action = Action::Apply(Operation::Peek);

impl Limiter {
    /// Waits until the request is admitted and, in a leaky bucket, until its turn has come. If the timeout cannot be met,
    /// it returns a denial at once and spends nothing.
    ///
    /// Callers of one limiter that wait for one key under one policy are served in order of arrival; a `check` does not
    /// queue. Between limiters that share a store, in one process or in several, the order is random: each waits a
    /// random time of at most 1 ms beyond the time at which units become available, and the first one to call the store
    /// gets them. No waiter polls: it sleeps until its request can be admitted, or until this limiter refunds, resets
    /// or changes the policy. A future that is no longer polled keeps its place, and the callers behind it wait.
    ///
    /// A dropped future leaves the queue. Units that the store has spent for it, because the check was in progress or a
    /// leaky bucket's delay had not passed, are refunded once: immediately in a store of this process or host, and in
    /// the background with Redis, after the answer to the check has arrived. They stay spent if that answer does not
    /// arrive before the deadline, if the refund fails, or if the process ends or the limiter is closed first.
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

    /// Waits in line for a check or a reserve. A configured policy decides once before that: it may admit what its quotas deny.
    pub(super) async fn wait_in_line(
        &self,
        call: &KeyCall<'_>,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let shared = self.shared();
        let kind = if call.action == RESERVE { OperationKind::Reserve } else { OperationKind::Acquire };
        if shared.registry.is_configured()
            && let Some((in_force, configured)) = self.configured_in_line(call).await?
        {
            let quotas = in_force.effective(configured);
            let (decision, _) = self.decide_uncounted(&in_force, configured, Wait::Await).await?;
            if let Opening::Asked(asked) = self.open(&in_force, configured)?
                && !decision.allowed
                && waits(&decision)
            {
                return self.acquire_counted(asked.charge, kind, quotas, timeout).await;
            }
            let counted = (in_force.policy(configured.policy).id, configured.key);
            shared.count_by_quotas(counted, Some(kind), configured.cost, &decision, quotas);
            return Ok(decision);
        }
        let charge = shared.key_request(call)?;
        let policy = shared.registry.policy_of(charge.id).ok_or_else(Error::no_answer)?;
        self.acquire_counted(charge, kind, &policy, timeout).await
    }

    /// Waits until the request is admitted or cannot be in time, and counts the decision.
    async fn acquire_counted(
        &self,
        charge: Charge<'_>,
        kind: OperationKind,
        policy: &Policy,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let _held = self.shared().registry.hold(charge.id);
        let decision = self.acquire_while_open(charge, policy, timeout).await?;
        self.shared().count_by_quotas((charge.id, charge.key), Some(kind), charge.cost, &decision, policy);
        Ok(decision)
    }

    async fn acquire_while_open(
        &self,
        charge: Charge<'_>,
        policy: &Policy,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let shared = self.shared();
        if charge.cost == 0 && charge.hold.is_none() {
            // A cost of 0 is always allowed, so the caller does not queue.
            return Ok(shared.start_one(charge, Wait::Await).await?.0);
        }
        let deadline = Deadline::after(timeout, shared.store.clock());
        let (decision, asked_at) = self.acquire_in_queue(shared, charge, policy, &deadline).await?;
        // A caller that is admitted to a leaky bucket waits out its delay after it has left the queue.
        if decision.delay_us() > 0 {
            let admission = Admission::new(self, charge, &decision);
            deadline.sleep(asked_at, decision.delay_us()).await;
            admission.keep();
        }
        Ok(decision)
    }

    async fn acquire_in_queue(
        &self,
        shared: &Shared,
        charge: Charge<'_>,
        policy: &Policy,
        deadline: &Deadline,
    ) -> Result<(Decision, AskedAt), Error> {
        let mut asked_at = deadline.asked_at();
        let waiter = shared.wait_queues.join(charge.id, charge.key, charge.cost);
        let ahead = waiter.units_ahead;
        let turn = {
            let mut turn = pin!(waiter.queue.turn.lock());
            // The first poll joins the lock's queue: callers that arrive later get their turn later.
            match poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await {
                Poll::Ready(turn) => Some(turn),
                Poll::Pending => {
                    // A reservation may end at any time, so its callers wait in any case.
                    if ahead > 0 && charge.hold.is_none() {
                        let denied = shared.denied_behind(charge, policy, ahead).await?;
                        if denied.wait_us > deadline.left_us() {
                            return Ok((denied, asked_at));
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
        let Some(_turn) = turn else {
            return Ok((shared.denied_behind(charge, policy, ahead).await?, asked_at));
        };
        loop {
            shared.registry.check_open()?;
            let left_us = deadline.left_us();
            if let Some(denied) = shared.denied_turn(charge, policy, deadline, left_us).await? {
                return Ok((denied, asked_at));
            }
            asked_at = deadline.asked_at();
            let (decision, _) = match shared.store.ask_caches(charge) {
                Some(answer) => answer,
                None => only(self.start_kept(&[charge]).await?)?,
            };
            if decision.delay_us() > left_us {
                // Another process was faster: the units are refunded, and the next round denies the request because its
                // turn would come too late.
                let refund = Charge { action: Action::Apply(Operation::Refund), ..charge };
                let _ = self.start_kept(&[refund]).await?;
                continue;
            }
            let may_come_sooner = charge.hold.is_some() && left_us > 0 && decision.wait_us != Decision::NEVER;
            if decision.allowed || (decision.wait_us > left_us && !may_come_sooner) {
                return Ok((decision, asked_at));
            }
            deadline.can_wait()?;
            if charge.hold.is_some() {
                let wait_us = decision.wait_us.min(left_us).min(ASK_AGAIN_US);
                tokio::select! {
                    () = deadline.sleep(asked_at, wait_us) => {}
                    () = waiter.queue.recheck.notified() => {}
                }
                continue;
            }
            // Other processes wait for the same microsecond, and timers round it up in the same way each time. Without a
            // random part, one process would always come first.
            let spread_us =
                if shared.store.is_shared() { deadline.spread_us(left_us - decision.wait_us) } else { 0 };
            tokio::select! {
                () = deadline.sleep(asked_at, decision.wait_us + spread_us) => {}
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
        charge: Charge<'_>,
        policy: &Policy,
        deadline: &Deadline,
        left_us: u64,
    ) -> Result<Option<Decision>, Error> {
        let is_queue = |quota: &Quota| quota.algorithm() == Algorithm::LeakyBucket;
        if !policy.quotas().iter().any(is_queue) {
            return Ok(None);
        }
        let (peeked, _) = self.start_one(Charge { action: PEEK, ..charge }, Wait::Await).await?;
        // The turn comes once everything that is in the bucket now has drained.
        let turns_us = policy
            .quotas()
            .iter()
            .zip(peeked.quotas())
            .map(|(quota, view)| if is_queue(quota) { view.reset_after_us } else { 0 });
        let turn_after_us = turns_us.clone().max().unwrap_or(0);
        if turn_after_us > left_us && peeked.retry_after_us().is_some() {
            let late_us = turns_us.map(|turn_us| turn_us.saturating_sub(left_us));
            let each_us = late_us
                .zip(peeked.waits_us())
                .map(|(late_us, fits_us)| if late_us > 0 { late_us } else { fits_us });
            let each_us: Waits = each_us.collect();
            let wait_us = each_us.iter().copied().max().unwrap_or(0);
            return Ok(Some(denied_of(peeked, wait_us, &each_us)));
        }
        if turn_after_us > 0 {
            deadline.can_wait()?;
        }
        Ok(None)
    }

    /// The denial for a caller behind `ahead` units: the store cannot admit it sooner than those.
    async fn denied_behind(
        &self,
        charge: Charge<'_>,
        policy: &Policy,
        ahead: u64,
    ) -> Result<Decision, Error> {
        let (peeked, _) = self.start_one(Charge { action: PEEK, ..charge }, Wait::Await).await?;
        let never = peeked.retry_after_us().is_none();
        if never || charge.hold.is_some() {
            let wait_us = if never { Decision::NEVER } else { peeked.wait_us.max(1) };
            let each_us = peeked.waits_us();
            return Ok(denied_of(peeked, wait_us, &each_us));
        }
        let total = ahead.saturating_add(charge.cost);
        let beside = |quota: &Quota| quota.capacity() - kept(quota.capacity(), charge.headroom);
        let capacity = policy.quotas().iter().map(beside).min().unwrap_or(0);
        let fitting = Charge { action: PEEK, cost: total.min(capacity), ..charge };
        let (fitting, _) = self.start_one(fitting, Wait::Await).await?;
        let fitting_after_us = fitting.retry_after_us().unwrap_or(0);
        let forgets_us = policy.quotas().iter().filter_map(Quota::forgets_after_us).min();
        let all = (policy.quotas(), fitting.quotas());
        // A denied caller has to wait at least for the callers ahead, so the wait is never 0.
        let wait_us = no_sooner_us(all, total, fitting_after_us, forgets_us).max(1);
        let each = policy.quotas().iter().zip(fitting.quotas()).zip(fitting.verdicts());
        let each_us = each.map(|((quota, view), verdict)| {
            let only = (slice::from_ref(quota), slice::from_ref(view));
            no_sooner_us(only, total, verdict.retry_after_us.unwrap_or(0), forgets_us)
        });
        Ok(denied_of(peeked, wait_us, &each_us.collect::<Waits>()))
    }
}

/// The denial of a caller in line, with the waits of the quotas. Where the store itself would admit it, the callers
/// ahead use up the quota.
fn denied_of(peeked: Decision, wait_us: u64, each_us: &[u64]) -> Decision {
    let cause = peeked.cause.or(Some(Cause::Quota));
    Decision { allowed: false, wait_us, cause, ..peeked }.with_waits(each_us)
}

/// A lower bound on the time from now until these quotas, with these usages, can admit all of `units`. As many of them
/// as can be spent at once fit after `fitting_after_us`, and a window of the policy forgets units after `forgets_us` at
/// the earliest.
fn no_sooner_us(
    (quotas, usages): (&[Quota], &[QuotaUsage]),
    units: u64,
    fitting_after_us: u64,
    forgets_us: Option<u64>,
) -> u64 {
    // Windows forget the first units again, at the earliest after the time in which they admit their limit once.
    if let Some(forgets_us) = forgets_us {
        let least_us = quotas.iter().map(|quota| quota.least_span_us(units)).max().unwrap_or(0);
        return fitting_after_us.min(forgets_us).max(least_us);
    }
    // Buckets do not forget: units beyond the capacity have to be refilled after the time when the bucket would be full.
    // Each quota counts separately: the callers ahead may come one by one, and then a bucket starts to refill before
    // another quota admits all that fits into it.
    let refilled_us = quotas.iter().zip(usages).filter_map(|(quota, usage)| {
        let is_more = units > quota.capacity();
        is_more.then(|| usage.reset_after_us.saturating_add(quota.least_span_us(units)))
    });
    refilled_us.max().unwrap_or(0).max(fitting_after_us)
}
