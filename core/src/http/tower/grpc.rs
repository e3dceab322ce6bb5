//! Calls of gRPC, so that the layer limits tonic's servers, too.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;

/// Whether the request is a call of gRPC, whose client reads the status from the fields `grpc-*`.
pub(super) fn is_call(request: &Parts) -> bool {
    content_type(&request.headers).is_some_and(|kind| {
        kind.strip_prefix("application/grpc")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
    })
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()
}
