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

/// Ready once limits are active, until the server stops. Redis away does not make it unready, unless the options demand it: outage
/// policies answer meanwhile.
pub(super) async fn ready(State(app): Shared) -> Response<Body> {
    match app.check_ready().await {
        // The previous limits stay active, so that this is no reason to send requests elsewhere.
        None => match app.limiter.admin().configuration().and_then(|status| status.error) {
            None => json(&json!({ "ready": true })),
            Some(_) => json(
                &json!({ "ready": true, "configuration": "the newest document is not active: see the log" }),
            ),
        },
        Some(why) => refuse(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why),
    }
}
