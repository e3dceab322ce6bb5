//! The body of a denial: a problem document (RFC 9457), or its text for clients that prefer text.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use crate::http::headers::{
    GrpcStatus, HeaderField, Outcome, reports, retry_after, retry_after_us, retry_seconds,
};
use polylimit_rules::decision::Source;
use polylimit_rules::report::report_json;

/// The answer to a denied request.
///
/// The problem type is `quota-exceeded` of draft-ietf-httpapi-ratelimit-headers-11, section 5. A denial by the outage
/// policy [`deny`](crate::storage::Outage::Deny) is not caused by the client: its type is `temporary-reduced-capacity`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    cause: Cause,
    /// The status, where it is not the cause's.
    status: Option<u16>,
    detail: String,
    violated: Vec<String>,
    /// How long a client has to wait, in microseconds; `None` where no wait helps.
    wait_us: Option<u64>,
}

/// The response to a request that does not proceed, in addition to the fields of its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProblemResponse {
    /// The status.
    pub status: u16,
    /// `content-type` and `vary`, and for a client that accepts [`GRPC_TYPE`](Problem::GRPC_TYPE) those of a status of gRPC.
    pub fields: Vec<HeaderField>,
    /// The body.
    pub body: String,
}

/// Why a request does not proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cause {
    Quota,
    /// An outage policy denied and no quota was exceeded, or no decision could be made.
    Outage,
    /// The request has no key to be counted by.
    NoKey,
    /// The request itself has an invalid cost or key.
    Invalid,
    /// A deny list contains the request.
    Refused,
}

/// The problem of a request that was denied under at least one of these policies; `None` when all admit it.
///
/// `cost` is the number of units that the request asked for. Each quota of a denial that has fewer left is violated.
///
/// ```
/// use polylimit::http::headers::problem;
/// use polylimit::{Limiter, Policy, Request};
///
/// let policy = Policy::parse("api", "100/minute; 1000/hour")?;
/// let limiter = Limiter::builder().policy(policy.clone()).build()?.blocking();
/// let decision = limiter.check(Request::new("user:42").cost(101))?;
/// let problem = problem(&[(&policy, &decision)], 101).expect("101 units do not fit into 100");
/// assert_eq!((problem.status(), problem.violated()), (429, &["api:1".to_owned()][..]));
/// assert_eq!(problem.text(), "The request costs more than the quota can ever admit.\n");
/// # Ok::<(), polylimit::Error>(())
/// ```
pub fn problem(outcomes: &[Outcome<'_>], cost: u64) -> Option<Problem> {
    problem_by_costs(outcomes, |_| cost)
}

/// As `problem`, with a cost for each outcome, by position.
pub(crate) fn problem_by_costs(outcomes: &[Outcome<'_>], cost: impl Fn(usize) -> u64) -> Option<Problem> {
    let mut denials = outcomes.iter().map(|(_, decision)| decision).filter(|decision| !decision.allowed());
    denials.clone().next()?;
    let is_outage = denials.all(|denial| denial.source() == Source::Deny);
    let detail = match retry_after(outcomes) {
        wait if is_outage => {
            format!("The request cannot be counted at the moment: retry in {} s.", wait.unwrap_or(1))
        }
        Some(seconds) => format!("Not enough of the quota is left: retry in {seconds} s."),
        None => "The request costs more than the quota can ever admit.".to_owned(),
    };
    let violated = outcomes.iter().enumerate().flat_map(|(at, outcome)| {
        let cost = cost(at);
        let violated = reports(std::slice::from_ref(outcome))
            .filter(move |report| !is_outage && report.is_violated(cost));
        violated.map(|report| {
            let mut name = String::new();
            report.push_name(&mut name);
            name
        })
    });
    let cause = if is_outage { Cause::Outage } else { Cause::Quota };
    let wait_us = retry_after_us(outcomes);
    Some(Problem { cause, status: None, detail, violated: violated.collect(), wait_us })
}

impl Problem {
    /// The content type of [`json`](Self::json).
    pub const JSON_TYPE: &str = "application/problem+json";
    /// The content type of [`text`](Self::text).
    pub const TEXT_TYPE: &str = "text/plain; charset=utf-8";
    /// What an adapter of gRPC accepts for its clients: a [`response`](Self::response) then has the fields `grpc-status`, `grpc-message`
    /// and `grpc-status-details-bin` of [`grpc_status`](Self::grpc_status).
    pub const GRPC_TYPE: &str = "application/grpc";

    /// The problem of a request that no store and no outage policy could decide.
    pub(crate) fn unavailable() -> Self {
        let detail = "The request cannot be counted at the moment.".to_owned();
        Self { cause: Cause::Outage, status: None, detail, violated: Vec::new(), wait_us: None }
    }

    /// The problem of a request for which an adaptive limit has no place.
    #[cfg(feature = "tower")]
    pub(crate) fn overloaded() -> Self {
        let detail = "The service is overloaded at the moment: retry in 1 s.".to_owned();
        Self { cause: Cause::Outage, status: None, detail, violated: Vec::new(), wait_us: None }
    }

    /// The problem of a request without a key of these parts.
    pub(crate) fn without_key(parts: &[impl fmt::Display]) -> Self {
        let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
        let detail = match &parts[..] {
            [] => "The request has nothing that it can be counted by.".to_owned(),
            parts => format!("The request needs what it is counted by: {}.", parts.join(", ")),
        };
        Self { cause: Cause::NoKey, status: None, detail, violated: Vec::new(), wait_us: None }
    }

    /// The problem of a request whose own attributes give an invalid cost or key.
    pub(crate) fn invalid() -> Self {
        let detail = "The request has a cost or a key that is not allowed.".to_owned();
        Self { cause: Cause::Invalid, status: None, detail, violated: Vec::new(), wait_us: None }
    }

    /// The problem of a request that a deny list refuses.
    pub(crate) fn refused() -> Self {
        let detail = "The request is refused.".to_owned();
        Self { cause: Cause::Refused, status: None, detail, violated: Vec::new(), wait_us: None }
    }

    /// With another status and detail, unless an outage is the cause.
    pub(crate) fn with(mut self, status: Option<u16>, detail: Option<&str>) -> Self {
        if self.cause == Cause::Quota {
            self.status = status;
            if let Some(detail) = detail {
                detail.clone_into(&mut self.detail);
            }
        }
        self
    }

    /// The status of the response: 429 (RFC 6585, section 4) or the one chosen for denials, 503 (RFC 9110, section 15.6.4) when
    /// an outage is the cause, 400 for a request without a key or with a cost that is not allowed, and 403 for one that a deny
    /// list refuses.
    pub fn status(&self) -> u16 {
        self.status.unwrap_or(match self.cause {
            Cause::Quota => 429,
            Cause::Outage => 503,
            Cause::NoKey | Cause::Invalid => 400,
            Cause::Refused => 403,
        })
    }

    /// Whether an outage is the cause, and not the client.
    pub fn is_outage(&self) -> bool {
        self.cause == Cause::Outage
    }

    /// The URI of the problem type.
    pub fn type_uri(&self) -> &'static str {
        match self.cause {
            Cause::Quota => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Cause::Outage => "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            Cause::NoKey | Cause::Invalid | Cause::Refused => "about:blank",
        }
    }

    /// The title of the problem type.
    pub fn title(&self) -> &'static str {
        match self.cause {
            Cause::Quota => "Request cannot be satisfied as assigned quota has been exceeded",
            Cause::Outage => "Request cannot be satisfied due to temporary server capacity constraints",
            Cause::NoKey | Cause::Invalid => "Bad Request",
            Cause::Refused => "Forbidden",
        }
    }

    /// What the client's user can do about this denial: one sentence in printable ASCII, or the program's own message.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The quotas that were exceeded, by their names in `ratelimit-policy`.
    pub fn violated(&self) -> &[String] {
        &self.violated
    }

    /// The problem document: a JSON object with `type`, `title`, `status`, `detail` and `violated-policies`.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            r#type: &'static str,
            title: &'static str,
            status: u16,
            detail: &'a str,
            #[serde(rename = "violated-policies")]
            violated: &'a [String],
        }
        report_json(&Document {
            r#type: self.type_uri(),
            title: self.title(),
            status: self.status(),
            detail: &self.detail,
            violated: &self.violated,
        })
    }

    /// The content type and the body for a client with this `accept` field (RFC 9110, section 12.5.1): text where it prefers
    /// that, and otherwise the problem document.
    pub fn body(&self, accept: Option<&str>) -> (&'static str, String) {
        if accept.is_some_and(prefers_text) {
            (Self::TEXT_TYPE, self.text())
        } else {
            (Self::JSON_TYPE, self.json())
        }
    }

    /// With a wait that is longer by the seconds that a function has for it, as the field `retry-after` is by its jitter.
    pub(crate) fn jittered(mut self, extra: impl FnOnce(u64) -> u64) -> Self {
        let longer = |us: u64| us.saturating_add(extra(retry_seconds(us)).saturating_mul(1_000_000));
        self.wait_us = self.wait_us.map(longer);
        self
    }

    /// The status of a call of gRPC that does not proceed. Its `RetryInfo` has the wait to the microsecond, with the jitter that the field
    /// `retry-after` of the call has.
    pub fn grpc_status(&self) -> GrpcStatus {
        GrpcStatus::with_delay(self, self.wait_us)
    }

    /// The response for a client with this `accept` field.
    pub fn response(&self, accept: Option<&str>) -> ProblemResponse {
        let (content_type, body) = self.body(accept);
        let field = |name, value: &str| HeaderField { name: Cow::Borrowed(name), value: value.to_owned() };
        let mut fields = vec![field("content-type", content_type), field("vary", "accept")];
        if accept == Some(Self::GRPC_TYPE) {
            fields.extend(self.grpc_status().fields());
        }
        ProblemResponse { status: self.status(), fields, body }
    }

    /// The detail and a line end, for clients that prefer text.
    pub fn text(&self) -> String {
        format!("{}\n", self.detail)
    }
}

/// The media types of each form that a client may name, after the range that includes them.
const JSON: (&str, [&str; 2]) = ("application/*", ["application/problem+json", "application/json"]);
const TEXT: (&str, [&str; 2]) = ("text/*", ["text/plain", "text/html"]);

/// Whether this `Accept` field gives text a higher quality than a problem document, by RFC 9110, section 12.5.1. A client
/// that names neither, or both with the same quality, gets the document.
pub fn prefers_text(accept: &str) -> bool {
    quality(accept, TEXT) > quality(accept, JSON)
}

/// The higher quality of the two types of a form, in thousandths. The most specific range decides for each type.
fn quality(accept: &str, (around, types): (&str, [&str; 2])) -> u16 {
    let of = |name: &str| {
        let named = ranges(accept).filter(|(range, _)| range.eq_ignore_ascii_case(name));
        named.map(|(_, quality)| quality).max()
    };
    types
        .into_iter()
        .filter_map(|name| of(name).or_else(|| of(around)).or_else(|| of("*/*")))
        .max()
        .unwrap_or(0)
}

/// The media ranges, each with its quality in thousandths; a malformed quality is 0.
fn ranges(accept: &str) -> impl Iterator<Item = (&str, u16)> {
    accept.split(',').map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let range = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        (range, quality.map_or(1000, thousandths))
    })
}

fn thousandths(quality: &str) -> u16 {
    let (whole, part) = quality.split_once('.').unwrap_or((quality, ""));
    let is_digits = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "1" if is_digits => 1000,
        "0" if is_digits => format!("{part:0<3}").parse().unwrap_or(0),
        _ => 0,
    }
}
