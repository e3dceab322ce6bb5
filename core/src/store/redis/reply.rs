//! What a script replies, and what it means.
//!
//! The script says what it saw and what it spent; the decisions are made of that here, by the same code as in every
//! other store. What that spends has to be what the script says it spent.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind};
use crate::rules::algorithm::{State, sliding_log};
use crate::rules::codec::reader::Reader;
use crate::rules::codec::{LONE_LENGTH, States};
use crate::rules::quota::Algorithm;
use crate::rules::transition::{Applied, Operation};
use crate::store::redis::call::{Entry, PolicyCall};
use crate::store::redis::pipeline::pending::Denied;
use crate::store::redis::pipeline::pending::Replied;
use crate::store::request::Action;

/// What stands for the code of a single answer is more than that by this.
const SINGLE: u8 = 16;

/// A reply that is not one to this call, or not one at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What became of a call.
#[derive(Debug)]
pub(crate) enum Reply<'a> {
    /// It came after its deadline, and nothing was applied.
    Late { server_now_us: u64 },
    /// Each entry was decided, at this time.
    Decided { now_us: u64, entries: Answers<'a> },
}

/// The answers to the entries of a call, in their order; to be read with [`PolicyCall::next_answer`].
#[derive(Clone, Debug)]
pub(crate) struct Answers<'a> {
    rest: Reader<'a>,
    /// The code of every answer, where they do not say it themselves.
    code: Option<u8>,
}

impl Answers<'_> {
    /// Nothing must be left when every entry has its answer.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// How an entry was found, and what the script did.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The states from before, in the order of the quotas.
    pub(crate) states: States,
    /// What the script has spent.
    pub(crate) spent: u64,
    pub(crate) found: Found,
}

/// What was stored for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Its states, or nothing.
    States,
    /// A string that is not a state; it was replaced by one in which everything is used.
    Malformed,
    /// Not even a string. It was left as it is, and the entry is not decided.
    Foreign,
}

/// Reads the bulk string of a reply to a call with this nonce.
pub(crate) fn read_reply(reply: &[u8], nonce: [u8; 6]) -> Result<Reply<'_>, Malformed> {
    let mut rest = Reader(reply);
    let head = read_head(&mut rest).filter(|head| head.nonce == nonce && head.now_us <= crate::units::MAX_US);
    match head {
        Some(Head { now_us, status, .. }) if status != 1 => {
            let code = match status {
                0 => None,
                2 => Some(1),
                status => Some(status.wrapping_sub(SINGLE)),
            };
            Ok(Reply::Decided { now_us, entries: Answers { rest, code } })
        }
        Some(Head { now_us, status: 1, .. }) if rest.is_empty() => Ok(Reply::Late { server_now_us: now_us }),
        _ => Err(Malformed),
    }
}

struct Head<'a> {
    nonce: &'a [u8],
    now_us: u64,
    status: u8,
}

fn read_head<'a>(reply: &mut Reader<'a>) -> Option<Head<'a>> {
    Some(Head { nonce: reply.bytes(6)?, now_us: reply.number(7)?, status: reply.byte()? })
}

impl PolicyCall {
    /// The next answer, which is that to this entry.
    pub(crate) fn next_answer(
        &self,
        answers: &mut Answers<'_>,
        entry: &Entry<'_>,
    ) -> Result<Answer, Malformed> {
        let code = answers.code.or_else(|| answers.rest.byte());
        let answer = code.and_then(|code| match code {
            5 => self.read_general(&mut answers.rest),
            _ => self.read_check(&mut answers.rest, code, entry),
        });
        answer.ok_or(Malformed)
    }

    /// The answer to a check that has spent all or nothing.
    fn read_check(&self, reply: &mut Reader<'_>, code: u8, entry: &Entry<'_>) -> Option<Answer> {
        let length = match code {
            1 | 2 => LONE_LENGTH,
            3 | 4 => 0,
            6 | 7 => reply.length(2)?,
            _ => return None,
        };
        let states = self.codec.read(reply.bytes(length)?)?;
        let spent = if matches!(code, 1 | 3 | 6) { entry.cost.checked_mul(entry.count.into())? } else { 0 };
        Some(Answer { states, spent, found: Found::States })
    }

    fn read_general(&self, reply: &mut Reader<'_>) -> Option<Answer> {
        let (spent, found) = (reply.number(6)?, reply.byte()?);
        let found = match found {
            0 => Found::States,
            1 => Found::Malformed,
            2 => Found::Foreign,
            _ => return None,
        };
        let length = reply.length(2)?;
        let mut states = self.codec.read(reply.bytes(length)?)?;
        for (quota, state) in self.policy.quotas().iter().zip(&mut states) {
            if quota.algorithm() == Algorithm::SlidingLog {
                *state = State::SlidingLog(Box::new(read_view(reply)?));
            }
        }
        Some(Answer { states, spent, found })
    }

    /// Decides an entry as the script has, once for each check that it stands for, in their order.
    ///
    /// # Errors
    /// When that spends something else than the script has spent; then nothing is given out.
    pub(crate) fn decide(
        &self,
        answer: Answer,
        now_us: u64,
        entry: &Entry<'_>,
        mut each: impl FnMut(Replied),
    ) -> Result<(), Error> {
        let Answer { mut states, spent: stored, .. } = answer;
        let Action::Apply(operation) = entry.action else {
            let fresh: States = self.policy.quotas().iter().map(State::fresh).collect();
            let nothing = Applied { allowed: true, spent: 0, written: false };
            let decision = self.rules.explain(&fresh, now_us, 0, nothing, None);
            each(Replied { decision, spent: 0, now_us, denied: None });
            return Ok(());
        };
        let count = if operation == Operation::Check { entry.count } else { 1 };
        let mut spent = 0;
        let decided: SmallVec<[_; 1]> = (0..count)
            .map(|_| {
                let (decision, applied) = self.rules.decide(&mut states, now_us, operation, entry.cost, None);
                spent += applied.spent;
                (decision, applied.spent)
            })
            .collect();
        if spent == stored {
            // Once one is denied all are, and nothing is written any more.
            let is_denied = decided.last().is_some_and(|(decision, _)| !decision.allowed);
            let is_known = is_denied && operation == Operation::Check && !self.counts_denied;
            let known = is_known.then(|| Arc::new(Denied { states, now_us }));
            for (decision, spent) in decided {
                let denied = known.clone().filter(|_| !decision.allowed);
                each(Replied { decision, spent, now_us, denied });
            }
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Internal,
            format!("the script has spent {stored} units where {spent} were to be spent"),
        ))
    }
}

/// A log of which only what decides is known: the units that count, when the newest was, and one entry.
fn read_view(reply: &mut Reader<'_>) -> Option<sliding_log::State> {
    let (used, newest_us) = (reply.number(6)?, reply.number(7)?);
    let (at_us, units) = (reply.number(7)?, reply.number(6)?);
    if units > used || at_us > newest_us || newest_us > crate::units::MAX_US {
        return None;
    }
    let entry = (0 < units && units < used).then_some((at_us, units));
    let newest = (used > 0).then_some((newest_us, used));
    Some(sliding_log::State::of_parts(entry.into_iter().chain(newest)))
}
