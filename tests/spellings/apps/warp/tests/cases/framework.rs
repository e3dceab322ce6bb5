//! The server of the guard's cases on warp.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use polylimit::http::tower::RateLimitLayer;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use tower_layer::Layer;
use warp::{Filter, Reply};

use crate::serve;
use crate::service::Service;

/// What each layer takes and returns: one around another would otherwise have another type of body.
pub(crate) type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

pub(crate) fn text_body(text: String) -> Body {
    text.map_err(Into::into).boxed_unsync()
}

pub(crate) fn peer(request: &Parts) -> Option<IpAddr> {
    Some(request.extensions.get::<SocketAddr>()?.ip())
}

type Call = dyn Fn(Request<Incoming>) -> BoxFuture<'static, Result<Response<Body>, Infallible>> + Send + Sync;

/// A service with its layers so far.
#[derive(Clone)]
struct Layered(Arc<Call>);

impl Layered {
    fn new<S, B>(service: S) -> Self
    where
        S: tower_service::Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        Self(Arc::new(move |request| {
            let mut service = service.clone();
            async move {
                let response = service.call(request).await?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
            .boxed()
        }))
    }
}

impl tower_service::Service<Request<Incoming>> for Layered {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        (self.0)(request)
    }
}

/// Starts a server behind these layers, the outer one first.
pub(crate) fn serve(layers: Vec<RateLimitLayer<Body>>, unfinished: Unfinished) -> Service {
    let handler = warp::path::end().and(warp::header::headers_cloned());
    let handler = handler.map(move |headers: HeaderMap| handle(&headers, &unfinished));
    let innermost = Layered::new(warp::service(handler));
    let service = layers.into_iter().rev().fold(innermost, |inner, layer| Layered::new(layer.layer(inner)));
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(serve::serve(listener, service));
    Service::at(address, Box::new(runtime))
}

/// The responses that wait for their end, by name.
pub(crate) type Unfinished = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// The handler behind the layers. A filter that maps cannot fail but by its response.
fn handle(headers: &HeaderMap, unfinished: &Unfinished) -> warp::reply::Response {
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    let mut response = if let Some(pieces) = header("x-body") {
        let pieces: Vec<String> = serde_json::from_str(pieces).unwrap();
        warp::reply::stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>))).into_response()
    } else if let Some(name) = header("x-open") {
        let (end, ended) = oneshot::channel();
        unfinished.lock().unwrap().insert(name.to_owned(), end);
        let last = stream::once(async {
            ended.await.unwrap();
            Ok::<_, Infallible>("last")
        });
        warp::reply::stream(stream::iter([Ok("first ")]).chain(last)).into_response()
    } else {
        warp::reply::Response::default()
    };
    let status = if header("x-fail").is_some() { "500" } else { header("x-respond").unwrap_or("200") };
    *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).unwrap();
    response.headers_mut().insert("x-handled", "1".parse().unwrap());
    for (order, field) in [("x-spent", "x-spent"), ("x-content-type", "content-type")] {
        if let Some(value) = headers.get(order) {
            response.headers_mut().insert(field, value.clone());
        }
    }
    response
}
