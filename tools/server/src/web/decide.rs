//! `POST /v1/decide` and its explanation: requests by their attributes, whose policies the rules of the document find.

use axum::body::Body;
use axum::extract::State;
use http::header::ACCEPT;
use http::{Request, Response};
use polylimit::http::headers::{HeaderSettings, request_fields, request_problem};

use crate::app::App;
use crate::web::attributes::AttributesRequest;
use crate::web::operation::has_status;
use crate::web::query::{self, Shared};
use crate::web::refusal::{self, Refused, denied, json, of_error};
use crate::web::shown::shown;
use crate::web::terms::terms;

pub(super) async fn decide(State(app): Shared, request: Request<Body>) -> Response<Body> {
    try_decide(&app, request).await.unwrap_or_else(Refused::response)
}

async fn try_decide(app: &App, request: Request<Body>) -> Result<Response<Body>, Refused> {
    let (head, body) = request.into_parts();
    let asked: AttributesRequest = query::parse(&query::body(app, body).await?)?;
    asked.check(app)?;
    let failed = |error| Refused::of(of_error(&error));
    let terms = terms(asked.id.as_deref(), asked.ttl_us, asked.remember_us).map_err(failed)?;
    let decided = app.limiter.decide(&asked.attributes(), &terms).await.map_err(failed)?;
    if !head.uri.query().is_some_and(has_status) {
        return Ok(json(&decided));
    }
    let accept = head.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let mut response = match request_problem(&decided) {
        None => json(&decided),
        Some(problem) => denied(&problem, accept),
    };
    refusal::add(response.headers_mut(), request_fields(&decided, &HeaderSettings::default(), 0));
    Ok(response)
}

/// Why a request would be admitted or denied; spends nothing.
pub(super) async fn explain(State(app): Shared, request: Request<Body>) -> Response<Body> {
    let explained = async {
        let asked: AttributesRequest = query::parse(&query::body(&app, request.into_body()).await?)?;
        asked.check(&app)?;
        let explained = app.limiter.admin().explain_request(&asked.attributes()).await;
        explained.map(|explained| shown(&app, &explained)).map_err(|error| Refused::of(of_error(&error)))
    };
    explained.await.unwrap_or_else(Refused::response)
}
