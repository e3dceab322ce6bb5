//! The entry points for an operation on a key of a configured policy: at once, with waiting, in line, and many
//! together. Each runs the [steps](super::key_steps), counts the answer and charges the pool for what it owes.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;

use crate::limiter::cancellation::gives_back;
use crate::limiter::configured::in_force::InForce;
use crate::limiter::configured::key_steps::{ConfiguredCall, Opening, StoreCall};
use crate::limiter::deadline::in_tokio;
use crate::limiter::operations::check_hold;
use crate::limiter::tally::counts::OperationKind;
use crate::limiter::{CHECK, KeyCall, Limiter, RESERVE};
use polylimit_rules::decision::{Decision, Source};
use polylimit_rules::error::Error;
use polylimit_rules::request::Request;
use polylimit_store::charge::{StoreAnswer, Wait, only};

/// How long an operation waits for the first configuration where the store of the states has no deadline.
const FIRST_CONFIGURATION_WITHIN: Duration = Duration::from_secs(1);

/// An answer that the caller waits for.
pub(crate) type PendingAnswer<'a> = Pin<Box<dyn Future<Output = Result<StoreAnswer, Error>> + Send + 'a>>;

/// An answer that is known already, or that the caller waits for.
pub(crate) type DecidedAnswer<'a> = Either<Ready<Result<StoreAnswer, Error>>, PendingAnswer<'a>>;

impl Limiter {
    /// Answers an operation on a key of a configured policy; `None` where the active configuration has no such policy.
    pub(crate) fn find_configured<'a>(
        &'a self,
        call: &'a KeyCall<'a>,
        wait: Wait,
    ) -> Option<DecidedAnswer<'a>> {
        let configured = &self.shared().configured;
        let Some(in_force) = configured.in_force() else {
            configured.followed()?;
            return Some(Either::Right(Box::pin(self.decide_when_ready(call, wait))));
        };
        let found = match in_force.call(call, self.shared().store.clock().now_us()).transpose()? {
            Ok(found) => found,
            Err(error) => return Some(Either::Left(ready(Err(error)))),
        };
        if let Err(error) = check_bounds(call) {
            return Some(Either::Left(ready(Err(error))));
        }
        if let Some(answer) = self.decide_here(&in_force, found).transpose() {
            return Some(Either::Left(ready(answer)));
        }
        Some(Either::Right(Box::pin(async move { self.decide_on_key(&in_force, found, wait).await })))
    }

    /// The answer of a store in this process or on this host, unless a pool or a candidate takes part; `None` then, and
    /// for Redis. It creates no future: a check by a document takes 0.33 us in memory, and 0.65 us by
    /// [`decide_on_key`](Self::decide_on_key) (`cargo bench -p polylimit --features testing --bench configuration`).
    fn decide_here(
        &self,
        in_force: &InForce,
        call: ConfiguredCall<'_>,
    ) -> Result<Option<StoreAnswer>, Error> {
        let shared = self.shared();
        if !shared.store.is_here() || in_force.document(call.policy).elastic.is_some() {
            return Ok(None);
        }
        let answer = match self.open(in_force, call)? {
            Opening::Answered(answer) => answer,
            Opening::Asked(asked) if asked.compared.is_none() => {
                let Some(answer) = shared.try_start(asked.charge)? else {
                    return Ok(None);
                };
                in_force.shadow(call, answer)
            }
            Opening::Asked(_) => return Ok(None),
        };
        self.count_configured(in_force, call, &answer);
        Ok(Some(answer))
    }

    /// The call on a configured policy of a caller that may wait in line; `None` for a policy of the program.
    pub(crate) async fn configured_in_line<'a>(
        &self,
        call: &'a KeyCall<'a>,
    ) -> Result<Option<(Arc<InForce>, ConfiguredCall<'a>)>, Error> {
        let shared = self.shared();
        if shared.configured.in_force().is_none() && shared.configured.followed().is_none() {
            return Ok(None);
        }
        check_bounds(call)?;
        let in_force = self.wait_for_configuration(Wait::Await).await?;
        let configured = in_force.call(call, shared.store.clock().now_us())?;
        Ok(configured.map(|configured| (in_force, configured)))
    }

    /// Waits for the first configuration within the deadline, then answers.
    async fn decide_when_ready(&self, call: &KeyCall<'_>, wait: Wait) -> Result<StoreAnswer, Error> {
        check_bounds(call)?;
        let in_force = self.wait_for_configuration(wait).await?;
        let shared = self.shared();
        if let Some(configured) = in_force.call(call, shared.store.clock().now_us())? {
            return self.decide_on_key(&in_force, configured, wait).await;
        }
        // A policy of the program.
        self.start_counted(shared.key_request(call)?, wait).await
    }

    /// The active configuration; where its source has none yet, the caller waits for it within the store's deadline, or for a second
    /// where the store of the states has none. A task outside of a tokio runtime does not wait.
    pub(crate) async fn wait_for_configuration(&self, wait: Wait) -> Result<Arc<InForce>, Error> {
        let shared = self.shared();
        if let (None, Some(followed)) = (shared.configured.in_force(), shared.configured.followed()) {
            let longest = shared.store.deadline();
            let longest = if longest.is_zero() { FIRST_CONFIGURATION_WITHIN } else { longest };
            match wait {
                Wait::Block => followed.ready_blocking(longest)?,
                Wait::Await if in_tokio("decide").is_ok() => {
                    let ready = async { followed.ready(longest).await };
                    shared.closing.unless_closed(ready).await?;
                }
                Wait::Await => followed.ready_blocking(Duration::ZERO)?,
            }
        }
        self.in_force()
    }

    /// Checks several requests, of which some or all have configured policies, together.
    pub(crate) async fn check_many_configured(
        &self,
        requests: &[Request<'_>],
        wait: Wait,
    ) -> Vec<Result<Decision, Error>> {
        let in_force = match self.wait_for_configuration(wait).await {
            Ok(in_force) => in_force,
            Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
        };
        let calls: Vec<_> =
            requests.iter().map(|request| KeyCall { action: CHECK, request: *request, hold: None }).collect();
        let now_us = self.shared().store.clock().now_us();
        let openings: Vec<_> = calls.iter().map(|call| self.open_any(&in_force, call, now_us)).collect();
        for call in openings.iter().filter_map(|opening| opening.as_ref().ok()?.1) {
            if let Err(error) = self.charge_own_pool(&in_force, call, wait).await {
                return requests.iter().map(|_| Err(error.clone())).collect();
            }
        }
        let asked: Vec<StoreCall<'_>> = openings
            .iter()
            .filter_map(|opening| match opening {
                Ok((Opening::Asked(asked), _)) => Some(*asked),
                _ => None,
            })
            .collect();
        let answers = self.ask_each(&in_force, &asked, wait).await;
        let mut answers = answers.map(Vec::into_iter);
        let mut decisions = Vec::with_capacity(requests.len());
        for opening in openings {
            let answer = match opening {
                Err(error) => Err(error),
                Ok((Opening::Answered(answer), call)) => Ok((answer, call, None)),
                Ok((Opening::Asked(asked), call)) => {
                    let answer = match &mut answers {
                        Ok(answers) => answers.next().ok_or_else(Error::no_answer),
                        Err(error) => Err(error.clone()),
                    };
                    let answer = match (answer, call) {
                        (Ok(answer), Some(call)) => self.close_paid(&in_force, call, answer, wait).await,
                        (answer, _) => answer,
                    };
                    answer.map(|answer| (answer, call, Some(asked)))
                }
            };
            decisions.push(answer.map(|(answer, call, asked)| {
                match (call, asked) {
                    (Some(call), _) => self.count_configured(&in_force, call, &answer),
                    (None, Some(asked)) => self.shared().count_decision(&asked.charge, &answer),
                    (None, None) => {}
                }
                answer.0
            }));
        }
        decisions
    }

    /// The steps before the store for a check whose policy may be configured or not.
    pub(crate) fn open_any<'a>(
        &self,
        in_force: &'a InForce,
        call: &'a KeyCall<'a>,
        now_us: u64,
    ) -> Result<(Opening<'a>, Option<ConfiguredCall<'a>>), Error> {
        check_bounds(call)?;
        if let Some(configured) = in_force.call(call, now_us)? {
            return Ok((self.open(in_force, configured)?, Some(configured)));
        }
        Ok((Opening::of_program(self.shared().key_request(call)?), None))
    }

    /// The steps after the store, including the charge of the pool.
    async fn close_paid(
        &self,
        in_force: &InForce,
        call: ConfiguredCall<'_>,
        answer: StoreAnswer,
        wait: Wait,
    ) -> Result<StoreAnswer, Error> {
        let (answer, owed) = self.close_call(in_force, call, answer, wait).await?;
        self.owe_to_pool(in_force, call, owed, wait).await?;
        Ok(answer)
    }

    /// Answers an operation on a key of a configured policy, and counts its decision.
    pub(crate) async fn decide_on_key(
        &self,
        in_force: &InForce,
        call: ConfiguredCall<'_>,
        wait: Wait,
    ) -> Result<StoreAnswer, Error> {
        let answer = self.decide_uncounted(in_force, call, wait).await?;
        self.count_configured(in_force, call, &answer);
        Ok(answer)
    }

    /// Answers an operation on a key of a configured policy.
    pub(crate) async fn decide_uncounted(
        &self,
        in_force: &InForce,
        call: ConfiguredCall<'_>,
        wait: Wait,
    ) -> Result<StoreAnswer, Error> {
        let asked = match self.open(in_force, call)? {
            Opening::Answered(answer) => return Ok(answer),
            Opening::Asked(asked) => asked,
        };
        self.charge_own_pool(in_force, call, wait).await?;
        let answer = if wait == Wait::Await && (call.action == RESERVE || gives_back(call.action)) {
            // A reserve whose caller stops waiting leaves no reservation behind, and a refund, commit or cancel is performed.
            only(self.start_kept(&[asked.charge]).await?)?
        } else {
            self.ask_each(in_force, &[asked], wait).await?.pop().ok_or_else(Error::no_answer)?
        };
        self.close_paid(in_force, call, answer, wait).await
    }

    /// Counts the answer of a configured policy as its caller receives it. Operations that decide nothing are counted
    /// where the store answers, so of those only the ones that the configuration answers are counted here.
    pub(crate) fn count_configured(
        &self,
        in_force: &InForce,
        call: ConfiguredCall<'_>,
        answer: &StoreAnswer,
    ) {
        let (shared, id) = (self.shared(), in_force.policy(call.policy).id);
        if matches!(call.action, CHECK | RESERVE) {
            let kind = OperationKind::of(call.action);
            shared.count_by_quotas((id, call.key), kind, call.cost, &answer.0, in_force.effective(call));
        } else if answer.0.source == Source::Configuration {
            shared.count_operation(id, call.action, call.cost, answer);
        }
    }
}

/// Whether a denied caller may be admitted later.
pub(crate) fn waits(denial: &Decision) -> bool {
    denial.wait_us != Decision::NEVER && denial.source != Source::Configuration
}

/// Rejects a call that is out of bounds.
fn check_bounds(call: &KeyCall<'_>) -> Result<(), Error> {
    let KeyCall { action, request, hold } = call;
    match hold {
        Some(hold) => check_hold(*action, request, hold),
        None => request.checked().map(|_| ()),
    }
}
