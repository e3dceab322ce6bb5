//! Any body gets an answer in JSON that is no failure of the server.

use polylimit::{Limiter, ManualClock, Policy};
use polylimit_server::testing::Offline;

/// The paths of callers, and then those of operators.
const PATHS: [(bool, &str); 14] = [
    (false, "/v1/check"),
    (false, "/v1/peek?status"),
    (false, "/v1/take"),
    (false, "/v1/charge"),
    (false, "/v1/refund"),
    (false, "/v1/reset"),
    (false, "/v1/reserve"),
    (false, "/v1/commit"),
    (false, "/v1/cancel"),
    (false, "/v1/renew"),
    (false, "/v1/decide"),
    (false, "/v1/decide?status"),
    (true, "/v1/explain"),
    (true, "/v1/explain_request"),
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
    let (is_admin, path) = PATHS[usize::from(*choice) % PATHS.len()];
    let answer = server.post(is_admin, path, "application/json", body).expect("an answer");
    let told = String::from_utf8_lossy(&answer.body);
    assert!(matches!(answer.status, 200 | 400 | 403 | 413 | 429), "{path} {} {told}", answer.status);
    let _: serde_json::Value =
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path} {error}: {told}"));
}
