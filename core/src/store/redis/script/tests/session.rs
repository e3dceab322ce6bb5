//! One policy in Redis, driven as a limiter drives it.

use crate::rules::decision::{Decision, QuotaUsage, Usage};
use crate::rules::history::Superseded;
use crate::rules::policy::Policy;
use crate::rules::transition::Operation;
use crate::store::redis::call::{Entry, Head, Naming, PolicyCall};
use crate::store::redis::pipeline::pending::Replied;
use crate::store::redis::reply::{Found, Reply, read_reply};
use crate::store::redis::script::tests::server::{Connection, Value};
use crate::store::request::Action;
use crate::{Request, blocking};

const TAKE: Action = Action::Apply(Operation::Take);

/// What came of one check or other operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Decision(Decision),
    Usage(Usage),
}

impl Outcome {
    pub(crate) fn quotas(&self) -> &[QuotaUsage] {
        match self {
            Self::Decision(decision) => decision.quotas(),
            Self::Usage(usage) => usage.quotas(),
        }
    }
}

pub(crate) struct Session<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) call: PolicyCall,
    superseded: Vec<Superseded>,
    nonce: u64,
    /// How many entries were healed.
    pub(crate) healed: usize,
}

impl<'a> Session<'a> {
    pub(crate) fn new(connection: &'a mut Connection, policy: &Policy) -> Self {
        let call = PolicyCall::new(policy, &[]);
        Self { connection, call, superseded: Vec::new(), nonce: 0, healed: 0 }
    }

    pub(crate) fn change(&mut self, policy: &Policy, at_us: u64) {
        self.superseded.push(Superseded { policy: self.call.policy.clone(), at_us });
        self.call = PolicyCall::new(policy, &self.superseded);
    }

    /// Sends a call and reads what came; the server learns a script that it does not know.
    pub(crate) fn send(&mut self, head: &Head, entries: &[Entry<'_>]) -> Vec<u8> {
        let mut command = Vec::new();
        self.call.write_call(&mut command, Naming::ByHash, head, entries);
        let mut value = self.connection.send(&command);
        if matches!(&value, Value::Error(text) if text.starts_with("NOSCRIPT")) {
            command.clear();
            self.call.write_call(&mut command, Naming::BySource, head, entries);
            assert!(command.len() <= self.call.call_length(Naming::BySource, entries));
            value = self.connection.send(&command);
        }
        value.bulk()
    }

    pub(crate) fn head(&mut self, manual_now_us: Option<u64>) -> Head {
        self.nonce += 1;
        Head { nonce: self.nonce.to_be_bytes().last_chunk().copied().unwrap(), deadline_us: 0, manual_now_us }
    }

    /// What came of each entry, once for each check.
    pub(crate) fn run(&mut self, manual_now_us: Option<u64>, entries: &[Entry<'_>]) -> Vec<Outcome> {
        self.run_at(manual_now_us, entries).1
    }

    /// What came of each entry by the server's clock, and what that showed.
    pub(crate) fn run_now(&mut self, entries: &[Entry<'_>]) -> (u64, Vec<Outcome>) {
        self.run_at(None, entries)
    }

    fn run_at(&mut self, manual_now_us: Option<u64>, entries: &[Entry<'_>]) -> (u64, Vec<Outcome>) {
        let head = self.head(manual_now_us);
        let reply = self.send(&head, entries);
        let Ok(Reply::Decided { now_us, entries: mut answers }) = read_reply(&reply, head.nonce) else {
            panic!("not a reply: {reply:?}")
        };
        assert!(manual_now_us.is_none_or(|manual| manual == now_us));
        let mut outcomes = Vec::new();
        for entry in entries {
            let answer = self.call.next_answer(&mut answers, entry).unwrap();
            self.healed += usize::from(answer.found == Found::Malformed);
            let decided = self.call.decide(answer, now_us, entry, |Replied { decision, spent, .. }| {
                outcomes.push(match entry.action {
                    Action::Apply(Operation::Check | Operation::Peek) => Outcome::Decision(decision),
                    _ => Outcome::Usage(decision.into_usage(if entry.action == TAKE { spent } else { 0 })),
                });
            });
            decided.unwrap();
        }
        answers.finish().unwrap();
        (now_us, outcomes)
    }
}

/// What the memory store answers.
pub(crate) fn ask(memory: &blocking::Limiter, request: Request<'_>, action: Action) -> Outcome {
    match action {
        Action::Apply(Operation::Check) => Outcome::Decision(memory.check(request).unwrap()),
        Action::Apply(Operation::Peek) => Outcome::Decision(memory.peek(request).unwrap()),
        Action::Apply(Operation::Take) => Outcome::Usage(memory.take(request).unwrap()),
        Action::Apply(Operation::Charge) => Outcome::Usage(memory.charge(request).unwrap()),
        Action::Apply(Operation::Refund) => Outcome::Usage(memory.refund(request).unwrap()),
        Action::Reset => Outcome::Usage(memory.reset(request).unwrap()),
    }
}
