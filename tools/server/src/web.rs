//! HTTP, and gRPC over it: which path has which handler and needs which role, and how a request gets its answer.

mod admin;
mod attributes;
mod author;
mod dashboard;
mod decide;
mod documents;
mod events;
mod fleet;
mod forward;
mod health;
mod lists;
pub(crate) mod openapi;
mod operation;
mod query;
mod refusal;
mod shown;
mod terms;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{MethodRouter, any, get, post};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::time::sleep;
use tower_service::Service;

use crate::access::{Identity, Role, TokenDigest};
use crate::app::{App, Refusal};
use crate::caller::Caller;
use crate::counters::{Interface, Rejection};
use crate::grpc::is_grpc;
use crate::rls::RateLimitCall;
use crate::web::operation::Operation;
use crate::web::query::Shared;
use crate::web::refusal::{Refused, refuse};
use crate::{grpc, rls};

/// The paths of a listener.
#[derive(Clone)]
pub(crate) struct Routes {
    router: Router,
    is_admin: bool,
    /// Every path that the router knows.
    pub(crate) paths: Arc<[&'static str]>,
}

/// What most requests of the data listener ask for: it needs no router.
enum DirectPath {
    /// A call of Envoy's rate limit service, or of Kuadrant's.
    RateLimits(RateLimitCall),
    Operation(Operation),
}

/// Paths with their handlers, while they are put together.
struct Paths {
    router: Router<Arc<App>>,
    known: Vec<&'static str>,
}

impl Paths {
    fn route(mut self, path: &'static str, handler: MethodRouter<Arc<App>>) -> Self {
        self.known.push(path);
        Self { router: self.router.route(path, handler), ..self }
    }
}

impl Routes {
    pub(crate) fn new(app: &Arc<App>, is_admin: bool) -> Self {
        let paths = Paths { router: Router::new(), known: Vec::new() }
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready));
        let Paths { router, known } = if is_admin {
            events::take_points(app);
            admin_routes(paths)
        } else {
            data_routes(paths)
        };
        let router = if is_admin {
            router.fallback(refusal::no_such_path).method_not_allowed_fallback(refusal::no_such_method)
        } else {
            router
                .fallback(refusal::no_such_data_path)
                .method_not_allowed_fallback(refusal::no_such_data_method)
        };
        Self { router: router.with_state(Arc::clone(app)), is_admin, paths: known.into() }
    }

    /// What a request asks for that does without the router: docs/internals/server.md says what that saves.
    fn direct_path(&self, request: &Request<Body>) -> Option<DirectPath> {
        if self.is_admin || request.method() != Method::POST {
            return None;
        }
        let path = request.uri().path();
        let call = RateLimitCall::at(path).map(DirectPath::RateLimits);
        call.or_else(|| Operation::at(path).map(DirectPath::Operation))
    }

    /// The role that a request needs; `None` for the paths that everyone may see.
    fn role(&self, method: &Method, path: &str) -> Option<Role> {
        match path {
            "/healthz" | "/readyz" => None,
            _ if crate::health::PATHS.contains(&path) => None,
            "/v1/reset" => Some(Role::Admin),
            _ if !self.is_admin => Some(Role::Check),
            _ if dashboard::is_page(path) => None,
            // These are posted because they have a body, and change nothing.
            "/v1/explain" | "/v1/explain_request" | "/v1/policies/validate" | "/v1/policies/diff" => {
                Some(Role::Read)
            }
            _ if method == Method::GET || method == Method::HEAD => Some(Role::Read),
            _ => Some(Role::Admin),
        }
    }
}

fn data_routes(paths: Paths) -> Paths {
    // What is posted to these does not go through the router.
    let calls = RateLimitCall::ALL.map(RateLimitCall::path);
    let direct = Operation::ALL.into_iter().map(Operation::path).chain(calls);
    direct
        .fold(paths, |paths, path| paths.route(path, any(refusal::only_post)))
        .route("/v1/decide", post(decide::decide))
        .route("/v1/forward", any(forward::by_rules))
        .route("/v1/forward/{policy}", any(forward::by_policy))
        .route(crate::health::PATHS[0], post(crate::health::answer))
        .route(crate::health::PATHS[1], post(crate::health::answer))
}

fn admin_routes(paths: Paths) -> Paths {
    paths
        .route("/metrics", get(admin::metrics))
        .route("/v1/policies", get(documents::policies).put(documents::put_policies))
        .route("/v1/policies/validate", post(documents::validate))
        .route("/v1/policies/diff", post(documents::diff))
        .route("/v1/rollback", post(documents::rollback))
        .route("/v1/history", get(documents::history))
        .route("/v1/lists", get(lists::lists))
        .route("/v1/lists/add", post(lists::add))
        .route("/v1/lists/remove", post(lists::remove))
        .route("/v1/block", post(lists::block))
        .route("/v1/reset", post(reset))
        .route("/v1/keys", get(admin::keys))
        .route("/v1/top", get(admin::top))
        .route("/v1/stats", get(admin::stats))
        .route("/v1/doctor", get(admin::doctor))
        .route("/v1/processes", get(fleet::processes))
        .route("/metrics/fleet", get(fleet::metrics))
        .route("/v1/session", get(admin::session))
        .route("/v1/traffic", get(events::traffic))
        .route("/v1/events", get(events::events))
        .route("/v1/explain", post(admin::explain))
        .route("/v1/explain_request", post(decide::explain))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(dashboard::page))
        .route("/dashboard/{file}", get(dashboard::file))
}

async fn reset(State(app): Shared, request: Request<Body>) -> Response<Body> {
    let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
    operation::answer(&app, Operation::Reset, &caller, request.into_parts()).await
}

/// Whether a path is that of a probe.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// The answer on a connection beyond those that there may be.
pub(crate) fn too_many_connections() -> Response<Body> {
    let detail = "the listener has as many connections as it may, and this one is for /healthz and /readyz alone: try again";
    refuse(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", detail)
}

/// Answers one request: finds the caller, checks its role, and calls the handler.
pub(crate) async fn answer(
    app: Arc<App>,
    routes: Routes,
    caller: Caller,
    mut request: Request<Body>,
) -> Response<Body> {
    let since = Instant::now();
    let is_grpc = is_grpc(request.headers());
    let admitted = admit(&app, &routes, &caller, &request, is_grpc);
    let response = match admitted {
        Err((refused, is_sign_in)) => {
            if is_sign_in {
                app.note_failed_sign_in(if is_grpc { "grpc" } else { "http" }, &caller);
                sleep(app.options.limits.sign_in_delay).await;
            }
            refused.response()
        }
        Ok(identity) => match routes.direct_path(&request) {
            Some(DirectPath::RateLimits(call)) => {
                rls::answer(Arc::clone(&app), call, identity, request).await
            }
            Some(DirectPath::Operation(operation)) => {
                operation::answer(&app, operation, &Caller { identity, ..caller }, request.into_parts()).await
            }
            None => {
                request.extensions_mut().insert(Caller { identity, ..caller });
                let mut paths = routes.router;
                // A router is always ready.
                match paths.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
        },
    };
    if is_grpc {
        app.counters.called(grpc::code(&response), since.elapsed());
    } else {
        app.counters.answered(response.status().as_u16(), since.elapsed());
    }
    response
}

/// The identity of the caller, when it may ask for this here; otherwise also whether it has given a token that is not known.
fn admit(
    app: &App,
    routes: &Routes,
    caller: &Caller,
    request: &Request<Body>,
    is_grpc: bool,
) -> Result<Option<Identity>, (Refused, bool)> {
    // A browser cannot send gRPC without asking first.
    if !is_grpc && let Some(foreign) = dashboard::check_page(app, routes.is_admin, caller, request) {
        return Err((Refused::of(foreign), false));
    }
    let identity = authenticate(app, routes, caller, request).map_err(|refusal| {
        let is_sign_in = refusal == Refusal::Unauthenticated && token(request.headers()).is_some();
        (Refused::of(refused(app, refusal, is_grpc)), is_sign_in)
    })?;
    match request.headers().get(CONTENT_ENCODING) {
        Some(encoding)
            if !is_grpc
                && !dashboard::is_forward(request.uri().path())
                && encoding.as_bytes() != b"identity" =>
        {
            let detail = format!("the body has the encoding {encoding:?}: send it without");
            Err((
                Refused::of(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", &detail)),
                false,
            ))
        }
        _ => Ok(identity),
    }
}

fn authenticate(
    app: &App,
    routes: &Routes,
    caller: &Caller,
    request: &Request<Body>,
) -> Result<Option<Identity>, Refusal> {
    let Some(needs) = routes.role(request.method(), request.uri().path()) else { return Ok(None) };
    // A token says more than a certificate, which a proxy may have for all of its callers.
    let identity = match token(request.headers()) {
        Some(token) if !caller.is_open => app.by_token(&TokenDigest::of(token)),
        _ => app.identity(caller),
    };
    app.allows(identity.as_ref(), needs).map(|()| identity)
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).
fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn refused(app: &App, refusal: Refusal, is_grpc: bool) -> Response<Body> {
    let interface = if is_grpc { Interface::Grpc } else { Interface::Http };
    let why = match refusal {
        Refusal::Unauthenticated => Rejection::Unauthenticated,
        Refusal::Forbidden { .. } => Rejection::Forbidden,
    };
    app.counters.rejected(interface, why);
    match refusal {
        _ if is_grpc => grpc::refused(refusal),
        Refusal::Unauthenticated => {
            let detail =
                "the request has no token and no certificate that is known: send Authorization: Bearer TOKEN";
            let mut response = refuse(StatusCode::UNAUTHORIZED, "unauthenticated", detail);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        Refusal::Forbidden { has, needs } => {
            let detail = format!("the caller has the role {}, and this needs {}", has.name(), needs.name());
            refuse(StatusCode::FORBIDDEN, "forbidden", &detail)
        }
    }
}
