//! Whatever a client of RESP sends, its replies are well formed, and the same wherever what it sends is cut.

use polylimit::{Limiter, ManualClock, Policy};
use polylimit_server::testing::Offline;

/// The bytes are what a client sends.
pub fn run(bytes: &[u8]) {
    let whole = replies(&[bytes]);
    let mut rest = &whole[..];
    while !rest.is_empty() {
        rest = after_reply(rest, 0).unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(&whole)));
    }
    // Every connection has another number.
    let upper = bytes.to_ascii_uppercase();
    if upper.windows(2).any(|pair| pair == b"ID") || upper.windows(5).any(|word| word == b"HELLO") {
        return;
    }
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let cut = replies(&[first, second]);
    assert_eq!(String::from_utf8_lossy(&cut), String::from_utf8_lossy(&whole));
}

fn replies(pieces: &[&[u8]]) -> Vec<u8> {
    let clock = ManualClock::new(1_789_948_800_000_000).expect("a time");
    let policy = Policy::parse("api", "5/minute token_bucket; 9/day").expect("quotas");
    let limiter = Limiter::builder().policy(policy).clock(clock).build().expect("a limiter");
    Offline::new(limiter).expect("a server").resp(pieces)
}

/// What stands after a reply.
fn after_reply(bytes: &[u8], depth: usize) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (bytes.get(1..end)?, &bytes[end + 2..]);
    let number = || str::from_utf8(line).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'+' | b'-' => Some(rest),
        b'_' => line.is_empty().then_some(rest),
        b':' => number().map(|_| rest),
        b'$' => match usize::try_from(number()?) {
            Ok(length) => rest.get(length..)?.strip_prefix(b"\r\n"),
            Err(_) => (number()? == -1).then_some(rest),
        },
        kind @ (b'*' | b'%') if depth < 3 => {
            let times = if kind == b'%' { 2 } else { 1 };
            (0..number()? * times).try_fold(rest, |rest, _| after_reply(rest, depth + 1))
        }
        _ => None,
    }
}
