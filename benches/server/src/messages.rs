//! The messages of gRPC that the servers are asked with: those of throttlecrab, and of Envoy's rate limit service as far as they are used.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

pub(crate) const THROTTLE: &str = "/throttlecrab.RateLimiter/Throttle";
pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[derive(Clone, PartialEq, Eq, Message)]
struct ThrottleRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct RateLimitRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// The first field of both answers, which says what becomes of the request: `allowed` of throttlecrab, and `overall_code` of Envoy, in which
/// 1 is OK and 2 is `OVER_LIMIT`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Verdict {
    #[prost(int32, tag = "1")]
    code: i32,
}

/// A request to throttlecrab about a key with this burst, and with this limit in a period of seconds.
pub(crate) fn throttle(key: &str, times: i32, period: i32) -> Bytes {
    let key = key.to_owned();
    framed(&ThrottleRequest { key, max_burst: times, count_per_period: times, period, quantity: 1 })
}

/// A request to Envoy's service with one descriptor of one entry.
pub(crate) fn should_rate_limit(key: &str, value: &str) -> Bytes {
    let entries = vec![Entry { key: key.to_owned(), value: value.to_owned() }];
    framed(&RateLimitRequest { domain: "bench".to_owned(), descriptors: vec![Descriptor { entries }] })
}

/// A message as the body of a request: not compressed, and its length.
fn framed(message: &impl Message) -> Bytes {
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    body.extend_from_slice(&message.encode_to_vec());
    body.freeze()
}

/// Whether the body of an answer admits the request; `None` when it is no answer.
pub(crate) fn admits(body: &[u8]) -> Option<bool> {
    let message = body.get(5..)?;
    Verdict::decode(message).ok().map(|verdict| verdict.code == 1)
}
