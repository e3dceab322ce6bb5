//! The clock for tests.

use std::time::Duration;

use napi_derive::napi;
use polylimit::ManualClock;

use crate::failure::{Result, failure, guarded};
use crate::number::{microseconds, number, whole};

/// A clock that stands still until it is told otherwise.
#[napi]
pub struct NativeClock {
    pub(crate) clock: ManualClock,
}

const TIMES: &str = "whole microseconds since the Unix epoch, from 0 to 9007199254740991";

#[napi]
impl NativeClock {
    #[napi(constructor)]
    pub fn new(now_us: f64) -> Result<Self> {
        guarded(|| Ok(Self { clock: ManualClock::new(whole("nowUs", now_us, TIMES)?).map_err(failure)? }))
    }

    #[napi]
    pub fn now_us(&self) -> f64 {
        number(self.clock.now_us())
    }

    #[napi]
    pub fn set(&self, now_us: f64) -> Result<()> {
        guarded(|| self.clock.set(whole("nowUs", now_us, TIMES)?).map_err(failure))
    }

    #[napi]
    pub fn advance(&self, by_ms: f64) -> Result<()> {
        guarded(|| self.clock.advance(Duration::from_micros(microseconds("byMs", by_ms)?)).map_err(failure))
    }
}
