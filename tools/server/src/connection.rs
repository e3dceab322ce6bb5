//! One connection: TLS where the listener speaks it, and then its protocol.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::caller::Caller;
use crate::counters::Rejection;
use crate::endpoint::Protocol;
use crate::resp;
use crate::web::{Routes, answer};

/// What a listener gives each of its connections.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) app: Arc<App>,
    pub(crate) protocol: Protocol,
    pub(crate) tls: bool,
    /// What is answered over HTTP.
    pub(crate) routes: Routes,
    /// True once the server stops.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Door {
    /// Serves one connection to its end.
    pub(crate) async fn serve<S>(self, stream: S, peer: Option<IpAddr>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let _open = self.app.counters.connected(self.protocol);
        let Some(acceptor) =
            self.app.tls.as_ref().filter(|_| self.tls).map(|tls| tls.acceptor(self.protocol))
        else {
            return self.speak(stream, Caller { peer, identity: None }).await;
        };
        match timeout(self.app.options.limits.head_time, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let identity = certificates.first().and_then(|first| self.app.by_certificate(first));
                self.speak(stream, Caller { peer, identity }).await;
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
            Protocol::Resp => resp::serve(self.app, stream, caller, self.stopping).await,
        }
    }

    /// Serves HTTP. A connection that has not sent a whole head in time is closed: hyper counts that time from when it knows the version,
    /// and a client that sends the first bytes of an HTTP/2 preface alone never lets it know.
    async fn speak_http<S>(mut self, stream: S, caller: Caller)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let limits = self.app.options.limits;
        let first = Arc::new(FirstHead::default());
        let service = {
            let (app, routes, first) = (Arc::clone(&self.app), self.routes.clone(), Arc::clone(&first));
            service_fn(move |request: Request<Incoming>| {
                first.has_come.store(true, Ordering::Relaxed);
                first.notice.notify_one();
                let (app, routes, caller) = (Arc::clone(&app), routes.clone(), caller.clone());
                async move {
                    Ok::<_, std::convert::Infallible>(
                        answer(app, routes, caller, request.map(Body::new)).await,
                    )
                }
            })
        };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle_time)
            .max_buf_size(limits.head.max(8 << 10))
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
            .keep_alive_interval(limits.idle_time)
            .keep_alive_timeout(limits.idle_time);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut first_head = pin!(sleep(limits.head_time));
        let (mut waits_for_head, mut is_stopping) = (true, false);
        loop {
            tokio::select! {
                // How a client ends its connection is its own matter.
                _ = connection.as_mut() => return,
                () = first_head.as_mut(), if waits_for_head => {
                    waits_for_head = false;
                    if !first.has_come.load(Ordering::Relaxed) {
                        self.app.counters.rejected(Protocol::Http, Rejection::SlowHead);
                        return;
                    }
                }
                // A client that has just connected gets its first answer all the same.
                () = async { let _ = self.stopping.wait_for(|stopping| *stopping).await; first.notice.notified().await },
                    if !is_stopping =>
                {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Whether a connection has sent a whole head.
#[derive(Default)]
struct FirstHead {
    has_come: AtomicBool,
    notice: Notify,
}

/// Tells a client that there are too many connections, as its protocol does.
pub(crate) async fn refuse(mut stream: impl AsyncWrite + Unpin, protocol: Protocol, is_tls: bool) {
    let told: &[u8] = match protocol {
        // Before the handshake nothing can be told.
        _ if is_tls => b"",
        Protocol::Http => {
            b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"
        }
        Protocol::Resp => b"-ERR max number of clients reached\r\n",
    };
    let _ = stream.write_all(told).await;
    let _ = stream.shutdown().await;
}
