//! What layers reserve, until the response is done: without a server, so that each end is the test's.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request as HttpRequest, Response};
use futures_util::future::{BoxFuture, FutureExt, pending};
use futures_util::stream;
use polylimit::tower::{RateLimitBuilder, RateLimitLayer, RequestHold, ResponseBody};
use polylimit::{Limiter, Request};
use tokio::runtime::Builder;
use tower_layer::Layer;
use tower_service::Service;

use crate::service::limiter;

const POLICY: (&str, &str) = ("model", "2 concurrent; 100/hour fixed_window");

/// A service that answers with the result of a function.
#[derive(Clone)]
struct Answers<F>(F);

impl<F, E> Service<HttpRequest<()>> for Answers<F>
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

/// Makes the body of an inner layer one that an outer layer takes.
#[derive(Clone)]
struct InnerBody<S>(S);

impl<S> Service<HttpRequest<()>> for InnerBody<S>
where
    S: Service<HttpRequest<()>, Response = Response<ResponseBody<Body>>>,
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
