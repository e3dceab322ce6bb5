//! Whatever a client of RESP sends, each command has one reply, the replies are well formed, and they are the same wherever what the
//! client sends is cut.

use std::path::PathBuf;
use std::sync::OnceLock;

use polylimit::clock::ManualClock;
use polylimit::{Limiter, Policy};
use polylimit_server::ServerOptions;
use polylimit_server::testing::Offline;

/// The token of the server's callers, and its SHA-256 digest.
const TOKEN: &[u8] = b"secret";
const DIGEST: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
/// The most arguments of a command, and the most bytes of the line of a length.
const MAX_ARGUMENTS: u64 = 64;
const MAX_LINE: usize = 24;

/// The first byte says whether the server asks for a token, and where what the client sends is cut; the rest is what it sends.
pub fn run(bytes: &[u8]) {
    let Some((choice, sent)) = bytes.split_first() else { return };
    let asks_token = choice & 0x80 != 0;
    let whole = replies(&[sent], asks_token);
    let (mut rest, mut count) = (&whole[..], 0);
    while !rest.is_empty() {
        rest = after_reply(rest, 0).unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(&whole)));
        count += 1;
    }
    let expected = expected_replies(sent);
    // A server may end the connection of a caller that has no token before it has read everything.
    let is_right = count == expected || (asks_token && count < expected);
    assert!(is_right, "{count} and not {expected}: {:?}", String::from_utf8_lossy(&whole));
    // Every connection has another number.
    let upper = sent.to_ascii_uppercase();
    if upper.windows(2).any(|pair| pair == b"ID") || upper.windows(5).any(|word| word == b"HELLO") {
        return;
    }
    let (first, second) = sent.split_at(sent.len() * usize::from(choice & 0x7f) / 0x7f);
    let cut = replies(&[first, second], asks_token);
    assert_eq!(String::from_utf8_lossy(&cut), String::from_utf8_lossy(&whole));
}

fn replies(pieces: &[&[u8]], asks_token: bool) -> Vec<u8> {
    let clock = ManualClock::new(1_789_948_800_000_000).expect("a time");
    let policy = Policy::parse("api", "5/minute token_bucket; 9/day").expect("quotas");
    let limiter = Limiter::builder().policy(policy).clock(clock).build().expect("a limiter");
    let mut options = ServerOptions::default();
    options.tokens = asks_token.then(tokens);
    let replies = Offline::with_options(limiter.clone(), options).expect("a server").resp(pieces);
    let says_token = pieces.concat().windows(TOKEN.len()).any(|word| word == TOKEN);
    if asks_token && !says_token {
        assert_eq!(limiter.stats().applied, 0, "a caller without a token has spent something");
    }
    replies
}

/// A file with the token, whose role may not reset keys.
fn tokens() -> PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    let write = || {
        let path = std::env::temp_dir().join(format!("polylimit-fuzz-tokens-{}", std::process::id()));
        std::fs::write(&path, format!("check fuzz sha256:{DIGEST}\n")).expect("a file of tokens");
        path
    };
    FILE.get_or_init(write).clone()
}

/// How many replies the commands in these bytes have: one each, none for an empty array, and an error for what is no command, after which
/// nothing is read.
fn expected_replies(mut rest: &[u8]) -> usize {
    let mut count = 0;
    loop {
        match command(rest) {
            Ok(None) => return count,
            Err(Broken) => return count + 1,
            Ok(Some((name, after))) => {
                rest = after;
                count += usize::from(name.is_some());
                if name.is_some_and(|name| name.eq_ignore_ascii_case(b"QUIT")) {
                    return count;
                }
            }
        }
    }
}

struct Broken;

/// The name of a command, if it has one, and what stands after it; `None` when it is not complete.
type Command<'a> = Option<(Option<&'a [u8]>, &'a [u8])>;

fn command(bytes: &[u8]) -> Result<Command<'_>, Broken> {
    let Some((words, mut rest)) = length(b'*', bytes)? else { return Ok(None) };
    if words > MAX_ARGUMENTS {
        return Err(Broken);
    }
    let mut name = None;
    for _ in 0..words {
        let Some((bytes, after)) = length(b'$', rest)? else { return Ok(None) };
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= 1 << 20).ok_or(Broken)?;
        if after.len() < bytes + 2 {
            return Ok(None);
        }
        rest = after[bytes..].strip_prefix(b"\r\n").ok_or(Broken)?;
        name = name.or(Some(&after[..bytes]));
    }
    Ok(Some((name, rest)))
}

/// The number of a line that begins with a byte, and what stands after it.
fn length(first: u8, bytes: &[u8]) -> Result<Option<(u64, &[u8])>, Broken> {
    let Some(found) = bytes.first() else { return Ok(None) };
    if *found != first {
        return Err(Broken);
    }
    let line = &bytes[1..bytes.len().min(MAX_LINE)];
    let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < MAX_LINE { Ok(None) } else { Err(Broken) };
    };
    let digits =
        str::from_utf8(&line[..end]).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok()).ok_or(Broken)?;
    Ok(Some((number, &bytes[end + 3..])))
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
