//! Whether the process lives, and whether it wants requests.

use axum::body::Body;
use axum::extract::State;
use http::{Response, StatusCode};
use serde_json::json;

use crate::web::query::Shared;
use crate::web::refusal::{json, refuse};

pub(super) async fn alive() -> Response<Body> {
    json(&json!({ "alive": true }))
}

/// Ready once limits are in force, until the server stops. Redis away does not make it unready, unless the options say so: outage
/// policies answer meanwhile.
pub(super) async fn ready(State(app): Shared) -> Response<Body> {
    match app.unready().await {
        None => json(&json!({ "ready": true })),
        Some(why) => refuse(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why),
    }
}
