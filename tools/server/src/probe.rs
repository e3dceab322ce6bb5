//! The client's side of the probes, for health checks of containers: images have no other program that speaks HTTP.

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::endpoint::{Endpoint, Place};
use crate::error::ServeError;
use crate::local_socket;

/// The longest answer that is read.
const ANSWER_BYTES: usize = 64 << 10;

/// What a probe asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Whether the process answers, `/healthz`.
    Alive,
    /// Whether it wants requests, `/readyz`.
    Ready,
}

impl Probe {
    const fn path(self) -> &'static str {
        match self {
            Self::Alive => "/healthz",
            Self::Ready => "/readyz",
        }
    }
}

/// Asks a server at a listener that speaks HTTP without TLS. The whole takes at most `within`.
///
/// # Errors
/// When the answer is no, the server cannot be reached, or it does not answer in time.
pub async fn probe(endpoint: &Endpoint, probe: Probe, within: Duration) -> Result<(), ServeError> {
    let answered = timeout(within, ask(&endpoint.place, probe.path())).await;
    let (status, body) = answered
        .map_err(|_| ServeError::new(format!("{endpoint} does not answer within {within:?}")))?
        .map_err(|error| ServeError::new(format!("{endpoint} cannot be reached: {error}")))?;
    if status == StatusCode::OK {
        return Ok(());
    }
    Err(ServeError::new(format!("{endpoint} answers {status}: {body}")))
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn ask(place: &Place, path: &'static str) -> Result<(StatusCode, String), Failure> {
    match place {
        Place::Tcp { address, .. } => send(TcpStream::connect(address).await?, path).await,
        Place::Unix(socket) => send(local_socket::connect(socket).await?, path).await,
    }
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    path: &'static str,
) -> Result<(StatusCode, String), Failure> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender.
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, "localhost").body(Body::empty())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await?.to_bytes();
    drop(sender);
    connection.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
