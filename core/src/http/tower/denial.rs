//! What functions are told that answer in place of the layer, and what it answers itself.

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
    /// What is answered unless told otherwise; its status is 429, or 503 when the store could not be asked.
    pub problem: &'a Problem,
}

/// A request that the store did not decide: the policy for outages did in its place, or nobody could.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreOutage<'a> {
    /// The policies of this layer, each with its decision; none when nobody could decide.
    pub outcomes: &'a [(Policy, Decision)],
    /// Why nobody could.
    pub error: Option<&'a Error>,
}

/// What to do with a request that the store did not decide.
#[derive(Debug)]
pub enum InPlace<B> {
    /// What was decided in the store's place holds; where nobody could, the answer is 503.
    AsDecided,
    /// It is let through.
    Allow,
    /// This is the answer.
    Respond(Response<B>),
}

/// The problem document, or its text.
pub(crate) fn answer<B>(problem: &Problem, request: &Parts) -> Response<ResponseBody<B>> {
    let lines = request.headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let accept = lines.collect::<Vec<_>>().join(", ");
    let (content_type, text) = problem.body((!accept.is_empty()).then_some(&*accept));
    let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut response = plain(status, content_type, text);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// The answer when no decision could be made. It does not say why: that is in its extensions, as an [`Error`].
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

/// Whether an error is the store's.
pub(crate) fn is_outage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StoreUnavailable | ErrorKind::StoreFailed)
}

fn plain<B>(status: StatusCode, content_type: &'static str, text: String) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::denial(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
