//! Denials as gRPC has them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::http::headers::{HeaderField, Problem};
use polylimit_rules::decision::Decision;

const INVALID_ARGUMENT: i32 = 3;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
#[cfg(feature = "tower")]
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;

/// The status of a gRPC call that does not proceed.
///
/// A [`RateLimitLayer`](crate::http::tower::RateLimitLayer) answers calls with it. A handler that limits the messages of a stream makes
/// one of its own; with tonic it is `Status::with_details(Code::from(status.code), status.message, status.details.into())`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrpcStatus {
    /// `RESOURCE_EXHAUSTED` (8) over a limit, `UNAVAILABLE` (14) in an outage, `INVALID_ARGUMENT` (3) without a key or with a cost
    /// that is not allowed, and `PERMISSION_DENIED` (7) for a call in a deny list.
    pub code: i32,
    /// What the client's user can do: one sentence.
    pub message: String,
    /// A `google.rpc.Status` with a `google.rpc.RetryInfo`, unless no wait helps, and a `google.rpc.QuotaFailure` with the names of
    /// the quotas that deny.
    pub details: Vec<u8>,
}

impl GrpcStatus {
    /// The status of a call with this problem, by the decisions of its policies.
    ///
    /// ```
    /// use polylimit::http::headers::problem;
    /// use polylimit::http::tower::GrpcStatus;
    /// use polylimit::{Limiter, Policy, Request};
    ///
    /// let policy = Policy::parse("messages", "1/minute")?;
    /// let limiter = Limiter::builder().policy(policy.clone()).build()?.blocking();
    /// limiter.check("tenant:7")?;
    /// let decision = limiter.check("tenant:7")?;
    /// let problem = problem(&[(&policy, &decision)], 1).expect("it is denied");
    /// let status = GrpcStatus::new(&problem, [&decision]);
    /// assert_eq!(status.code, 8);
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn new<'a>(problem: &Problem, decisions: impl IntoIterator<Item = &'a Decision>) -> Self {
        Self::with_delay(problem, retry_delay_us(decisions))
    }

    pub(crate) fn with_delay(problem: &Problem, retry_delay_us: Option<u64>) -> Self {
        let code = match problem.status() {
            503 => UNAVAILABLE,
            400 => INVALID_ARGUMENT,
            403 => PERMISSION_DENIED,
            _ => RESOURCE_EXHAUSTED,
        };
        let mut details = Vec::new();
        if let Some(us) = retry_delay_us {
            let mut delay = Vec::new();
            number(&mut delay, 1, us / 1_000_000);
            number(&mut delay, 2, us % 1_000_000 * 1_000);
            let mut info = Vec::new();
            message(&mut info, 1, &delay);
            details.push(any("google.rpc.RetryInfo", &info));
        }
        if !problem.violated().is_empty() {
            let mut failure = Vec::new();
            for name in problem.violated() {
                let mut violation = Vec::new();
                message(&mut violation, 1, name.as_bytes());
                message(&mut violation, 2, problem.detail().as_bytes());
                message(&mut failure, 1, &violation);
            }
            details.push(any("google.rpc.QuotaFailure", &failure));
        }
        Self::with_details(code, problem.detail().to_owned(), &details)
    }

    fn with_details(code: i32, text: String, details: &[Vec<u8>]) -> Self {
        let mut status = Vec::new();
        number(&mut status, 1, code.unsigned_abs().into());
        message(&mut status, 2, text.as_bytes());
        for detail in details {
            message(&mut status, 3, detail);
        }
        Self { code, message: text, details: status }
    }

    /// The status of a call that could not be counted, although the store is not the cause.
    #[cfg(feature = "tower")]
    pub(crate) fn failure() -> Self {
        Self::with_details(INTERNAL, "The call cannot be counted.".to_owned(), &[])
    }

    /// The fields by which HTTP/2 carries the status.
    pub(crate) fn fields(&self) -> [HeaderField; 3] {
        let message = percent_encoded(&self.message, |byte| matches!(byte, b' '..=b'~') && byte != b'%');
        [
            ("grpc-status", self.code.to_string()),
            ("grpc-message", message),
            ("grpc-status-details-bin", STANDARD_NO_PAD.encode(&self.details)),
        ]
        .map(|(name, value)| HeaderField { name: Cow::Borrowed(name), value })
    }
}

/// What `retry-after` has in seconds: the longest wait of all denials; `None` when one of them is for ever.
fn retry_delay_us<'a>(decisions: impl IntoIterator<Item = &'a Decision>) -> Option<u64> {
    let denials = decisions.into_iter().filter(|decision| !decision.allowed());
    let waits: Option<Vec<_>> = denials.map(Decision::retry_after_us).collect();
    waits?.into_iter().max().map(|longest| longest.max(1))
}

/// A message as a `google.protobuf.Any`.
fn any(name: &str, value: &[u8]) -> Vec<u8> {
    let mut any = Vec::new();
    message(&mut any, 1, format!("type.googleapis.com/{name}").as_bytes());
    message(&mut any, 2, value);
    any
}

/// A field of Protocol Buffers with a message, a text or bytes.
fn message(into: &mut Vec<u8>, field: u8, value: &[u8]) {
    into.push(field << 3 | 2);
    varint(into, value.len() as u64);
    into.extend_from_slice(value);
}

/// A field of Protocol Buffers with a number; 0 is left out.
fn number(into: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        into.push(field << 3);
        varint(into, value);
    }
}

fn varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    into.push(value.to_le_bytes()[0]);
}

/// A text with escapes in place of all bytes but some of ASCII.
pub(crate) fn percent_encoded(text: &str, keeps: impl Fn(u8) -> bool) -> String {
    let digit = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if keeps(byte) {
            encoded.push(byte.into());
        } else {
            encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::GrpcStatus;

    #[test]
    fn text_of_a_status_is_ascii() {
        let status = GrpcStatus::with_details(8, "100 % für\n".to_owned(), &[]);
        assert_eq!(status.fields()[1].value, "100 %25 f%C3%BCr%0A");
    }
}
