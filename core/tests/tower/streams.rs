//! Bodies pass through as they are.

use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_util::stream;
use polylimit::tower::RateLimitLayer;
use tokio::sync::mpsc;

use crate::service::{Service, limiter};

#[test]
fn each_part_of_a_stream_arrives_when_it_is_sent() {
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
    // Somebody who looks at responses does not look at bodies.
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
        // It is sent when the one before it has been read.
        let next = if part == "first\n" { "second\n" } else { "third\n" };
        if part != "third\n" {
            sender.send(Bytes::from_static(next.as_bytes())).unwrap();
        }
    }
    drop(sender);
    let mut rest = String::new();
    assert_eq!(reader.read_line(&mut rest).unwrap(), 0, "{rest}");
}
