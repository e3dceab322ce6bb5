//! The layout of requests and answers in the buffer of a direct call. Numbers are little-endian and not aligned.
//!
//! **Text and bytes** are their length (`u32`) and their bytes; the length [`NONE`] is a value that is left out. **Lists** are
//! the number of their items (`u32`) and the items.
//!
//! **Request:** the header, and what the operation needs.
//!
//! | offset | type | field |
//! |---:|---|---|
//! | 0 | `u8` | operation: see `direct.rs` |
//! | 1 | `u8` | how it waits: [`TRY`], [`WAIT`] and [`SUBMIT`] |
//! | 8 | `u64` | queue, for [`SUBMIT`] |
//! | 16 | `u64` | tag, for [`SUBMIT`] |
//! | 24 | `i64` | timeout in microseconds |
//! | 32 | | arguments |
//!
//! The argument of an operation on one key is a check's request: `u8` [`HAS_COST`] and [`HAS_PLAN`], cost (`i64`), headroom in percent
//! (`i32`), key (bytes), policy (text or [`NONE`]), and the plan (text) where it has one. Those of operations on several are a list of
//! them.
//!
//! **Answer:** its kind (`u8`), and
//!
//! | kind | contents |
//! |---|---|
//! | [`ERROR`] | number of the error (`u8`, see `error_table`), message (text) |
//! | [`DECISION`] | a decision |
//! | [`USAGE`] | a usage, which is laid out as a decision |
//! | [`DECISIONS`] | a list of answers, each an [`ERROR`] or a [`DECISION`] |
//! | [`READY`] | nothing |
//! | [`FINDINGS`] | a list of findings: severity, subject and message (texts) |
//! | [`RESERVATION`] | the handle (`u64`, 0 where nothing was set aside), the id (bytes), a decision |
//! | 7, 8 and 9 | see `direct/configured.rs` |
//! | 10 | see `direct/reports.rs` |
//! | [`RESERVATIONS`] | the id (bytes), and an answer of the kind [`DECISIONS`] |
//!
//! **Decision**, offsets from its start:
//!
//! | offset | type | field |
//! |---:|---|---|
//! | 0 | `u8` | [`ALLOWED`], [`IS_OUTAGE`], [`CROSSED`], [`ELASTIC`], [`SHADOWED`], and in a usage [`FOUND`] and [`REPEATED`] |
//! | 1 | `u8` | source: index in `source_names` |
//! | 2 | `u8` | degradation: index in `degradation_names` and 1; 0 is none |
//! | 3 | `u8` | cause: index in `cause_names` and 1; 0 is none, as in a usage |
//! | 4 | `i64` | remaining |
//! | 12 | `i64` | `retry_after` in microseconds; -1 is never. 0 in a usage |
//! | 20 | `i64` | `reset_after` in microseconds |
//! | 28 | `i64` | `delay` in microseconds; in a usage the units that were taken |
//! | 36 | `i64` | over |
//! | 44 | `u32` | number of quotas |
//! | 48 | 5 `i64` each | limit, remaining, `reset_after`, over and `retry_after` of each quota: in microseconds, 0 where it admits the request and in a usage, -1 is never |

use polylimit::decision::{Cause, Degradation, QuotaUsage, QuotaVerdict, Source, Usage};
use polylimit::raw::{Answer, DecisionParts};
use polylimit::reservation::ReservationId;
use polylimit::{Decision, Error, Request};

use crate::decision::{ADMITS, unexpected};
use crate::error::{PolylimitError, Result};
use crate::number::{percent, signed, unsigned};

/// The length of what is left out.
pub(super) const NONE: u32 = u32::MAX;
/// Answers what needs no waiting.
pub(super) const TRY: u8 = 1;
/// Waits for the store on this thread.
pub(super) const WAIT: u8 = 2;
/// Submits what has to wait to a queue.
pub(super) const SUBMIT: u8 = 4;

pub(super) const HEADER_LENGTH: usize = 32;

const ERROR: u8 = 0;
const DECISION: u8 = 1;
const USAGE: u8 = 2;
const DECISIONS: u8 = 3;
const READY: u8 = 4;
const FINDINGS: u8 = 5;
pub(super) const RESERVATION: u8 = 6;
const RESERVATIONS: u8 = 11;

const ALLOWED: u8 = 1;
const IS_OUTAGE: u8 = 2;
const FOUND: u8 = 4;
const CROSSED: u8 = 8;
const ELASTIC: u8 = 16;
const SHADOWED: u8 = 32;
const REPEATED: u8 = 64;
const NEVER: i64 = -1;

const HAS_COST: u8 = 1;
const HAS_PLAN: u8 = 2;

/// The header of a request.
pub(super) struct Header {
    pub(super) operation: u8,
    pub(super) waits: u8,
    pub(super) queue: u64,
    pub(super) tag: u64,
    pub(super) timeout_us: i64,
}

/// A request as it was read.
struct RequestParts<'a> {
    cost: Option<i64>,
    headroom: i32,
    key: &'a [u8],
    policy: Option<&'a [u8]>,
    plan: Option<&'a [u8]>,
}

/// Reads a request. Nothing beyond the end of the buffer is read.
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(buffer: &'a [u8]) -> Self {
        Self { left: buffer }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, left) =
            self.left.split_at_checked(length).ok_or_else(|| malformed("its end is missing"))?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn header(&mut self) -> Result<Header> {
        let [operation, waits, ..] = self.array::<8>()?;
        let (queue, tag) = (self.u64()?, self.u64()?);
        Ok(Header { operation, waits, queue, tag, timeout_us: self.i64()? })
    }

    /// Bytes that may be left out.
    pub(super) fn bytes(&mut self) -> Result<Option<&'a [u8]>> {
        match self.u32()? {
            NONE => Ok(None),
            length => self.take(length as usize).map(Some),
        }
    }

    /// Text that may be left out.
    pub(super) fn text(&mut self) -> Result<Option<&'a str>> {
        self.bytes()?.map(text).transpose()
    }

    /// A list. The number of items does not decide how much memory is reserved.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.u32()?;
        let mut items = Vec::with_capacity((count as usize).min(self.left.len()));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// A check's request. The inner error concerns this one alone.
    pub(super) fn request(&mut self) -> Result<Result<Request<'a>>> {
        Ok(self.request_parts()?.request())
    }

    /// A check's request whose cost is what was spent, if that is known.
    pub(super) fn spending(&mut self) -> Result<(Request<'a>, Option<u64>)> {
        let mut parts = self.request_parts()?;
        let spent = parts.cost.take().map(|spent| unsigned("spent", spent)).transpose()?;
        Ok((parts.request()?, spent))
    }

    fn request_parts(&mut self) -> Result<RequestParts<'a>> {
        let (flags, cost, headroom) = (self.u8()?, self.i64()?, self.array().map(i32::from_le_bytes)?);
        let key = self.bytes()?.ok_or_else(|| malformed("its key is missing"))?;
        let policy = self.bytes()?;
        let plan = if flags & HAS_PLAN == 0 { None } else { self.bytes()? };
        Ok(RequestParts { cost: (flags & HAS_COST != 0).then_some(cost), headroom, key, policy, plan })
    }

    /// A decision that an answer had.
    pub(super) fn decision(&mut self) -> Result<Decision> {
        let [flags, source, degradation, cause] = self.array()?;
        let (remaining, retry_after_us) = (unsigned("remaining", self.i64()?)?, self.i64()?);
        let (_, delay_us, _) = (self.i64()?, self.i64()?, self.i64()?);
        let mut quota_waits_us = Vec::new();
        let quotas = self.list(|reader| {
            let (limit, remaining) =
                (unsigned("limit", reader.i64()?)?, unsigned("remaining", reader.i64()?)?);
            let reset_after_us = unsigned("reset_after", reader.i64()?)?;
            let over = unsigned("over", reader.i64()?)?;
            quota_waits_us.push(wait(reader.i64()?)?);
            Ok(QuotaUsage { limit, remaining, reset_after_us, over })
        })?;
        let allowed = flags & ALLOWED != 0;
        let shadowed = flags & SHADOWED != 0;
        let wait_us = wait(if allowed && !shadowed { delay_us } else { retry_after_us })?;
        let source =
            Source::ALL.get(usize::from(source)).ok_or_else(|| malformed("its source is not known"))?;
        let degraded = usize::from(degradation).checked_sub(1).and_then(|at| Degradation::ALL.get(at));
        let (degraded, source) = (degraded.copied(), *source);
        let cause = usize::from(cause).checked_sub(1).and_then(|at| Cause::ALL.get(at)).copied();
        let (crossed, elastic) = (flags & CROSSED != 0, flags & ELASTIC != 0);
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
            quotas: &quotas,
            quota_waits_us: &quota_waits_us,
        };
        Ok(Decision::from_parts(parts)?)
    }
}

impl<'a> RequestParts<'a> {
    fn request(self) -> Result<Request<'a>> {
        let mut request = Request::new(self.key);
        if let Some(policy) = self.policy {
            request = request.policy(text(policy)?);
        }
        if let Some(cost) = self.cost {
            request = request.cost(unsigned("cost", cost)?);
        }
        if self.headroom != 0 {
            request = request.headroom(percent(self.headroom)?);
        }
        if let Some(plan) = self.plan {
            request = request.plan(text(plan)?);
        }
        Ok(request)
    }
}

/// A wait that may be never.
fn wait(wait_us: i64) -> Result<Option<u64>> {
    if wait_us == NEVER { Ok(None) } else { unsigned("wait", wait_us).map(Some) }
}

fn text(bytes: &[u8]) -> Result<&str> {
    let is_not_utf8 =
        |_| PolylimitError::InvalidArgument("a text is not UTF-8: only keys may be other bytes".to_owned());
    std::str::from_utf8(bytes).map_err(is_not_utf8)
}

pub(super) fn malformed(why: &str) -> PolylimitError {
    PolylimitError::Internal(format!("a direct call cannot be read: {why}"))
}

/// Writes an answer into the buffer, or elsewhere when it does not fit.
pub(super) struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
    beside: Option<Vec<u8>>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, at: 0, beside: None }
    }

    /// The number of bytes in the buffer, or the whole answer if it does not fit there.
    pub(super) fn end(self) -> std::result::Result<usize, Vec<u8>> {
        self.beside.map_or(Ok(self.at), Err)
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        if self.beside.is_none() {
            let end = self.at.saturating_add(bytes.len());
            if let Some(room) = self.buffer.get_mut(self.at..end) {
                room.copy_from_slice(bytes);
                self.at = end;
                return;
            }
        }
        let written = &self.buffer[..self.at];
        self.beside.get_or_insert_with(|| written.to_vec()).extend_from_slice(bytes);
    }

    pub(super) fn u8(&mut self, number: u8) {
        self.raw(&[number]);
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.raw(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.raw(&number.to_le_bytes());
    }

    pub(super) fn number(&mut self, number: u64) {
        self.raw(&signed(number).to_le_bytes());
    }

    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(NONE));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Bytes that may be left out.
    pub(super) fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.u32(NONE),
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    pub(super) fn answer(&mut self, answer: &std::result::Result<Answer, Error>) {
        match answer {
            Ok(Answer::Decision(decision)) => {
                self.u8(DECISION);
                self.decision(decision);
            }
            Ok(Answer::Usage(usage)) => {
                self.u8(USAGE);
                self.usage(usage);
            }
            Ok(Answer::Ready) => self.u8(READY),
            Ok(Answer::Findings(findings)) => {
                self.u8(FINDINGS);
                self.count(findings.len());
                for finding in findings {
                    self.text(finding.severity.name());
                    self.text(finding.subject);
                    self.text(&finding.message);
                }
            }
            Ok(Answer::Decisions(decisions)) => self.decisions(decisions, Vec::new()),
            Ok(Answer::Request(decided)) => self.write_request(decided),
            Ok(Answer::Configuration(status)) => self.write_status(status),
            Ok(other) => self.error(&unexpected(other)),
            Err(error) => self.error(&error.clone().into()),
        }
    }

    /// The decisions on several requests, and among them the errors of those that were refused before.
    pub(super) fn decisions(
        &mut self,
        decisions: &[std::result::Result<Decision, Error>],
        refused: Vec<(usize, PolylimitError)>,
    ) {
        self.u8(DECISIONS);
        self.count(decisions.len() + refused.len());
        let mut decided = decisions.iter();
        let mut refused = refused.into_iter().peekable();
        for at in 0..decisions.len() + refused.len() {
            if let Some((_, error)) = refused.next_if(|(index, _)| *index == at) {
                self.error(&error);
                continue;
            }
            match decided.next() {
                Some(Ok(decision)) => {
                    self.u8(DECISION);
                    self.decision(decision);
                }
                Some(Err(error)) => self.error(&error.clone().into()),
                None => self.error(&PolylimitError::Internal("a check was not answered".to_owned())),
            }
        }
    }

    /// The decisions on requests that were reserved under this id.
    pub(super) fn reserved_together(
        &mut self,
        id: &ReservationId,
        answer: &std::result::Result<Answer, Error>,
    ) {
        if let Ok(Answer::Decisions(_)) = answer {
            self.u8(RESERVATIONS);
            self.bytes(id.as_bytes());
        }
        self.answer(answer);
    }

    pub(super) fn error(&mut self, error: &PolylimitError) {
        self.u8(ERROR);
        self.u8(u8::try_from(error.kind().number()).unwrap_or(0));
        self.text(&error.to_string());
    }

    pub(super) fn decision(&mut self, decision: &Decision) {
        let told = [
            (decision.allowed(), ALLOWED),
            (decision.crossed(), CROSSED),
            (decision.elastic(), ELASTIC),
            (decision.shadowed(), SHADOWED),
        ];
        let flags = told.iter().fold(0, |flags, (is_so, flag)| if *is_so { flags | flag } else { flags });
        self.state(flags, decision.source(), decision.degraded(), decision.cause());
        self.times(
            decision.remaining(),
            decision.retry_after_us(),
            decision.reset_after_us(),
            decision.delay_us(),
        );
        self.number(decision.over());
        self.quotas(decision.quotas(), decision.verdicts());
    }

    fn usage(&mut self, usage: &Usage) {
        let flags = if usage.found() { FOUND } else { 0 } | if usage.repeated() { REPEATED } else { 0 };
        self.state(flags, usage.source(), usage.degraded(), None);
        self.times(usage.remaining(), Some(0), usage.reset_after_us(), usage.taken());
        self.number(usage.over());
        self.quotas(usage.quotas(), std::iter::repeat(ADMITS));
    }

    fn state(&mut self, flags: u8, source: Source, degraded: Option<Degradation>, cause: Option<Cause>) {
        let flags = flags | if source.is_outage() { IS_OUTAGE } else { 0 };
        let degraded = degraded.map_or(0, |why| 1 + index(&Degradation::ALL, why));
        self.raw(&[flags, index(&Source::ALL, source), degraded, cause_number(cause)]);
    }

    fn times(&mut self, remaining: u64, retry_after_us: Option<u64>, reset_after_us: u64, last: u64) {
        self.number(remaining);
        self.wait(retry_after_us);
        self.number(reset_after_us);
        self.number(last);
    }

    fn quotas(&mut self, quotas: &[QuotaUsage], verdicts: impl IntoIterator<Item = QuotaVerdict>) {
        self.count(quotas.len());
        for (usage, verdict) in quotas.iter().zip(verdicts) {
            self.number(usage.limit);
            self.number(usage.remaining);
            self.number(usage.reset_after_us);
            self.number(usage.over);
            self.wait(verdict.retry_after_us);
        }
    }

    /// A wait in microseconds that may be never.
    pub(super) fn wait(&mut self, wait_us: Option<u64>) {
        self.raw(&wait_us.map_or(NEVER, signed).to_le_bytes());
    }
}

/// The number of a cause: 0 is none.
pub(super) fn cause_number(cause: Option<Cause>) -> u8 {
    cause.map_or(0, |cause| 1 + index(&Cause::ALL, cause))
}

/// The position of a value among all values; there are less than 255.
fn index<T: PartialEq>(all: &[T], value: T) -> u8 {
    all.iter().position(|one| *one == value).and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

/// The names of sources, in the order of their numbers in direct calls.
#[uniffi::export]
pub fn source_names() -> Vec<String> {
    Source::ALL.iter().map(|source| source.name().to_owned()).collect()
}

/// The names of degradations, in the order of their numbers in direct calls.
#[uniffi::export]
pub fn degradation_names() -> Vec<String> {
    Degradation::ALL.iter().map(|why| why.name().to_owned()).collect()
}

/// The names of causes, in the order of their numbers in direct calls.
#[uniffi::export]
pub fn cause_names() -> Vec<String> {
    Cause::ALL.iter().map(|cause| cause.name().to_owned()).collect()
}
