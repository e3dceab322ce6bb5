//! How a layer handles one request.

use std::sync::Arc;

use http::request::Parts;
use http::{Response, StatusCode, response};

use crate::error::{Error, ErrorKind};
use crate::http::headers::{HeaderSettings, problem};
use crate::http::tower::body::ResponseBody;
use crate::http::tower::decided::{Decided, Spent};
use crate::http::tower::denial::{Denial, InPlace, StoreOutage, answer, failure, is_outage};
use crate::limiter::Limiter;
use crate::rules::decision::Decision;
use crate::rules::policy::Policy;
use crate::rules::request::Request;

/// A function of a request.
type Of<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;
type Counts = Box<dyn Fn(&response::Parts) -> bool + Send + Sync>;
type OnDenied<B> = Box<dyn Fn(&Denial<'_>, &Parts) -> Response<B> + Send + Sync>;
type OnOutage<B> = Box<dyn Fn(&StoreOutage<'_>, &Parts) -> InPlace<B> + Send + Sync>;

/// The options of a layer; see [`RateLimitBuilder`](crate::http::tower::RateLimitBuilder).
pub(crate) struct Rules<B> {
    pub(crate) limiter: Limiter,
    /// The names of one or more policies that the limiter knows.
    pub(crate) policies: Vec<String>,
    pub(crate) key: Of<Vec<u8>>,
    pub(crate) cost: Of<u64>,
    pub(crate) count: Option<Counts>,
    pub(crate) skip: Option<Of<bool>>,
    pub(crate) on_denied: Option<OnDenied<B>>,
    pub(crate) on_outage: Option<OnOutage<B>>,
    pub(crate) headers: HeaderSettings,
}

/// How a request continues.
pub(crate) enum Verdict<B> {
    /// The service gets the request.
    Pass(Option<Arc<Spent>>),
    /// The layer answers, without the service.
    Answer(Response<ResponseBody<B>>),
}

impl<B> Rules<B> {
    /// Decides a request.
    pub(crate) async fn decide(&self, request: &Parts, decided: &Decided) -> Verdict<B> {
        if self.skip.as_ref().is_some_and(|is_skipped| is_skipped(request)) {
            return Verdict::Pass(None);
        }
        let (key, cost) = ((self.key)(request), (self.cost)(request));
        let outcomes = match self.check(&key, cost, decided).await {
            Ok(outcomes) => outcomes,
            Err(error) => return self.undecided(error, request),
        };
        let is_asked = |policy: &Policy| decided.known(&self.limiter, &key, policy.name()).is_none();
        let asked = outcomes.iter().filter(|(policy, _)| is_asked(policy)).cloned().collect::<Vec<_>>();
        // Outer layers have reported their own decisions.
        let in_place = if asked.iter().any(|(_, decision)| decision.source().is_outage()) {
            self.in_place(&StoreOutage { outcomes: &outcomes, error: None }, request)
        } else {
            InPlace::AsDecided
        };
        // A denial by the store cannot be overruled.
        let is_stores = |decision: &Decision| !decision.allowed() && !decision.source().is_outage();
        let in_place = match in_place {
            InPlace::Allow if outcomes.iter().any(|(_, decision)| is_stores(decision)) => InPlace::AsDecided,
            in_place => in_place,
        };
        let overruled = matches!(in_place, InPlace::Allow);
        // An overruled denial adds no fields.
        for (policy, decision) in asked.iter().filter(|(_, decision)| decision.allowed() || !overruled) {
            decided.add(policy.clone(), decision.clone(), self.headers.clone());
        }
        match in_place {
            InPlace::Respond(response) => return Verdict::Answer(response.map(ResponseBody::own)),
            // Nothing was spent if one policy denied.
            InPlace::Allow if outcomes.iter().any(|(_, decision)| !decision.allowed()) => {
                return Verdict::Pass(None);
            }
            InPlace::Allow | InPlace::AsDecided => {}
        }
        let each: Vec<_> = outcomes.iter().map(|(policy, decision)| (policy, decision)).collect();
        let Some(problem) = problem(&each, cost) else {
            return Verdict::Pass(Some(decided.spend(&self.limiter, key, cost, asked)));
        };
        Verdict::Answer(match &self.on_denied {
            Some(on_denied) => {
                let denial = Denial { outcomes: &outcomes, problem: &problem };
                on_denied(&denial, request).map(ResponseBody::own)
            }
            None => answer(&problem, request),
        })
    }

    /// Refunds what a request has spent if an inner layer has answered it or if its response does not count. A service
    /// that failed counts like one that answers 500.
    pub(crate) async fn settle<T, E>(
        &self,
        spent: &Spent,
        decided: &Decided,
        answered: Result<Response<T>, E>,
    ) -> Result<Response<T>, E> {
        let (is_counted, answered) = self.counts(answered);
        if is_counted && !decided.is_refused() {
            return answered;
        }
        for (policy, _) in &spent.outcomes {
            let request = Request::new(&spent.key).policy(policy.name()).cost(spent.cost);
            // If the refund fails, the units stay spent and the fields show that.
            if let Ok(left) = self.limiter.refund(request).await {
                decided.refunded(spent, policy, left);
            }
        }
        answered
    }

    /// Whether a request with this response counts.
    fn counts<T, E>(&self, answered: Result<Response<T>, E>) -> (bool, Result<Response<T>, E>) {
        let Some(counts) = &self.count else { return (true, answered) };
        match answered {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                (counts(&parts), Ok(Response::from_parts(parts, body)))
            }
            Err(error) => {
                let (mut parts, ()) = Response::new(()).into_parts();
                parts.status = StatusCode::INTERNAL_SERVER_ERROR;
                (counts(&parts), Err(error))
            }
        }
    }

    /// The decision under each policy: that of an outer layer which has decided the same, and otherwise the limiter's.
    /// When one policy denies, nothing is spent under any that is decided here.
    async fn check(
        &self,
        key: &[u8],
        cost: u64,
        decided: &Decided,
    ) -> Result<Vec<(Policy, Decision)>, Error> {
        let known = |policy: &str| decided.known(&self.limiter, key, policy);
        let asked = self.policies.iter().filter(|policy| known(policy).is_none());
        let requests: Vec<_> = asked.map(|policy| Request::new(key).policy(policy).cost(cost)).collect();
        let decisions = match &requests[..] {
            [] => Vec::new(),
            [request] => vec![self.limiter.check(*request).await?],
            requests => self.limiter.check_together(requests).await?,
        };
        let mut decisions = decisions.into_iter();
        let outcomes = self.policies.iter().map(|policy| match known(policy) {
            Some(outcome) => Some(outcome.clone()),
            None => Some((self.limiter.policy(policy)?, decisions.next()?)),
        });
        let all: Option<Vec<_>> = outcomes.collect();
        all.ok_or_else(|| Error::new(ErrorKind::Internal, "a policy that decided is not known"))
    }

    fn undecided(&self, error: Error, request: &Parts) -> Verdict<B> {
        if is_outage(&error) {
            match self.in_place(&StoreOutage { outcomes: &[], error: Some(&error) }, request) {
                InPlace::AsDecided => {}
                InPlace::Allow => return Verdict::Pass(None),
                InPlace::Respond(response) => return Verdict::Answer(response.map(ResponseBody::own)),
            }
        }
        Verdict::Answer(failure(error))
    }

    fn in_place(&self, outage: &StoreOutage<'_>, request: &Parts) -> InPlace<B> {
        self.on_outage.as_ref().map_or(InPlace::AsDecided, |answer| answer(outage, request))
    }
}
