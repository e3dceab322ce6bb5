//! A service in Rust whose limits come from a document that changes while the service runs.

use std::env;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::routing::get;
use polylimit::Limiter;
use polylimit::http::tower::RateLimitLayer;
use polylimit::metrics::TextFormat;
use tokio::net::TcpListener;

type Json = ([(&'static str, &'static str); 1], String);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .store(&setting("POLYLIMIT_URL", "local:demo"))
        .configuration(&setting("POLYLIMIT_CONFIGURATION", "file:polylimit.toml"))
        .build()?;
    // Decides about each request by the document's lists and rules.
    let limit = RateLimitLayer::by_configuration(limiter.clone(), peer).attributes(attributes).build()?;
    let app = Router::new()
        .route("/", get(|| async { json(r#"{"hello":"world"}"#.to_owned()) }))
        .route("/configuration", get(configuration))
        .layer(limit)
        // Not limited: what stands after the layer.
        .route("/metrics", get(metrics))
        .with_state(limiter);

    // With port 0 the system chooses one.
    let listener = TcpListener::bind(format!("127.0.0.1:{}", setting("PORT", "8084"))).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

fn peer(request: &Parts) -> Option<IpAddr> {
    Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip())
}

/// What the rules of the document may ask for besides. An application takes both from the session of its user.
fn attributes(request: &Parts) -> Vec<(String, String)> {
    ["user", "plan"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), query(&request.uri, name)?)))
        .collect()
}

/// Waits for a version of the configuration, and returns the active one.
async fn configuration(State(limiter): State<Limiter>, uri: Uri) -> Result<Json, (StatusCode, String)> {
    let version = query(&uri, "version").and_then(|version| version.parse().ok()).unwrap_or(0);
    let status = limiter
        .admin()
        .wait_for_version(version, Duration::from_secs(30))
        .await
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(json(format!(r#"{{"version":{},"digest":"{}"}}"#, status.version, status.digest)))
}

/// For Prometheus.
async fn metrics(State(limiter): State<Limiter>) -> ([(&'static str, &'static str); 1], String) {
    let format = TextFormat::Prometheus;
    ([("content-type", format.content_type())], limiter.metrics_text(format))
}

fn query(uri: &Uri, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    pairs.find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
}

fn json(body: String) -> Json {
    ([("content-type", "application/json")], body)
}

/// An environment variable, or what stands for it when it is missing or empty.
fn setting(name: &str, otherwise: &str) -> String {
    env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}
