//! How an HTTP client stays within its own limit and waits as servers demand, without I/O.
//!
//! All requests of one client share a [`Throttle`]. The [`Attempts`] of each request return its next step: to wait, to acquire
//! from the client's limiter, to send, or to give up. A wrapper of an HTTP library therefore contains no rules of its own: it
//! does what [`Attempts::step`] returns and reports the result.
//!
//! The rules:
//!
//! - **Order.** A request waits until the server's pause for its key is over, then acquires from the limiter, and is sent
//!   unless another response has paused the key meanwhile. A retry does the same again.
//! - **Pauses.** A response pauses its key for the [wait](crate::http::server_wait) that it asks for: by `Retry-After` when the
//!   status is 400 or above, and by `RateLimit` fields with nothing left, whatever the status. A pause is known to this
//!   throttle alone and costs no units. The longer of two pauses counts.
//! - **Retries.** A response with 429, with 503, or with 403 and `Retry-After` (GitHub's secondary limits) is followed
//!   by another attempt if the body can be sent again, the [`Backoff`] allows one more retry, and the wait ends in time;
//!   after 503 also only if the method is idempotent, because the server may have begun. Otherwise the caller gets the
//!   response. A retry waits as long as the server asks plus the backoff's jitter, which is cut at the deadline.
//! - **Deadline.** All waits of a request end at most `max_wait` of the backoff, and at most the request's own timeout,
//!   after its start. A request whose pause or limiter would let it through later is refused at once.

use std::cmp::max;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::http::server_wait::WaitFields;
use polylimit_rules::error::Error;
use polylimit_rules::request::Request;
use polylimit_rules::units::micros;
use polylimit_runtime::backoff::{Backoff, random};
use polylimit_runtime::clock::Clock;
use polylimit_runtime::monotonic::{self, Instant};

/// The maximum number of paused keys. When one more is added, the pause that ends first is forgotten.
const MAX_PAUSES: usize = 4096;

/// The backoff of a client, and the pauses that servers have requested. Clones share them.
///
/// ```
/// use polylimit::http::client::{Step, Throttle};
/// use polylimit::http::Backoff;
/// use polylimit::Limiter;
///
/// # fn send() -> (u16, [(&'static str, &'static str); 1]) { (200, [("content-type", "text/plain")]) }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().build()?.blocking();
/// let throttle = Throttle::new(Backoff::default());
///
/// let key = "https://api.example.com";
/// let mut attempts = throttle.start(key.as_bytes(), "GET", true, None)?;
/// let status = loop {
///     match attempts.step() {
///         Step::Wait(wait) => std::thread::sleep(wait),
///         Step::Acquire(timeout) => {
///             let request = polylimit::Request::new(key).policy("10/s token_bucket");
///             let decision = limiter.acquire(request, timeout)?;
///             attempts.acquired(decision.allowed(), decision.retry_after());
///         }
///         Step::Send => {
///             let (status, fields) = send();
///             if !attempts.responded(status, fields) {
///                 break status;
///             }
///         }
///         Step::Refuse(refusal) => return Err(refusal.into()),
///     }
/// };
/// assert_eq!(status, 200);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Throttle {
    shared: Arc<Shared>,
}

struct Shared {
    backoff: Backoff,
    pauses: Mutex<HashMap<Box<[u8]>, Pause>>,
}

/// The wait that a response asked for.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    status: u16,
    asked: Duration,
}

impl Throttle {
    /// A throttle without pauses.
    pub fn new(backoff: Backoff) -> Self {
        Self { shared: Arc::new(Shared { backoff, pauses: Mutex::default() }) }
    }

    /// Starts a request.
    ///
    /// Requests with the same `key` share pauses and a budget of the limiter. `method` is the HTTP method, in upper case.
    /// `replayable` is whether the body can be sent again, which is true of a request without a body. All waits together end
    /// `timeout` from now, and after `max_wait` of the backoff if that is shorter.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the key has more than [`Request::MAX_KEY_LENGTH`]
    /// bytes.
    pub fn start(
        &self,
        key: &[u8],
        method: &str,
        replayable: bool,
        timeout: Option<Duration>,
    ) -> Result<Attempts, Error> {
        Request::new(key).checked()?;
        let max_wait = self.shared.backoff.max_wait();
        let longest = timeout.map_or(max_wait, |timeout| timeout.min(max_wait));
        Ok(Attempts {
            shared: Arc::clone(&self.shared),
            key: key.into(),
            is_idempotent: matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"),
            replayable,
            deadline: monotonic::now() + longest,
            retries: 0,
            not_before: None,
            phase: Phase::Paused,
        })
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("backoff", &self.shared.backoff).finish_non_exhaustive()
    }
}

impl Shared {
    fn pause_of(&self, key: &[u8], now: Instant) -> Option<Pause> {
        self.pauses.lock().get(key).copied().filter(|pause| pause.until > now)
    }

    fn pause(&self, key: &[u8], pause: Pause, now: Instant) {
        let mut pauses = self.pauses.lock();
        if let Some(known) = pauses.get_mut(key) {
            if known.until < pause.until {
                *known = pause;
            }
            return;
        }
        if pauses.len() >= MAX_PAUSES {
            pauses.retain(|_, pause| pause.until > now);
        }
        if pauses.len() >= MAX_PAUSES {
            let first = pauses.iter().min_by_key(|(_, pause)| pause.until).map(|(key, _)| key.clone());
            first.and_then(|key| pauses.remove(&key));
        }
        pauses.insert(key.into(), pause);
    }
}

/// The next step of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait this long, then call [`Attempts::step`] again.
    Wait(Duration),
    /// Acquire from the limiter with this timeout, and report the decision to [`Attempts::acquired`].
    Acquire(Duration),
    /// Send the request, and report the response to [`Attempts::responded`].
    Send,
    /// Do not send the request.
    Refuse(Refusal),
}

/// The attempts of one request. An HTTP client that abandons a request drops them.
pub struct Attempts {
    shared: Arc<Shared>,
    key: Box<[u8]>,
    is_idempotent: bool,
    replayable: bool,
    deadline: Instant,
    retries: u32,
    /// When the backoff allows the next attempt, after the first one.
    not_before: Option<Instant>,
    phase: Phase,
}

enum Phase {
    /// The request waits for the end of a pause, before it queues at the limiter.
    Paused,
    /// The limiter has admitted the request.
    Admitted,
    Refused(Refusal),
}

impl Attempts {
    /// The next step. Call this again after a wait: another response may have paused the key meanwhile.
    pub fn step(&mut self) -> Step {
        self.step_at(monotonic::now())
    }

    fn step_at(&mut self, now: Instant) -> Step {
        if let Phase::Refused(refusal) = &self.phase {
            return Step::Refuse(refusal.clone());
        }
        let pause = self.shared.pause_of(&self.key, now);
        if let Some(pause) = pause
            && pause.until > self.deadline
        {
            let refusal = Refusal::by_server(pause, now, self.deadline);
            self.phase = Phase::Refused(refusal.clone());
            return Step::Refuse(refusal);
        }
        if let Some(until) = max(pause.map(|pause| pause.until), self.not_before)
            && until > now
        {
            // Timers count microseconds at best; a wait that was rounded down would be followed by another one.
            return Step::Wait(Duration::from_micros(micros(until - now) + 1));
        }
        match self.phase {
            Phase::Admitted => Step::Send,
            _ => Step::Acquire(self.deadline.saturating_duration_since(now)),
        }
    }

    /// Reports the limiter's decision: whether it admits the request, and if not, after which wait it would; `None` for never.
    pub fn acquired(&mut self, allowed: bool, retry_after: Option<Duration>) {
        self.phase = if allowed {
            Phase::Admitted
        } else {
            Phase::Refused(Refusal::by_limiter(retry_after, monotonic::now(), self.deadline))
        };
    }

    /// Reports a response. Returns whether to try again: then the client discards the response and takes the next
    /// [step](Self::step). Otherwise the caller gets the response.
    ///
    /// `fields` are the names and values of the response's fields, a pair for each line;
    /// [`server_wait`](crate::http::server_wait) lists those that are read.
    pub fn responded<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        status: u16,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> bool {
        let fields = WaitFields::of(fields);
        let retry_after = match status {
            400.. => fields.retry_after(Clock::system().now_us()),
            // After a success or a redirection, Retry-After is the time to come back, not a demand to stay away.
            _ => None,
        };
        let asked = retry_after.or_else(|| fields.rate_limit());
        let now = monotonic::now();
        if let Some(asked) = asked.filter(|asked| !asked.is_zero()) {
            let pause = Pause { until: now + asked.min(Backoff::MAX_WAIT), status, asked };
            self.shared.pause(&self.key, pause, now);
        }
        let may_retry = match status {
            429 => true,
            403 => retry_after.is_some(),
            503 => self.is_idempotent,
            _ => false,
        };
        may_retry && self.replayable && self.backs_off(asked, now, random())
    }

    /// Whether one more retry ends its wait in time; if so, it becomes the next attempt.
    fn backs_off(&mut self, asked: Option<Duration>, now: Instant, random: u64) -> bool {
        let left = self.deadline.saturating_duration_since(now);
        let Some(wait) = self.shared.backoff.wait_with(self.retries, asked, random) else { return false };
        if left.is_zero() || asked.is_some_and(|asked| asked > left) {
            return false;
        }
        self.retries = self.retries.saturating_add(1);
        self.not_before = Some(now + wait.min(left));
        self.phase = Phase::Paused;
        true
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts").field("retries", &self.retries).finish_non_exhaustive()
    }
}

/// Why a request was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    retry_after: Option<Duration>,
    message: Box<str>,
}

impl Refusal {
    fn by_server(pause: Pause, now: Instant, deadline: Instant) -> Self {
        let left = pause.until.saturating_duration_since(now);
        let message = format!(
            "the server asked for a wait of {} with status {}: {} of it are left, and {}",
            Seconds(pause.asked),
            pause.status,
            Seconds(left),
            MayWait(now, deadline),
        );
        Self { retry_after: Some(left), message: message.into() }
    }

    fn by_limiter(retry_after: Option<Duration>, now: Instant, deadline: Instant) -> Self {
        let message = match retry_after {
            Some(wait) => format!(
                "the client's limiter asks for a wait of {}, and {}",
                Seconds(wait),
                MayWait(now, deadline)
            ),
            None => {
                "the client's limiter never admits the request: no wait makes room for its cost".to_owned()
            }
        };
        Self { retry_after, message: message.into() }
    }

    /// The wait after which the request would be sent; `None` if the limiter never admits it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The wait that the server or the limiter asked for, and the longest that the request allowed. It contains no key.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// A duration in seconds, rounded up to milliseconds.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_micros().div_ceil(1000);
        let (seconds, ms) = (ms / 1000, ms % 1000);
        if ms == 0 { write!(f, "{seconds} s") } else { write!(f, "{seconds}.{ms:03} s") }
    }
}

struct MayWait(Instant, Instant);

impl fmt::Display for MayWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.1.saturating_duration_since(self.0);
        write!(
            f,
            "this request may wait {} (its timeout or max_wait): raise them or come back later",
            Seconds(left)
        )
    }
}

#[cfg(test)]
mod tests;
