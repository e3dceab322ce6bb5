//! The server of the guard's cases on poem. It is hyper, as poem's own keeps a response whose client has gone until its handler ends it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, stream};
use http::request::Parts;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use poem::endpoint::make_sync;
use poem::http::{StatusCode, uri::Scheme};
use poem::web::{LocalAddr, RemoteAddr};
use poem::{Endpoint, EndpointExt, Request, Response, Route};
use polylimit::http::tower::RateLimitLayer;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;

pub(crate) use crate::limited::Body;
use crate::limited::limited;
use crate::service::Service;

pub(crate) fn text_body(text: String) -> Body {
    poem::Body::from(text).into()
}

pub(crate) fn peer(request: &Parts) -> Option<IpAddr> {
    Some(request.extensions.get::<RemoteAddr>()?.as_socket_addr()?.ip())
}

/// Starts a server behind these layers, the outer one first.
pub(crate) fn serve(layers: Vec<RateLimitLayer<Body>>, unfinished: Unfinished) -> Service {
    let handler = make_sync(move |request| handle(&request, &unfinished)).boxed();
    let endpoint = layers.into_iter().rev().fold(handler, |inner, layer| limited(inner, layer).boxed());
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(accept(listener, Arc::new(Route::new().at("/", endpoint))));
    Service::at(address, Box::new(runtime))
}

async fn accept(listener: TcpListener, routes: Arc<Route>) {
    loop {
        let (stream, peer) = listener.accept().await.unwrap();
        let routes = routes.clone();
        let respond = service_fn(move |request: http::Request<Incoming>| {
            let (routes, here) = (routes.clone(), LocalAddr::default());
            let request: Request = (request, here, RemoteAddr(peer.into()), Scheme::HTTP).into();
            async move { Ok::<http::Response<Body>, Infallible>(routes.get_response(request).await.into()) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), respond));
    }
}

/// The responses that wait for their end, by name.
pub(crate) type Unfinished = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// The handler behind the layers.
fn handle(request: &Request, unfinished: &Unfinished) -> poem::Result<Response> {
    let header = |name: &str| request.header(name);
    if header("x-fail").is_some() {
        let response = Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR);
        return Err(poem::Error::from_response(response.header("x-handled", "1").finish()));
    }
    let mut response = Response::builder().header("x-handled", "1");
    response =
        response.status(StatusCode::from_bytes(header("x-respond").unwrap_or("200").as_bytes()).unwrap());
    for (order, field) in [("x-spent", "x-spent"), ("x-content-type", "content-type")] {
        if let Some(value) = header(order) {
            response = response.header(field, value);
        }
    }
    if let Some(pieces) = header("x-body") {
        let pieces: Vec<String> = serde_json::from_str(pieces).unwrap();
        let pieces = stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
        return Ok(response.body(poem::Body::from_bytes_stream(pieces)));
    }
    let Some(name) = header("x-open") else { return Ok(response.finish()) };
    let (end, ended) = oneshot::channel();
    unfinished.lock().unwrap().insert(name.to_owned(), end);
    let last = stream::once(async {
        ended.await.unwrap();
        Ok::<_, std::io::Error>("last")
    });
    Ok(response.body(poem::Body::from_bytes_stream(stream::iter([Ok("first ")]).chain(last))))
}
