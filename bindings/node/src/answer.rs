//! Where each number of an answer stands in the array.

use napi::bindgen_prelude::{Float64Array, Int32Array, Uint8Array};
use napi_derive::napi;
use polylimit::{Decision, DecisionParts, Degradation, Policy, QuotaUsage, Source, Usage};

use crate::asked::{self, Question};
use crate::failure::{Result, failure, internal, invalid_argument};
use crate::number::{microseconds, milliseconds, number, whole};

/// The places. Times are milliseconds; `RetryAfterMs` is -1 for never. `Source` and `Degraded` are places in their
/// tables, and `Degraded` is -1 for not at all. `Ticket` is that of a pending operation, 0 when it has answered.
///
/// From `Cost` on they are what JavaScript asks, beside what stands in the array of `Question`.
#[napi]
pub enum Field {
    Kind,
    Ticket,
    Allowed,
    Remaining,
    RetryAfterMs,
    ResetAfterMs,
    DelayMs,
    Source,
    Degraded,
    Limit,
    Taken,
    /// How many quotas, decisions or findings there are. An only quota's numbers are `Limit`, `Remaining` and `ResetAfterMs`.
    Quotas,
    /// The status that answers a denied request.
    Status,
    /// A bit for each value that is not as in the response before; -1 when all is told.
    Changed,
    Cost,
    TimeoutMs,
    NowMs,
    FirstQuota,
}

/// What stands in the array.
#[napi]
pub enum Kind {
    Decision,
    Usage,
    Ready,
    Decisions,
    Findings,
    Failure,
}

/// Limit, remaining, reset after.
const NUMBERS_OF_A_QUOTA: usize = 3;
/// How long the array is.
pub(crate) const LENGTH: usize = Field::FirstQuota as usize + NUMBERS_OF_A_QUOTA * Policy::MAX_QUOTAS;

/// The arrays. Only the thread of its environment has them.
pub(crate) struct Fields {
    numbers: *mut f64,
    /// What JavaScript asks; see [`Question`](crate::asked::Question).
    question: *mut i32,
    /// Where JavaScript writes short keys, and how much room there is.
    short_key: (*const u8, usize),
    /// Keep what those point at.
    _arrays: (Float64Array, Int32Array, Uint8Array),
}

impl Fields {
    pub(crate) fn new(
        mut array: Float64Array,
        mut question: Int32Array,
        short_key: Uint8Array,
    ) -> Result<Self> {
        let lengths = [array.len(), question.len()];
        if lengths != [LENGTH, asked::LENGTH] {
            return Err(internal(format!(
                "the exchange has {lengths:?} numbers: {LENGTH} and {} are needed",
                asked::LENGTH
            )));
        }
        // SAFETY: the slices are gone at once; JavaScript runs on this thread and only while nothing here does.
        let (numbers, question_at) = unsafe { (array.as_mut().as_mut_ptr(), question.as_mut().as_mut_ptr()) };
        let place = (short_key.as_ptr(), short_key.len());
        let arrays = (array, question, short_key);
        Ok(Self { numbers, question: question_at, short_key: place, _arrays: arrays })
    }

    /// What JavaScript has written there.
    #[inline]
    pub(crate) fn question(&self, at: Question) -> i32 {
        // SAFETY: the array is as long as there are such places, stays where it is, and belongs to this thread.
        unsafe { *self.question.add(at as usize) }
    }

    #[inline]
    pub(crate) fn set_question(&self, at: Question, number: i32) {
        // SAFETY: as in `question`.
        unsafe { *self.question.add(at as usize) = number }
    }

    /// The key that JavaScript has written.
    #[inline]
    pub(crate) fn short_key(&self, length: usize) -> &[u8] {
        let (place, room) = self.short_key;
        // SAFETY: there is so much room, and JavaScript, which could change it, does not run meanwhile.
        unsafe { std::slice::from_raw_parts(place, length.min(room)) }
    }

    #[inline]
    pub(crate) fn put(&self, at: usize, number: f64) {
        assert!(at < LENGTH, "a policy has at most 16 quotas");
        // SAFETY: the array is that long, stays where it is, and belongs to this thread.
        unsafe { *self.numbers.add(at) = number }
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> f64 {
        assert!(at < LENGTH, "a policy has at most 16 quotas");
        // SAFETY: as in `put`.
        unsafe { *self.numbers.add(at) }
    }

    /// Whether and under which ticket the operation is pending.
    #[inline]
    pub(crate) fn set_ticket(&self, ticket: u32) {
        self.put(Field::Ticket as usize, ticket.into());
    }

    pub(crate) fn show(&self, kind: Kind, items: usize) {
        self.put(Field::Kind as usize, f64::from(kind as u32));
        self.put(Field::Quotas as usize, number(items as u64));
    }

    #[inline]
    pub(crate) fn show_decision(&self, decision: &Decision) {
        let source = (decision.source(), decision.degraded());
        self.show_common(
            Kind::Decision,
            decision.quotas(),
            decision.remaining(),
            decision.reset_after_us(),
            source,
        );
        self.put(Field::Allowed as usize, if decision.allowed() { 1.0 } else { 0.0 });
        self.put(Field::RetryAfterMs as usize, decision.retry_after_us().map_or(NEVER, milliseconds));
        self.put(Field::DelayMs as usize, milliseconds(decision.delay_us()));
        self.put(Field::Limit as usize, number(decision.limit()));
    }

    pub(crate) fn show_usage(&self, usage: &Usage) {
        let source = (usage.source(), usage.degraded());
        self.show_common(Kind::Usage, usage.quotas(), usage.remaining(), usage.reset_after_us(), source);
        self.put(Field::Limit as usize, number(usage.limit()));
        self.put(Field::Taken as usize, number(usage.taken()));
    }

    #[expect(clippy::inline_always, reason = "its numbers would go through memory once more")]
    #[inline(always)]
    fn show_common(
        &self,
        kind: Kind,
        quotas: &[QuotaUsage],
        remaining: u64,
        reset_after_us: u64,
        (source, degraded): (Source, Option<Degradation>),
    ) {
        self.show(kind, quotas.len());
        self.put(Field::Remaining as usize, number(remaining));
        self.put(Field::ResetAfterMs as usize, milliseconds(reset_after_us));
        self.put(Field::Source as usize, place(Source::ALL.iter().position(|known| *known == source)));
        let degraded =
            degraded.and_then(|degraded| Degradation::ALL.iter().position(|known| *known == degraded));
        self.put(Field::Degraded as usize, place(degraded));
        if quotas.len() == 1 {
            // What they amount to is its own view.
            return;
        }
        for (quota, at) in quotas.iter().zip((Field::FirstQuota as usize..).step_by(NUMBERS_OF_A_QUOTA)) {
            self.put(at, number(quota.limit));
            self.put(at + 1, number(quota.remaining));
            self.put(at + 2, milliseconds(quota.reset_after_us));
        }
    }

    /// The decision that JavaScript has written: one that was shown to it, or one that somebody made up.
    pub(crate) fn decision(&self) -> Result<Decision> {
        let count = whole("quotas", self.get(Field::Quotas as usize), "1 to 16")?;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(Policy::MAX_QUOTAS);
        let mut quotas = [QuotaUsage { limit: 0, remaining: 0, reset_after_us: 0 }; Policy::MAX_QUOTAS];
        for (place, quota) in quotas[..count].iter_mut().enumerate() {
            let first = Field::FirstQuota as usize + NUMBERS_OF_A_QUOTA * place;
            let [limit, remaining, reset_after_ms] = match count {
                1 => [Field::Limit, Field::Remaining, Field::ResetAfterMs].map(|field| field as usize),
                _ => [first, first + 1, first + 2],
            };
            *quota = QuotaUsage {
                limit: whole("limit", self.get(limit), UNITS)?,
                remaining: whole("remaining", self.get(remaining), UNITS)?,
                reset_after_us: microseconds("resetAfterMs", self.get(reset_after_ms))?,
            };
        }
        let allowed = self.get(Field::Allowed as usize) != 0.0;
        let retry_after_ms = self.get(Field::RetryAfterMs as usize);
        let wait_us = match allowed {
            true => Some(microseconds("delayMs", self.get(Field::DelayMs as usize))?),
            false if retry_after_ms == NEVER => None,
            false => Some(microseconds("retryAfterMs", retry_after_ms)?),
        };
        let source = entry(&Source::ALL, self.get(Field::Source as usize));
        let source = source.ok_or_else(|| invalid_argument("source is not one that a decision has"))?;
        let degraded = entry(&Degradation::ALL, self.get(Field::Degraded as usize));
        let parts = DecisionParts { allowed, wait_us, source, degraded, quotas: &quotas[..count] };
        Decision::from_parts(parts).map_err(failure)
    }
}

/// Stands for a wait that does not end.
const NEVER: f64 = -1.0;
const UNITS: &str = "a whole number of units";

#[inline]
fn place(at: Option<usize>) -> f64 {
    at.map_or(-1.0, |at| number(at as u64))
}

fn entry<T: Copy>(table: &[T], at: f64) -> Option<T> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place is small, or none")]
    table.get(if at >= 0.0 { at as usize } else { usize::MAX }).copied()
}
