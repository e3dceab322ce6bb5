//! Values that JavaScript creates and keeps: quotas, and the manual clock.

use polylimit::Quota;
use polylimit::clock::ManualClock;
use polylimit::quota::Algorithm;
use serde::{Deserialize, Serialize};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::answers::write;
use crate::arguments::{Result, UNITS, duration, milliseconds, number, read, to_js, whole};

/// The settings of a quota other than its limit and period.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QuotaSettings {
    algorithm: Option<String>,
    burst: Option<f64>,
    step: Option<f64>,
    buckets: Option<f64>,
    aligned: Option<bool>,
    count_denied: Option<bool>,
    excess: Option<f64>,
}

/// Every number of a quota, and its canonical text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QuotaNumbers {
    text: String,
    algorithm: &'static str,
    limit: f64,
    period_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    calendar: Option<String>,
    capacity: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<u32>,
    aligned: bool,
    count_denied: bool,
    excess: f64,
}

impl From<Quota> for QuotaNumbers {
    fn from(quota: Quota) -> Self {
        let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
        Self {
            text: quota.to_string(),
            algorithm: quota.algorithm().name(),
            limit: number(quota.limit()),
            period_ms: milliseconds(period_us),
            calendar: quota.calendar().map(ToString::to_string),
            capacity: number(quota.capacity()),
            step: quota.step().map(number),
            buckets: quota.buckets(),
            aligned: quota.aligned(),
            count_denied: quota.count_denied(),
            excess: number(quota.excess()),
        }
    }
}

/// Builds a quota from numbers.
///
/// # Errors
/// A number or a setting is not allowed.
#[wasm_bindgen(js_name = buildQuota)]
pub fn build_quota(limit: f64, period_ms: f64, settings: JsValue) -> Result<JsValue> {
    let settings: QuotaSettings = read(settings)?;
    let mut builder = Quota::builder(whole("limit", limit, UNITS)?, duration("periodMs", period_ms)?);
    if let Some(algorithm) = settings.algorithm {
        builder = builder.algorithm(algorithm.parse::<Algorithm>().map_err(|error| to_js(&error))?);
    }
    if let Some(burst) = settings.burst {
        builder = builder.burst(whole("burst", burst, UNITS)?);
    }
    if let Some(step) = settings.step {
        builder = builder.step(whole("step", step, UNITS)?);
    }
    if let Some(buckets) = settings.buckets {
        let buckets = whole("buckets", buckets, "1 to 60 sub-windows")?;
        builder = builder.buckets(u32::try_from(buckets).unwrap_or(u32::MAX));
    }
    if let Some(aligned) = settings.aligned {
        builder = builder.aligned(aligned);
    }
    if let Some(count_denied) = settings.count_denied {
        builder = builder.count_denied(count_denied);
    }
    if let Some(excess) = settings.excess {
        builder = builder.excess(whole("excess", excess, UNITS)?);
    }
    builder.build().map_err(|error| to_js(&error)).and_then(|quota| write(&QuotaNumbers::from(quota)))
}

/// Reads a quota from its text.
///
/// # Errors
/// It is not one; the message says where.
#[wasm_bindgen(js_name = parseQuota)]
pub fn parse_quota(text: &str) -> Result<JsValue> {
    let quota = text.parse::<Quota>().map_err(|error| to_js(&error))?;
    write(&QuotaNumbers::from(quota))
}

const TIMES: &str = "whole microseconds since the Unix epoch, from 0 to 9007199254740991";

/// A clock that stands still until it is set or advanced.
#[wasm_bindgen]
pub struct NativeClock(pub(crate) ManualClock);

#[wasm_bindgen]
impl NativeClock {
    /// A clock that shows this time.
    ///
    /// # Errors
    /// The time is beyond what it can show, as for every method.
    #[wasm_bindgen(constructor)]
    pub fn new(now_us: f64) -> Result<Self> {
        ManualClock::new(whole("nowUs", now_us, TIMES)?).map(Self).map_err(|error| to_js(&error))
    }

    /// The same clock, for a limiter.
    pub fn share(&self) -> Self {
        Self(self.0.clone())
    }

    #[wasm_bindgen(js_name = nowUs)]
    pub fn now_us(&self) -> f64 {
        number(self.0.now_us())
    }

    pub fn set(&self, now_us: f64) -> Result<()> {
        self.0.set(whole("nowUs", now_us, TIMES)?).map_err(|error| to_js(&error))
    }

    pub fn advance(&self, by_ms: f64) -> Result<()> {
        self.0.advance(duration("byMs", by_ms)?).map_err(|error| to_js(&error))
    }
}
