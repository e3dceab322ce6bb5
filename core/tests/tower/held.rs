//! What layers reserve, until the response is done: without a server, so that each end is the test's, but for web sockets.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Extension;
use axum::http::{Request as HttpRequest, Response};
use axum::routing::get;
use futures_util::future::{BoxFuture, FutureExt, pending};
use futures_util::stream;
use hyper_util::rt::TokioIo;
use polylimit::http::tower::{RateLimitBuilder, RateLimitLayer, RequestHold, ResponseBody};
use polylimit::{Limiter, Request};
use polylimit_test_servers::until;
use tokio::io::AsyncReadExt;
use tokio::runtime::Builder;
use tower_layer::Layer;
use tower_service::Service as _;

use crate::service::{Service, limiter};

const POLICY: (&str, &str) = ("model", "2 concurrent; 100/hour fixed_window");

/// A service that answers with the result of a function.
#[derive(Clone)]
struct Answers<F>(F);

impl<F, E> tower_service::Service<HttpRequest<()>> for Answers<F>
where
    F: Fn(HttpRequest<()>) -> BoxFuture<'static, Result<Response<Body>, E>>,
{
    type Response = Response<Body>;
    type Error = E;
    type Future = BoxFuture<'static, Result<Response<Body>, E>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), E>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<()>) -> Self::Future {
        (self.0)(request)
    }
}

fn layer(limiter: &Limiter) -> RateLimitBuilder<Body> {
    RateLimitLayer::builder(limiter.clone(), |_| "key").cost(40)
}

/// Free slots, and units that are left.
fn free(limiter: &Limiter) -> (u64, u64) {
    let decision = limiter.blocking().peek(Request::new("key").policy("model")).unwrap();
    (decision.quotas()[0].remaining, decision.quotas()[1].remaining)
}

fn answered(
    layer: &RateLimitLayer<Body>,
    body: impl Fn() -> Body + Clone + Send + 'static,
) -> Response<ResponseBody<Body>> {
    let mut service = layer.layer(Answers(move |_| {
        let response = Response::new(body());
        async move { Ok::<_, Infallible>(response) }.boxed()
    }));
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(service.call(HttpRequest::new(()))).unwrap()
}

#[test]
fn reservation_ends_with_the_last_frame_or_with_the_body() {
    let limiter = limiter(&[POLICY]);
    let layer = layer(&limiter).spent(|_| Some(7)).build().unwrap();
    let runtime = Builder::new_current_thread().build().unwrap();
    let read = answered(&layer, || Body::from("all"));
    assert_eq!(free(&limiter), (1, 60));
    let body = Body::new(read.into_body());
    assert_eq!(runtime.block_on(to_bytes(body, 9)).unwrap(), Bytes::from("all"));
    assert_eq!(free(&limiter), (2, 93));
    let unread = answered(&layer, || Body::from_stream(stream::pending::<Result<Bytes, io::Error>>()));
    assert_eq!(free(&limiter), (1, 53));
    drop(unread);
    assert_eq!(free(&limiter), (2, 86));
    let broken = answered(&layer, || {
        let parts = [Ok(Bytes::from("first")), Err(io::Error::other("broken"))];
        Body::from_stream(stream::iter(parts))
    });
    assert_eq!(free(&limiter), (1, 46));
    runtime.block_on(to_bytes(Body::new(broken.into_body()), 9)).unwrap_err();
    assert_eq!(free(&limiter), (2, 79));
}

#[test]
fn request_that_is_dropped_before_its_response_has_spent_its_cost() {
    let limiter = limiter(&[POLICY]);
    let layer = layer(&limiter).spent(|_| Some(7)).build().unwrap();
    let mut service = layer.layer(Answers(|_| async { pending::<Result<_, Infallible>>().await }.boxed()));
    let runtime = Builder::new_current_thread().build().unwrap();
    let mut call = service.call(HttpRequest::new(()));
    runtime.block_on(async { assert!((&mut call).now_or_never().is_none()) });
    assert_eq!(free(&limiter), (1, 60));
    drop(call);
    assert_eq!(free(&limiter), (2, 60));
}

#[test]
fn service_that_fails_has_spent_its_cost_unless_500_does_not_count() {
    for (counts, expected) in [(true, (2, 60)), (false, (2, 100))] {
        let limiter = limiter(&[POLICY]);
        let builder = layer(&limiter).spent(|_| Some(7));
        let layer = builder.count(move |response| counts || response.status != 500).build().unwrap();
        let mut service =
            layer.layer(Answers(|_| async { Err::<_, io::Error>(io::Error::other("x")) }.boxed()));
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(service.call(HttpRequest::new(()))).unwrap_err();
        assert_eq!(free(&limiter), expected);
    }
}

#[test]
fn reservations_of_all_layers_last_while_a_handler_keeps_their_hold() {
    let limiter = limiter(&[POLICY, ("other", "5 concurrent")]);
    let outer = layer(&limiter).policy("other").build().unwrap();
    let inner = layer(&limiter).policy("model").spent(|_| Some(7)).build().unwrap();
    let kept: Arc<Mutex<Option<RequestHold>>> = Arc::default();
    let keeps = Arc::clone(&kept);
    let service = Answers(move |request: HttpRequest<()>| {
        *keeps.lock().unwrap() = request.extensions().get().cloned();
        async { Ok::<_, Infallible>(Response::new(Body::empty())) }.boxed()
    });
    let mut service = outer.layer(InnerBody(inner.layer(service)));
    let runtime = Builder::new_current_thread().build().unwrap();
    drop(runtime.block_on(service.call(HttpRequest::new(()))).unwrap());
    let left = |policy| limiter.blocking().peek(Request::new("key").policy(policy)).unwrap().remaining();
    assert_eq!((left("model"), left("other")), (60, 4));
    drop(kept.lock().unwrap().take());
    assert_eq!((left("model"), left("other")), (93, 5));
}

#[test]
fn slot_of_a_web_socket_is_free_when_its_connection_is_closed() {
    let limiter = limiter(&[("sockets", "2 concurrent")]);
    let layer = RateLimitLayer::builder(limiter.clone(), |_| "key").build().unwrap();
    let service = Service::start(Router::new().route("/", get(converse)).layer(layer));
    let free = || limiter.blocking().peek(Request::new("key")).unwrap().remaining();
    let free_becomes =
        |slots| until("free slots", Duration::from_secs(30), || (free() == slots).then_some(()));
    let [first, second] = [(); 2].map(|()| handshake(&service));
    assert_eq!(free(), 0);
    assert_eq!(service.get("/").status, 429);
    drop(first);
    free_becomes(1);
    drop(second);
    free_becomes(2);
}

/// Switches to another protocol, as the handlers of web sockets do, and keeps the hold until the client closes the connection.
async fn converse(Extension(hold): Extension<RequestHold>, request: HttpRequest<Body>) -> Response<Body> {
    tokio::spawn(async move {
        let mut connection = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
        connection.read_to_end(&mut Vec::new()).await.unwrap();
        drop(hold);
    });
    let response =
        Response::builder().status(101).header("connection", "upgrade").header("upgrade", "websocket");
    response.body(Body::empty()).unwrap()
}

/// A connection of a client whose handshake the service has answered.
fn handshake(service: &Service) -> TcpStream {
    let mut connection = TcpStream::connect(service.address()).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request = "GET / HTTP/1.1\r\nhost: service\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    connection.write_all(request.as_bytes()).unwrap();
    let mut status = [0; 12];
    connection.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 101");
    connection
}

/// Makes the body of an inner layer one that an outer layer takes.
#[derive(Clone)]
struct InnerBody<S>(S);

impl<S> tower_service::Service<HttpRequest<()>> for InnerBody<S>
where
    S: tower_service::Service<HttpRequest<()>, Response = Response<ResponseBody<Body>>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: HttpRequest<()>) -> Self::Future {
        let answered = self.0.call(request);
        async { answered.await.map(|response| response.map(Body::new)) }.boxed()
    }
}

#[test]
fn client_that_leaves_while_its_request_is_held_frees_its_place_and_spends_nothing() {
    let limiter = limiter(&[("model", "1/minute leaky_bucket burst=10")]);
    let layer = RateLimitLayer::<Body>::builder(limiter.clone(), |_| "key");
    let layer = layer.wait(Duration::from_secs(60)).max_waiting(1).build().unwrap();
    let mut service =
        layer.layer(Answers(|_| async { Ok::<_, Infallible>(Response::new(Body::empty())) }.boxed()));
    let left = || limiter.blocking().peek("key").unwrap().remaining();
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        assert_eq!(service.call(HttpRequest::new(())).await.unwrap().status(), 200);
        for _ in 0..2 {
            let mut held = service.call(HttpRequest::new(()));
            assert!(futures_util::poll!(&mut held).is_pending());
            let denied = service.call(HttpRequest::new(())).await.unwrap();
            assert_eq!((denied.status().as_u16(), left()), (429, 8));
            drop(held);
            assert_eq!(left(), 9);
        }
    });
}
