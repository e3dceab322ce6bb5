//! An HTTP server in Rust whose requests are limited by the tower layer of polylimit.

use std::env;
use std::error::Error;

use axum::Router;
use axum::http::request::Parts;
use axum::routing::get;
use polylimit::http::tower::RateLimitLayer;
use polylimit::{Limiter, Policy};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .store(&setting("POLYLIMIT_URL", "local:demo"))
        .policy(Policy::parse("demo", &setting("POLYLIMIT_QUOTA", "100/minute"))?)
        .build()?;
    let limit = RateLimitLayer::builder(limiter, user).build()?;
    let app = Router::new().route("/", get(hello)).layer(limit);

    // With port 0 the system chooses one.
    let listener = TcpListener::bind(format!("127.0.0.1:{}", setting("PORT", "8080"))).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// The key of a request: the query parameter `user`, or `demo`.
fn user(request: &Parts) -> String {
    let query = request.uri.query().unwrap_or_default();
    let user = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "user");
    user.map(|(_, value)| value.into_owned())
        .filter(|user| !user.is_empty())
        .unwrap_or_else(|| "demo".to_owned())
}

async fn hello() -> ([(&'static str, &'static str); 1], &'static str) {
    ([("content-type", "application/json")], r#"{"hello":"world"}"#)
}

/// An environment variable, or what stands for it when it is missing or empty.
fn setting(name: &str, otherwise: &str) -> String {
    env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}
