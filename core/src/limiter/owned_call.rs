//! A call that owns its arguments, for callers that continue before it completes.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use crate::limiter::call::{Answer, Call};
use crate::limiter::configured::manage::PublishOptions;
use crate::limiter::listing::page::{KeyFilter, ListBudget};
use crate::limiter::together::Together;
use crate::limiter::{KeyCall, Limiter};
use crate::store::Store;
use polylimit_document::request::OwnedAttributes;
use polylimit_rules::error::Error;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::list::{Hold, ReservationTerms};
use polylimit_store::charge::{Action, Wait};

/// A call that owns its texts and so can outlive its caller.
pub(crate) enum OwnedCall {
    OneKey(OwnedRequest, Action, Option<Hold>),
    ReserveInLine(OwnedRequest, ReservationTerms),
    Many(Vec<OwnedRequest>, Option<Together>),
    Acquire(OwnedRequest, Duration),
    Decide(OwnedAttributes, ReservationTerms),
    SetEntry(Box<str>, Box<str>),
    DeleteEntry(Box<str>),
    Publish { document: Box<str>, expected_version: Option<u64>, by: Box<str>, why: Box<str> },
    WaitForVersion(u64, Duration),
    List(OwnedFilter, ListBudget, Option<Box<str>>),
    ScanTop(OwnedFilter, usize, ListBudget),
    ResetListed(OwnedFilter, ListBudget, Option<Box<str>>),
    Explain(OwnedRequest),
    ExplainRequest(OwnedAttributes),
    Ready(Duration),
    Doctor,
    Sleep(Duration),
}

pub(crate) struct OwnedFilter {
    policy: Option<Box<str>>,
    key_prefix: Box<[u8]>,
    at_least_used: u8,
}

impl OwnedFilter {
    fn of(filter: &KeyFilter<'_>) -> Self {
        let KeyFilter { policy, key_prefix, at_least_used } = *filter;
        Self { policy: policy.map(Into::into), key_prefix: key_prefix.into(), at_least_used }
    }

    fn filter(&self) -> KeyFilter<'_> {
        let Self { policy, key_prefix, at_least_used } = self;
        KeyFilter { policy: policy.as_deref(), key_prefix, at_least_used: *at_least_used }
    }
}

#[derive(Clone)]
pub(crate) struct OwnedRequest {
    key: Box<[u8]>,
    policy: Option<Box<str>>,
    cost: u64,
    plan: Option<Box<str>>,
    headroom: u8,
    is_reserved: bool,
}

impl OwnedRequest {
    fn of(request: &Request<'_>) -> Self {
        let Request { key, policy, cost, plan, headroom, is_reserved } = *request;
        let (policy, plan) = (policy.map(Into::into), plan.map(Into::into));
        Self { key: key.into(), policy, cost, plan, headroom, is_reserved }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let Self { key, policy, cost, plan, headroom, is_reserved } = self;
        let (policy, plan, cost) = (policy.as_deref(), plan.as_deref(), *cost);
        Request { key, policy, cost, plan, headroom: *headroom, is_reserved: *is_reserved }
    }
}

impl OwnedCall {
    pub(crate) fn of(call: &Call<'_>) -> Self {
        if let Some(KeyCall { action, request, hold }) = call.on_key() {
            return Self::OneKey(OwnedRequest::of(&request), action, hold);
        }
        match call {
            Call::CheckMany(requests)
            | Call::CheckTogether(requests)
            | Call::PeekTogether(requests)
            | Call::ReserveTogether(requests, _) => {
                let requests = requests.iter().map(OwnedRequest::of).collect();
                Self::Many(requests, call.together().map(|(_, together)| together))
            }
            Call::Acquire(request, timeout) => Self::Acquire(OwnedRequest::of(request), *timeout),
            Call::Reserve(request, terms) => Self::ReserveInLine(OwnedRequest::of(request), *terms),
            Call::Decide(request, terms) => Self::Decide(OwnedAttributes::of(request), *terms),
            Call::SetEntry(entry, value) => Self::SetEntry((*entry).into(), (*value).into()),
            Call::DeleteEntry(entry) => Self::DeleteEntry((*entry).into()),
            Call::Publish(document, options) => Self::Publish {
                document: (*document).into(),
                expected_version: options.expected_version,
                by: options.by.into(),
                why: options.why.into(),
            },
            Call::WaitForVersion(version, timeout) => Self::WaitForVersion(*version, *timeout),
            Call::List(filter, budget, cursor) => {
                Self::List(OwnedFilter::of(filter), *budget, cursor.map(Into::into))
            }
            Call::ScanTop(filter, most, budget) => Self::ScanTop(OwnedFilter::of(filter), *most, *budget),
            Call::ResetListed(filter, budget, cursor) => {
                Self::ResetListed(OwnedFilter::of(filter), *budget, cursor.map(Into::into))
            }
            Call::Explain(request) => Self::Explain(OwnedRequest::of(request)),
            Call::ExplainRequest(request) => Self::ExplainRequest(OwnedAttributes::of(request)),
            Call::Ready(timeout) => Self::Ready(*timeout),
            Call::Sleep(time) => Self::Sleep(*time),
            _ => Self::Doctor,
        }
    }

    /// Whether the call may have to wait for more than the store's answers.
    pub(crate) fn needs_timer(&self, store: &Store) -> bool {
        match self {
            Self::OneKey(..) | Self::Many(..) | Self::Decide(..) => false,
            // A walk over the keys of another host pauses.
            Self::List(..)
            | Self::ScanTop(..)
            | Self::ResetListed(..)
            | Self::Explain(_)
            | Self::ExplainRequest(_) => !store.is_here(),
            _ => true,
        }
    }

    /// [`run`](Self::run) for generic code: its future is compiled in this crate alone, and not once more in each binding.
    pub(crate) fn boxed<'a>(&'a self, limiter: &'a Limiter) -> BoxFuture<'a, Result<Answer, Error>> {
        self.run(limiter).boxed()
    }

    /// Performs the call, after [`Raw::try_call`](crate::raw::Raw::try_call) returned `None`.
    pub(crate) async fn run(&self, limiter: &Limiter) -> Result<Answer, Error> {
        let borrowed: Vec<Request<'_>>;
        let call = match self {
            Self::OneKey(request, action, hold) => {
                let call = KeyCall { action: *action, request: request.request(), hold: *hold };
                return limiter.act(&call, Wait::Await).await;
            }
            Self::ReserveInLine(request, terms) => Call::Reserve(request.request(), *terms),
            Self::Many(requests, together) => {
                borrowed = requests.iter().map(OwnedRequest::request).collect();
                match together {
                    None => Call::CheckMany(&borrowed),
                    Some(Together::Check) => Call::CheckTogether(&borrowed),
                    Some(Together::Peek) => Call::PeekTogether(&borrowed),
                    Some(Together::Reserve(terms)) => Call::ReserveTogether(&borrowed, *terms),
                }
            }
            Self::Acquire(request, timeout) => Call::Acquire(request.request(), *timeout),
            Self::Decide(request, terms) => return limiter.decide(request, terms).await.map(Answer::Request),
            Self::SetEntry(entry, value) => Call::SetEntry(entry, value),
            Self::DeleteEntry(entry) => Call::DeleteEntry(entry),
            Self::Publish { document, expected_version, by, why } => {
                Call::Publish(document, PublishOptions { expected_version: *expected_version, by, why })
            }
            Self::WaitForVersion(version, timeout) => Call::WaitForVersion(*version, *timeout),
            Self::List(filter, budget, cursor) => Call::List(filter.filter(), *budget, cursor.as_deref()),
            Self::ScanTop(filter, most, budget) => Call::ScanTop(filter.filter(), *most, *budget),
            Self::ResetListed(filter, budget, cursor) => {
                Call::ResetListed(filter.filter(), *budget, cursor.as_deref())
            }
            Self::Explain(request) => Call::Explain(request.request()),
            Self::ExplainRequest(request) => {
                let explained = limiter.admin().explain_request(request).await?;
                return Ok(Answer::RequestExplanation(Box::new(explained)));
            }
            Self::Ready(timeout) => Call::Ready(*timeout),
            Self::Doctor => Call::Doctor,
            Self::Sleep(time) => Call::Sleep(*time),
        };
        limiter.raw().call_store(&call).await
    }
}
