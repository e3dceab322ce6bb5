//! Bodies of requests, read within the bounds of the server.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use tokio::time::timeout;

use crate::app::App;

/// Why a body was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    TooLarge,
    /// It did not come in time.
    Late,
    Broken(axum::Error),
}

impl Unread {
    /// What was read, and what is allowed.
    pub(crate) fn message(&self, app: &App) -> String {
        let limits = &app.options.limits;
        match self {
            Self::TooLarge => format!("the body is too large: allowed are up to {} bytes", limits.body),
            Self::Late => format!("the body did not come within {} s", limits.body_time.as_secs()),
            Self::Broken(error) => format!("the body cannot be read: {error}"),
        }
    }
}

/// Reads a body.
pub(crate) async fn read(app: &App, body: Body) -> Result<Bytes, Unread> {
    let limits = &app.options.limits;
    // What is declared is not awaited, nor asked for by `100 Continue`.
    if body.size_hint().lower() > limits.body as u64 {
        return Err(Unread::TooLarge);
    }
    match timeout(limits.body_time, Limited::new(body, limits.body).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Unread::TooLarge),
        Ok(Err(error)) => Err(Unread::Broken(axum::Error::new(error))),
        Err(_) => Err(Unread::Late),
    }
}
