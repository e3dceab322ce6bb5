//! A service of axum that decides nothing, as a bound for what a decision over HTTP can reach: it binds a free port of 127.0.0.1 and prints
//! it. `POST /json` reads the request and writes the answer that the server of polylimit does for a check; `POST /fixed` drops the body
//! unread and answers with the same bytes each time.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Request {
    policy: String,
    key: String,
}

#[derive(Serialize)]
struct Usage {
    limit: u64,
    remaining: u64,
    reset_after_us: u64,
}

#[derive(Serialize)]
struct Answer {
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after_us: u64,
    reset_after_us: u64,
    delay_us: u64,
    quotas: [Usage; 1],
    source: &'static str,
}

impl Answer {
    const fn new(remaining: u64) -> Self {
        Self {
            allowed: true,
            limit: 1_000_000,
            remaining,
            retry_after_us: 0,
            reset_after_us: 1,
            delay_us: 0,
            quotas: [Usage { limit: 1_000_000, remaining, reset_after_us: 1 }],
            source: "store",
        }
    }
}

async fn json(Json(request): Json<Request>) -> Json<Answer> {
    // The request is used, so that reading it cannot be left out.
    Json(Answer::new((request.policy.len() + request.key.len()) as u64))
}

async fn fixed() -> impl IntoResponse {
    const BODY: &str = r#"{"allowed":true,"limit":1000000,"remaining":999999,"retry_after_us":0,"reset_after_us":1,"delay_us":0,"quotas":[{"limit":1000000,"remaining":999999,"reset_after_us":1}],"source":"store"}"#;
    ([(CONTENT_TYPE, "application/json")], BODY)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/json", post(json)).route("/fixed", post(fixed))).await
}
