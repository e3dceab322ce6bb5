//! Helpers for tests that call the scripts of a policy on a server, without a limiter.

use super::call::{CallEntry, CallHeader, CommandBuffer, PolicyCall, ScriptClock, ScriptReference};
use super::reply::{Found, ScriptDecision, ScriptReply, read_reply};
use crate::keys::KeyEncoder;
use polylimit_rules::codec::read_log;
use polylimit_rules::decision::{Decision, QuotaUsage, Usage};
use polylimit_rules::history::{Change, PastPolicy};
use polylimit_rules::policy::Policy;
use polylimit_rules::transition;
use polylimit_store::charge::Action;

/// The operation of a call on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the operations of a limiter")]
pub enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
}

impl Operation {
    fn action(self) -> Action {
        Action::Apply(match self {
            Self::Check => transition::Operation::Check,
            Self::Peek => transition::Operation::Peek,
            Self::Take => transition::Operation::Take,
            Self::Charge => transition::Operation::Charge,
            Self::Refund => transition::Operation::Refund,
            Self::Reset => return Action::Reset,
        })
    }
}

/// An operation on a main key of Redis, with its cost and the number of checks.
pub type Item<'a> = (&'a [u8], Operation, u64, u16);

/// The answer to one operation.
#[derive(Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the answers of a limiter")]
pub enum Outcome {
    Decision(Decision),
    Usage(Usage),
}

impl Outcome {
    /// The usage of each quota.
    pub fn quotas(&self) -> &[QuotaUsage] {
        match self {
            Self::Decision(decision) => decision.quotas(),
            Self::Usage(usage) => usage.quotas(),
        }
    }
}

/// The content of a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// The bytes are not a valid reply to the call.
    Malformed,
    /// The script spent something else than the decisions that follow from its states.
    Contradictory,
    /// The call came after its deadline, by the server's time in microseconds.
    Late(u64),
    /// The script decided.
    Decided {
        /// The time by which it decided, in microseconds.
        now_us: u64,
        /// The answers, one for each check.
        outcomes: Vec<Outcome>,
        /// The number of entries with a malformed state.
        healed: usize,
    },
}

/// The script of a policy.
#[derive(Debug)]
pub struct Script {
    call: PolicyCall,
    superseded: Vec<PastPolicy>,
}

impl Script {
    /// The script of a policy without past quotas.
    pub fn new(policy: &Policy) -> Self {
        Self { call: PolicyCall::new(policy, Change::NONE), superseded: Vec::new() }
    }

    /// Changes the policy's quotas at a time in microseconds.
    pub fn change(&mut self, policy: &Policy, at_us: u64) {
        self.superseded.push(PastPolicy { policy: self.call.policy.clone(), at_us });
        self.call = PolicyCall::new(policy, Change::Past(&self.superseded));
    }

    /// Where the header begins in the first argument of a command: the nonce, the deadline and the operations.
    pub fn header_at(&self) -> usize {
        self.call.fast_path_arguments.len()
    }

    /// Whether one item can stand for several checks.
    pub fn can_coalesce(&self) -> bool {
        self.call.can_coalesce()
    }

    /// The command, as `EVALSHA` and as `EVAL`.
    ///
    /// # Panics
    /// When it is longer than its announced length.
    pub fn commands(
        &self,
        nonce: [u8; 6],
        deadline_us: u64,
        manual_now_us: Option<u64>,
        items: &[Item<'_>],
    ) -> [Vec<u8>; 2] {
        let clock = manual_now_us.map_or(ScriptClock::Server, ScriptClock::Manual);
        let (header, entries) = (
            CallHeader { nonce, deadline_us, clock, windows_us: windows_of(clock), is_plain: false },
            entries(items),
        );
        [ScriptReference::Hash, ScriptReference::Source].map(|script| {
            let mut command = Vec::new();
            self.call.write_call(&mut command, &mut CommandBuffer::default(), script, &header, &entries);
            command
        })
    }

    /// Reads the reply to a command of these items.
    pub fn read(&self, reply: &[u8], nonce: [u8; 6], items: &[Item<'_>]) -> Read {
        let (now_us, mut answers) = match read_reply(reply, nonce) {
            Ok(ScriptReply::Decided { now_us, entries }) => (now_us, entries),
            Ok(ScriptReply::Late { server_now_us }) => return Read::Late(server_now_us),
            Ok(ScriptReply::TimeRefused { .. } | ScriptReply::Elsewhere { .. }) | Err(_) => {
                return Read::Malformed;
            }
        };
        let (mut outcomes, mut healed) = (Vec::new(), 0);
        for (entry, (_, operation, ..)) in entries(items).iter().zip(items) {
            let Ok(answer) = self.call.next_answer(&mut answers, entry) else { return Read::Malformed };
            healed += usize::from(answer.found == Found::Malformed);
            let decided =
                self.call.decide(answer, now_us, entry, |ScriptDecision { decision, spent, .. }| {
                    outcomes.push(match operation {
                        Operation::Check | Operation::Peek => Outcome::Decision(decision),
                        Operation::Take => Outcome::Usage(decision.into_usage(spent)),
                        _ => Outcome::Usage(decision.into_usage(0)),
                    });
                });
            if decided.is_err() {
                return Read::Contradictory;
            }
        }
        if answers.finish().is_err() { Read::Malformed } else { Read::Decided { now_us, outcomes, healed } }
    }
}

fn entries<'a>(items: &[Item<'a>]) -> Vec<CallEntry<'a>> {
    let entry = |&(key, operation, cost, count): &Item<'a>| CallEntry {
        key,
        action: operation.action(),
        cost,
        headroom: 0,
        count,
        hold: None,
    };
    items.iter().map(entry).collect()
}

/// The channel on which the scripts publish refunds, resets and blocks of a user key.
pub fn invalidation_channel(prefix: &str, policy: &str, user_key: &[u8]) -> String {
    let keys = KeyEncoder::new(prefix, None);
    keys.channel_name(keys.channel(&keys.policy_prefix(policy), user_key))
}

/// Whether bytes are a log.
pub fn is_log(bytes: &[u8]) -> bool {
    read_log(bytes).is_some()
}

/// The time whose windows a call by this clock gets.
fn windows_of(clock: ScriptClock) -> u64 {
    match clock {
        ScriptClock::Manual(now_us) | ScriptClock::Estimate(now_us) => now_us,
        ScriptClock::Server => polylimit_runtime::clock::Clock::system().now_us(),
    }
}
