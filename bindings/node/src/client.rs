//! For clients of limited services: the wait that a response asks for, when to retry, and the steps of a throttled request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use napi::Env;
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;
use polylimit::Request;
use polylimit::http::Backoff;
use polylimit::http::client::{Attempts, Step, Throttle};

use crate::error::{Result, catch_panic, to_js_error};
use crate::number::{ANY, BASE, CAP, COST, MAX_WAIT, cost, duration, number, out_of_range, whole};
use crate::text::owned_bytes;

/// The settings of a backoff that differ from the defaults, not yet checked. Durations are in milliseconds.
#[napi(object, object_to_js = false)]
pub struct BackoffSettings {
    pub base_ms: Option<f64>,
    pub cap_ms: Option<f64>,
    pub max_wait_ms: Option<f64>,
    pub max_retries: Option<f64>,
}

/// A checked backoff.
#[napi]
pub struct NativeBackoff {
    backoff: Backoff,
}

/// Whole milliseconds, rounded up: a timer of this time does not end too early.
fn whole_ms(duration: Duration) -> f64 {
    number(u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
}

fn retries(name: &str, number: f64) -> Result<u32> {
    Ok(u32::try_from(whole(name, number, "a whole number from 0 up")?).unwrap_or(u32::MAX))
}

#[napi]
impl NativeBackoff {
    #[napi(constructor)]
    pub fn new(settings: BackoffSettings) -> Result<Self> {
        catch_panic(|| {
            let mut builder = Backoff::builder();
            if let Some(base) = settings.base_ms {
                builder = builder.base(duration("baseMs", base, &BASE)?);
            }
            if let Some(cap) = settings.cap_ms {
                builder = builder.cap(duration("capMs", cap, &CAP)?);
            }
            if let Some(max_wait) = settings.max_wait_ms {
                builder = builder.max_wait(duration("maxWaitMs", max_wait, &MAX_WAIT)?);
            }
            if let Some(max_retries) = settings.max_retries {
                builder = builder.max_retries(retries("maxRetries", max_retries)?);
            }
            Ok(Self { backoff: builder.build().map_err(to_js_error)? })
        })
    }

    /// How many milliseconds to wait before the next try; nothing to give up.
    #[napi]
    pub fn wait(&self, retry: f64, server_wait_ms: Option<f64>) -> Result<Option<f64>> {
        catch_panic(|| {
            let told = server_wait_ms.map(|ms| duration("serverWaitMs", ms, &ANY)).transpose()?;
            Ok(self.backoff.wait(retries("retry", retry)?, told).map(whole_ms))
        })
    }
}

/// How many milliseconds a response asks its client to wait; `fields` has the name of each field, followed by its value.
#[napi]
pub fn server_wait(fields: Vec<String>, now_us: Option<f64>) -> Result<Option<f64>> {
    catch_panic(|| {
        let now_us = if let Some(now_us) = now_us {
            whole("nowUs", now_us, "whole microseconds since the Unix epoch")?
        } else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
        };
        Ok(polylimit::http::server_wait(pairs(&fields), now_us).map(whole_ms))
    })
}

fn pairs(fields: &[String]) -> impl Iterator<Item = (&str, &str)> {
    fields.as_chunks::<2>().0.iter().map(|[name, value]| (name.as_str(), value.as_str()))
}

/// The pauses and the backoff of one client.
#[napi]
pub struct NativeThrottle {
    throttle: Throttle,
}

#[napi]
impl NativeThrottle {
    /// `units` are the cost of each attempt, which is only checked here.
    #[napi(constructor)]
    pub fn new(backoff: Option<&NativeBackoff>, units: Option<f64>) -> Result<Self> {
        catch_panic(|| {
            let units = units.map_or(Ok(0), cost)?;
            if units > Request::MAX_COST {
                return Err(out_of_range("cost", number(units), COST));
            }
            let backoff = backoff.map(|backoff| backoff.backoff.clone()).unwrap_or_default();
            Ok(Self { throttle: Throttle::new(backoff) })
        })
    }

    /// Starts a request.
    #[napi]
    pub fn start(
        &self,
        env: Env,
        key: Unknown<'_>,
        method: String,
        replayable: bool,
    ) -> Result<NativeAttempts> {
        catch_panic(|| {
            let key = owned_bytes("the result of key", env, key)?;
            let attempts = self.throttle.start(&key, &method, replayable, None);
            Ok(NativeAttempts { attempts: attempts.map_err(to_js_error)? })
        })
    }
}

/// What to do next: `wait` or `acquire` with milliseconds, `send`, or `refuse` with the reason.
#[napi(object, object_from_js = false)]
pub struct NativeStep {
    pub kind: &'static str,
    /// Of a refusal: after which time the request would be sent.
    pub ms: Option<f64>,
    pub message: Option<String>,
}

/// The attempts of one request.
#[napi]
pub struct NativeAttempts {
    attempts: Attempts,
}

#[napi]
impl NativeAttempts {
    #[napi]
    pub fn step(&mut self) -> Result<NativeStep> {
        catch_panic(|| {
            let step = |kind, ms| NativeStep { kind, ms, message: None };
            Ok(match self.attempts.step() {
                Step::Wait(wait) => step("wait", Some(whole_ms(wait))),
                Step::Acquire(timeout) => step("acquire", Some(whole_ms(timeout))),
                Step::Send => step("send", None),
                Step::Refuse(refusal) => NativeStep {
                    kind: "refuse",
                    ms: refusal.retry_after().map(whole_ms),
                    message: Some(refusal.message().to_owned()),
                },
            })
        })
    }

    /// The limiter has decided; `retry_after_us` is nothing for never.
    #[napi]
    pub fn acquired(&mut self, allowed: bool, retry_after_us: Option<f64>) -> Result<()> {
        catch_panic(|| {
            let retry_after =
                retry_after_us.map(|us| whole("retryAfterUs", us, "microseconds")).transpose()?;
            self.attempts.acquired(allowed, retry_after.map(Duration::from_micros));
            Ok(())
        })
    }

    /// A response has arrived; returns whether to discard it and try again. `fields` is as for `serverWait`.
    #[napi]
    pub fn responded(&mut self, status: u32, fields: Vec<String>) -> Result<bool> {
        catch_panic(|| {
            let status = u16::try_from(status).unwrap_or(u16::MAX);
            Ok(self.attempts.responded(status, pairs(&fields)))
        })
    }
}
