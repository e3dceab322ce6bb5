//! The dashboard: files that are part of the program, and the names under which a browser may ask for them.

use std::net::IpAddr;

use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::uri::Authority;
use http::{Request, Response, StatusCode};

use crate::app::App;
use crate::caller::Caller;
use crate::endpoint::Place;
use crate::web::refusal::refuse;

/// Nothing but what this server has, and nothing that a text could become.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
);

struct File {
    name: &'static str,
    content_type: &'static str,
    content: &'static [u8],
}

const PAGE: File = File {
    name: "",
    content_type: "text/html; charset=utf-8",
    content: include_bytes!("../../dashboard/index.html"),
};

/// A file of the folder `dashboard`, or of another one.
macro_rules! file {
    ($name:literal, $content_type:literal) => {
        file!($name, $content_type, concat!("../../dashboard/", $name))
    };
    ($name:literal, $content_type:literal, $path:expr) => {
        File { name: $name, content_type: $content_type, content: include_bytes!($path) }
    };
}

const FILES: [File; 13] = [
    file!("dashboard.css", "text/css; charset=utf-8"),
    file!("dashboard.js", "text/javascript; charset=utf-8"),
    file!("denied.js", "text/javascript; charset=utf-8"),
    file!("document.js", "text/javascript; charset=utf-8"),
    file!("elements.js", "text/javascript; charset=utf-8"),
    file!("icon.svg", "image/svg+xml"),
    file!("keys.js", "text/javascript; charset=utf-8"),
    file!("policies.js", "text/javascript; charset=utf-8"),
    file!("server.js", "text/javascript; charset=utf-8"),
    file!("store.js", "text/javascript; charset=utf-8"),
    // Pages of simulations have it, too.
    file!("uPlot.LICENSE", "text/plain; charset=utf-8", "../../../simulation/vendor/uplot/LICENSE"),
    file!("uPlot.css", "text/css; charset=utf-8", "../../../simulation/vendor/uplot/uPlot.min.css"),
    file!("uPlot.js", "text/javascript; charset=utf-8", "../../../simulation/vendor/uplot/uPlot.iife.min.js"),
];

pub(super) async fn page() -> Response<Body> {
    response(&PAGE)
}

pub(super) async fn file(name: Result<Path<String>, PathRejection>) -> Response<Body> {
    let found = name.ok().and_then(|Path(name)| FILES.iter().find(|file| file.name == name));
    match found {
        Some(file) => response(file),
        None => refuse(StatusCode::NOT_FOUND, "not_found", "the dashboard has no such file"),
    }
}

fn response(file: &File) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from_static(file.content)));
    for (name, value) in [
        (CONTENT_TYPE, HeaderValue::from_static(file.content_type)),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        // The files change with the program.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ] {
        response.headers_mut().insert(name, value);
    }
    response
}

/// Whether a path is part of the page, which everyone may see: it has no data.
pub(super) fn is_page(path: &str) -> bool {
    path == "/" || path.starts_with("/dashboard/")
}

/// Refuses what a web page elsewhere could have a browser ask: a request from a foreign page, and one under a foreign name, which may be
/// that of a page whose name leads here. Left out are probes and what monitoring systems read, which come under many names, and what
/// proxies ask, which hand on the names and origins of their clients. Callers that need a token may use any name: no page has one.
pub(super) fn check_page(
    app: &App,
    is_admin: bool,
    caller: &Caller,
    request: &Request<Body>,
) -> Option<Response<Body>> {
    let path = request.uri().path();
    let is_free = match path {
        "/healthz" | "/readyz" => true,
        "/metrics" | "/metrics/fleet" => is_admin,
        _ => !is_admin && is_forward(path),
    };
    if is_free || (caller.peer.is_none() && is_admin) {
        return None;
    }
    let field = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let own = request.uri().authority().map(Authority::as_str).or(field).unwrap_or_default();
    if is_foreign(request, own) {
        let detail = if is_admin {
            "the request comes from a page of another server: open the dashboard of this one"
        } else {
            "the request comes from a web page of another server: ask from a program"
        };
        return Some(refuse(StatusCode::FORBIDDEN, "foreign_origin", detail));
    }
    let has_tokens = app.authenticates() && !caller.is_open;
    if caller.peer.is_none() || (!is_admin && has_tokens) || may_have(app, is_admin, host_of(own)) {
        return None;
    }
    let detail = format!(
        "this listener is not known as {:?}: ask it by its address or as localhost, or name it with --admin-host",
        host_of(own)
    );
    Some(refuse(StatusCode::MISDIRECTED_REQUEST, "unknown_host", &detail))
}

/// Whether a browser asks on behalf of a page elsewhere, which it says with everything that could change something.
fn is_foreign(request: &Request<Body>, own: &str) -> bool {
    let origin = request.headers().get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let is_other =
        origin.is_some_and(|origin| origin.split_once("://").map(|(_, authority)| authority) != Some(own));
    let site = request.headers().get("sec-fetch-site").map(HeaderValue::as_bytes);
    is_other
        || site.is_some_and(|site| {
            matches!(site, b"cross-site" | b"same-site") && !is_page(request.uri().path())
        })
}

/// The host of an authority.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn may_have(app: &App, is_admin: bool, host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let options = &app.options;
    let callers = options.listen.iter().chain(&options.listen_open).filter(|_| !is_admin);
    let own = options.admin.iter().filter(|_| is_admin).chain(callers).filter_map(|endpoint| match &endpoint
        .place
    {
        Place::Tcp { address, .. } => address.rsplit_once(':').map(|(host, _)| host),
        Place::Unix(_) => None,
    });
    // A name without a dot is one of this network: no page elsewhere can have it.
    (!is_admin && !host.is_empty() && !host.contains('.'))
        || options
            .admin_hosts
            .iter()
            .map(String::as_str)
            .chain(own)
            .any(|name| name.eq_ignore_ascii_case(host))
}

/// Whether proxies ask here, which hand on the fields of their clients.
pub(super) fn is_forward(path: &str) -> bool {
    path == "/v1/forward" || path.starts_with("/v1/forward/")
}
