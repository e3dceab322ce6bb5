//! Any attributes of a request are matched: nothing panics, a path has one form, and no client gets another one's key by what
//! it writes.

use polylimit::ErrorKind;
use polylimit::document::RequestAttributes;
use polylimit::testing::document::{CompiledConfiguration, normalise_path};

const DOCUMENT: &str = r#"
polylimit = 1
zone = "America/St_Johns"
[client]
trust = ["10.0.0.0/8"]
header = "x-forwarded-for"
[policies.both]
quotas = "9/s"
plans = { gold = "99/s" }
overrides = { "a|b" = "gold", "|" = { numbers = "5/s", until = "2026-10-01T00:00:00Z" } }
candidate = { quotas = "8/s", compare = 300, enforce = 300 }
[policies.one]
quotas = "9/s"
[policies.spent]
quotas = "1000000000000/day"
[[rules]]
match = { path = ["/files/{*rest}", "/{tenant}/files/{*rest}", "/"], header.x-api-key = "*" }
unless = { method = ["GET", "HEAD"], client = "192.0.2.0/24" }
apply = [{ policy = "spent", key = "{path.tenant,client}|{path.rest}", cost = "{tokens}" }]
[[rules]]
match = { user = ["root", "a*"], during = ["mon-fri 22:00-06:00", "12:00-13:00"] }
apply = []
[[rules]]
match = { path = "/{*all}" }
apply = [{ policy = "both", key = "{path.all}|{user}|{header.x-api-key}", missing = "deny" }]
continue = true
[[rules]]
apply = [{ policy = "one", key = "{user,client}", headroom = 20 }]
[lists]
deny = ["client 203.0.113.0/24", "user mallory until 2026-10-01T00:00:00Z", "path /admin", "key both %7C", "plan %"]
allow = ["client 203.0.113.7", "header.x-api-key a%20b", "method OPTIONS"]
"#;

/// The bytes are the time, and then lines: the method, the path, the peer, the user, the tokens, and lines of headers.
pub fn run(bytes: &[u8]) {
    let Some((time, rest)) = bytes.split_at_checked(8) else { return };
    let now_us = time.iter().fold(0, |now_us, byte| now_us << 8 | u64::from(*byte));
    let lines: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').collect();
    let line = |at: usize| lines.get(at).copied().unwrap_or_default();

    check_path(line(1));
    let mut request = RequestAttributes::new().method(line(0)).path(line(1)).attribute("user", line(3));
    if let Ok(peer) = str::from_utf8(line(2)) {
        request = request.peer(peer);
    }
    request = request.attribute("tokens", line(4)).attribute("plan", line(5));
    for header in lines.iter().skip(5) {
        request = request.header("X-Forwarded-For", *header).header("X-Api-Key", *header);
    }

    let configuration = CompiledConfiguration::new(DOCUMENT.as_bytes(), []).expect("the document is valid");
    let _ = configuration.resolve(&request, now_us);
    let matched = match configuration.matching(&request, now_us) {
        Ok(matched) => matched,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::InvalidArgument),
    };
    for found in &matched {
        assert!(found.cost <= 1_000_000_000_000 && found.headroom < 100);
        // What separates the parts of a key is the template's.
        let separators = found.key.split(|byte| *byte == b'|').count() - 1;
        match &*found.policy {
            "both" => assert_eq!(separators, 2),
            "spent" => assert_eq!(separators, 1),
            _ => {
                let name: &[u8] = if line(3).is_empty() { b"client=" } else { b"user=" };
                assert!(found.key.starts_with(name) || found.key.is_empty());
            }
        }
    }
    // What a query says changes nothing.
    let longer = [line(1), b"?a=/b/../c#d"].concat();
    let asked_again = configuration.matching(&request.path(&longer), now_us);
    assert_eq!(asked_again.as_deref(), Ok(&matched[..]));
}

fn check_path(path: &[u8]) {
    let normalised = normalise_path(path);
    assert_eq!(normalised.first(), Some(&b'/'));
    let segments = normalised[1..].split(|byte| *byte == b'/');
    if normalised.len() > 1 {
        assert!(segments.into_iter().all(|segment| !matches!(segment, b"" | b"." | b"..")));
    }
    // Where nothing was escaped, nothing is left to be done.
    if !path.contains(&b'%') {
        assert_eq!(normalise_path(&normalised), normalised);
    }
}
