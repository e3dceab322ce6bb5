//! What a layer does with one request.

use std::iter::zip;

use http::request::Parts;
use http::{Response, StatusCode, response};

use super::body::ResponseBody;
use super::decided::Decided;
use super::denial::{Denial, InPlace, StoreOutage, answer, failure, is_outage};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::headers::HeaderSettings;
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::request::Request;

/// A function of a request.
type Of<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;
type Counts = Box<dyn Fn(&response::Parts) -> bool + Send + Sync>;
type OnDenied<B> = Box<dyn Fn(&Denial<'_>, &Parts) -> Response<B> + Send + Sync>;
type OnOutage<B> = Box<dyn Fn(&StoreOutage<'_>, &Parts) -> InPlace<B> + Send + Sync>;

/// The options of a layer; see [`RateLimitBuilder`](super::RateLimitBuilder).
pub(super) struct Rules<B> {
    pub(super) limiter: Limiter,
    /// Checked: one or more.
    pub(super) policies: Vec<String>,
    pub(super) key: Of<Vec<u8>>,
    pub(super) cost: Of<u64>,
    pub(super) count: Option<Counts>,
    pub(super) skip: Option<Of<bool>>,
    pub(super) on_denied: Option<OnDenied<B>>,
    pub(super) on_outage: Option<OnOutage<B>>,
    pub(super) headers: HeaderSettings,
}

/// What becomes of a request.
pub(super) enum Verdict<B> {
    /// The service sees it.
    Pass(Option<Spent>),
    /// It is answered without the service.
    Answer(Response<ResponseBody<B>>),
}

/// What a request has spent that may have to be given back.
pub(super) struct Spent {
    key: Vec<u8>,
    cost: u64,
}

impl<B> Rules<B> {
    /// Decides about a request.
    pub(super) async fn decide(&self, request: &Parts, decided: &Decided) -> Verdict<B> {
        if self.skip.as_ref().is_some_and(|is_skipped| is_skipped(request)) {
            return Verdict::Pass(None);
        }
        let (key, cost) = ((self.key)(request), (self.cost)(request));
        let outcomes = match self.check(&key, cost).await {
            Ok(outcomes) => outcomes,
            Err(error) => return self.undecided(error, request),
        };
        let in_place = if outcomes.iter().any(|(_, decision)| decision.source().is_outage()) {
            self.in_place(&StoreOutage { outcomes: &outcomes, error: None }, request)
        } else {
            InPlace::AsDecided
        };
        // Where the store denied, that stands.
        let is_stores = |decision: &Decision| !decision.allowed() && !decision.source().is_outage();
        let in_place = match in_place {
            InPlace::Allow if outcomes.iter().any(|(_, decision)| is_stores(decision)) => InPlace::AsDecided,
            in_place => in_place,
        };
        let overruled = matches!(in_place, InPlace::Allow);
        // What is overruled tells the client nothing.
        for (policy, decision) in outcomes.iter().filter(|(_, decision)| decision.allowed() || !overruled) {
            decided.add(policy.clone(), decision.clone(), self.headers);
        }
        match in_place {
            InPlace::Respond(response) => return Verdict::Answer(response.map(ResponseBody::own)),
            // Nothing was spent if one of them denied.
            InPlace::Allow if outcomes.iter().any(|(_, decision)| !decision.allowed()) => {
                return Verdict::Pass(None);
            }
            InPlace::Allow | InPlace::AsDecided => {}
        }
        let Some(problem) = decided.problem(cost) else {
            return Verdict::Pass(self.count.is_some().then_some(Spent { key, cost }));
        };
        Verdict::Answer(match &self.on_denied {
            Some(on_denied) => {
                let denial = Denial { outcomes: &outcomes, problem: &problem };
                on_denied(&denial, request).map(ResponseBody::own)
            }
            None => answer(&problem, request),
        })
    }

    /// Gives back what a request has spent whose response does not count. A service that failed counts as one that answers
    /// 500.
    pub(super) async fn settle<T, E>(
        &self,
        spent: Spent,
        answered: Result<Response<T>, E>,
    ) -> Result<Response<T>, E> {
        let Some(counts) = &self.count else { return answered };
        let (is_counted, answered) = match answered {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                (counts(&parts), Ok(Response::from_parts(parts, body)))
            }
            Err(error) => {
                let (mut parts, ()) = Response::new(()).into_parts();
                parts.status = StatusCode::INTERNAL_SERVER_ERROR;
                (counts(&parts), Err(error))
            }
        };
        if !is_counted {
            for policy in &self.policies {
                // What the store cannot give back stays spent: the response is on its way, and there is nobody to tell.
                let _ = self.limiter.refund(Request::new(&spent.key).policy(policy).cost(spent.cost)).await;
            }
        }
        answered
    }

    /// The decision of each policy. When one denies, nothing is spent from any.
    async fn check(&self, key: &[u8], cost: u64) -> Result<Vec<(Policy, Decision)>, Error> {
        let request = |policy| Request::new(key).policy(policy).cost(cost);
        if let [policy] = &self.policies[..] {
            return self.beside_policies(vec![self.limiter.check(request(policy)).await?]);
        }
        let requests: Vec<_> = self.policies.iter().map(|policy| request(policy)).collect();
        self.beside_policies(self.limiter.check_together(&requests).await?)
    }

    fn beside_policies(&self, decisions: Vec<Decision>) -> Result<Vec<(Policy, Decision)>, Error> {
        let policies = zip(&self.policies, decisions);
        let outcomes = policies.map(|(name, decision)| Some((self.limiter.policy(name)?, decision)));
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
