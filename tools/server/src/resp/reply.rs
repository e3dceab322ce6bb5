//! Replies, in RESP2 and RESP3.

use polylimit::decision::Usage;
use polylimit::{Decision, Error};

/// The replies that are not sent yet.
#[derive(Default)]
pub(crate) struct Replies {
    bytes: Vec<u8>,
    is_resp3: bool,
    /// How many of them are errors.
    failed: u64,
}

/// What is kept for the next replies.
const KEPT: usize = 16 << 10;

impl Replies {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
    }

    /// The version in which the next replies are written.
    pub(crate) fn set_resp3(&mut self, is_resp3: bool) {
        self.is_resp3 = is_resp3;
    }

    /// How many errors were written since the last call.
    pub(crate) fn take_failed(&mut self) -> u64 {
        std::mem::take(&mut self.failed)
    }

    /// Adds replies that were written elsewhere.
    pub(crate) fn append(&mut self, others: &Self) {
        self.bytes.extend_from_slice(&others.bytes);
        self.failed += others.failed;
    }

    fn line(&mut self, kind: u8, number: i64) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.line(b':', number);
    }

    pub(crate) fn units(&mut self, number: u64) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// An array of this many elements, which follow.
    pub(crate) fn array(&mut self, length: usize) {
        self.line(b'*', i64::try_from(length).unwrap_or(i64::MAX));
    }

    /// A map of this many pairs, which follow; in RESP2 an array.
    pub(crate) fn map(&mut self, pairs: usize) {
        if self.is_resp3 {
            self.line(b'%', i64::try_from(pairs).unwrap_or(i64::MAX));
        } else {
            self.array(2 * pairs);
        }
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.line(b'$', i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// An error in one line.
    pub(crate) fn error(&mut self, text: &str) {
        self.failed += 1;
        self.bytes.push(b'-');
        self.bytes.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Why the limiter has not decided: the code of its kind, in upper case as the first word.
    pub(crate) fn failure(&mut self, error: &Error) {
        self.error(&format!("{} {}", error.kind().code().to_ascii_uppercase(), error.message()));
    }

    /// A decision: allowed, limit, remaining, retry after, reset after, delay, source, degraded, over. Times are in microseconds; -1
    /// means never.
    pub(crate) fn decision(&mut self, decision: &Decision) {
        self.array(9);
        self.integer(i64::from(decision.allowed()));
        self.units(decision.limit());
        self.units(decision.remaining());
        match decision.retry_after_us() {
            Some(us) => self.units(us),
            None => self.integer(-1),
        }
        self.units(decision.reset_after_us());
        self.units(decision.delay_us());
        self.bulk(decision.source().name().as_bytes());
        match decision.degraded() {
            Some(why) => self.bulk(why.name().as_bytes()),
            None => self.null(),
        }
        self.units(decision.over());
    }

    /// A usage, with the fields of a decision that it has in the same places; then what a take has taken.
    pub(crate) fn usage(&mut self, usage: &Usage) {
        self.array(10);
        self.integer(1);
        self.units(usage.limit());
        self.units(usage.remaining());
        self.integer(0);
        self.units(usage.reset_after_us());
        self.integer(0);
        self.bulk(usage.source().name().as_bytes());
        match usage.degraded() {
            Some(why) => self.bulk(why.name().as_bytes()),
            None => self.null(),
        }
        self.units(usage.over());
        self.units(usage.taken());
    }
}
