//! Envoy's rate limit service, version 3, and that of Kuadrant, which has the same messages: the descriptors of a request as attributes, by
//! which the rules of the document find policies. `docs/internals/envoy-ratelimit.md` says how.

mod call;
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
pub(crate) use crate::rls::call::RateLimitCall;
use crate::rls::messages::{RateLimitRequest, RateLimitResponse};

/// The names of the services, as health checks ask for them.
pub(crate) const SERVICES: [&str; 2] =
    ["envoy.service.ratelimit.v3.RateLimitService", "kuadrant.service.ratelimit.v1.RateLimitService"];

/// Answers a call of this caller.
pub(crate) async fn answer(
    app: Arc<App>,
    call: RateLimitCall,
    identity: Option<Identity>,
    request: Request<Body>,
) -> Response<Body> {
    let request = match grpc::whole(&app, request).await {
        Ok(request) => request,
        Err(response) => return response,
    };
    let mut grpc = Grpc::new(SmallMessages).max_decoding_message_size(app.options.limits.body);
    grpc.unary(Answering { app, call, identity }, request).await.map(Body::new)
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

struct Answering {
    app: Arc<App>,
    call: RateLimitCall,
    identity: Option<Identity>,
}

impl UnaryService<RateLimitRequest> for Answering {
    type Response = RateLimitResponse;
    type Future =
        Pin<Box<dyn Future<Output = Result<tonic::Response<RateLimitResponse>, tonic::Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let (app, call, identity) = (Arc::clone(&self.app), self.call, self.identity.take());
        Box::pin(async move {
            let decided = decision::decide(&app, call, identity.as_ref(), request.get_ref()).await?;
            Ok(tonic::Response::new(decided.response()))
        })
    }
}
