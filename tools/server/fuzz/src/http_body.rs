//! Any body gets an answer in JSON that is no failure of the server.

use polylimit::clock::ManualClock;
use polylimit::{Limiter, Policy};
use polylimit_server::testing::Offline;

/// The paths of callers, and then those of operators. New ones stand at the end: the corpus chooses by number.
const PATHS: [(bool, &str, &str); 22] = [
    (false, "POST", "/v1/check"),
    (false, "POST", "/v1/peek?status"),
    (false, "POST", "/v1/take"),
    (false, "POST", "/v1/charge"),
    (false, "POST", "/v1/refund"),
    (false, "POST", "/v1/reset"),
    (false, "POST", "/v1/reserve"),
    (false, "POST", "/v1/commit"),
    (false, "POST", "/v1/cancel"),
    (false, "POST", "/v1/renew"),
    (false, "POST", "/v1/decide"),
    (false, "POST", "/v1/decide?status"),
    (true, "POST", "/v1/explain"),
    (true, "POST", "/v1/explain_request"),
    (true, "POST", "/v1/policies/validate"),
    (true, "POST", "/v1/policies/diff"),
    // The program has given the document, so that this is refused before it is read; validate reads the same bodies.
    (true, "PUT", "/v1/policies?why=fuzz"),
    (true, "POST", "/v1/rollback"),
    (true, "POST", "/v1/lists/add"),
    (true, "POST", "/v1/lists/remove"),
    (true, "POST", "/v1/block"),
    (true, "POST", "/v1/reset"),
];

const DOCUMENT: &str = r#"
polylimit = 1
[policies.api]
quotas = "5/minute; 2 concurrent"
[policies.plain]
quotas = "5/minute token_bucket burst=9"
[[rules]]
match = { path = "/v1/{tenant}/{*rest}" }
apply = [{ policy = "plain", key = "{path.tenant}|{header.x-api-key}", cost = "{tokens}", missing = "deny" }]
[[rules]]
apply = [{ policy = "api", key = "{user,client}" }]
"#;

/// The first byte chooses the path, the rest is the body.
pub fn run(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else { return };
    let clock = ManualClock::new(1_789_948_800_000_000).expect("a time");
    let shadow = Policy::parse("log", "3/hour sliding_log").expect("quotas");
    let builder = Limiter::builder().document(DOCUMENT).policy(shadow).clock(clock);
    let server = Offline::new(builder.build().expect("a limiter")).expect("a server");
    let (is_admin, method, path) = PATHS[usize::from(*choice) % PATHS.len()];
    let fields = [("content-type", &b"application/json"[..]), ("host", b"localhost"), ("if-match", b"\"0\"")];
    let answer = server.send(is_admin, method, path, &fields, body).expect("an answer");
    let told = String::from_utf8_lossy(&answer.body);
    let is_expected = match answer.status {
        200 | 400 | 413 => true,
        403 | 429 => !is_admin,
        404 => path == "/v1/lists/remove",
        409 => path.starts_with("/v1/policies?") || path == "/v1/rollback",
        _ => false,
    };
    assert!(is_expected, "{path} {} {told}", answer.status);
    let _: serde_json::Value =
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path} {error}: {told}"));
}
