//! The arguments of functions that answer in place of the layer, and the layer's own answers.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, VARY};
use http::request::Parts;
use http::{Response, StatusCode};

use crate::error::{Error, ErrorKind};
use crate::http::headers::Problem;
use crate::http::tower::body::ResponseBody;
use crate::rules::decision::Decision;
use crate::rules::policy::Policy;

/// A denied request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Denial<'a> {
    /// The policies of this layer, each with its decision.
    pub outcomes: &'a [(Policy, Decision)],
    /// The default answer; its status is 429, or 503 when the store could not decide.
    pub problem: &'a Problem,
}

/// A request that the store did not decide: the outage policy decided, or no decision could be made.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreOutage<'a> {
    /// The policies of this layer, each with its decision; empty when no decision could be made.
    pub outcomes: &'a [(Policy, Decision)],
    /// Why no decision could be made; `None` when the outage policy decided.
    pub error: Option<&'a Error>,
}

/// What to do with a request that the store did not decide.
#[derive(Debug)]
pub enum InPlace<B> {
    /// The decision of the outage policy applies; without a decision the answer is 503.
    AsDecided,
    /// The request is passed to the service.
    Allow,
    /// This response is the answer.
    Respond(Response<B>),
}

/// The response to a denied request: the problem document, or its text.
pub(crate) fn answer<B>(problem: &Problem, request: &Parts) -> Response<ResponseBody<B>> {
    let lines = request.headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let accept = lines.collect::<Vec<_>>().join(", ");
    let (content_type, text) = problem.body((!accept.is_empty()).then_some(&*accept));
    let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut response = plain(status, content_type, text);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// The response when no decision could be made. Its text does not say why; its extensions contain the [`Error`].
pub(crate) fn failure<B>(error: Error) -> Response<ResponseBody<B>> {
    let (status, text) = if is_outage(&error) {
        (StatusCode::SERVICE_UNAVAILABLE, "The request cannot be counted at the moment.\n")
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, "The request cannot be counted.\n")
    };
    let mut response = plain(status, Problem::TEXT_TYPE, text.to_owned());
    response.extensions_mut().insert(error);
    response
}

/// Whether an error comes from the store.
pub(crate) fn is_outage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StoreUnavailable | ErrorKind::StoreFailed)
}

fn plain<B>(status: StatusCode, content_type: &'static str, text: String) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::denial(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
