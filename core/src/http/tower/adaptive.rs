//! A layer that admits as many requests as an adaptive limit does.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::adaptive::{AdaptiveLimit, Call};
use crate::http::headers::Problem;
use crate::http::tower::body::ResponseBody;
use crate::http::tower::response::denial;

/// Admits requests while an [`AdaptiveLimit`] has places, and responds with 503 (Service Unavailable) and `retry-after: 1` to others.
/// Clones share the limit.
///
/// A request has its place until the body of the response is sent, or dropped because the client has gone. Its latency ends with the
/// head of the response. 503 and 504 (Gateway Timeout), and errors of the service, such as those of tower's `Timeout`, count as
/// failed; other server errors are not measured.
///
/// ```
/// use polylimit::adaptive::AdaptiveLimit;
/// use polylimit::http::tower::AdaptiveLayer;
///
/// let limit = AdaptiveLimit::builder(10..=500).build()?;
/// let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" })).layer(AdaptiveLayer::new(limit));
/// # let _: axum::Router = app;
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdaptiveLayer {
    limit: AdaptiveLimit,
}

impl AdaptiveLayer {
    /// A layer with this limit, which other layers and the program may use as well.
    pub fn new(limit: AdaptiveLimit) -> Self {
        Self { limit }
    }
}

impl<S> Layer<S> for AdaptiveLayer {
    type Service = Adaptive<S>;

    fn layer(&self, inner: S) -> Adaptive<S> {
        Adaptive { inner, limit: self.limit.clone() }
    }
}

/// A service in front of which an adaptive limit decides; made by [`AdaptiveLayer`].
#[derive(Clone)]
pub struct Adaptive<S> {
    inner: S,
    limit: AdaptiveLimit,
}

impl<S: fmt::Debug> fmt::Debug for Adaptive<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive").field("inner", &self.inner).field("limit", &self.limit).finish()
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<S, B, R> Service<Request<R>> for Adaptive<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<AdaptiveBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let Some(call) = self.limit.try_begin() else {
            let (request, _) = request.into_parts();
            let mut response = denial(&Problem::overloaded(), &request);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return Box::pin(ready(Ok(response.map(|body| AdaptiveBody { body, call: None }))));
        };
        let answering = self.inner.call(request);
        Box::pin(async move {
            match answering.await {
                Ok(response) => {
                    let status = response.status();
                    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) {
                        call.report(true);
                    } else if !status.is_server_error() {
                        call.report(false);
                    }
                    Ok(response.map(|body| AdaptiveBody { body: ResponseBody::own(body), call: Some(call) }))
                }
                Err(error) => {
                    call.failed();
                    Err(error)
                }
            }
        })
    }
}

pin_project! {
    /// The body of a response, whose end frees the place of its request.
    #[derive(Debug)]
    pub struct AdaptiveBody<B> {
        #[pin]
        body: ResponseBody<B>,
        call: Option<Call>,
    }
}

impl<B> Body for AdaptiveBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = this.body.poll_frame(context);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            *this.call = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
