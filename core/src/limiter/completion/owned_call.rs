//! A call that outlives its caller's texts.

use std::time::Duration;

use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::call::{Answer, Call, Form};
use crate::rules::request::Request;
use crate::store::request::Action;

pub(crate) enum OwnedCall {
    One(OwnedRequest, Action, Form),
    Many(Vec<OwnedRequest>),
    Together(Vec<OwnedRequest>),
    Acquire(OwnedRequest, Duration),
    Ready(Duration),
    Doctor,
}

#[derive(Clone)]
pub(crate) struct OwnedRequest {
    key: Box<[u8]>,
    policy: Option<Box<str>>,
    cost: u64,
}

impl OwnedRequest {
    fn of(request: &Request<'_>) -> Self {
        Self { key: request.key.into(), policy: request.policy.map(Into::into), cost: request.cost }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        Request { key: &self.key, policy: self.policy.as_deref(), cost: self.cost }
    }
}

fn borrowed(requests: &[OwnedRequest]) -> Vec<Request<'_>> {
    requests.iter().map(OwnedRequest::request).collect()
}

impl OwnedCall {
    pub(crate) fn of(call: &Call<'_>) -> Self {
        if let Some((action, request, form)) = call.action() {
            return Self::One(OwnedRequest::of(&request), action, form);
        }
        match call {
            Call::CheckMany(requests) => Self::Many(requests.iter().map(OwnedRequest::of).collect()),
            Call::CheckTogether(requests) => Self::Together(requests.iter().map(OwnedRequest::of).collect()),
            Call::Acquire(request, timeout) => Self::Acquire(OwnedRequest::of(request), *timeout),
            Call::Ready(timeout) => Self::Ready(*timeout),
            _ => Self::Doctor,
        }
    }

    /// What stands in line with others, if it does.
    pub(crate) fn in_line(&self) -> Option<OwnedRequest> {
        match self {
            Self::Acquire(request, _) => Some(request.clone()),
            _ => None,
        }
    }

    /// Whether it may have to wait for more than the store's answer.
    pub(crate) fn needs_timer(&self) -> bool {
        match self {
            Self::One(..) | Self::Many(_) | Self::Together(_) => false,
            Self::Acquire(..) | Self::Ready(_) | Self::Doctor => true,
        }
    }

    pub(crate) async fn run(&self, limiter: &Limiter) -> Result<Answer, Error> {
        match self {
            Self::One(request, action, form) => limiter.act(*action, request.request(), *form).await,
            Self::Many(requests) => limiter.call_store(&Call::CheckMany(&borrowed(requests))).await,
            Self::Together(requests) => limiter.call_store(&Call::CheckTogether(&borrowed(requests))).await,
            Self::Acquire(request, timeout) => {
                limiter.call_store(&Call::Acquire(request.request(), *timeout)).await
            }
            Self::Ready(timeout) => limiter.call_store(&Call::Ready(*timeout)).await,
            Self::Doctor => limiter.call_store(&Call::Doctor).await,
        }
    }
}
