//! A load generator for gRPC with many keys and latencies, which h2load does not have: a number of requests in flight, over connections
//! of HTTP/2 in one thread. A finished request is followed by the next one.

use std::cell::RefCell;
use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use h2::client::SendRequest;
use hdrhistogram::Histogram;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::messages::admits;

/// What a service is asked.
pub(crate) struct Calls {
    pub(crate) address: SocketAddr,
    /// The path of the call.
    pub(crate) path: &'static str,
    /// Requests, which are sent in turns.
    pub(crate) bodies: Vec<Bytes>,
    pub(crate) connections: usize,
    pub(crate) in_flight: usize,
}

/// What the calls of a slice took.
pub(crate) struct Measured {
    pub(crate) answers: u64,
    pub(crate) wall: Duration,
    /// The latencies that 50 % and 99 % of the answers did not exceed, where the generator reports them.
    pub(crate) latency: Option<(Duration, Duration)>,
}

struct Progress {
    next: usize,
    latencies: Histogram<u64>,
}

/// Runs something on a runtime of one thread.
pub(crate) fn run<T>(task: impl Future<Output = Result<T, Box<dyn Error>>>) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, task)
}

/// Asks once, and returns whether the answer admits.
pub(crate) async fn ask(address: SocketAddr, path: &str, body: Bytes) -> Result<bool, Box<dyn Error>> {
    call(&connect(address).await?, address, path, body).await
}

impl Calls {
    /// Keeps the requests in flight for a time. Any answer that does not admit ends it with an error.
    pub(crate) async fn load(&self, time: Duration) -> Result<Measured, Box<dyn Error>> {
        let mut clients = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            clients.push(connect(self.address).await?);
        }
        let latencies = Histogram::new_with_bounds(1, 60_000_000, 3)?;
        let progress = Rc::new(RefCell::new(Progress { next: 0, latencies }));
        let started = Instant::now();
        let each = (0..self.in_flight).map(|number| {
            let client = clients[number % clients.len()].clone();
            self.repeat(client, Rc::clone(&progress), started + time)
        });
        try_join_all(each).await?;
        let wall = started.elapsed();
        let progress = progress.borrow();
        let at = |quantile: f64| Duration::from_micros(progress.latencies.value_at_quantile(quantile));
        Ok(Measured { answers: progress.latencies.len(), wall, latency: Some((at(0.5), at(0.99))) })
    }

    async fn repeat(
        &self,
        client: SendRequest<Bytes>,
        progress: Rc<RefCell<Progress>>,
        until: Instant,
    ) -> Result<(), Box<dyn Error>> {
        loop {
            let body = {
                let mut progress = progress.borrow_mut();
                progress.next = (progress.next + 1) % self.bodies.len();
                self.bodies[progress.next].clone()
            };
            let since = Instant::now();
            if !call(&client, self.address, self.path, body).await? {
                return Err("a request under load was denied, though its limit is far away".into());
            }
            let took = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
            progress.borrow_mut().latencies.saturating_record(took.max(1));
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Bytes>, Box<dyn Error>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(1 << 24).initial_connection_window_size(1 << 30);
    let (client, connection) = settings.handshake(stream).await?;
    // It ends with its last client; an error of it is one of the calls, too.
    tokio::task::spawn_local(connection);
    Ok(client)
}

/// One call: whether its answer admits.
async fn call(
    client: &SendRequest<Bytes>,
    address: SocketAddr,
    path: &str,
    body: Bytes,
) -> Result<bool, Box<dyn Error>> {
    let request = Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let mut client = client.clone().ready().await?;
    let (response, mut sending) = client.send_request(request, false)?;
    sending.send_data(body, true)?;
    let (head, mut stream) = response.await?.into_parts();
    let mut answer = BytesMut::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        answer.extend_from_slice(&data);
    }
    let trailers = stream.trailers().await?.unwrap_or_default();
    let status = |fields: &HeaderMap| fields.get("grpc-status").map(|status| status == "0");
    if status(&trailers).or_else(|| status(&head.headers)) != Some(true) {
        return Err(format!("a call failed: {} {:?} {trailers:?}", head.status, head.headers).into());
    }
    admits(&answer).ok_or_else(|| "an answer is no message".into())
}
