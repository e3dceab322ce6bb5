//! One key under one policy and a manual clock, with the history of its operations.

use polylimit::clock::ManualClock;
use polylimit::decision::Usage;
use polylimit::{Decision, Limiter, LimiterBuilder, Policy, Request, blocking};

use super::generators::{Move, Operation, Step, in_us, scaled, stride_us};

pub(crate) struct Session {
    policy: Policy,
    clock: ManualClock,
    limiter: blocking::Limiter,
    start_us: u64,
    /// The earliest time to which the clock may go back.
    floor_us: u64,
    done: Vec<Done>,
}

/// An operation of the history, and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    at_us: u64,
    operation: Operation,
    cost: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Decision(Decision),
    Usage(Usage),
}

impl Session {
    pub(crate) const KEY: &str = "the key";

    pub(crate) fn new(policy: &Policy, start_us: u64) -> Self {
        // With so few keys all are in one shard, so that the insertion of others may drop this one.
        Self::with(Limiter::builder().max_keys(1_000), policy, start_us)
    }

    fn with(builder: LimiterBuilder, policy: &Policy, start_us: u64) -> Self {
        let clock = ManualClock::new(start_us).unwrap();
        let limiter = builder.clock(clock.clone()).policy(policy.clone()).build().unwrap().blocking();
        Self { policy: policy.clone(), clock, limiter, start_us, floor_us: 0, done: Vec::new() }
    }

    /// A key without a state, at the current time of this one.
    pub(crate) fn unseen(&self) -> Self {
        Self::new(&self.policy, self.now_us())
    }

    /// Another key with the same history.
    pub(crate) fn twin(&self) -> Self {
        let mut twin = Self::new(&self.policy, self.start_us);
        for done in &self.done {
            twin.repeat(*done);
        }
        twin.set(self.now_us());
        twin
    }

    pub(crate) fn limiter(&self) -> &blocking::Limiter {
        &self.limiter
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    pub(crate) fn set(&self, now_us: u64) {
        self.clock.set(now_us).unwrap();
    }

    /// From now on the clock does not go back beyond the current time.
    pub(crate) fn forbid_earlier_times(&mut self) {
        self.floor_us = self.now_us();
    }

    /// The current state of the key, as a peek of cost 0 shows it.
    pub(crate) fn view(&self) -> Decision {
        self.peek(0)
    }

    pub(crate) fn peek(&self, cost: u64) -> Decision {
        self.limiter.peek(Request::new(Self::KEY).cost(cost)).unwrap()
    }

    pub(crate) fn check(&mut self, cost: u64) -> Decision {
        match self.perform(Operation::Check, cost) {
            Answer::Decision(decision) => decision,
            Answer::Usage(_) => unreachable!("a check answers with a decision"),
        }
    }

    pub(crate) fn adjust(&mut self, operation: Operation, cost: u64) -> Usage {
        match self.perform(operation, cost) {
            Answer::Usage(usage) => usage,
            Answer::Decision(_) => unreachable!("{operation:?} answers with a decision"),
        }
    }

    pub(crate) fn perform(&mut self, operation: Operation, cost: u64) -> Answer {
        self.done.push(Done { at_us: self.now_us(), operation, cost });
        let (limiter, request) = (&self.limiter, Request::new(Self::KEY).cost(cost));
        match operation {
            Operation::Check => limiter.check(request).map(Answer::Decision),
            Operation::Peek => limiter.peek(request).map(Answer::Decision),
            Operation::Take => limiter.take(request).map(Answer::Usage),
            Operation::Charge => limiter.charge(request).map(Answer::Usage),
            Operation::Refund => limiter.refund(request).map(Answer::Usage),
            Operation::Reset => limiter.reset(request).map(Answer::Usage),
        }
        .unwrap()
    }

    /// Repeats an operation on another key at the same time.
    pub(crate) fn repeat(&mut self, done: Done) -> Answer {
        self.set(done.at_us);
        self.perform(done.operation, done.cost)
    }

    /// Takes a step. Returns the operation and its answer.
    pub(crate) fn step(&mut self, step: Step) -> (Done, Answer) {
        let cost = step.cost.of(&self.policy);
        self.go(step.to, cost);
        let answer = self.perform(step.operation, cost);
        (self.done[self.done.len() - 1], answer)
    }

    /// Takes all steps. If the state is then later than the clock, a charge writes it and so moves it back in time. A peek
    /// only computes the moved state.
    pub(crate) fn run(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step);
        }
        if self.done.iter().any(|done| done.at_us > self.now_us()) {
            self.adjust(Operation::Charge, 1);
        }
    }

    /// Changes the numbers of the policy.
    pub(crate) fn change(&mut self, policy: &Policy) {
        self.limiter.asynchronous().set_policy(policy.clone()).unwrap();
        self.policy = policy.clone();
    }

    /// Moves the clock, for a request of that cost.
    pub(crate) fn go(&self, to: Move, cost: u64) {
        let (now_us, period_us) = (self.now_us(), in_us(&self.policy.quotas()[0]));
        let just = |ahead_us: u64, before| now_us.saturating_add(ahead_us.saturating_sub(u64::from(before)));
        let there_us = match to {
            Move::Stay => now_us,
            Move::By(us) => now_us + us,
            Move::Part(part) => now_us + scaled(period_us, part),
            Move::Boundary { before } => {
                just(stride_us(&self.policy) - now_us % stride_us(&self.policy), before)
            }
            Move::Retry { before } => just(self.peek(cost).retry_after_us().unwrap_or(0), before),
            Move::Reset { before } => just(self.view().reset_after_us(), before),
            Move::Back(part) => now_us.saturating_sub(scaled(period_us, part) + 1).max(self.floor_us),
        };
        if there_us <= ManualClock::MAX_US {
            self.set(there_us);
        }
    }
}
