//! The tower layer around an endpoint of poem.

use std::io;
use std::mem::swap;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use poem::{Endpoint, EndpointExt as _, Request, Response};
use polylimit::http::tower::RateLimitLayer;
use tower::{ServiceExt as _, service_fn};
use tower_layer::Layer as _;

/// The body of poem's responses.
pub(crate) type Body = BoxBody<Bytes, io::Error>;

/// Limits an endpoint. The request of poem passes through the layer as the body of a request that has its head.
pub(crate) fn limited(
    endpoint: impl Endpoint + 'static,
    layer: RateLimitLayer<Body>,
) -> impl Endpoint<Output = Response> {
    endpoint.around(move |endpoint, mut request: Request| {
        let mut head = http::Request::new(());
        *head.method_mut() = request.method().clone();
        *head.uri_mut() = request.original_uri().clone();
        swap(head.headers_mut(), request.headers_mut());
        swap(head.extensions_mut(), request.extensions_mut());
        head.extensions_mut().insert(request.remote_addr().clone());
        let service = layer.layer(service_fn(move |request: http::Request<Request>| {
            let (head, mut request) = request.into_parts();
            (*request.headers_mut(), *request.extensions_mut()) = (head.headers, head.extensions);
            let endpoint = endpoint.clone();
            async move { Ok::<_, poem::Error>(http::Response::from(endpoint.get_response(request).await)) }
        }));
        async move { Ok(service.oneshot(head.map(|()| request)).await?.map(BoxBody::new).into()) }
    })
}
