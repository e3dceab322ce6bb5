//! Bodies and queries of requests.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{StatusCode, Uri};
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::body::{Unread, read};
use crate::counters::{Interface, Rejection};
use crate::web::refusal::{Refused, invalid, refuse, too_large};

/// What handlers get besides the request.
pub(super) type Shared = State<Arc<App>>;

/// Reads a body within its bounds.
pub(super) async fn body(app: &App, body: Body) -> Result<Bytes, Refused> {
    read(app, body).await.map_err(|unread| {
        let detail = unread.message(app);
        match unread {
            Unread::TooLarge => {
                app.counters.rejected(Interface::Http, Rejection::TooLarge);
                too_large(&detail)
            }
            Unread::Late => Refused::of(refuse(StatusCode::REQUEST_TIMEOUT, "timeout", &detail)),
            Unread::Broken(_) => invalid(&detail),
        }
    })
}

/// Reads JSON. The message of a mistake names the line, the column and what is allowed.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| invalid(&format!("the body cannot be read: {error}")))
}

pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refused> {
    let read = Query::<T>::try_from_uri(uri);
    read.map(|Query(read)| read).map_err(|error| invalid(&format!("the query cannot be read: {error}")))
}

/// Bytes that were written as base64.
pub(super) fn from_base64(name: &str, text: &str) -> Result<Vec<u8>, Refused> {
    STANDARD.decode(text).map_err(|error| {
        invalid(&format!(
            "{name} cannot be read: {error}; allowed is base64 with padding (RFC 4648, section 4)"
        ))
    })
}

/// Refuses keys and quotas that are longer than the server takes.
pub(super) fn check_length(app: &App, name: &str, bytes: usize) -> Result<(), Refused> {
    let most = app.options.limits.key;
    if bytes <= most {
        return Ok(());
    }
    app.counters.rejected(Interface::Http, Rejection::TooLarge);
    Err(too_large(&format!("{name} has {bytes} bytes: allowed are up to {most}")))
}
