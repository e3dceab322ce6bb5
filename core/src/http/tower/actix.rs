//! Limits the requests of actix-web (feature `actix`).
//!
//! A [`RateLimitMiddleware`] is the layer of [`tower`](crate::http::tower) with the same options, as a middleware of actix-web:
//!
//! ```
//! use actix_web::{App, web};
//! use polylimit::Limiter;
//! use polylimit::http::ClientAddressRules;
//! use polylimit::http::actix::{RateLimitMiddleware, peer, route};
//! use polylimit::http::tower::client_address;
//!
//! # fn main() -> Result<(), polylimit::Error> {
//! let limiter = Limiter::builder().build()?;
//! let rules = ClientAddressRules::builder().build()?;
//! let limit = RateLimitMiddleware::builder(limiter, client_address(rules, peer))
//!     .policy("100/minute")
//!     .route(route)
//!     .build()?;
//! let app = App::new().wrap(limit).route("/users/{id}", web::get().to(|| async { "a user" }));
//! # drop(app);
//! # Ok(())
//! # }
//! ```
//!
//! Its functions get the head of the request as [`Parts`], with these extensions: [`Peer`], [`Route`], the
//! [`User`](crate::http::tower::User) that an outer middleware has put into the extensions of actix-web, and the values of an
//! [`http::Extensions`] there. A handler gets [`RequestLimits`] and [`RequestHold`] from the extensions of actix-web.
//!
//! On HTTP/1 a server of actix-web goes on with a response whose client has gone until it cannot send any more, unless its
//! `h1_allow_half_closed` is false: so long the request holds its slots.
//!
//! An error that a middleware inside of this one returns, in place of a response, has no fields. The responses of handlers that fail have
//! them.

use std::future::{Future, Ready, ready};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{Error, HttpMessage as _, HttpResponse};
use bytes::Bytes;
use http::request::Parts;
use pin_project_lite::pin_project;

use crate::http::guard::RequestLimits;
use crate::http::headers::{HeaderField, percent_encoded};
use crate::http::tower::hold::RequestHold;
use crate::http::tower::key::User;
use crate::http::tower::service::RateLimitLayer;

/// Limits the requests of an application, a scope or a resource: an argument of their `wrap`.
pub type RateLimitMiddleware = RateLimitLayer<BoxBody>;

/// The other end of the connection: an extension of the requests that the functions of a middleware get.
#[derive(Clone, Copy, Debug)]
pub struct Peer(
    /// Its address.
    pub SocketAddr,
);

/// The route that matches a request, such as `/v1/users/{id}`: an extension of the requests that the functions of a middleware get.
#[derive(Clone, Debug)]
pub struct Route(
    /// Its pattern, with those of the scopes around it.
    pub String,
);

/// The address of the other end, for [`client_address`](crate::http::tower::client_address) and
/// [`by_configuration`](RateLimitLayer::by_configuration).
pub fn peer(request: &Parts) -> Option<IpAddr> {
    Some(request.extensions.get::<Peer>()?.0.ip())
}

/// The route of a request, for [`RateLimitBuilder::route`](crate::http::tower::RateLimitBuilder::route). A middleware of the whole
/// application or of a scope knows it from the path. Where guards choose between resources that match the same path, the middleware is to be
/// that of each resource.
pub fn route(request: &Parts) -> Option<String> {
    Some(request.extensions.get::<Route>()?.0.clone())
}

impl<S, B> Transform<S, ServiceRequest> for RateLimitMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type InitError = ();
    type Transform = LimitedService<S>;
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(LimitedService { service: Rc::new(service), layer: self.clone() }))
    }
}

/// A service whose requests are limited; made by [`RateLimitMiddleware`].
#[derive(Debug)]
pub struct LimitedService<S> {
    service: Rc<S>,
    layer: RateLimitMiddleware,
}

impl<S, B> Service<ServiceRequest> for LimitedService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<BoxBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.service.poll_ready(context)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        Box::pin(respond(Rc::clone(&self.service), self.layer.clone(), request))
    }
}

async fn respond<S, B>(
    service: Rc<S>,
    layer: RateLimitMiddleware,
    request: ServiceRequest,
) -> Result<ServiceResponse<BoxBody>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    let limit = Arc::clone(&layer.limit);
    let parts = parts_of(&request);
    let outer = request.extensions().get::<RequestLimits>().cloned();
    let is_outermost = outer.is_none();
    // A middleware between two limits may call its service again.
    let limits = outer.unwrap_or_else(RequestLimits::with_attempts);
    if is_outermost {
        request.extensions_mut().insert(limits.clone());
    }
    let mut response = match limit.decide(&parts, &limits).await {
        Err(denial) => {
            let (head, body) = denial.into_parts();
            let mut response = HttpResponse::build(status(head.status));
            for (name, value) in &head.headers {
                response.append_header((name.as_str(), value.as_bytes()));
            }
            let body = body.into_content().unwrap_or_else(BoxBody::new);
            request.into_response(response.message_body(body)?)
        }
        Ok(Some(check)) if check.holds() => {
            let outer = request.extensions().get::<RequestHold>().cloned();
            let hold = RequestHold::new(check, limit.functions.spent.clone(), outer);
            request.extensions_mut().insert(hold.clone());
            let answered = service.call(request).await;
            // The result is that of the service; a hold needs the head alone.
            let _ = limit.finish_held(&hold, head_of(&answered)).await;
            let reads_body = hold.reads_body();
            answered?.map_body(|_, body| HeldBody { body, hold: Some(hold), reads_body }.boxed())
        }
        Ok(check) => {
            let answered = service.call(request).await;
            if let Some(check) = check {
                let _ = limit.finish(check, head_of(&answered)).await;
            }
            answered?.map_into_boxed_body()
        }
    };
    // The outermost middleware writes the fields of all.
    if is_outermost {
        add_fields(response.headers_mut(), limit.guard.fields(&limits));
    }
    Ok(response)
}

/// The head of a request as the functions of a layer get it. actix-web has an older version of the crate `http`.
fn parts_of(request: &ServiceRequest) -> Parts {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    let given = request.extensions().get::<http::Extensions>().cloned();
    parts.extensions = given.unwrap_or_default();
    parts.method = http::Method::from_bytes(request.method().as_str().as_bytes()).unwrap_or_default();
    // What the newer version does not accept is a path all the same.
    let escaped = || percent_encoded(request.path(), |byte| byte == b'/').parse().unwrap_or_default();
    parts.uri = request.uri().to_string().parse().unwrap_or_else(|_| escaped());
    parts.headers = headers_of(request.headers());
    if let Some(address) = request.peer_addr() {
        parts.extensions.insert(Peer(address));
    }
    if let Some(pattern) = route_of(request) {
        parts.extensions.insert(Route(pattern));
    }
    if let Some(user) = request.extensions().get::<User>() {
        parts.extensions.insert(user.clone());
    }
    parts
}

/// The pattern of the resource that has, or will get, the request. Before routing, `match_pattern` compares the path with its escapes, and
/// the router without them.
fn route_of(request: &ServiceRequest) -> Option<String> {
    let path = request.match_info();
    if path.unprocessed().is_empty() {
        request.match_pattern()
    } else {
        request.resource_map().match_pattern(path.as_str())
    }
}

fn headers_of(headers: &HeaderMap) -> http::HeaderMap {
    let convert = |(name, value): (&HeaderName, &HeaderValue)| {
        let name = http::HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        Some((name, http::HeaderValue::from_bytes(value.as_bytes()).ok()?))
    };
    let mut converted = http::HeaderMap::new();
    headers.iter().filter_map(convert).for_each(|(name, value)| _ = converted.append(name, value));
    converted
}

/// The head of a response, for `count` and `spent`. An error of the service has the status that actix-web will answer it by.
fn head_of<B>(answered: &Result<ServiceResponse<B>, Error>) -> Result<http::Response<()>, ()> {
    let mut head = http::Response::new(());
    let code = match answered {
        Ok(response) => {
            *head.headers_mut() = headers_of(response.headers());
            response.status()
        }
        Err(error) => error.as_response_error().status_code(),
    };
    *head.status_mut() = http::StatusCode::from_u16(code.as_u16()).map_err(|_| ())?;
    Ok(head)
}

fn status(status: http::StatusCode) -> StatusCode {
    StatusCode::from_u16(status.as_u16()).unwrap_or(StatusCode::TOO_MANY_REQUESTS)
}

/// Adds fields to those of a response, by the rules of the layer.
fn add_fields(headers: &mut HeaderMap, fields: Vec<HeaderField>) {
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value.as_bytes())) else { continue };
        if name == actix_web::http::header::RETRY_AFTER {
            headers.insert(name, value);
        } else if field.value.starts_with('"') || !headers.contains_key(&name) {
            headers.append(name, value);
        }
    }
}

pin_project! {
    /// The body of a response whose request holds reservations until its end.
    struct HeldBody<B> {
        #[pin]
        body: B,
        hold: Option<RequestHold>,
        reads_body: bool,
    }
}

impl<B: MessageBody> MessageBody for HeldBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, B::Error>>> {
        let this = self.project();
        let next = this.body.poll_next(context);
        match (&next, &*this.hold) {
            (Poll::Ready(Some(Ok(part))), Some(hold)) if *this.reads_body => hold.read_body(part),
            (Poll::Ready(None | Some(Err(_))), _) => *this.hold = None,
            _ => {}
        }
        next
    }
}
