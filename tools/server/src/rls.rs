//! Envoy's rate limit service, version 3: the descriptors of a request as attributes, by which the rules of the document find policies.
//! `docs/internals/envoy-ratelimit.md` says how.

mod decision;
mod descriptor;
mod messages;
mod response;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::{Request, Response};
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use crate::app::App;
use crate::caller::Caller;
use crate::grpc;
use crate::rls::messages::{RateLimitRequest, RateLimitResponse};

/// The name of the service, as health checks ask for it.
pub(crate) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// The path of its only call.
pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Answers a `ShouldRateLimit`.
pub(crate) async fn should_rate_limit(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let request = match grpc::whole(&app, request).await {
        Ok(request) => request,
        Err(response) => return response,
    };
    let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(app.options.limits.body);
    grpc.unary(ShouldRateLimit(app), request).await.map(Body::new)
}

struct ShouldRateLimit(Arc<App>);

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future =
        Pin<Box<dyn Future<Output = Result<tonic::Response<RateLimitResponse>, tonic::Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let app = Arc::clone(&self.0);
        Box::pin(async move {
            let caller = Caller::identity_of(request.extensions());
            let decided = decision::decide(&app, caller, request.get_ref()).await?;
            Ok(tonic::Response::new(decided.response()))
        })
    }
}
