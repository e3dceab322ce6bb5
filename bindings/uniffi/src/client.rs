//! For clients of limited services: the wait that a response asks for, when to retry, and the steps of a throttled request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylimit::http::client::Step;

use crate::error::{PolylimitError, Result, guarded};
use crate::number::{Span, unsigned};

fn span(duration: Duration) -> Span {
    Span::of_us(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

fn retries(name: &str, number: i32) -> Result<u32> {
    u32::try_from(number)
        .map_err(|_| PolylimitError::InvalidArgument(format!("{name} is {number}: allowed is 0 or more")))
}

/// How long a response asks its client to wait, counted from now; nothing if it does not say. `headers` has the values of each
/// header field by its name, in any letter case. Those that are read, in their order: `Retry-After-Ms`, `Retry-After`, whose date
/// is compared with that of `Date`, and the policies of `RateLimit` that have nothing left, of which the longest time counts. A
/// malformed field is ignored, and a wait above 285 years is cut to that. Without a `Date`, a date is compared with `now_us`,
/// microseconds since the Unix epoch; the system's time by default.
#[allow(clippy::implicit_hasher, reason = "UniFFI has the map of the standard library")]
#[uniffi::export(default(now_us = None))]
pub fn server_wait(headers: HashMap<String, Vec<String>>, now_us: Option<i64>) -> Result<Option<Span>> {
    guarded(|| {
        let now_us = if let Some(now_us) = now_us {
            unsigned("now_us", now_us)?
        } else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
        };
        Ok(polylimit::http::server_wait(lines(&headers), now_us).map(span))
    })
}

fn lines(headers: &HashMap<String, Vec<String>>) -> impl Iterator<Item = (&str, &str)> {
    headers.iter().flat_map(|(name, values)| values.iter().map(|value| (name.as_str(), value.as_str())))
}

/// When the client of a limited service tries again, and when it gives up: exponential backoff with full jitter. The wait before
/// retry n, counted from 0, is random from 0 to the smaller of `cap` and `base` * 2^n. A wait that the server asks for is
/// added to it.
#[derive(Debug, uniffi::Object)]
pub struct Backoff {
    backoff: polylimit::http::Backoff,
}

#[uniffi::export]
impl Backoff {
    /// `base` is the longest wait before the first retry, 1 ms to the cap (100 ms by default); `cap` is where the doubling
    /// ends, up to a day (20 s); `max_wait` is the longest wait that a server may ask for, 0 to 366 days (5 minutes);
    /// `max_retries` is how many retries may follow the first try (5).
    #[uniffi::constructor(default(base = None, cap = None, max_wait = None, max_retries = None))]
    pub fn new(
        base: Option<Span>,
        cap: Option<Span>,
        max_wait: Option<Span>,
        max_retries: Option<i32>,
    ) -> Result<Arc<Self>> {
        guarded(|| {
            let mut builder = polylimit::http::Backoff::builder();
            if let Some(base) = base {
                builder = builder.base(base.duration("base")?);
            }
            if let Some(cap) = cap {
                builder = builder.cap(cap.duration("cap")?);
            }
            if let Some(max_wait) = max_wait {
                builder = builder.max_wait(max_wait.duration("max_wait")?);
            }
            if let Some(max_retries) = max_retries {
                builder = builder.max_retries(retries("max_retries", max_retries)?);
            }
            Ok(Arc::new(Self { backoff: builder.build()? }))
        })
    }

    /// How long to wait before the next try; nothing to give up: once `max_retries` retries were made, and when the server asks
    /// for more than `max_wait`. `retry` is how many retries were made before, 0 after the first failure; `server_wait` is
    /// what the last response asked for.
    #[uniffi::method(default(server_wait = None))]
    pub fn wait(&self, retry: i32, server_wait: Option<Span>) -> Result<Option<Span>> {
        guarded(|| {
            let told = server_wait.map(|wait| wait.duration("server_wait")).transpose()?;
            Ok(self.backoff.wait(retries("retry", retry)?, told).map(span))
        })
    }
}

/// What the requests of one HTTP client share: the backoff, and the pauses that servers have asked for. It is for the wrappers of
/// HTTP libraries.
#[derive(Debug, uniffi::Object)]
pub struct Throttle {
    throttle: polylimit::http::client::Throttle,
}

#[uniffi::export]
impl Throttle {
    /// A throttle without pauses. `max_wait` of the backoff bounds all waits of a request together.
    #[uniffi::constructor(default(backoff = None))]
    pub fn new(backoff: Option<Arc<Backoff>>) -> Arc<Self> {
        let backoff = backoff.map(|backoff| backoff.backoff.clone()).unwrap_or_default();
        Arc::new(Self { throttle: polylimit::http::client::Throttle::new(backoff) })
    }

    /// Starts a request. `replayable` says whether its body can be sent again; its waits end after the timeout.
    pub fn start(
        &self,
        key: Vec<u8>,
        method: String,
        replayable: bool,
        timeout: Option<Span>,
    ) -> Result<Arc<Attempts>> {
        guarded(|| {
            let timeout = timeout.map(|timeout| timeout.duration("timeout")).transpose()?;
            let attempts = self.throttle.start(&key, &method, replayable, timeout)?;
            Ok(Arc::new(Attempts { attempts: Mutex::new(attempts) }))
        })
    }
}

/// What an HTTP client does next with a request.
#[derive(Debug, uniffi::Record)]
pub struct AttemptStep {
    /// `wait`, `acquire`, `send` or `refuse`.
    pub kind: String,
    /// How long to wait, the timeout of the acquire, or after which time a refused request would be sent; nothing for never.
    pub duration: Option<Span>,
    /// Why the request is refused.
    pub message: Option<String>,
}

/// The attempts of one request.
#[derive(Debug, uniffi::Object)]
pub struct Attempts {
    attempts: Mutex<polylimit::http::client::Attempts>,
}

impl Attempts {
    fn with<R>(&self, work: impl FnOnce(&mut polylimit::http::client::Attempts) -> R) -> R {
        work(&mut self.attempts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[uniffi::export]
impl Attempts {
    /// What to do next. Ask again after a wait.
    pub fn step(&self) -> Result<AttemptStep> {
        guarded(|| {
            let step = |kind: &str, duration: Option<Duration>, message| AttemptStep {
                kind: kind.to_owned(),
                duration: duration.map(span),
                message,
            };
            Ok(match self.with(polylimit::http::client::Attempts::step) {
                Step::Wait(wait) => step("wait", Some(wait), None),
                Step::Acquire(timeout) => step("acquire", Some(timeout), None),
                Step::Send => step("send", None, None),
                Step::Refuse(refusal) => {
                    step("refuse", refusal.retry_after(), Some(refusal.message().to_owned()))
                }
            })
        })
    }

    /// The limiter has decided.
    pub fn acquired(&self, allowed: bool, retry_after: Option<Span>) -> Result<()> {
        guarded(|| {
            let retry_after = retry_after.map(|wait| wait.duration("retry_after")).transpose()?;
            self.with(|attempts| attempts.acquired(allowed, retry_after));
            Ok(())
        })
    }

    /// A response has arrived; returns whether to discard it and ask for the next step. `headers` is as for `server_wait`.
    pub fn responded(&self, status: i32, headers: HashMap<String, Vec<String>>) -> Result<bool> {
        guarded(|| {
            let status = u16::try_from(status).unwrap_or(u16::MAX);
            Ok(self.with(|attempts| attempts.responded(status, lines(&headers))))
        })
    }
}
