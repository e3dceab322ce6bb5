//! A server without sockets, for fuzz targets: bytes come and go in memory.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Full};
use polylimit::Limiter;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::runtime::{Builder, Runtime};

use crate::app::App;
use crate::caller::Caller;
use crate::error::ServeError;
use crate::options::ServerOptions;
use crate::resp;
use crate::web::{Routes, answer};

/// A server without sockets.
pub struct Offline {
    app: Arc<App>,
    data: Routes,
    admin: Routes,
    runtime: Runtime,
}

/// An answer over HTTP.
pub struct OfflineAnswer {
    /// The status.
    pub status: u16,
    /// The content type; empty for an answer without one.
    pub content_type: String,
    /// The status of gRPC, where it is an answer of gRPC that has one.
    pub grpc_status: Option<i32>,
    /// The body.
    pub body: Bytes,
}

impl Offline {
    /// A server with the default options that asks this limiter.
    ///
    /// # Errors
    /// When the system refuses what a runtime needs.
    pub fn new(limiter: Limiter) -> Result<Self, ServeError> {
        Self::with_options(limiter, ServerOptions::default())
    }

    /// A server that asks this limiter, with the options that do not concern sockets.
    ///
    /// # Errors
    /// When a file of the options cannot be read, or the system refuses what a runtime needs.
    pub fn with_options(limiter: Limiter, options: ServerOptions) -> Result<Self, ServeError> {
        let app = Arc::new(App::new(limiter, options)?);
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ServeError::new(format!("there is no runtime: {error}")))?;
        let [data, admin] = {
            // The routes of operators start a task that takes points of the traffic.
            let _entered = runtime.enter();
            [false, true].map(|is_admin| Routes::new(&app, is_admin))
        };
        Ok(Self { app, data, admin, runtime })
    }

    /// The paths of the listener for callers, or of that for operators.
    pub fn paths(&self, is_admin: bool) -> Vec<&'static str> {
        let routes = if is_admin { &self.admin } else { &self.data };
        routes.paths.to_vec()
    }

    /// Posts a body to a path of the listener for callers, or of that for operators.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn post(
        &self,
        is_admin: bool,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<OfflineAnswer, ServeError> {
        self.send(is_admin, "POST", path, &[(CONTENT_TYPE.as_str(), content_type.as_bytes())], body)
    }

    /// Sends a request to the listener for callers, or to that for operators, from 127.0.0.1.
    ///
    /// # Errors
    /// When this is no request of HTTP, or the body of the answer breaks off.
    pub fn send(
        &self,
        is_admin: bool,
        method: &str,
        path: &str,
        fields: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<OfflineAnswer, ServeError> {
        let failed = |error: &dyn std::fmt::Display| ServeError::new(error.to_string());
        let request = Request::builder().method(method).uri(path);
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request =
            request.body(Full::new(Bytes::copy_from_slice(body))).map_err(|error| failed(&error))?;
        let routes = if is_admin { &self.admin } else { &self.data };
        let caller = Caller { peer: Some(Ipv4Addr::LOCALHOST.into()), ..Caller::default() };
        self.runtime.block_on(async {
            let response =
                answer(Arc::clone(&self.app), routes.clone(), caller, request.map(Body::new)).await;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| failed(&error))?;
            let told = head.headers.get("grpc-status").or_else(|| body.trailers()?.get("grpc-status"));
            let grpc_status = told.and_then(|value| value.to_str().ok()?.parse().ok());
            let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let content_type = content_type.unwrap_or_default().to_owned();
            let (status, body) = (head.status.as_u16(), body.to_bytes());
            Ok(OfflineAnswer { status, content_type, grpc_status, body })
        })
    }

    /// A connection over RESP, whose client sends these pieces one after the other and then nothing more; returns all replies.
    pub fn resp(&self, pieces: &[&[u8]]) -> Vec<u8> {
        let (client, server) = duplex(1 << 16);
        let (mut from_server, mut to_server) = split(client);
        let caller = Caller::default();
        let mut replies = Vec::new();
        self.runtime.block_on(async {
            let sends = async {
                for piece in pieces {
                    // A server that has ended the connection takes no more.
                    let _ = to_server.write_all(piece).await;
                    tokio::task::yield_now().await;
                }
                let _ = to_server.shutdown().await;
            };
            let receives = from_server.read_to_end(&mut replies);
            let answers = resp::serve(Arc::clone(&self.app), server, caller, self.app.life.follow());
            let _ = tokio::join!(answers, sends, receives);
        });
        replies
    }
}
