//! Responses: JSON, and refusals as problem documents (RFC 9457).

use axum::body::Body;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use polylimit::http::headers::{HeaderField, Problem};
use polylimit::{Error, ErrorKind};
use serde::Serialize;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static(Problem::JSON_TYPE);

/// Why a request was not carried out, with its response.
#[derive(Debug)]
pub(super) struct Refused {
    response: Box<Response<Body>>,
    /// What one of several requests is refused for, where the others are carried out.
    of_one: Option<ErrorBody>,
}

/// An error as a part of an answer.
#[derive(Debug, Serialize)]
pub(super) struct ErrorBody {
    pub(super) code: &'static str,
    pub(super) detail: String,
}

impl Refused {
    pub(super) fn of(response: Response<Body>) -> Self {
        Self { response: Box::new(response), of_one: None }
    }

    fn of_request(status: StatusCode, code: &'static str, detail: &str) -> Self {
        let of_one = Some(ErrorBody { code, detail: detail.to_owned() });
        Self { of_one, ..Self::of(refuse(status, code, detail)) }
    }

    /// The error of a request that is wrong by itself, for an answer to several.
    pub(super) fn of_one(self) -> Result<ErrorBody, Self> {
        match self.of_one {
            Some(error) => Ok(error),
            None => Err(self),
        }
    }

    pub(super) fn response(self) -> Response<Body> {
        *self.response
    }
}

#[derive(Serialize)]
struct RefusalBody<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'a str,
}

pub(super) fn json(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(body) => with_body(StatusCode::OK, JSON, body),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", &error.to_string()),
    }
}

pub(super) fn with_body(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A refusal: what was read, what is allowed and what to do. `code` is for programs.
pub(super) fn refuse(status: StatusCode, code: &str, detail: &str) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or_default();
    let body = RefusalBody { r#type: "about:blank", title, status: status.as_u16(), detail, code };
    with_body(status, PROBLEM, serde_json::to_vec(&body).unwrap_or_default())
}

/// An error of the limiter.
pub(super) fn of_error(error: &Error) -> Response<Body> {
    let status = match error.kind() {
        ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
        ErrorKind::StoreUnavailable | ErrorKind::StoreFailed | ErrorKind::Closed => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refuse(status, error.kind().code(), error.message())
}

pub(super) fn invalid(detail: &str) -> Refused {
    Refused::of_request(StatusCode::BAD_REQUEST, ErrorKind::InvalidArgument.code(), detail)
}

pub(super) fn too_large(detail: &str) -> Refused {
    Refused::of_request(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
}

/// The response to a request that does not proceed.
pub(super) fn denied(problem: &Problem, accept: Option<&str>) -> Response<Body> {
    let made = problem.response(accept);
    let mut response = Response::new(Body::from(made.body));
    *response.status_mut() = StatusCode::from_u16(made.status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    add(response.headers_mut(), made.fields);
    response
}

/// Adds fields, whose values are printable ASCII.
pub(super) fn add(headers: &mut HeaderMap, fields: Vec<HeaderField>) {
    for HeaderField { name, value } in fields {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(&*name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
}

pub(super) async fn no_such_path(uri: Uri) -> Response<Body> {
    let detail = format!(
        "there is no {:?} on this listener: /openapi.json of the admin listener lists every path",
        uri.path()
    );
    refuse(StatusCode::NOT_FOUND, "not_found", &detail)
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response<Body> {
    let detail = format!(
        "{:?} has no method {method}: /openapi.json of the admin listener lists every method",
        uri.path()
    );
    refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &detail)
}

/// The same for the callers' listener: its clients may not reach the admin listener.
pub(super) async fn no_such_data_path(uri: Uri) -> Response<Body> {
    let detail = format!(
        "there is no {:?} for callers: allowed are POST /v1/check, peek, take, charge, refund, reset, reserve, commit, cancel, renew and \
         decide, /v1/forward, GET /healthz and /readyz; what operators ask for is on the admin listener",
        uri.path()
    );
    refuse(StatusCode::NOT_FOUND, "not_found", &detail)
}

pub(super) async fn no_such_data_method(method: Method, uri: Uri) -> Response<Body> {
    let detail = format!("{:?} has no method {method}: the field allow names those that it has", uri.path());
    refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &detail)
}

/// The answer where only `POST` is allowed, and the router does not see it.
pub(super) async fn only_post(method: Method, uri: Uri) -> Response<Body> {
    let mut response = no_such_data_method(method, uri).await;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    response
}
