//! The layer and its service.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::http::tower::body::ResponseBody;
use crate::http::tower::decided::Decided;
use crate::http::tower::rules::{Rules, Verdict};

/// Limits the requests of a service. Clones share everything. `B` is the body of the service's responses.
pub struct RateLimitLayer<B> {
    pub(crate) rules: Arc<Rules<B>>,
}

impl<B> Clone for RateLimitLayer<B> {
    fn clone(&self) -> Self {
        Self { rules: Arc::clone(&self.rules) }
    }
}

impl<B> fmt::Debug for RateLimitLayer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limiter", &self.rules.limiter)
            .field("policies", &self.rules.policies)
            .finish_non_exhaustive()
    }
}

impl<S, B> Layer<S> for RateLimitLayer<B> {
    type Service = RateLimit<S, B>;

    fn layer(&self, inner: S) -> RateLimit<S, B> {
        RateLimit { inner, rules: Arc::clone(&self.rules), body: PhantomData }
    }
}

/// A service whose requests are limited; made by [`RateLimitLayer`].
pub struct RateLimit<S, B> {
    inner: S,
    rules: Arc<Rules<B>>,
    body: PhantomData<fn() -> B>,
}

impl<S: Clone, B> Clone for RateLimit<S, B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), rules: Arc::clone(&self.rules), body: PhantomData }
    }
}

impl<S: fmt::Debug, B> fmt::Debug for RateLimit<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<S, B, R> Service<Request<R>> for RateLimit<S, B>
where
    S: Service<Request<R>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    R: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        // The service that is ready is the one that `poll_ready` was called on, so the clone replaces it for the next
        // request.
        let next = self.inner.clone();
        let inner = mem::replace(&mut self.inner, next);
        Box::pin(respond(inner, Arc::clone(&self.rules), request))
    }
}

async fn respond<S, B, R>(
    mut inner: S,
    rules: Arc<Rules<B>>,
    request: Request<R>,
) -> Result<Response<ResponseBody<B>>, S::Error>
where
    S: Service<Request<R>, Response = Response<B>>,
{
    let (mut parts, body) = request.into_parts();
    let outer = parts.extensions.get::<Decided>().cloned();
    let is_outermost = outer.is_none();
    let decided = outer.unwrap_or_default();
    let mut response = match rules.decide(&parts, &decided).await {
        Verdict::Answer(response) => {
            decided.set_refused(true);
            response
        }
        Verdict::Pass(spent) => {
            decided.set_refused(false);
            parts.extensions.insert(decided.after(spent.as_ref()));
            let answered = inner.call(Request::from_parts(parts, body)).await;
            let answered = match spent {
                Some(spent) => rules.settle(&spent, &decided, answered).await,
                None => answered,
            };
            answered?.map(ResponseBody::own)
        }
    };
    // The outermost layer writes the fields of all layers.
    if is_outermost {
        let now_us = rules.limiter.shared().store().clock().now_us();
        decided.write(response.headers_mut(), now_us);
    }
    Ok(response)
}
