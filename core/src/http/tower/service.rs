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

use crate::http::guard::RequestLimits;
use crate::http::tower::body::ResponseBody;
use crate::http::tower::hold::RequestHold;
use crate::http::tower::limit::Limit;
use crate::http::tower::response::add_fields;

/// Limits the requests of a service. Clones share everything. `B` is the body of the service's responses.
pub struct RateLimitLayer<B> {
    pub(super) limit: Arc<Limit<B>>,
}

impl<B> Clone for RateLimitLayer<B> {
    fn clone(&self) -> Self {
        Self { limit: Arc::clone(&self.limit) }
    }
}

impl<B> fmt::Debug for RateLimitLayer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limiter", self.limit.guard.limiter())
            .field("guard", &self.limit.guard)
            .finish_non_exhaustive()
    }
}

impl<S, B> Layer<S> for RateLimitLayer<B> {
    type Service = RateLimit<S, B>;

    fn layer(&self, inner: S) -> RateLimit<S, B> {
        RateLimit { inner, limit: Arc::clone(&self.limit), body: PhantomData }
    }
}

/// A service whose requests are limited; made by [`RateLimitLayer`].
pub struct RateLimit<S, B> {
    inner: S,
    limit: Arc<Limit<B>>,
    body: PhantomData<fn() -> B>,
}

impl<S: Clone, B> Clone for RateLimit<S, B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), limit: Arc::clone(&self.limit), body: PhantomData }
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
        Box::pin(respond(inner, Arc::clone(&self.limit), request))
    }
}

async fn respond<S, B, R>(
    mut inner: S,
    limit: Arc<Limit<B>>,
    request: Request<R>,
) -> Result<Response<ResponseBody<B>>, S::Error>
where
    S: Service<Request<R>, Response = Response<B>>,
{
    let (mut parts, body) = request.into_parts();
    let outer = parts.extensions.get::<RequestLimits>().cloned();
    let is_outermost = outer.is_none();
    // A layer between two limits may retry a request that the inner one has denied.
    let limits = outer.unwrap_or_else(RequestLimits::with_attempts);
    if is_outermost {
        parts.extensions.insert(limits.clone());
    }
    let mut response = match limit.decide(&parts, &limits).await {
        Err(response) => response,
        Ok(Some(check)) if check.holds() => {
            let outer = parts.extensions.get::<RequestHold>().cloned();
            let hold = RequestHold::new(check, limit.functions.spent.clone(), outer);
            parts.extensions.insert(hold.clone());
            let answered = inner.call(Request::from_parts(parts, body)).await;
            let response = limit.finish_held(&hold, answered).await?;
            response.map(|body| ResponseBody::own(body).holding(hold))
        }
        Ok(check) => {
            let answered = inner.call(Request::from_parts(parts, body)).await;
            let answered = match check {
                Some(check) => limit.finish(check, answered).await,
                None => answered,
            };
            answered?.map(ResponseBody::own)
        }
    };
    // The outermost layer writes the fields of all layers.
    if is_outermost {
        add_fields(response.headers_mut(), limit.guard.fields(&limits));
    }
    Ok(response)
}
