//! Quotas, from numbers and from text.

use std::time::Duration;

use napi_derive::napi;
use polylimit::{Algorithm, Quota};

use crate::failure::{Result, failure, guarded};
use crate::number::{microseconds, milliseconds, number, whole};

/// The settings of a quota beside its limit and period.
#[napi(object, object_to_js = false)]
pub struct QuotaSettings {
    pub algorithm: Option<String>,
    pub burst: Option<f64>,
    pub step: Option<f64>,
    pub buckets: Option<f64>,
    pub aligned: Option<bool>,
    pub count_denied: Option<bool>,
}

/// Every number of a quota, and its canonical text.
#[napi(object, object_from_js = false)]
pub struct QuotaNumbers {
    pub text: String,
    pub algorithm: &'static str,
    pub limit: f64,
    pub period_ms: f64,
    pub capacity: f64,
    pub step: Option<f64>,
    pub buckets: Option<u32>,
    pub aligned: bool,
    pub count_denied: bool,
}

impl From<Quota> for QuotaNumbers {
    fn from(quota: Quota) -> Self {
        let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
        Self {
            text: quota.to_string(),
            algorithm: quota.algorithm().name(),
            limit: number(quota.limit()),
            period_ms: milliseconds(period_us),
            capacity: number(quota.capacity()),
            step: quota.step().map(number),
            buckets: quota.buckets(),
            aligned: quota.aligned(),
            count_denied: quota.count_denied(),
        }
    }
}

const UNITS: &str = "a whole number of units, up to 1000000000000";

/// A quota of numbers.
#[napi]
pub fn quota_of(limit: f64, period_ms: f64, settings: QuotaSettings) -> Result<QuotaNumbers> {
    guarded(|| {
        let limit = whole("limit", limit, UNITS)?;
        let mut builder = Quota::builder(limit, Duration::from_micros(microseconds("periodMs", period_ms)?));
        if let Some(algorithm) = settings.algorithm {
            builder = builder.algorithm(algorithm.parse::<Algorithm>().map_err(failure)?);
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
        builder.build().map(QuotaNumbers::from).map_err(failure)
    })
}

/// A quota of its text.
#[napi]
pub fn parse_quota(text: String) -> Result<QuotaNumbers> {
    guarded(|| text.parse::<Quota>().map(QuotaNumbers::from).map_err(failure))
}
