//! An adaptive limit in front of axum.

use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{Request as HttpRequest, Response, StatusCode};
use axum::routing::get;
use futures_util::future::{BoxFuture, FutureExt, pending, ready};
use futures_util::stream;
use polylimit::adaptive::AdaptiveLimit;
use polylimit::clock::ManualClock;
use polylimit::http::tower::AdaptiveLayer;
use polylimit_test_servers::until;
use tokio::sync::Semaphore;
use tower_layer::Layer;
use tower_service::Service as _;

use crate::service::Service;

fn limit(n: u32) -> (AdaptiveLimit, ManualClock) {
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let limit = AdaptiveLimit::builder(1..=100).initial(n).clock(clock.clone()).build().unwrap();
    (limit, clock)
}

/// Waits until this number of calls are in flight.
fn in_flight(limit: &AdaptiveLimit, calls: u32) {
    until("calls in flight", Duration::from_secs(30), || (limit.in_flight() == calls).then_some(()));
}

#[test]
fn request_beyond_the_limit_gets_503_and_others_their_answers() {
    let (limit, _clock) = limit(2);
    let gate = Arc::new(Semaphore::new(0));
    let of_handler = Arc::clone(&gate);
    let wait = move || {
        let gate = Arc::clone(&of_handler);
        async move {
            gate.acquire_owned().await.unwrap().forget();
            "done"
        }
    };
    let service =
        Service::start(Router::new().route("/", get(wait)).layer(AdaptiveLayer::new(limit.clone())));
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..2).map(|_| scope.spawn(|| service.get("/"))).collect();
        in_flight(&limit, 2);
        let refused = service.get("/");
        assert_eq!((refused.status, refused.field("retry-after")), (503, vec!["1"]));
        assert_eq!(refused.field("content-type"), ["application/problem+json"]);
        assert!(refused.body.contains("temporary-reduced-capacity"), "{}", refused.body);
        let text = service.get_with("/", &[("accept", "text/plain")]);
        assert_eq!(text.body, "The service is overloaded at the moment: retry in 1 s.\n");
        gate.add_permits(2);
        for answer in waiting {
            let answer = answer.join().unwrap();
            assert_eq!((answer.status, &*answer.body), (200, "done"));
        }
    });
    in_flight(&limit, 0);
}

#[test]
fn statuses_of_an_overload_shrink_the_limit_and_other_errors_do_not() {
    let (limit, clock) = limit(50);
    let status = |Path(status): Path<u16>| async move { StatusCode::from_u16(status).unwrap() };
    let app = Router::new().route("/{status}", get(status)).layer(AdaptiveLayer::new(limit.clone()));
    let service = Service::start(app);
    // Ten measurements end a window.
    for (path, limit_after) in
        [("/200", 50), ("/404", 50), ("/500", 50), ("/503", 45), ("/500", 45), ("/504", 40)]
    {
        clock.advance(Duration::from_millis(100)).unwrap();
        let statuses = service.statuses(path, 10);
        assert!(statuses.iter().all(|status| path.ends_with(&status.to_string())), "{statuses:?}");
        assert_eq!(limit.limit(), limit_after, "{path}");
    }
}

#[test]
fn place_is_held_until_the_body_is_sent_or_fails() {
    let (limit, _clock) = limit(1);
    let (send, receive) = mpsc::channel::<tokio::sync::oneshot::Receiver<io::Result<Bytes>>>();
    let receive = Arc::new(Mutex::new(receive));
    let stream = move || {
        let frame = receive.lock().unwrap().recv().unwrap();
        async move {
            let first = stream::iter([Ok(Bytes::from_static(b"head "))]);
            let frames = stream::once(async move { frame.await.unwrap() });
            Response::new(Body::from_stream(futures_util::StreamExt::chain(first, frames)))
        }
    };
    let service =
        Service::start(Router::new().route("/", get(stream)).layer(AdaptiveLayer::new(limit.clone())));
    for frame in [Ok(Bytes::from_static(b"tail")), Err(io::Error::other("of the test"))] {
        let (end, ended) = tokio::sync::oneshot::channel();
        send.send(ended).unwrap();
        let mut response = service.response("/", &[]);
        assert_eq!((response.status().as_u16(), limit.in_flight()), (200, 1));
        assert_eq!(service.get("/").status, 503);
        let is_whole = frame.is_ok();
        end.send(frame).unwrap();
        let body = response.body_mut().read_to_string();
        assert_eq!(body.is_ok_and(|body| body == "head tail"), is_whole);
        in_flight(&limit, 0);
    }
}

/// The router of docs/adaptive.md in a version of axum.
macro_rules! page_with {
    ($version:ident, $axum:ident) => {
        #[test]
        fn $version() {
            use $axum::Router;
            use $axum::body::Body;
            use $axum::http::Request;
            use $axum::routing::get;

            let (limit, _clock) = limit(1);
            let app = Router::new()
                .route("/search", get(|| async { "results" }))
                .layer(AdaptiveLayer::new(limit.clone()))
                .route("/health", get(|| async { "ok" }));
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let status = |path: &str| {
                let request = Request::builder().uri(path).body(Body::empty()).unwrap();
                runtime.block_on(app.clone().call(request)).unwrap().status().as_u16()
            };
            let call = limit.try_begin().unwrap();
            assert_eq!((status("/search"), status("/health")), (503, 200));
            drop(call);
            assert_eq!((status("/search"), status("/health"), limit.in_flight()), (200, 200, 0));
        }
    };
}

page_with!(routes_after_the_layer_have_no_limit_in_the_newest_axum, axum);
page_with!(routes_after_the_layer_have_no_limit_in_the_oldest_axum, axum_oldest);

/// A service whose requests never end, or fail.
struct Broken {
    never_ends: bool,
}

impl tower_service::Service<HttpRequest<()>> for Broken {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: HttpRequest<()>) -> Self::Future {
        if self.never_ends { pending().boxed() } else { ready(Err(io::Error::other("timeout"))).boxed() }
    }
}

#[test]
fn errors_of_the_service_count_as_failed_and_cancelled_requests_free_their_places() {
    let (limit, clock) = limit(50);
    let mut service = AdaptiveLayer::new(limit.clone()).layer(Broken { never_ends: true });
    for _ in 0..20 {
        let mut answer = service.call(HttpRequest::new(()));
        assert!(answer.as_mut().now_or_never().is_none());
        assert_eq!(limit.in_flight(), 1);
    }
    clock.advance(Duration::from_millis(100)).unwrap();
    assert_eq!((limit.in_flight(), limit.limit()), (0, 50));
    let mut service = AdaptiveLayer::new(limit.clone()).layer(Broken { never_ends: false });
    for _ in 0..10 {
        let answer = service.call(HttpRequest::new(())).now_or_never().unwrap();
        assert_eq!(answer.err().unwrap().to_string(), "timeout");
    }
    assert_eq!((limit.in_flight(), limit.limit()), (0, 45));
}
