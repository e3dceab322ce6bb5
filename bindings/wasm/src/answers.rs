//! Answers of the core as objects of JavaScript, whose properties are those of the package for Node.

use polylimit::admin::{CandidateCounts, ConfigurationStatus};
use polylimit::decision::{Cause, Degradation, QuotaUsage, QuotaVerdict, Source, Usage};
use polylimit::document::{PolicyDecision, PolicyMatch, RequestDecision};
use polylimit::raw::{Answer, report_json};
use polylimit::{Decision, Error};
use serde::Serialize;
use wasm_bindgen::JsValue;

use crate::arguments::{Result, invalid, milliseconds, number, to_js};

/// Null in place of undefined, and numbers in place of big ones.
const STYLE: serde_wasm_bindgen::Serializer = serde_wasm_bindgen::Serializer::new()
    .serialize_missing_as_null(true)
    .serialize_bytes_as_arrays(false)
    .serialize_maps_as_objects(true);

pub(crate) fn write(value: &impl Serialize) -> Result<JsValue> {
    value.serialize(&STYLE).map_err(|error| invalid(&error.to_string()))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QuotaView {
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<bool>,
    limit: f64,
    remaining: f64,
    #[serde(flatten)]
    wait: Option<Wait>,
    reset_after_ms: f64,
    over: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wait {
    retry_after_ms: Option<f64>,
    retry_after_us: Option<f64>,
}

impl Wait {
    fn of(us: Option<u64>) -> Self {
        Self { retry_after_ms: us.map(whole_ms), retry_after_us: us.map(number) }
    }
}

/// Whole milliseconds, rounded up.
fn whole_ms(us: u64) -> f64 {
    number(us.div_ceil(1000))
}

impl QuotaView {
    fn of(usage: &QuotaUsage, verdict: Option<QuotaVerdict>) -> Self {
        Self {
            allowed: verdict.map(|verdict| verdict.allowed),
            limit: number(usage.limit),
            remaining: number(usage.remaining),
            wait: verdict.map(|verdict| Wait::of(verdict.retry_after_us)),
            reset_after_ms: milliseconds(usage.reset_after_us),
            over: number(usage.over),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "they are the properties of a decision")]
struct DecisionView {
    allowed: bool,
    limit: f64,
    remaining: f64,
    retry_after_ms: Option<f64>,
    retry_after_us: Option<f64>,
    reset_after_ms: f64,
    over: f64,
    delay_ms: f64,
    delay_us: f64,
    cause: Option<&'static str>,
    crossed: bool,
    elastic: bool,
    shadowed: bool,
    source: &'static str,
    degraded: Option<&'static str>,
    quotas: Vec<QuotaView>,
}

impl From<&Decision> for DecisionView {
    fn from(decision: &Decision) -> Self {
        let Wait { retry_after_ms, retry_after_us } = Wait::of(decision.retry_after_us());
        let quotas = decision.quotas().iter().zip(decision.verdicts());
        Self {
            allowed: decision.allowed(),
            limit: number(decision.limit()),
            remaining: number(decision.remaining()),
            retry_after_ms,
            retry_after_us,
            reset_after_ms: milliseconds(decision.reset_after_us()),
            over: number(decision.over()),
            delay_ms: whole_ms(decision.delay_us()),
            delay_us: number(decision.delay_us()),
            cause: decision.cause().map(Cause::name),
            crossed: decision.crossed(),
            elastic: decision.elastic(),
            shadowed: decision.shadowed(),
            source: Source::name(decision.source()),
            degraded: decision.degraded().map(Degradation::name),
            quotas: quotas.map(|(usage, verdict)| QuotaView::of(usage, Some(verdict))).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageView {
    taken: f64,
    found: bool,
    repeated: bool,
    limit: f64,
    remaining: f64,
    reset_after_ms: f64,
    over: f64,
    source: &'static str,
    degraded: Option<&'static str>,
    quotas: Vec<QuotaView>,
}

impl From<&Usage> for UsageView {
    fn from(usage: &Usage) -> Self {
        Self {
            taken: number(usage.taken()),
            found: usage.found(),
            repeated: usage.repeated(),
            limit: number(usage.limit()),
            remaining: number(usage.remaining()),
            reset_after_ms: milliseconds(usage.reset_after_us()),
            over: number(usage.over()),
            source: Source::name(usage.source()),
            degraded: usage.degraded().map(Degradation::name),
            quotas: usage.quotas().iter().map(|usage| QuotaView::of(usage, None)).collect(),
        }
    }
}

/// Text where the bytes are UTF-8.
#[derive(Serialize)]
#[serde(untagged)]
enum KeyView<'a> {
    Text(&'a str),
    Bytes(#[serde(serialize_with = "as_bytes")] &'a [u8]),
}

fn as_bytes<S: serde::Serializer>(bytes: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl<'a> From<&'a [u8]> for KeyView<'a> {
    fn from(key: &'a [u8]) -> Self {
        std::str::from_utf8(key).map_or(Self::Bytes(key), Self::Text)
    }
}

#[derive(Serialize)]
struct MatchView<'a> {
    policy: &'a str,
    key: KeyView<'a>,
    cost: f64,
    headroom: u8,
    #[serde(flatten)]
    made: Option<MadeView<'a>>,
}

#[derive(Serialize)]
struct MadeView<'a> {
    decision: DecisionView,
    reservation: Option<KeyView<'a>>,
}

impl<'a> From<&'a PolicyMatch> for MatchView<'a> {
    fn from(found: &'a PolicyMatch) -> Self {
        let key = (&*found.key).into();
        Self { policy: &found.policy, key, cost: number(found.cost), headroom: found.headroom, made: None }
    }
}

impl<'a> From<&'a PolicyDecision> for MatchView<'a> {
    fn from(made: &'a PolicyDecision) -> Self {
        let reservation = made.reservation.as_ref().map(|id| id.as_bytes().into());
        Self {
            policy: &made.policy,
            key: (&*made.key).into(),
            cost: number(made.cost),
            headroom: made.headroom,
            made: Some(MadeView { decision: (&made.decision).into(), reservation }),
        }
    }
}

/// The policies that rules apply.
pub(crate) fn matches(found: &[PolicyMatch]) -> Result<JsValue> {
    write(&found.iter().map(MatchView::from).collect::<Vec<_>>())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestView<'a> {
    allowed: bool,
    cause: Option<&'static str>,
    status: Option<u16>,
    retry_after_ms: Option<f64>,
    retry_after_us: Option<f64>,
    decisions: Vec<MatchView<'a>>,
}

impl<'a> From<&'a RequestDecision> for RequestView<'a> {
    fn from(made: &'a RequestDecision) -> Self {
        let Wait { retry_after_ms, retry_after_us } = Wait::of(made.retry_after_us);
        Self {
            allowed: made.allowed,
            cause: made.cause.map(Cause::name),
            status: made.status(),
            retry_after_ms,
            retry_after_us,
            decisions: made.decisions.iter().map(MatchView::from).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusView<'a> {
    source: &'a str,
    version: f64,
    digest: &'a str,
    error: Option<&'a str>,
}

pub(crate) fn status(status: &ConfigurationStatus) -> Result<JsValue> {
    write(&StatusView {
        source: &status.source,
        version: number(status.version),
        digest: &status.digest,
        error: status.error.as_deref(),
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CandidateView {
    both_allow: f64,
    only_live_denies: f64,
    only_candidate_denies: f64,
    both_deny: f64,
}

pub(crate) fn candidate(counts: &CandidateCounts) -> Result<JsValue> {
    write(&CandidateView {
        both_allow: number(counts.both_allow),
        only_live_denies: number(counts.only_live_denies),
        only_candidate_denies: number(counts.only_candidate_denies),
        both_deny: number(counts.both_deny),
    })
}

/// The answer to a call. A report is text, in JSON.
pub(crate) fn answer(answer: std::result::Result<Answer, Error>) -> Result<JsValue> {
    match answer.map_err(|error| to_js(&error))? {
        Answer::Decision(decision) => write(&DecisionView::from(&decision)),
        Answer::Usage(usage) => write(&UsageView::from(&usage)),
        Answer::Decisions(decisions) => {
            let each = decisions.into_iter().map(|decision| match decision {
                Ok(decision) => write(&DecisionView::from(&decision)),
                // An array where the others have an object.
                Err(error) => Ok(to_js(&error)),
            });
            each.collect::<Result<js_sys::Array>>().map(Into::into)
        }
        Answer::Request(made) => write(&RequestView::from(&made)),
        Answer::Configuration(changed) => status(&changed),
        Answer::Keys(page) => Ok(report_json(&page).into()),
        Answer::Explanation(explanation) => Ok(report_json(&explanation).into()),
        Answer::RequestExplanation(explanation) => Ok(report_json(&explanation).into()),
        _ => Ok(JsValue::UNDEFINED),
    }
}
