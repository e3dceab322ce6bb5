//! Envoy's rate limit service, version 3, and that of Kuadrant, which has the same descriptors: those of a request as attributes, by which
//! the rules of the document find policies. `docs/internals/envoy-ratelimit.md` says how.

mod call;
mod decision;
mod descriptor;
mod hold;
mod kuadrant;
mod messages;
mod metadata;
mod response;

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec};
use tonic::server::Grpc;
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};
use tower::service_fn;

use crate::access::Identity;
use crate::app::App;
use crate::grpc;
pub(crate) use crate::rls::call::RateLimitCall;
use crate::rls::kuadrant::{CommitRequest, ReserveRequest};
use crate::rls::messages::RateLimitRequest;

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
    let (app, caller) = (&*app, identity.as_ref());
    match call {
        RateLimitCall::ShouldRateLimit | RateLimitCall::CheckRateLimit | RateLimitCall::Report => {
            let decide = |sent: RateLimitRequest| async move {
                Ok(decision::decide(app, call, caller, &sent).await?.response())
            };
            unary(app, request, decide).await
        }
        RateLimitCall::Reserve => {
            let reserve = |sent: ReserveRequest| async move { hold::reserve(app, caller, &sent).await };
            unary(app, request, reserve).await
        }
        RateLimitCall::Commit => {
            let commit = |sent: CommitRequest| async move { hold::commit(app, caller, &sent).await };
            unary(app, request, commit).await
        }
    }
}

/// Reads the message of a call, and writes that of its response.
async fn unary<Sent, Answered, F>(
    app: &App,
    request: Request<Full<Bytes>>,
    answer: impl Fn(Sent) -> F,
) -> Response<Body>
where
    Sent: Message + Default + 'static,
    Answered: Message + 'static,
    F: Future<Output = Result<Answered, Status>>,
{
    let service = service_fn(|sent: tonic::Request<Sent>| {
        let answering = answer(sent.into_inner());
        async move { answering.await.map(tonic::Response::new) }
    });
    let mut grpc = Grpc::new(SmallMessages(PhantomData)).max_decoding_message_size(app.options.limits.body);
    grpc.unary(service, request).await.map(Body::new)
}

/// Buffers for messages of some hundred bytes: they grow where a message is larger. Those that tonic makes by itself have 8 KiB each.
struct SmallMessages<Sent, Answered>(PhantomData<fn(Sent) -> Answered>);

impl<Sent, Answered> SmallMessages<Sent, Answered> {
    fn buffers() -> BufferSettings {
        BufferSettings::new(512, 32 << 10)
    }
}

impl<Sent, Answered> Codec for SmallMessages<Sent, Answered>
where
    Sent: Message + Default + 'static,
    Answered: Message + 'static,
{
    type Encode = Answered;
    type Decode = Sent;
    type Encoder = ProstEncoder<Answered>;
    type Decoder = ProstDecoder<Sent>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<Answered, Sent>::raw_encoder(Self::buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<Answered, Sent>::raw_decoder(Self::buffers())
    }
}
