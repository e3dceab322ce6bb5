//! How a service around filters of warp is served: `warp::serve` takes filters alone.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tower_service::Service;

/// Serves connections. The extension `SocketAddr` of a request is the other end of its connection.
pub(crate) async fn serve<S, B>(listener: TcpListener, service: S) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<Box<dyn Error + Send + Sync>>>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    loop {
        let (stream, peer): (_, SocketAddr) = listener.accept().await?;
        let service = service.clone();
        let with_peer = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            service.clone().call(request)
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), with_peer));
    }
}
