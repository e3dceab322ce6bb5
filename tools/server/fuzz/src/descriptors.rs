//! Any message of Envoy's rate limit service is answered or refused, with one status for each descriptor, and so are those by which
//! Kuadrant reserves and commits.

use polylimit::Limiter;
use polylimit::clock::ManualClock;
use polylimit_server::testing::Offline;
use prost::Message;

#[path = "../../src/rls/kuadrant.rs"]
mod kuadrant;
#[path = "../../src/rls/messages.rs"]
mod messages;

use kuadrant::{CommitRequest, CommitResponse, ReserveRequest, ReserveResponse};
use messages::{RateLimitRequest, RateLimitResponse};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const RESERVE: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Reserve";
const COMMIT: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/Commit";
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
    if let Some((request, response)) =
        ask::<RateLimitRequest, RateLimitResponse>(&server, SHOULD_RATE_LIMIT, bytes)
    {
        assert_eq!(response.statuses.len(), request.descriptors.len());
        assert!(matches!(response.overall_code, 1 | 2));
    }
    if let Some((request, response)) = ask::<ReserveRequest, ReserveResponse>(&server, RESERVE, bytes) {
        assert!(matches!(response.code, 1 | 2));
        assert_eq!(response.reservation_id.is_empty(), response.code == 2);
        let (domain, descriptors) = (request.domain, request.descriptors);
        let reservation_id = response.reservation_id;
        let commit = CommitRequest { domain, descriptors, reservation_id, actual_amount: 1 }.encode_to_vec();
        assert!(ask::<CommitRequest, CommitResponse>(&server, COMMIT, &commit).is_some());
    }
    let _ = ask::<CommitRequest, CommitResponse>(&server, COMMIT, bytes);
}

/// Sends the bytes as the message of a call, and reads the response; `None` where the call is refused.
fn ask<Sent: Message + Default + std::fmt::Debug, Answered: Message + Default>(
    server: &Offline,
    path: &str,
    bytes: &[u8],
) -> Option<(Sent, Answered)> {
    let length = u32::try_from(bytes.len()).expect("a short message").to_be_bytes();
    let framed = [&[0][..], &length, bytes].concat();
    let answer = server.post(false, path, "application/grpc", &framed).expect("an answer");
    assert_eq!(answer.status, 200);
    let status = answer.grpc_status.expect("a status of gRPC");
    let Ok(request) = Sent::decode(bytes) else {
        assert_eq!(status, INTERNAL, "what is no message is refused as gRPC does");
        return None;
    };
    if status != OK {
        assert_eq!(status, INVALID_ARGUMENT, "{request:?}");
        return None;
    }
    Some((request, Answered::decode(&answer.body[5..]).expect("a message")))
}
