//! Values that JavaScript creates and keeps: quotas, and the manual clock for tests.

use napi_derive::napi;
use polylimit::Quota;
use polylimit::clock::ManualClock;
use polylimit::quota::Algorithm;

use crate::error::{Result, catch_panic, to_js_error};
use crate::number::{ANY, PERIOD, duration, milliseconds, number, whole};

/// The settings of a quota other than its limit and period.
#[napi(object, object_to_js = false)]
pub struct QuotaSettings {
    pub algorithm: Option<String>,
    pub burst: Option<f64>,
    pub step: Option<f64>,
    pub buckets: Option<f64>,
    pub aligned: Option<bool>,
    pub count_denied: Option<bool>,
    pub excess: Option<f64>,
}

/// Every number of a quota, and its canonical text.
#[napi(object, object_from_js = false)]
pub struct QuotaNumbers {
    pub text: String,
    pub algorithm: &'static str,
    pub limit: f64,
    pub period_ms: f64,
    pub calendar: Option<String>,
    pub capacity: f64,
    pub step: Option<f64>,
    pub buckets: Option<u32>,
    pub aligned: bool,
    pub count_denied: bool,
    pub excess: f64,
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

const UNITS: &str = "a whole number of units, up to 1000000000000";

/// Builds a quota from numbers.
#[napi]
pub fn build_quota(limit: f64, period_ms: f64, settings: QuotaSettings) -> Result<QuotaNumbers> {
    catch_panic(|| {
        let limit = whole("limit", limit, UNITS)?;
        let mut builder = Quota::builder(limit, duration("periodMs", period_ms, &PERIOD)?);
        if let Some(algorithm) = settings.algorithm {
            builder = builder.algorithm(algorithm.parse::<Algorithm>().map_err(to_js_error)?);
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
        builder.build().map(QuotaNumbers::from).map_err(to_js_error)
    })
}

/// Reads a quota from its text.
#[napi]
pub fn parse_quota(text: String) -> Result<QuotaNumbers> {
    catch_panic(|| text.parse::<Quota>().map(QuotaNumbers::from).map_err(to_js_error))
}

/// A clock that stands still until it is set or advanced.
#[napi]
pub struct NativeClock {
    pub(crate) clock: ManualClock,
}

const TIMES: &str = "whole microseconds since the Unix epoch, from 0 to 9007199254740991";

#[napi]
impl NativeClock {
    #[napi(constructor)]
    pub fn new(now_us: f64) -> Result<Self> {
        catch_panic(|| {
            Ok(Self { clock: ManualClock::new(whole("nowUs", now_us, TIMES)?).map_err(to_js_error)? })
        })
    }

    #[napi]
    pub fn now_us(&self) -> f64 {
        number(self.clock.now_us())
    }

    #[napi]
    pub fn set(&self, now_us: f64) -> Result<()> {
        catch_panic(|| self.clock.set(whole("nowUs", now_us, TIMES)?).map_err(to_js_error))
    }

    #[napi]
    pub fn advance(&self, by_ms: f64) -> Result<()> {
        catch_panic(|| self.clock.advance(duration("byMs", by_ms, &ANY)?).map_err(to_js_error))
    }
}
