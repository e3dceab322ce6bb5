//! Usage that has happened already, such as the tokens of an answer: it is spent whether it fits or not, and the decision says whether it
//! did.

use crate::limiter::configured::in_force::InForce;
use crate::limiter::configured::key_steps::{Opening, StoreCall};
use crate::limiter::together::Planned;
use crate::limiter::{CHARGE, CHECK, KeyCall, Limiter, Raw};
use polylimit_rules::decision::Decision;
use polylimit_rules::error::Error;
use polylimit_rules::request::Request;
use polylimit_store::charge::{Charge, StoreAnswer, Wait};

impl Limiter {
    /// Spends the costs of these requests whether they fit or not. Each decision says whether its cost fitted before, and what is left
    /// after it; the wait of a denial is the time until the same cost would be admitted.
    pub(crate) async fn spend_always(
        &self,
        requests: &[Request<'_>],
        wait: Wait,
    ) -> Result<Vec<Decision>, Error> {
        let shared = self.shared();
        shared.registry.check_open()?;
        let in_force = if shared.registry.is_configured() {
            Some(self.wait_for_configuration(wait).await?)
        } else {
            None
        };
        let in_force = in_force.as_deref();
        let now_us = shared.store.clock().now_us();
        let calls: Vec<_> =
            requests.iter().map(|request| KeyCall { action: CHECK, request: *request, hold: None }).collect();
        let planned = calls.iter().map(|call| self.plan(in_force, call, now_us));
        let planned: Vec<_> = planned.collect::<Result<_, Error>>()?;
        let answers = self.spend_planned(in_force, &planned, wait).await?;
        for (planned, answer) in planned.iter().zip(&answers) {
            self.count_planned(in_force, planned, answer);
        }
        Ok(answers.into_iter().map(|(decision, _)| decision).collect())
    }

    /// Spends what is planned, unless the document answers. A peek, the charge and another peek of each are sent together, and the store
    /// answers them in this order.
    pub(crate) async fn spend_planned(
        &self,
        in_force: Option<&InForce>,
        planned: &[Planned<'_>],
        wait: Wait,
    ) -> Result<Vec<StoreAnswer>, Error> {
        let asked = planned.iter().filter_map(|planned| match &planned.opening {
            Opening::Asked(StoreCall { charge, .. }) => Some(*charge),
            Opening::Answered(_) => None,
        });
        let all: Vec<_> = asked.flat_map(steps).collect();
        let answers = self.start_each(&all, wait).await?;
        for (charge, answer) in all.iter().zip(&answers) {
            self.shared().answered(*charge, answer);
        }
        let mut answers = answers.into_iter();
        let answered = planned.iter().map(|planned| {
            if let Opening::Answered(answer) = &planned.opening {
                return Ok(answer.clone());
            }
            let (Some((before, _)), Some(_), Some((after, _))) =
                (answers.next(), answers.next(), answers.next())
            else {
                return Err(Error::no_answer());
            };
            let answer = (judged(&before, after), 0);
            Ok(match planned.configured.zip(in_force) {
                Some((call, in_force)) => in_force.shadow(call, answer),
                None => answer,
            })
        });
        answered.collect()
    }
}

/// A peek, the charge, and a peek at what is left.
fn steps(charge: Charge<'_>) -> [Charge<'_>; 3] {
    [charge.peek(), Charge { action: CHARGE, headroom: 0, ..charge }, charge.peek()]
}

/// What is left after a charge, with the verdict from before it.
fn judged(before: &Decision, after: Decision) -> Decision {
    if !before.allowed {
        return Decision { allowed: false, cause: before.cause, ..after };
    }
    let waits_us: Vec<u64> = after.waits_us().iter().map(|_| 0).collect();
    Decision { allowed: true, cause: None, wait_us: 0, ..after }.with_waits(&waits_us)
}

impl Raw<'_> {
    /// Spends the costs of these requests whether they fit or not, because they have happened already, such as tokens that a model has
    /// used. Each decision says whether its cost fitted before, and what is left after it; a denial's wait is the time until the same cost
    /// would be admitted. Use saturates as with [`Limiter::charge`].
    ///
    /// # Errors
    /// As for [`Limiter::charge`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) also for a policy with a quota of concurrency.
    pub async fn spend_always(self, requests: &[Request<'_>]) -> Result<Vec<Decision>, Error> {
        self.limiter.spend_always(requests, Wait::Await).await
    }
}
