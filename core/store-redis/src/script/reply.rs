//! The reply of a script, and the decisions that follow from it.
//!
//! The script reports the states that it found and the units that it spent. [`PolicyCall::decide`] derives the decisions from the states,
//! with the same code as every other store, and compares what they spend with what the script spent.

use std::sync::Arc;

use smallvec::SmallVec;

use super::call::{CallEntry, PolicyCall};
use polylimit_rules::algorithm::{State, sliding_log};
use polylimit_rules::codec::{Reader, States};
use polylimit_rules::decision::{Cause, Decision};
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::quota::Algorithm;
use polylimit_rules::transition::Operation;
use polylimit_store::charge::Action;

/// Added to the entry's code, this is the status of a reply to a single entry.
const SINGLE_ENTRY: u8 = 16;

/// The decision of one check or other operation.
#[derive(Clone, Debug)]
pub(crate) struct ScriptDecision {
    pub(crate) decision: Decision,
    pub(crate) spent: u64,
    /// The time of the decision, by the store's clock.
    pub(crate) now_us: u64,
    /// The states that denied a check, if another denial by them changes no state; those that a peek saw.
    pub(crate) seen: Option<Arc<SeenStates>>,
    /// The decisions of the other charges of a request.
    pub(crate) others: Box<[Self]>,
}

/// The states that denied a check or that a peek saw, and the time by the store's clock.
#[derive(Debug)]
pub(crate) struct SeenStates {
    pub(crate) states: States,
    pub(crate) now_us: u64,
}

/// The bytes are not a valid reply to this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The reply to a call.
#[derive(Debug)]
pub(crate) enum ScriptReply<'a> {
    /// The call came after its deadline, and the script applied nothing.
    Late { server_now_us: u64 },
    /// The server refuses `TIME` in scripts, in these words, and the script applied nothing.
    TimeRefused { error: &'a [u8] },
    /// The call lacks the windows by the calendar of this time, and the script applied nothing.
    Elsewhere { now_us: u64 },
    /// The script decided every entry, at this time.
    Decided { now_us: u64, entries: EntryAnswers<'a> },
}

/// The answers to the entries of a call, in their order. [`PolicyCall::next_answer`] reads them.
#[derive(Clone, Debug)]
pub(crate) struct EntryAnswers<'a> {
    now_us: u64,
    rest: Reader<'a>,
    codes: Codes<'a>,
}

/// The codes of answers: one for all, or those of the remaining answers.
#[derive(Clone, Debug)]
enum Codes<'a> {
    All(u8),
    Each(Reader<'a>),
}

impl EntryAnswers<'_> {
    /// # Errors
    /// When bytes are left after the last answer.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        let has_codes = matches!(self.codes, Codes::Each(codes) if !codes.is_empty());
        if self.rest.is_empty() && !has_codes { Ok(()) } else { Err(Malformed) }
    }
}

/// The states that the script found for an entry, and the units that it spent.
#[derive(Debug)]
pub(crate) struct EntryAnswer {
    /// The states before the call, in the order of the quotas.
    pub(crate) states: States,
    pub(crate) spent: u64,
    pub(crate) found: Found,
    /// Whether the operation was applied: not if it would have been admitted and another one of its request was not.
    pub(crate) is_applied: bool,
}

/// The content of an entry's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Valid states, or nothing.
    States,
    /// A string that is not a state. The script replaced it by a state in which everything is used.
    Malformed,
    /// Another type than a string. The script left it as it is and did not decide the entry.
    Foreign,
    /// The state of a quota in a form of a later version. The script left it as it is and did not decide the entry.
    Newer,
}

/// Reads the bulk string of a reply to a call with this nonce.
pub(crate) fn read_reply(reply: &[u8], nonce: [u8; 6]) -> Result<ScriptReply<'_>, Malformed> {
    let mut rest = Reader(reply);
    let header = read_header(&mut rest)
        .filter(|header| header.nonce == nonce && header.now_us <= polylimit_rules::units::MAX_US);
    match header {
        Some(ReplyHeader { status: 3, .. }) => Ok(ScriptReply::TimeRefused { error: rest.0 }),
        Some(ReplyHeader { now_us, status: 5, .. }) if rest.is_empty() => {
            Ok(ScriptReply::Elsewhere { now_us })
        }
        Some(ReplyHeader { now_us, status, .. }) if !matches!(status, 1 | 5) => {
            let codes = match status {
                0 => {
                    rest.length(2).and_then(|count| rest.bytes(count)).map(|codes| Codes::Each(Reader(codes)))
                }
                2 => Some(Codes::All(1)),
                status => Some(Codes::All(status.wrapping_sub(SINGLE_ENTRY))),
            };
            let codes = codes.ok_or(Malformed)?;
            Ok(ScriptReply::Decided { now_us, entries: EntryAnswers { now_us, rest, codes } })
        }
        Some(ReplyHeader { now_us, status: 1, .. }) if rest.is_empty() => {
            Ok(ScriptReply::Late { server_now_us: now_us })
        }
        _ => Err(Malformed),
    }
}

struct ReplyHeader<'a> {
    nonce: &'a [u8],
    now_us: u64,
    status: u8,
}

fn read_header<'a>(reply: &mut Reader<'a>) -> Option<ReplyHeader<'a>> {
    Some(ReplyHeader { nonce: reply.bytes(6)?, now_us: reply.number(7)?, status: reply.byte()? })
}

impl PolicyCall {
    /// The next answer, to this entry.
    ///
    /// # Errors
    /// When the bytes are no answer to it.
    pub(crate) fn next_answer(
        &self,
        answers: &mut EntryAnswers<'_>,
        entry: &CallEntry<'_>,
    ) -> Result<EntryAnswer, Malformed> {
        let code = match &mut answers.codes {
            Codes::All(code) => Some(*code),
            Codes::Each(codes) => codes.byte(),
        };
        let answer = code.and_then(|code| match code {
            5 => self.read_general(answers),
            6 => self.read_general(answers).map(|answer| EntryAnswer { is_applied: false, ..answer }),
            9 => Some(self.nothing(Found::Foreign)),
            10 => Some(self.nothing(Found::Newer)),
            _ => self.read_fast_path(answers, code, entry),
        });
        answer.ok_or(Malformed)
    }

    /// The answer to a charge of a request of which nothing was applied.
    fn nothing(&self, found: Found) -> EntryAnswer {
        let states = self.policy.quotas().iter().map(State::fresh).collect();
        EntryAnswer { states, spent: 0, found, is_applied: false }
    }

    /// The answer of the fast path to a check, which spent all or nothing.
    fn read_fast_path(
        &self,
        answers: &mut EntryAnswers<'_>,
        code: u8,
        entry: &CallEntry<'_>,
    ) -> Option<EntryAnswer> {
        let EntryAnswers { now_us, rest, .. } = answers;
        let states = match code {
            1 | 2 | 7 => self.codec.read_in_order(rest, *now_us)?,
            3 | 4 | 8 => self.codec.read(&[], *now_us).ok()?,
            _ => return None,
        };
        let spent = if matches!(code, 1 | 3) { entry.cost.checked_mul(entry.count.into())? } else { 0 };
        Some(EntryAnswer { states, spent, found: Found::States, is_applied: code <= 4 })
    }

    fn read_general(
        &self,
        EntryAnswers { now_us, rest: reply, .. }: &mut EntryAnswers<'_>,
    ) -> Option<EntryAnswer> {
        let (spent, found) = (reply.number(6)?, reply.byte()?);
        let found = match found {
            0 => Found::States,
            1 => Found::Malformed,
            2 => Found::Foreign,
            3 => Found::Newer,
            _ => return None,
        };
        let length = reply.length(3)?;
        let mut states = self.codec.read(reply.bytes(length)?, *now_us).ok()?;
        for (quota, state) in self.policy.quotas().iter().zip(&mut states) {
            if quota.algorithm() == Algorithm::SlidingLog {
                *state = State::SlidingLog(Box::new(read_view(reply)?));
            }
        }
        Some(EntryAnswer { states, spent, found, is_applied: true })
    }

    /// Decides an entry as the script did, once for each of its checks, and passes each decision to `each`.
    ///
    /// # Errors
    /// When the decisions do not spend what the script spent. Then `each` is not called.
    pub(crate) fn decide(
        &self,
        answer: EntryAnswer,
        now_us: u64,
        entry: &CallEntry<'_>,
        mut each: impl FnMut(ScriptDecision),
    ) -> Result<(), Error> {
        let EntryAnswer { mut states, spent: stored, is_applied, .. } = answer;
        let Action::Apply(operation) = entry.action else {
            let fresh: States = self.policy.quotas().iter().map(State::fresh).collect();
            let decision = self.rules.view(&fresh, now_us);
            each(ScriptDecision { decision, spent: 0, now_us, seen: None, others: Box::default() });
            return Ok(());
        };
        if !is_applied {
            let operation = entry.operation(operation, now_us);
            let decision = self.rules.view_admitted(&mut states, operation, None);
            each(ScriptDecision { decision, spent: 0, now_us, seen: None, others: Box::default() });
            return Ok(());
        }
        let has_reservations = states.iter().any(|state| matches!(state, State::Reservations(_)));
        let count = if operation == Operation::Check { entry.count } else { 1 };
        let mut spent = 0;
        let decided: SmallVec<[_; 1]> = (0..count)
            .map(|_| {
                let (decision, applied) =
                    self.rules.decide(&mut states, entry.operation(operation, now_us), None);
                spent += applied.spent;
                (decision, applied.spent)
            })
            .collect();
        if spent == stored {
            // All checks after a denied one are denied as well, and write nothing.
            let denial = decided.last().map(|(decision, _)| decision).filter(|decision| !decision.allowed);
            // Denials of a blocked key are not counted.
            let counts = |denial: &Decision| self.counts_denied && denial.cause != Some(Cause::Blocked);
            let is_check = operation == Operation::Check && !has_reservations;
            let is_known = is_check && denial.is_some_and(|denial| !counts(denial));
            let is_peek = operation == Operation::Peek;
            let known = (is_known || is_peek).then(|| Arc::new(SeenStates { states, now_us }));
            for (decision, spent) in decided {
                let seen = known.clone().filter(|_| is_peek || !decision.allowed);
                each(ScriptDecision { decision, spent, now_us, seen, others: Box::default() });
            }
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Internal,
            format!("the script has spent {stored} units where {spent} were to be spent"),
        ))
    }
}

/// A log as far as a decision needs it: the units that count, the time of the newest, and the entries with which there are as
/// many units as the decision asks about, oldest first.
fn read_view(reply: &mut Reader<'_>) -> Option<sliding_log::State> {
    let (used, newest_us, count) = (reply.number(6)?, reply.number(7)?, reply.length(2)?);
    let mut entries: SmallVec<[(u64, u64); 2]> = SmallVec::new();
    for _ in 0..count {
        let (at_us, units) = (reply.number(7)?, reply.number(6)?);
        let is_later = entries.last().is_none_or(|(before_us, less)| *before_us <= at_us && *less < units);
        if !is_later || units == 0 || units > used || at_us > newest_us {
            return None;
        }
        entries.push((at_us, units));
    }
    if newest_us > polylimit_rules::units::MAX_US {
        return None;
    }
    entries.retain(|(_, units)| *units < used);
    entries.extend((used > 0).then_some((newest_us, used)));
    Some(sliding_log::State::of_parts(entries))
}

#[cfg(test)]
mod tests;
