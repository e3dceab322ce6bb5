//! The server of the guard's cases on axum.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
pub(crate) use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::Response;
use axum::http::request::Parts;
use axum::routing::any;
use futures_util::{StreamExt, stream};
use polylimit::http::tower::RateLimitLayer;
use tokio::sync::oneshot;

use crate::service::Service;

pub(crate) fn text_body(text: String) -> Body {
    Body::from(text)
}

pub(crate) fn peer(request: &Parts) -> Option<IpAddr> {
    Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip())
}

/// Starts a server behind these layers, the outer one first.
pub(crate) fn serve(layers: Vec<RateLimitLayer<Body>>, unfinished: Unfinished) -> Service {
    let app = Router::new().route("/", any(handle)).with_state(unfinished);
    Service::start(layers.into_iter().rev().fold(app, Router::layer))
}

/// The responses that wait for their end, by name.
pub(crate) type Unfinished = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// The handler behind the layers. A handler of axum cannot fail but by its response.
async fn handle(State(unfinished): State<Unfinished>, request: axum::extract::Request) -> Response<Body> {
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap());
    let status = if header("x-fail").is_some() { "500" } else { header("x-respond").unwrap_or("200") };
    let mut response = Response::builder().status(status.parse::<u16>().unwrap()).header("x-handled", "1");
    if let Some(spent) = header("x-spent") {
        response = response.header("x-spent", spent);
    }
    if let Some(kind) = header("x-content-type") {
        response = response.header("content-type", kind);
    }
    if let Some(pieces) = header("x-body") {
        let pieces: Vec<String> = serde_json::from_str(pieces).unwrap();
        return response
            .body(Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>))))
            .unwrap();
    }
    let Some(name) = header("x-open") else { return response.body(Body::empty()).unwrap() };
    let (end, ended) = oneshot::channel();
    unfinished.lock().unwrap().insert(name.to_owned(), end);
    let last = stream::once(async {
        ended.await.unwrap();
        Ok::<_, Infallible>("last")
    });
    response.body(Body::from_stream(stream::iter([Ok("first ")]).chain(last))).unwrap()
}
