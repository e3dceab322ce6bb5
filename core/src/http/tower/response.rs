//! The responses that a layer makes itself, and the fields that it adds to a response.

use http::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    RETRY_AFTER,
};
use http::request::Parts;
use http::{Response, StatusCode};

use crate::http::guard::Guard;
use crate::http::headers::{GrpcStatus, HeaderField, Problem};
use crate::http::tower::body::ResponseBody;
use crate::http::tower::grpc;
use polylimit_rules::error::Error;

/// The default response to a request that a guard denies: a problem document, or its text; the status of a call of gRPC.
pub(super) fn denial<B>(problem: &Problem, request: &Parts) -> Response<ResponseBody<B>> {
    if grpc::is_call(request) {
        return call_response(&problem.grpc_status());
    }
    let lines = request.headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let accept = lines.collect::<Vec<_>>().join(", ");
    let default = problem.response((!accept.is_empty()).then_some(&*accept));
    let mut response = Response::new(ResponseBody::denial(default.body));
    *response.status_mut() = StatusCode::from_u16(default.status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    add_fields(response.headers_mut(), default.fields);
    response
}

/// A response to a call without messages, whose header has the status ("Trailers-Only").
fn call_response<B>(status: &GrpcStatus) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::empty());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    add_fields(response.headers_mut(), status.fields().into());
    response
}

/// Adds the fields that let a page of another origin read a denial, unless the response has them.
pub(super) fn allow_origin(headers: &mut HeaderMap, guard: &Guard, request: &Parts) {
    if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    let origin = request.headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    for field in guard.cors_fields(origin) {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(field.value)) {
            headers.append(name, value);
        }
    }
}

/// The response to a request that could not be counted, although the store is not the cause. Its text does not say why; its
/// extensions contain the [`Error`].
pub(super) fn failure<B>(error: Error, request: &Parts) -> Response<ResponseBody<B>> {
    let mut response = if grpc::is_call(request) {
        call_response(&GrpcStatus::failure())
    } else {
        let mut response = Response::new(ResponseBody::denial("The request cannot be counted.\n".to_owned()));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(Problem::TEXT_TYPE));
        response
    };
    response.extensions_mut().insert(error);
    response
}

/// Adds fields to those of a response. A structured field is a list and may have several lines, `retry-after` is replaced, and
/// any other field keeps the value that the response already has.
pub(super) fn add_fields(headers: &mut HeaderMap, fields: Vec<HeaderField>) {
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(field.value)) else { continue };
        let is_list = value.as_bytes().starts_with(b"\"");
        if name == RETRY_AFTER {
            headers.insert(name, value);
        } else if is_list || !headers.contains_key(&name) {
            headers.append(name, value);
        }
    }
}
