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

/// A file of the folder `dashboard`.
macro_rules! file {
    ($name:literal, $content_type:literal) => {
        File {
            name: $name,
            content_type: $content_type,
            content: include_bytes!(concat!("../../dashboard/", $name)),
        }
    };
}

const FILES: [File; 12] = [
    file!("dashboard.css", "text/css; charset=utf-8"),
    file!("dashboard.js", "text/javascript; charset=utf-8"),
    file!("document.js", "text/javascript; charset=utf-8"),
    file!("elements.js", "text/javascript; charset=utf-8"),
    file!("icon.svg", "image/svg+xml"),
    file!("keys.js", "text/javascript; charset=utf-8"),
    file!("policies.js", "text/javascript; charset=utf-8"),
    file!("server.js", "text/javascript; charset=utf-8"),
    file!("store.js", "text/javascript; charset=utf-8"),
    file!("uPlot.LICENSE", "text/plain; charset=utf-8"),
    file!("uPlot.css", "text/css; charset=utf-8"),
    file!("uPlot.js", "text/javascript; charset=utf-8"),
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

/// Refuses a request under a foreign name or from a foreign page: a page elsewhere whose name leads here could ask on behalf of its reader. What probes and
/// monitoring systems read is left out, since they come under many names.
pub(super) fn check_host(app: &App, request: &Request<Body>) -> Option<Response<Body>> {
    let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics" | "/metrics/fleet");
    let is_unix = app.options.admin.as_ref().is_some_and(|admin| matches!(admin.place, Place::Unix(_)));
    let is_health = crate::health::PATHS.contains(&request.uri().path());
    if is_probe || is_health || is_unix {
        return None;
    }
    let field = || request.headers().get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
    let authority = request.uri().authority().cloned().or_else(field);
    let host = authority.as_ref().map_or("", Authority::host);
    if may_have(app, host) {
        return is_foreign(request, authority.as_ref()).then(|| {
            let detail = "the request comes from a page of another server: open the dashboard of this one";
            refuse(StatusCode::FORBIDDEN, "foreign_origin", detail)
        });
    }
    let detail = format!(
        "this listener is not known as {host:?}: ask it by its address or as localhost, or name it with --admin-host"
    );
    Some(refuse(StatusCode::MISDIRECTED_REQUEST, "unknown_host", &detail))
}

/// Whether a browser asks on behalf of a page elsewhere, which it says with everything that could change something.
fn is_foreign(request: &Request<Body>, own: Option<&Authority>) -> bool {
    let Some(origin) = request.headers().get(ORIGIN) else { return false };
    let origin = origin.to_str().unwrap_or_default();
    origin.split_once("://").map(|(_, authority)| authority) != own.map(Authority::as_str)
}

fn may_have(app: &App, host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let own = app.options.admin.as_ref().and_then(|admin| match &admin.place {
        Place::Tcp { address, .. } => address.rsplit_once(':').map(|(host, _)| host),
        Place::Unix(_) => None,
    });
    let mut names = app.options.admin_hosts.iter().map(String::as_str).chain(own).chain(["localhost"]);
    bare.parse::<IpAddr>().is_ok() || names.any(|name| name.eq_ignore_ascii_case(host))
}
