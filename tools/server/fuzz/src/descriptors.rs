//! Any message of Envoy's rate limit service is answered or refused, with one status for each descriptor.

use polylimit::Limiter;
use polylimit::clock::ManualClock;
use polylimit_server::testing::Offline;
use prost::Message;

#[path = "../../src/rls/messages.rs"]
mod messages;

use messages::{RateLimitRequest, RateLimitResponse};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const DOCUMENT: &str = r#"
polylimit = 1
[policies.a]
quotas = "5/minute fixed_window aligned; 9/day"
[policies.b]
quotas = "1/hour"
mode = "shadow"
[policies."replaces.a"]
quotas = "0/s"
mode = "off"
[policies.quota_mode]
quotas = "0/s"
mode = "off"
[[rules]]
match = { descriptor = "user", user = "gold" }
apply = [{ policy = "replaces.a", key = "" }]
[[rules]]
match = { descriptor = "user" }
apply = [{ policy = "a", key = "{user}" }, { policy = "b", key = "{user}" }]
[[rules]]
match = { descriptor = "team" }
apply = [{ policy = "a", key = "{team}", cost = "{team}" }, { policy = "quota_mode", key = "" }]
[[rules]]
match = { domain = "d*" }
apply = [{ policy = "a", key = "{domain}|{descriptor}", headroom = 20 }]
[lists]
deny = ["user mallory"]
"#;
/// The statuses of gRPC.
const OK: i32 = 0;
const INVALID_ARGUMENT: i32 = 3;
const INTERNAL: i32 = 13;

/// The bytes are a message.
pub fn run(bytes: &[u8]) {
    let clock = ManualClock::new(1_789_948_800_000_000).expect("a time");
    let limiter = Limiter::builder().document(DOCUMENT).clock(clock).build().expect("a limiter");
    let server = Offline::new(limiter).expect("a server");
    let length = u32::try_from(bytes.len()).expect("a short message").to_be_bytes();
    let framed = [&[0][..], &length, bytes].concat();
    let answer = server.post(false, PATH, "application/grpc", &framed).expect("an answer");
    assert_eq!(answer.status, 200);
    let status = answer.grpc_status.expect("a status of gRPC");
    let Ok(request) = RateLimitRequest::decode(bytes) else {
        return assert_eq!(status, INTERNAL, "what is no message is told as gRPC does");
    };
    if status != OK {
        return assert_eq!(status, INVALID_ARGUMENT, "{request:?}");
    }
    let response = RateLimitResponse::decode(&answer.body[5..]).expect("a message");
    assert_eq!(response.statuses.len(), request.descriptors.len());
    assert!(matches!(response.overall_code, 1 | 2));
}
