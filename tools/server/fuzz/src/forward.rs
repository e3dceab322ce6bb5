//! Whatever a proxy sends with its question of forward authentication, the answer admits, denies or refuses, and is well formed.

use polylimit::Limiter;
use polylimit::clock::ManualClock;
use polylimit_server::testing::Offline;

const DOCUMENT: &str = r#"
polylimit = 1
[client]
trust = ["127.0.0.0/8"]
header = "x-forwarded-for"
[policies.api]
quotas = "2/minute token_bucket"
[policies.slots]
quotas = "2 concurrent"
[[rules]]
match = { method = "POST", path = "/{name}" }
apply = [{ policy = "api", key = "{path.name}|{client}" }]
[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{header.x-api-key}", cost = "{header.x-cost}", missing = "deny" }]
[lists]
deny = ["client 203.0.113.0/24"]
"#;

/// The first line is what follows `/v1/forward`; each line after it is a field, as `name: value`.
pub fn run(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let Some(path) = lines.next().and_then(|line| str::from_utf8(line).ok()) else { return };
    let fields: Option<Vec<(&str, &[u8])>> = lines
        .map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((str::from_utf8(&line[..colon]).ok()?, line[colon + 1..].trim_ascii()))
        })
        .collect();
    let Some(fields) = fields else { return };
    let clock = ManualClock::new(1_789_948_800_000_000).expect("a time");
    let limiter = Limiter::builder().document(DOCUMENT).clock(clock).build().expect("a limiter");
    let server = Offline::new(limiter).expect("a server");
    let path = format!("/v1/forward{path}");
    // What is no request never reaches the handler.
    let Ok(answer) = server.send(false, "GET", &path, &fields, b"") else { return };
    let told = String::from_utf8_lossy(&answer.body);
    // `denied` is a status from 400 to 599, and another path has no handler.
    let is_expected = match answer.status {
        200 | 400 | 403 | 404 | 405 | 413 | 429 => true,
        401..600 => path.contains("denied="),
        _ => false,
    };
    assert!(is_expected, "{path} {} {told}", answer.status);
    match &*answer.content_type {
        "application/problem+json" => {
            let _: serde_json::Value =
                serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path} {error}: {told}"));
        }
        "" => assert!(answer.status == 200 && answer.body.is_empty(), "{path} {} {told}", answer.status),
        other => assert!(other.starts_with("text/plain") && told.ends_with('\n'), "{path} {other} {told}"),
    }
}
