//! Forward authentication: a proxy asks about each request before it passes it on. The answer is that of the middleware for tower, in
//! front of a handler that says yes.

use std::convert::Infallible;
use std::future::Ready;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use polylimit::http::guard::KeyPart;
use polylimit::http::tower::{RateLimitBuilder, RateLimitLayer, client_address};
use serde::Deserialize;
use tower_layer::Layer;
use tower_service::Service;
use utoipa::IntoParams;

use crate::app::App;
use crate::caller::Caller;
use crate::web::query::{Shared, check_length, query};
use crate::web::refusal::{Refused, invalid, of_error};

/// How a proxy's request is counted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ForwardQuery {
    /// What requests are counted by: `ip`, `header:NAME` or `cookie:NAME`; `ip` by default. A request without that header or cookie
    /// counts by its address.
    key: Option<String>,
    /// Units, 0 to 10^12; 1 by default.
    cost: Option<u64>,
    /// The status of a denial, 400 to 599; 429 by default. nginx passes on 401 and 403 only.
    denied: Option<u16>,
}

/// `/v1/forward/{policy}`: one policy, and a key that the query names.
pub(super) async fn by_policy(
    State(app): Shared,
    policy: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Response<Body> {
    let layer = match policy {
        Ok(Path(policy)) => policy_layer(&app, &policy, &request),
        Err(_) => {
            Err(invalid("the policy in the path is not text in UTF-8: write it as %XX for each of its bytes"))
        }
    };
    match layer {
        Ok(layer) => ask(layer, request).await,
        Err(refused) => refused.response(),
    }
}

/// `/v1/forward`: the rules of the document find policies, keys and costs by the request that the proxy describes.
pub(super) async fn by_rules(State(app): Shared, mut request: Request<Body>) -> Response<Body> {
    let layer = rules_layer(&app, request.uri());
    match layer.and_then(|layer| describe(&mut request).map(|()| layer)) {
        Ok(layer) => ask(layer, request).await,
        Err(refused) => refused.response(),
    }
}

fn policy_layer(app: &App, policy: &str, request: &Request<Body>) -> Result<RateLimitLayer<Body>, Refused> {
    let ForwardQuery { key, cost, denied } = query(request.uri())?;
    check_length(app, "policy", policy.len())?;
    let caller = Caller::identity_of(request.extensions());
    let one_off = app.one_off.resolve(&app.limiter, policy, caller);
    let policy = one_off.map_err(|error| invalid(&error.to_string()))?.unwrap_or_else(|| Arc::from(policy));
    let part = key_part(key.as_deref().unwrap_or("ip"))?;
    for length in lengths_of(&part, request.headers()) {
        check_length(app, "key", length)?;
    }
    let address = client_address(app.options.client_address.clone(), peer);
    let builder = RateLimitLayer::builder(app.limiter.clone(), address).policy(&*policy);
    finish(builder.key_part(part).cost(cost.unwrap_or(1)), denied)
}

fn rules_layer(app: &App, uri: &Uri) -> Result<RateLimitLayer<Body>, Refused> {
    let ForwardQuery { key, cost, denied } = query(uri)?;
    if key.is_some() || cost.is_some() {
        return Err(invalid(
            "key and cost are for /v1/forward/{policy}: the rules of the document say them here",
        ));
    }
    finish(RateLimitLayer::by_configuration(app.limiter.clone(), peer), denied)
}

fn finish(builder: RateLimitBuilder<Body>, denied: Option<u16>) -> Result<RateLimitLayer<Body>, Refused> {
    let builder = match denied {
        Some(status) => builder.status(status),
        None => builder,
    };
    builder.build().map_err(|error| Refused::of(of_error(&error)))
}

/// Puts the client's method and path in place of those of the proxy's question, as Traefik and Caddy write them, and nginx by its
/// settings.
fn describe(request: &mut Request<Body>) -> Result<(), Refused> {
    let unreadable = |name: &str| invalid(&format!("{name} cannot be read: send the client's as it came"));
    let (method, path) =
        (described(request, "x-forwarded-method")?.cloned(), described(request, "x-forwarded-uri")?.cloned());
    if let Some(method) = method {
        *request.method_mut() =
            Method::from_bytes(method.as_bytes()).map_err(|_| unreadable("x-forwarded-method"))?;
    }
    let path = path.ok_or_else(|| {
        invalid(
            "x-forwarded-uri is missing: the proxy has to send the client's path, as Traefik and Caddy do",
        )
    })?;
    *request.uri_mut() = Uri::try_from(path.as_bytes()).map_err(|_| unreadable("x-forwarded-uri"))?;
    Ok(())
}

/// The line in which the proxy describes the request. Of two lines one can be the client's own, which would choose its rules.
fn described<'request>(
    request: &'request Request<Body>,
    name: &str,
) -> Result<Option<&'request HeaderValue>, Refused> {
    let mut lines = request.headers().get_all(name).iter();
    let first = lines.next();
    if lines.next().is_some() {
        return Err(invalid(&format!(
            "{name} occurs more than once: the proxy has to replace what the client has sent"
        )));
    }
    Ok(first)
}

fn key_part(text: &str) -> Result<KeyPart, Refused> {
    let part = if text == "ip" { Some(KeyPart::Address) } else { text.parse().ok() };
    part.filter(|part| matches!(part, KeyPart::Address | KeyPart::Header(_) | KeyPart::Cookie(_))).ok_or_else(
        || invalid(&format!("key {text:?} cannot be read: allowed are ip, header:NAME and cookie:NAME")),
    )
}

/// The lengths of the lines that a key is made of.
fn lengths_of(part: &KeyPart, headers: &HeaderMap) -> Vec<usize> {
    let name = match part {
        KeyPart::Header(name) => name.as_str(),
        KeyPart::Cookie(_) => "cookie",
        _ => return Vec::new(),
    };
    headers.get_all(name).iter().map(HeaderValue::len).collect()
}

/// The other end of the proxy's socket.
fn peer(request: &Parts) -> Option<IpAddr> {
    request.extensions.get::<Caller>()?.peer
}

async fn ask(layer: RateLimitLayer<Body>, request: Request<Body>) -> Response<Body> {
    match layer.layer(Yes).call(request).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}

/// The handler behind the limit.
#[derive(Clone)]
struct Yes;

impl Service<Request<Body>> for Yes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::OK;
        std::future::ready(Ok(response))
    }
}
