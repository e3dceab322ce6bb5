//! Several policies and several layers on one request, services that fail, and streamed bodies.

use std::io::{BufRead, BufReader};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request as HttpRequest;
use axum::routing::get;
use futures_util::stream;
use polylimit::Request;
use polylimit::http::headers::HeaderStyle;
use polylimit::http::tower::RateLimitLayer;
use tokio::sync::mpsc;
use tower_layer::Layer;
use tower_service::Service as _;

use crate::service::{Service, limiter};

#[test]
fn denied_policy_spends_nothing_of_another() {
    let limiter = limiter(&[("few", "2/minute fixed_window"), ("many", "9/hour fixed_window")]);
    let limit = RateLimitLayer::builder(limiter.clone(), |_| "all").policy("many").policy("few");
    let service = Service::start(Router::new().route("/", get(|| async {})).layer(limit.build().unwrap()));
    assert_eq!(service.statuses("/", 5), [200, 200, 429, 429, 429]);
    let many = limiter.blocking().peek(Request::new("all").policy("many")).unwrap();
    assert_eq!(many.remaining(), 7);
    let denied = service.get("/");
    assert_eq!(denied.field("ratelimit"), [r#""many";r=7;t=3600, "few";r=0;t=60"#]);
    assert!(denied.body.contains(r#""violated-policies":["few"]"#), "{denied:?}");
}

#[test]
fn outermost_layer_writes_the_fields_of_all_layers() {
    let layer = |name: &'static str, quotas, style| {
        let layer = RateLimitLayer::builder(limiter(&[(name, quotas)]), |_| "all").headers(style);
        layer.build().unwrap()
    };
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer("inner", "1/minute fixed_window", HeaderStyle::Ietf))
        .layer(layer("middle", "7/minute fixed_window", HeaderStyle::Ietf))
        .layer(layer("outer", "9/hour fixed_window", HeaderStyle::Legacy));
    let service = Service::start(app);
    let first = service.get("/");
    let expected = [r#""middle";r=6;t=60, "inner";r=0;t=60"#];
    assert_eq!((first.status, first.field("ratelimit")), (200, expected.to_vec()));
    assert_eq!(first.field("x-ratelimit-remaining"), ["8"]);
    let denied = service.get("/");
    assert_eq!((denied.status, denied.field("retry-after")), (429, vec!["60"]));
    // The units spent by the outer layers are refunded.
    assert_eq!(denied.field("ratelimit"), [r#""middle";r=6;t=60, "inner";r=0;t=60"#]);
    assert_eq!(denied.field("x-ratelimit-remaining"), ["8"]);
}

/// A service whose every call fails.
#[derive(Clone, Debug)]
struct Failing;

impl tower_service::Service<HttpRequest<Body>> for Failing {
    type Response = axum::http::Response<Body>;
    type Error = String;
    type Future = std::future::Ready<Result<Self::Response, String>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> std::task::Poll<Result<(), String>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: HttpRequest<Body>) -> Self::Future {
        std::future::ready(Err("broken".to_owned()))
    }
}

#[test]
fn failing_service_counts_as_status_500() {
    for (counted, expected) in [(500, 4), (200, 5)] {
        let limiter = limiter(&[("api", "5/minute")]);
        let limit = RateLimitLayer::builder(limiter.clone(), |_| "all");
        let limit = limit.count(move |response| response.status.as_u16() == counted).build().unwrap();
        let mut service = limit.layer(Failing);
        // The memory store never waits.
        let mut context = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut context).is_ready());
        let answer = pin!(service.call(HttpRequest::new(Body::empty()))).poll(&mut context);
        assert!(matches!(answer, std::task::Poll::Ready(Err(error)) if error == "broken"));
        assert_eq!(limiter.blocking().peek("all").unwrap().remaining(), expected);
    }
}

#[test]
fn streamed_body_is_passed_on_without_buffering() {
    let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let lines = move || {
        let receiver = receiver.lock().unwrap().take().unwrap();
        async move {
            Body::from_stream(stream::unfold(receiver, |mut receiver| async {
                let part = receiver.recv().await?;
                Some((Ok::<_, std::convert::Infallible>(part), receiver))
            }))
        }
    };
    let limit = RateLimitLayer::builder(limiter(&[("api", "9/minute")]), |_| "all");
    // The count function reads the status and not the body.
    let limit = limit.count(|response| response.status.is_success()).build().unwrap();
    let service = Service::start(Router::new().route("/", get(lines)).layer(limit));

    sender.send(Bytes::from_static(b"first\n")).unwrap();
    let mut response = service.response("/", &[]);
    assert_eq!(response.headers()["ratelimit-policy"], r#""api";q=9;w=60"#);
    let mut reader = BufReader::new(response.body_mut().as_reader());
    for part in ["first\n", "second\n", "third\n"] {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, part);
        // Each part is sent after the one before it has been read.
        let next = if part == "first\n" { "second\n" } else { "third\n" };
        if part != "third\n" {
            sender.send(Bytes::from_static(next.as_bytes())).unwrap();
        }
    }
    drop(sender);
    let mut rest = String::new();
    assert_eq!(reader.read_line(&mut rest).unwrap(), 0, "{rest}");
}
