//! Throttled clients of reqwest against servers of this process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderName, Method, StatusCode};
use polylimit::http::Backoff;
use polylimit::http::client::Refusal;
use polylimit::http::reqwest::RateLimitMiddleware;
use polylimit::{Limiter, Request};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error};

/// Admits every request at once.
const FREE: &str = "1000000/s token_bucket";
const SECOND: Duration = Duration::from_secs(1);

type Answer = (u16, &'static str, &'static str);

/// A server that answers by a script, then by 200.
struct Server {
    url: String,
    seen: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Server {
    async fn start(script: impl IntoIterator<Item = Answer>) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new(script.into_iter().collect::<VecDeque<_>>()));
        let seen_there = Arc::clone(&seen);
        let app = Router::new().fallback(move |method: Method, body: Bytes| {
            let what = format!("{method} {}", String::from_utf8_lossy(&body)).trim().to_owned();
            seen_there.lock().unwrap().push((Instant::now(), what));
            let (status, name, value) = script.lock().unwrap().pop_front().unwrap_or((200, "x-none", ""));
            async move { (StatusCode::from_u16(status).unwrap(), [(HeaderName::from_static(name), value)]) }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, seen }
    }

    fn expect(&self, requests: &[&str]) {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.iter().map(|(_, what)| what).collect::<Vec<_>>(), requests);
    }

    fn at(&self, number: usize) -> Instant {
        self.seen.lock().unwrap()[number].0
    }
}

fn middleware(policy: &str) -> RateLimitMiddleware {
    RateLimitMiddleware::new(Limiter::builder().build().unwrap()).policy(policy)
}

fn client(middleware: RateLimitMiddleware) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new()).with(middleware).build()
}

fn backoff(max_wait: Duration, max_retries: u32) -> Backoff {
    let ms = Duration::from_millis(1);
    Backoff::builder().base(ms).cap(ms).max_wait(max_wait).max_retries(max_retries).build().unwrap()
}

async fn get(client: &ClientWithMiddleware, server: &Server) -> u16 {
    client.get(&server.url).send().await.unwrap().status().as_u16()
}

async fn refusal(client: &ClientWithMiddleware, server: &Server) -> Refusal {
    match client.get(&server.url).send().await {
        Err(Error::Middleware(error)) => error.downcast::<Refusal>().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn response_with_retry_after_is_retried_after_that_time() {
    let server = Server::start([(429, "retry-after", "1")]).await;
    let response = client(middleware(FREE)).post(&server.url).body("sent again").send().await.unwrap();
    assert_eq!(response.status(), 200);
    server.expect(&["POST sent again", "POST sent again"]);
    assert!(server.at(1) - server.at(0) >= SECOND);
}

#[tokio::test]
async fn other_requests_of_the_host_are_held_back_and_those_of_other_hosts_are_not() {
    let server = Server::start([(503, "retry-after", "1")]).await;
    let other = Server::start([]).await;
    let client = client(middleware(FREE).backoff(backoff(60 * SECOND, 0)));
    assert_eq!(get(&client, &server).await, 503);
    assert_eq!(get(&client, &other).await, 200);
    assert_eq!(get(&client, &server).await, 200);
    assert!(server.at(1) - server.at(0) >= SECOND && other.at(0) < server.at(1));
}

#[tokio::test]
async fn fields_with_nothing_left_hold_back_the_next_request() {
    let server = Server::start([(200, "ratelimit", r#""a";r=0;t=1"#)]).await;
    let client = client(middleware(FREE));
    assert_eq!([get(&client, &server).await, get(&client, &server).await], [200, 200]);
    assert!(server.at(1) - server.at(0) >= SECOND);
}

#[tokio::test]
async fn retries_depend_on_the_method_and_are_bounded() {
    let now = (503, "retry-after", "0");
    let server = Server::start([now, now]).await;
    let client = client(middleware(FREE).backoff(backoff(60 * SECOND, 2)));
    assert_eq!(client.post(&server.url).body("x").send().await.unwrap().status(), 503);
    assert_eq!(client.put(&server.url).body("x").send().await.unwrap().status(), 200);
    server.expect(&["POST x", "PUT x", "PUT x"]);
    let busy = Server::start([(429, "x-none", ""); 9]).await;
    assert_eq!(get(&client, &busy).await, 429);
    busy.expect(&["GET", "GET", "GET"]);
}

#[tokio::test]
async fn wait_that_does_not_fit_returns_the_response_and_refuses_the_next_request() {
    let server = Server::start([(429, "retry-after", "60")]).await;
    let by_max_wait = client(middleware(FREE).backoff(backoff(10 * SECOND, 5)));
    assert_eq!(get(&by_max_wait, &server).await, 429);
    let refused = refusal(&by_max_wait, &server).await;
    assert!(refused.retry_after().unwrap() <= 60 * SECOND);
    let asked = "the server asked for a wait of 60 s with status 429: ";
    assert!(refused.message().starts_with(asked), "{refused}");
    server.expect(&["GET"]);
    let slow = Server::start([(429, "retry-after", "60")]).await;
    let by_timeout = client(middleware(FREE));
    let response = by_timeout.get(&slow.url).timeout(10 * SECOND).send().await.unwrap();
    assert_eq!(response.status(), 429);
    slow.expect(&["GET"]);
}

#[tokio::test]
async fn limiter_paces_requests_and_refuses_those_that_it_admits_too_late() {
    let server = Server::start([]).await;
    let paced = client(middleware("2/s token_bucket burst=1").key(|_| b"shared".to_vec()));
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(get(&paced, &server).await, 200);
    }
    // The bucket counts by the wall clock.
    assert!(start.elapsed() >= Duration::from_millis(990));
    let late = client(middleware("1/hour").backoff(backoff(5 * SECOND, 0)));
    assert_eq!(get(&late, &server).await, 200);
    assert!(refusal(&late, &server).await.retry_after().unwrap() > 5 * SECOND);
    assert_eq!(refusal(&client(middleware("1/hour").cost(2)), &server).await.retry_after(), None);
    let mistaken = client(middleware("unknown")).get(&server.url).send().await;
    let Err(Error::Middleware(error)) = mistaken else { panic!("{mistaken:?}") };
    assert!(error.downcast::<polylimit::Error>().is_ok());
}

#[tokio::test]
async fn dropped_request_leaves_the_queue() {
    let server = Server::start([]).await;
    let limiter = Limiter::builder().build().unwrap();
    let queued = RateLimitMiddleware::new(limiter.clone()).policy("1/hour").key(|_| b"k".to_vec());
    let client = client(queued.backoff(backoff(Duration::from_hours(24), 0)));
    assert_eq!(get(&client, &server).await, 200);
    let waits = tokio::time::timeout(Duration::from_millis(50), client.get(&server.url).send()).await;
    assert!(waits.is_err());
    limiter.reset(Request::new("k").policy("1/hour")).await.unwrap();
    assert_eq!(get(&client, &server).await, 200);
    server.expect(&["GET", "GET"]);
}
