//! One connection: TLS where the listener speaks it, and then its protocol.

use std::future::poll_fn;
use std::hash::BuildHasher as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::app::App;
use crate::caller::Caller;
use crate::counters::Rejection;
use crate::endpoint::Protocol;
use crate::life::{FIRST_SILENCE, Follower, SILENCE, Stage};
use crate::lingering::Lingering;
use crate::resp;
use crate::turn::Turn;
use crate::web::{Routes, answer, is_probe, too_many_connections};

/// What a listener gives each of its connections.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) app: Arc<App>,
    pub(crate) protocol: Protocol,
    pub(crate) tls: bool,
    /// Whether callers need no token here.
    pub(crate) is_open: bool,
    /// Whether the connection is answered only for probes: all others are in use.
    pub(crate) is_for_probes: bool,
    /// What is answered over HTTP.
    pub(crate) routes: Routes,
    pub(crate) life: Follower,
}

impl Door {
    /// Serves one connection to its end.
    pub(crate) async fn serve<S>(self, stream: S, mut caller: Caller)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let _open = self.app.counters.connected(self.protocol);
        caller.is_open = self.is_open;
        let stream = Lingering::new(stream);
        let Some(acceptor) =
            self.app.tls.as_ref().filter(|_| self.tls).map(|tls| tls.acceptor(self.protocol))
        else {
            self.app.recognize(&mut caller);
            return self.speak(stream, caller).await;
        };
        match timeout(self.app.options.limits.head_time, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
                caller.certificate = certificates.first().map(|first| Arc::new(first.clone().into_owned()));
                self.app.recognize(&mut caller);
                self.speak(stream, caller).await;
            }
            Ok(Err(_)) | Err(_) => self.app.counters.rejected(self.protocol, Rejection::Handshake),
        }
    }

    async fn speak<S>(self, stream: S, caller: Caller)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self.protocol {
            Protocol::Http => self.speak_http(stream, caller).await,
            Protocol::Resp => resp::serve(self.app, stream, caller, self.life).await,
        }
    }

    /// Serves HTTP. A connection that has not sent a whole head in time is closed: hyper counts that time from when it knows the version,
    /// and a client that sends the first bytes of an HTTP/2 preface alone never lets it know.
    async fn speak_http<S>(mut self, stream: S, caller: Caller)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (limits, is_for_probes) = (self.app.options.limits, self.is_for_probes);
        // A connection for probes makes room for the next one soon.
        let head_time = if is_for_probes { limits.head_time.min(PROBE_TIME) } else { limits.head_time };
        let idle_time = if is_for_probes { head_time } else { limits.idle_time };
        let heads = Arc::new(Heads::default());
        let service = {
            let (app, routes, heads) = (Arc::clone(&self.app), self.routes.clone(), Arc::clone(&heads));
            service_fn(move |request: Request<Incoming>| {
                heads.note(request.version());
                let (is_http2, answering) = (heads.are_http2(), heads.answering());
                let (app, routes, caller) = (Arc::clone(&app), routes.clone(), caller.clone());
                let heads = Arc::clone(&heads);
                let is_refused = is_for_probes && !is_probe(request.uri().path());
                // In a box: hyper and tokio move what they spawn several times.
                Box::pin(async move {
                    let _answering = answering;
                    let mut response = if is_refused {
                        app.counters.rejected(Protocol::Http, Rejection::Connections);
                        too_many_connections()
                    } else {
                        answer(Arc::clone(&app), routes, caller, request.map(Body::new)).await
                    };
                    // Over HTTP/1.1 this asks the client to connect elsewhere, and hyper to end the connection with this answer.
                    if (app.is_stopping() || is_for_probes || heads.are_last()) && !is_http2 {
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok::<_, std::convert::Infallible>(response)
                })
            })
        };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(idle_time)
            .max_buf_size(limits.head.max(8 << 10))
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
            .keep_alive_interval(limits.idle_time)
            .keep_alive_timeout(limits.idle_time);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(Joined(stream)), service));
        let mut first_head = pin!(sleep(head_time));
        let (age, grace) = if is_for_probes {
            (Some(PROBE_TIME), PROBE_TIME)
        } else {
            (limits.connection_age, limits.connection_grace)
        };
        let mut ages = pin!(async {
            match age {
                Some(age) => heads.age(spread(age)).await,
                None => std::future::pending().await,
            }
        });
        let mut grace_ends = pin!(sleep(grace));
        let (mut waits_for_head, mut is_ending, mut is_old) = (true, false, false);
        let mut end = pin!(heads.end(&mut self.life));
        let mut turn = Turn::default();
        loop {
            tokio::select! {
                // Received data is read before a time is over.
                biased;
                ended = poll_fn(|cx| {
                    // The answers of all handlers that are ready go out in one write.
                    ready!(turn.poll_after_others(heads.has_tasks(), cx));
                    connection.as_mut().poll(cx)
                }) => {
                    // How a client ends its connection is its own matter, but hyper answers a head that is too large by itself.
                    if let Err(error) = ended
                        && error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse_too_large)
                    {
                        self.app.counters.rejected(Protocol::Http, Rejection::TooLarge);
                    }
                    return;
                }
                () = first_head.as_mut(), if waits_for_head => {
                    waits_for_head = false;
                    if !heads.have_come() {
                        if !is_ending {
                            self.app.counters.rejected(Protocol::Http, Rejection::SlowHead);
                        }
                        return;
                    }
                }
                () = ages.as_mut(), if !is_old => {
                    is_old = true;
                    grace_ends.as_mut().reset(Instant::now() + grace);
                    if heads.are_http2() {
                        connection.as_mut().graceful_shutdown();
                    } else {
                        // A request may be on its way: it is answered, and the connection ends with that.
                        heads.let_be_last();
                    }
                }
                // What never ends by itself, such as a stream of events, and a connection that is idle.
                () = grace_ends.as_mut(), if is_old => return,
                () = end.as_mut(), if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                    // Over HTTP/1.1, hyper would go on waiting for a first request.
                    if !heads.have_come() {
                        first_head.as_mut().reset(Instant::now() + SILENCE);
                    }
                }
            }
        }
    }
}

/// The time that a connection for probes has.
const PROBE_TIME: Duration = Duration::from_secs(1);

/// A time up to a tenth longer: connections that were made together do not all end together.
fn spread(age: Duration) -> Duration {
    let random = std::hash::RandomState::new().hash_one(0) % 1_000;
    age + age.mul_f64(f64::from(u32::try_from(random).unwrap_or(0)) / 10_000.0)
}

/// A stream that takes one buffer at a time, so that `h2` copies answers of up to 1 KiB into one buffer. Of a stream that takes several, it
/// writes each answer of 256 bytes or more by itself: one system call for each, which took a third of the time of an answer.
struct Joined<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for Joined<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Joined<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// What is known of a connection's requests.
#[derive(Default)]
struct Heads {
    /// 0 before the first head, and then the version of HTTP.
    version: AtomicU8,
    first: Notify,
    /// How many requests have no answer yet.
    answering: AtomicUsize,
    /// Whether the connection ends with the next answer.
    are_last: AtomicBool,
}

/// Counts a request as one without an answer for as long as it lives.
struct Answering(Arc<Heads>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Heads {
    fn note(&self, version: Version) {
        self.version.store(if version >= Version::HTTP_2 { 2 } else { 1 }, Ordering::Relaxed);
        self.first.notify_one();
    }

    fn have_come(&self) -> bool {
        self.version.load(Ordering::Relaxed) != 0
    }

    fn are_http2(&self) -> bool {
        self.version.load(Ordering::Relaxed) == 2
    }

    fn let_be_last(&self) {
        self.are_last.store(true, Ordering::Relaxed);
    }

    fn are_last(&self) -> bool {
        self.are_last.load(Ordering::Relaxed)
    }

    fn answering(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(self))
    }

    /// Whether hyper has spawned tasks that have not answered yet: over HTTP/1.1 it runs a handler in the connection's own task.
    fn has_tasks(&self) -> bool {
        self.are_http2() && self.answering.load(Ordering::Relaxed) > 0
    }

    /// Waits until the connection is as old as this and has had its first head: without one it ends soon by itself.
    async fn age(&self, age: Duration) {
        sleep(age).await;
        if !self.have_come() {
            self.first.notified().await;
        }
    }

    /// Waits until the connection has to end. HTTP/2 has a message for it, after which streams go on; HTTP/1.1 has none, so a
    /// connection that is idle when the server stops is kept for a while: a request that is on its way gets its answer.
    async fn end(&self, life: &mut Follower) {
        life.reach(Stage::Draining).await;
        if !self.have_come() {
            let _ = timeout(FIRST_SILENCE, self.first.notified()).await;
        }
        if self.have_come() && !self.are_http2() {
            sleep(SILENCE).await;
        }
    }
}

/// Reports to a client that there are too many connections, as its protocol does.
pub(crate) async fn refuse(mut stream: impl AsyncWrite + Unpin, protocol: Protocol, is_tls: bool) {
    let told: &[u8] = match protocol {
        // Before the handshake nothing can be reported.
        _ if is_tls => b"",
        Protocol::Http => {
            b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"
        }
        Protocol::Resp => b"-ERR max number of clients reached\r\n",
    };
    let _ = stream.write_all(told).await;
    let _ = stream.shutdown().await;
}
