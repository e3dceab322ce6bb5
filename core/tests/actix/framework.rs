//! The server of the guard's cases on actix-web.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

pub(crate) use actix_web::body::BoxBody as Body;
use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::middleware::Condition;
use actix_web::rt::System;
use actix_web::web::{Bytes, Data, to};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use futures_util::{StreamExt, stream};
use polylimit::http::actix::RateLimitMiddleware;
pub(crate) use polylimit::http::actix::peer;
use tokio::sync::oneshot;

use crate::service::Service;

pub(crate) fn text_body(text: String) -> Body {
    Body::new(text)
}

/// Ends a server when it is dropped.
struct Running(ServerHandle);

impl Drop for Running {
    fn drop(&mut self) {
        // The threads of the server do that.
        drop(self.0.stop(false));
    }
}

/// Starts a server behind these middlewares, the outer one first.
pub(crate) fn serve(limits: Vec<RateLimitMiddleware>, unfinished: Unfinished) -> Service {
    assert!((1..=3).contains(&limits.len()), "{} middlewares", limits.len());
    let (sender, started) = mpsc::channel();
    thread::spawn(move || {
        System::new().block_on(async move {
            let server = HttpServer::new(move || {
                // A condition that does not hold has a middleware, too.
                let [outer, middle, inner] = [0, 1, 2].map(|at| {
                    Condition::new(at < limits.len(), limits.get(at).unwrap_or(&limits[0]).clone())
                });
                // The one that is added last is the outer one.
                let app = App::new().app_data(Data::new(unfinished.clone()));
                app.wrap(inner).wrap(middle).wrap(outer).default_service(to(handle))
            });
            let server = server.workers(1).disable_signals().h1_allow_half_closed(false);
            let server = server.bind("127.0.0.1:0").unwrap();
            let address = server.addrs()[0];
            let server = server.run();
            sender.send((address, server.handle())).unwrap();
            server.await.unwrap();
        });
    });
    let (address, handle) = started.recv().unwrap();
    Service::at(address, Box::new(Running(handle)))
}

/// The responses that wait for their end, by name.
pub(crate) type Unfinished = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// The handler behind the middlewares.
async fn handle(unfinished: Data<Unfinished>, request: HttpRequest) -> HttpResponse {
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap());
    let status = if header("x-fail").is_some() { "500" } else { header("x-respond").unwrap_or("200") };
    let mut response = HttpResponse::build(StatusCode::from_u16(status.parse().unwrap()).unwrap());
    response.append_header(("x-handled", "1"));
    if let Some(spent) = header("x-spent") {
        response.append_header(("x-spent", spent));
    }
    if let Some(kind) = header("x-content-type") {
        response.append_header(("content-type", kind));
    }
    if let Some(pieces) = header("x-body") {
        let pieces: Vec<String> = serde_json::from_str(pieces).unwrap();
        return response.streaming(stream::iter(
            pieces.into_iter().map(|piece| Ok::<_, Infallible>(Bytes::from(piece))),
        ));
    }
    let Some(name) = header("x-open") else { return response.finish() };
    let (end, ended) = oneshot::channel();
    unfinished.lock().unwrap().insert(name.to_owned(), end);
    let last = stream::once(async {
        ended.await.unwrap();
        Ok::<_, Infallible>(Bytes::from_static(b"last"))
    });
    response.streaming(stream::iter([Ok(Bytes::from_static(b"first "))]).chain(last))
}
