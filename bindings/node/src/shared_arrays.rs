//! The arrays that this addon shares with JavaScript.

use std::time::Duration;

use napi::bindgen_prelude::{Float64Array, Int32Array, Uint8Array};
use polylimit::decision::{Cause, Degradation, QuotaUsage, QuotaVerdict, Source, Usage};
use polylimit::raw::DecisionParts;
use polylimit::{Decision, Policy};

use crate::error::{Result, internal, invalid_argument, to_js_error};
use crate::number::{ANY, duration, milliseconds, number, whole};
use crate::request_layout::{
    AnswerKind, DecisionFlag, FIELD_COUNT, Field, NOT_INTERNED, NUMBERS_PER_QUOTA, PolicyRef,
    REQUEST_FIELD_COUNT, RequestField, RequestHeader, RequestOption,
};

/// The arrays of one environment; only its thread uses them. `request_layout` says what each place holds.
pub(crate) struct SharedArrays {
    numbers: *mut f64,
    request: *mut i32,
    /// The buffer into which JavaScript writes short keys, and its capacity.
    short_key: (*const u8, usize),
    /// Own the memory behind the pointers.
    _arrays: (Float64Array, Int32Array, Uint8Array),
}

impl SharedArrays {
    pub(crate) fn new(
        mut numbers: Float64Array,
        mut request: Int32Array,
        short_key: Uint8Array,
    ) -> Result<Self> {
        let lengths = [numbers.len(), request.len()];
        if lengths != [FIELD_COUNT, REQUEST_FIELD_COUNT] {
            return Err(internal(format!(
                "the shared arrays have lengths {lengths:?}: {FIELD_COUNT} and {REQUEST_FIELD_COUNT} are needed"
            )));
        }
        // SAFETY: the slices end here; JavaScript runs on this thread, and only while no code of the addon does.
        let pointers = unsafe { (numbers.as_mut().as_mut_ptr(), request.as_mut().as_mut_ptr()) };
        let short_key_buffer = (short_key.as_ptr(), short_key.len());
        let arrays = (numbers, request, short_key);
        Ok(Self { numbers: pointers.0, request: pointers.1, short_key: short_key_buffer, _arrays: arrays })
    }

    /// The numbers of a request that stand in the arrays.
    #[inline]
    pub(crate) fn request_header(&self) -> RequestHeader {
        let options = self.request_field(RequestField::Options);
        let given = |option, field: Field| (options & option != 0).then(|| self.get(field as usize));
        RequestHeader {
            operation: self.request_field(RequestField::Operation),
            short_key: usize::try_from(self.request_field(RequestField::KeyLength)).ok(),
            policy: PolicyRef::from_number(self.request_field(RequestField::Policy)),
            cost: given(RequestOption::Cost as i32, Field::Cost),
            headroom: given(RequestOption::Headroom as i32, Field::Headroom),
            has_plan: options & RequestOption::Plan as i32 != 0,
        }
    }

    #[inline]
    pub(crate) fn request_field(&self, field: RequestField) -> i32 {
        // SAFETY: the array has a place for each field, does not move, and belongs to this thread.
        unsafe { *self.request.add(field as usize) }
    }

    /// Writes the number under which the policy of the arguments is interned.
    pub(crate) fn set_interned_policy(&self, number: Option<usize>) {
        let number = number.and_then(|number| i32::try_from(number).ok());
        // SAFETY: as in `request_field`.
        unsafe { *self.request.add(RequestField::Policy as usize) = number.unwrap_or(NOT_INTERNED) }
    }

    /// The key that JavaScript has written into the short key's buffer.
    #[inline]
    pub(crate) fn short_key(&self, length: usize) -> &[u8] {
        let (start, capacity) = self.short_key;
        // SAFETY: the buffer has that capacity, and JavaScript, which could change it, does not run meanwhile.
        unsafe { std::slice::from_raw_parts(start, length.min(capacity)) }
    }

    #[inline]
    pub(crate) fn set(&self, at: usize, number: f64) {
        assert!(at < FIELD_COUNT, "a policy has at most 16 quotas");
        // SAFETY: the array is that long, does not move, and belongs to this thread.
        unsafe { *self.numbers.add(at) = number }
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> f64 {
        assert!(at < FIELD_COUNT, "a policy has at most 16 quotas");
        // SAFETY: as in `set`.
        unsafe { *self.numbers.add(at) }
    }

    /// Writes the ticket of a pending operation; 0 when its answer is there.
    #[inline]
    pub(crate) fn set_ticket(&self, ticket: u32) {
        self.set(Field::Ticket as usize, ticket.into());
    }

    pub(crate) fn write_kind(&self, kind: AnswerKind, items: usize) {
        self.set(Field::Kind as usize, f64::from(kind as u32));
        self.set(Field::Quotas as usize, number(items as u64));
    }

    #[expect(clippy::inline_always, reason = "a decision of the memory store then stays in registers")]
    #[inline(always)]
    pub(crate) fn write_decision(&self, decision: &Decision) {
        match decision.only_quota() {
            // The numbers of a single quota are those of the answer.
            Some((_, verdict)) => {
                self.write_kind(AnswerKind::Decision, 1);
                self.set(Field::QuotaRetryAfterUs as usize, verdict.retry_after_us.map_or(NEVER, number));
            }
            None => self.write_quotas(AnswerKind::Decision, decision.quotas(), decision.verdicts()),
        }
        let totals = [decision.limit(), decision.remaining(), decision.reset_after_us(), decision.over()];
        self.write_totals(totals, decision.source(), decision.degraded());
        self.set(Field::Allowed as usize, if decision.allowed() { 1.0 } else { 0.0 });
        self.set(Field::RetryAfterUs as usize, decision.retry_after_us().map_or(NEVER, number));
        self.set(Field::DelayUs as usize, number(decision.delay_us()));
        self.set(Field::Details as usize, details(decision).into());
    }

    pub(crate) fn write_usage(&self, usage: &Usage) {
        let admits = QuotaVerdict { allowed: true, retry_after_us: Some(0) };
        self.write_quotas(AnswerKind::Usage, usage.quotas(), std::iter::repeat(admits));
        let totals = [usage.limit(), usage.remaining(), usage.reset_after_us(), usage.over()];
        self.write_totals(totals, usage.source(), usage.degraded());
        self.set(Field::Taken as usize, number(usage.taken()));
        let found = u8::from(usage.found()) + 2 * u8::from(usage.repeated());
        self.set(Field::Found as usize, f64::from(found));
    }

    #[inline]
    fn write_totals(
        &self,
        [limit, remaining, reset_after_us, over]: [u64; 4],
        source: Source,
        degraded: Option<Degradation>,
    ) {
        self.set(Field::Limit as usize, number(limit));
        self.set(Field::Remaining as usize, number(remaining));
        self.set(Field::ResetAfterMs as usize, milliseconds(reset_after_us));
        self.set(Field::Over as usize, number(over));
        self.set(Field::Source as usize, index(Source::ALL.iter().position(|known| *known == source)));
        let degraded =
            degraded.and_then(|degraded| Degradation::ALL.iter().position(|known| *known == degraded));
        self.set(Field::Degraded as usize, index(degraded));
    }

    /// Writes the kind of an answer with the number of its quotas, and their numbers where they differ from the answer's.
    #[inline(never)]
    fn write_quotas(
        &self,
        kind: AnswerKind,
        quotas: &[QuotaUsage],
        verdicts: impl Iterator<Item = QuotaVerdict>,
    ) {
        self.write_kind(kind, quotas.len());
        let places = (Field::FirstQuota as usize..).step_by(NUMBERS_PER_QUOTA);
        for ((quota, verdict), at) in quotas.iter().zip(verdicts).zip(places) {
            if quotas.len() == 1 {
                self.set(Field::QuotaRetryAfterUs as usize, verdict.retry_after_us.map_or(NEVER, number));
                return;
            }
            self.set(at, number(quota.limit));
            self.set(at + 1, number(quota.remaining));
            self.set(at + 2, milliseconds(quota.reset_after_us));
            self.set(at + 3, number(quota.over));
            self.set(at + WAIT, verdict.retry_after_us.map_or(NEVER, number));
        }
    }

    /// Reads the decision that JavaScript has written. It may be any object of a decision's shape, so that all is checked.
    pub(crate) fn decision(&self) -> Result<Decision> {
        let count = whole("quotas", self.get(Field::Quotas as usize), "1 to 16")?;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(Policy::MAX_QUOTAS);
        let mut quotas =
            [QuotaUsage { limit: 0, remaining: 0, reset_after_us: 0, over: 0 }; Policy::MAX_QUOTAS];
        let mut quota_waits_us = [None; Policy::MAX_QUOTAS];
        for (index, (quota, quota_wait_us)) in quotas[..count].iter_mut().zip(&mut quota_waits_us).enumerate()
        {
            let first = Field::FirstQuota as usize + NUMBERS_PER_QUOTA * index;
            let [limit, remaining, reset_after_ms, over, retry_after_us] = match count {
                1 => ONLY_QUOTA.map(|field| field as usize),
                _ => [first, first + 1, first + 2, first + 3, first + WAIT],
            };
            *quota = QuotaUsage {
                limit: whole("limit", self.get(limit), UNITS)?,
                remaining: whole("remaining", self.get(remaining), UNITS)?,
                reset_after_us: duration("resetAfterMs", self.get(reset_after_ms), &ANY).map(micros)?,
                over: whole("over", self.get(over), UNITS)?,
            };
            *quota_wait_us = self.wait_us(retry_after_us)?;
        }
        let allowed = self.get(Field::Allowed as usize) != 0.0;
        let (cause, flags) = self.details();
        let [crossed, elastic, shadowed] =
            [DecisionFlag::Crossed, DecisionFlag::Elastic, DecisionFlag::Shadowed]
                .map(|flag| flags & flag as u32 != 0);
        // A request that only shadow admits has the wait of its denial.
        let wait_us = if allowed && !shadowed {
            Some(whole("delayUs", self.get(Field::DelayUs as usize), MICROSECONDS)?)
        } else {
            self.wait_us(Field::RetryAfterUs as usize)?
        };
        let source = entry(&Source::ALL, self.get(Field::Source as usize));
        let source = source.ok_or_else(|| invalid_argument("source is not one of a decision"))?;
        let degraded = entry(&Degradation::ALL, self.get(Field::Degraded as usize));
        let remaining = whole("remaining", self.get(Field::Remaining as usize), UNITS)?;
        let parts = DecisionParts {
            allowed,
            wait_us,
            source,
            degraded,
            cause,
            crossed,
            elastic,
            shadowed,
            remaining,
            quotas: &quotas[..count],
            quota_waits_us: &quota_waits_us[..count],
        };
        Decision::from_parts(parts).map_err(to_js_error)
    }

    /// How long a request, or a quota, has to wait; `None` for ever.
    fn wait_us(&self, at: usize) -> Result<Option<u64>> {
        let retry_after_us = self.get(at);
        (retry_after_us != NEVER).then(|| whole("retryAfterUs", retry_after_us, MICROSECONDS)).transpose()
    }

    /// The cause and the sum of the flags of the decision that JavaScript has written.
    fn details(&self) -> (Option<Cause>, u32) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is small, and not negative"
        )]
        let details = self.get(Field::Details as usize) as u32;
        let cause = (details / RADIX).checked_sub(1).and_then(|at| Cause::ALL.get(at as usize).copied());
        (cause, details % RADIX)
    }
}

const RADIX: u32 = DecisionFlag::Radix as u32;

/// `Field::Details` of a decision.
#[inline]
fn details(decision: &Decision) -> u32 {
    let cause = decision.cause().and_then(|cause| (1..).zip(Cause::ALL).find(|(_, known)| *known == cause));
    let flags = [
        (decision.crossed(), DecisionFlag::Crossed),
        (decision.elastic(), DecisionFlag::Elastic),
        (decision.shadowed(), DecisionFlag::Shadowed),
    ];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag as u32);
    cause.map_or(0, |(number, _)| number * RADIX) + flags.sum::<u32>()
}

/// Stands for a wait that never ends.
const NEVER: f64 = -1.0;
/// The place, among the numbers of one of several quotas, of how long it denies the request.
const WAIT: usize = NUMBERS_PER_QUOTA - 1;
/// The places of a single quota.
const ONLY_QUOTA: [Field; NUMBERS_PER_QUOTA] =
    [Field::Limit, Field::Remaining, Field::ResetAfterMs, Field::Over, Field::QuotaRetryAfterUs];
const UNITS: &str = "a whole number of units";
const MICROSECONDS: &str = "a whole number of microseconds";

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[inline]
fn index(at: Option<usize>) -> f64 {
    at.map_or(-1.0, |at| number(at as u64))
}

fn entry<T: Copy>(table: &[T], at: f64) -> Option<T> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index is small, or -1")]
    table.get(if at >= 0.0 { at as usize } else { usize::MAX }).copied()
}
