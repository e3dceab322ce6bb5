//! An axum service with the middleware that the environment selects: `VARIANT`, `STORE`.

use std::env;
use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use polylimit::http::ClientAddressRules;
use polylimit::http::tower::{RateLimitLayer, client_address};
use polylimit::{Limiter, Policy};
use redis::AsyncCommands;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = env::var("STORE")?;
    let hello = || async { "hello" };
    let app = match env::var("VARIANT")?.as_str() {
        "fields" => Router::new().route("/", get(hello)).layer(map_response(with_constant_fields)),
        "round_trip" => {
            let connection = redis::Client::open(store)?.get_multiplexed_async_connection().await?;
            let asking = move || {
                let mut connection = connection.clone();
                async move {
                    let value: redis::RedisResult<Option<String>> = connection.get("missing").await;
                    value.map(|_| "hello").map_err(|error| error.to_string())
                }
            };
            Router::new().route("/", get(asking))
        }
        "polylimit" => {
            let limiter =
                Limiter::builder().store(&store).policy(Policy::parse("all", "1000000000/day")?).build()?;
            let peer = |request: &Parts| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip());
            let rules = ClientAddressRules::builder().build()?;
            let limit = RateLimitLayer::builder(limiter, client_address(rules, peer)).build()?;
            Router::new().route("/", get(hello)).layer(limit)
        }
        _ => Router::new().route("/", get(hello)),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

async fn with_constant_fields(mut response: Response) -> Response {
    let fields = response.headers_mut();
    fields.insert(
        HeaderName::from_static("ratelimit-policy"),
        HeaderValue::from_static(r#""all";q=1000000000;w=86400"#),
    );
    fields.insert(
        HeaderName::from_static("ratelimit"),
        HeaderValue::from_static(r#""all";r=999999999;t=86400"#),
    );
    response
}
