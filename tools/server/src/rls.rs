//! Envoy's rate limit service, version 3: the descriptors of a request as attributes, by which the rules of the document find policies.
//! `docs/internals/envoy-ratelimit.md` says how.

mod decision;
mod descriptor;
mod messages;
mod metadata;
mod response;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, Response};
use tonic::codec::{BufferSettings, Codec};
use tonic::server::{Grpc, UnaryService};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::access::Identity;
use crate::app::App;
use crate::grpc;
use crate::rls::messages::{RateLimitRequest, RateLimitResponse};

/// The name of the service, as health checks ask for it.
pub(crate) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// The path of its only call.
pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Answers a `ShouldRateLimit` of this caller.
pub(crate) async fn should_rate_limit(
    app: Arc<App>,
    identity: Option<Identity>,
    request: Request<Body>,
) -> Response<Body> {
    let request = match grpc::whole(&app, request).await {
        Ok(request) => request,
        Err(response) => return response,
    };
    let mut grpc = Grpc::new(SmallMessages).max_decoding_message_size(app.options.limits.body);
    grpc.unary(ShouldRateLimit(app, identity), request).await.map(Body::new)
}

/// Buffers for messages of some hundred bytes: they grow where a message is larger. Those that tonic makes by itself have 8 KiB each.
struct SmallMessages;

impl SmallMessages {
    fn buffers() -> BufferSettings {
        BufferSettings::new(512, 32 << 10)
    }
}

impl Codec for SmallMessages {
    type Encode = RateLimitResponse;
    type Decode = RateLimitRequest;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = ProstDecoder<RateLimitRequest>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<RateLimitResponse, RateLimitRequest>::raw_encoder(Self::buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<RateLimitResponse, RateLimitRequest>::raw_decoder(Self::buffers())
    }
}

struct ShouldRateLimit(Arc<App>, Option<Identity>);

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future =
        Pin<Box<dyn Future<Output = Result<tonic::Response<RateLimitResponse>, tonic::Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let (app, identity) = (Arc::clone(&self.0), self.1.take());
        Box::pin(async move {
            let decided = decision::decide(&app, identity.as_ref(), request.get_ref()).await?;
            Ok(tonic::Response::new(decided.response()))
        })
    }
}
