//! Any text is a store URL or refused; any password is accepted unchanged, and no part of it is ever shown.

use polylimit::ErrorKind;
use polylimit::redis::RedisOptions;

/// Secrets begin and end with this mark, so that a part of one is detected.
const MARK: &str = "Zq7x";

/// The bytes are a URL, and then the text between the marks of a password.
pub fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let _ = shown(text);
    let _ = shown(&format!("redis-sentinel://{text}"));
    let _ = shown(&format!("redis://h?{text}"));

    let password = format!("{MARK}{text}{MARK}");
    for url in [
        format!("{password}@h"),
        format!("redis://u:{password}@h/0?deadline=x"),
        format!("rediss-cluster://{password}@h,h"),
        format!("redis://h?password={password}"),
        format!("redis://h?deadline=1s&key_secret={password}&deadline=x"),
    ] {
        let shown = shown(&url);
        assert!(!shown.contains(MARK), "{url}: {shown}");
    }

    // The encoded password equals the one that the program sets; otherwise the two would contradict each other.
    let encoded = password.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
    for url in [format!("redis://:{encoded}@h"), format!("redis://h?password={encoded}")] {
        let options = RedisOptions::parse(&url).expect("everything is encoded");
        options.clone().password(password.as_str()).check().expect("it is the same password");
        assert!(options.password("another").check().is_err());
    }
}

/// Everything that is shown of a URL, whether it is accepted or refused.
fn shown(url: &str) -> String {
    let refused = match RedisOptions::parse(url) {
        Err(refused) => refused,
        Ok(options) => match options.check() {
            Err(refused) => refused,
            Ok(()) => return format!("{options:?}"),
        },
    };
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.message().len() < 1_000 && !refused.message().ends_with('.'), "{refused}");
    refused.to_string()
}
