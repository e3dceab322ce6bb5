//! gRPC over the listeners for HTTP: what is the same for every service.

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use tonic::{Code, Status};

use crate::app::{App, Refusal};
use crate::body::{Unread, read};
use crate::counters::{Interface, Rejection};

/// Whether a request is one of gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    match value.strip_prefix(b"application/grpc") {
        Some(rest) => matches!(rest.first(), None | Some(b'+' | b';')),
        None => false,
    }
}

/// Reads a request within the bounds of the server. A body that is late or too large has its response.
pub(crate) async fn whole(app: &App, request: Request<Body>) -> Result<Request<Full<Bytes>>, Response<Body>> {
    let (head, body) = request.into_parts();
    if !is_grpc(&head.headers) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(response);
    }
    match read(app, body).await {
        Ok(body) => Ok(Request::from_parts(head, Full::new(body))),
        Err(unread) => {
            let message = unread.message(app);
            Err(match unread {
                Unread::TooLarge => {
                    app.counters.rejected(Interface::Grpc, Rejection::TooLarge);
                    Status::resource_exhausted(message)
                }
                Unread::Late => Status::deadline_exceeded(message),
                Unread::Broken(_) => Status::invalid_argument(message),
            }
            .into_http())
        }
    }
}

/// The response to a caller that may not do what it asks for.
pub(crate) fn refused(refusal: Refusal) -> Response<Body> {
    match refusal {
        Refusal::Unauthenticated => {
            let message = "the call has no token and no certificate that is known: send the metadata `authorization: Bearer TOKEN`";
            Status::unauthenticated(message)
        }
        Refusal::Forbidden { has, needs } => Status::permission_denied(format!(
            "the caller has the role {}, and this needs {}",
            has.name(),
            needs.name()
        )),
    }
    .into_http()
}

/// The status of a response, which has it in its head unless the call was carried out.
pub(crate) fn code(response: &Response<Body>) -> Code {
    let told = response.headers().get(Status::GRPC_STATUS);
    match told {
        Some(value) => Code::from_bytes(value.as_bytes()),
        None if response.status() == StatusCode::OK => Code::Ok,
        None => Code::Unknown,
    }
}
