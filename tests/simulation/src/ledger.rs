//! What was issued, executed and answered, and the properties that have to hold at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use polylimit::decision::{Degradation, QuotaUsage, Source};
use polylimit::metrics::Stats;
use polylimit::storage::Outage;
use tokio::time::Instant;

use crate::policies::ROWS;

mod admissions;
mod invalidations;
mod leases;
mod server_clock;

use admissions::Admissions;
pub use admissions::Event;
use invalidations::Denials;
use leases::LeaseAccounts;
use server_clock::ServerClocks;

/// The option `deadline`.
pub const DEADLINE: Duration = Duration::from_millis(50);
/// The option `denial_cache_max`.
pub const DENIAL_CACHE_MAX: Duration = Duration::from_secs(1);
/// How much later than a moment a timer may fire: tokio's timers count milliseconds.
const TIMER: Duration = Duration::from_millis(3);
/// How far the estimate of the server's time may be off by rounding.
const ROUNDING: Duration = Duration::from_micros(10);

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the operations of a limiter")]
pub enum Action {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
}

/// An operation, by what a server sees of it. Callers use each cost once, except where every check takes one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The process.
    pub process: usize,
    /// The place in [`ROWS`].
    pub policy: usize,
    /// The place in the keys of the schedule.
    pub key: usize,
    /// The operation.
    pub action: Action,
    /// Its cost.
    pub cost: u64,
}

/// The answer to an operation, by the server's log or by the limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whether it was admitted; true for what is no check.
    pub allowed: bool,
    /// The usage of each quota.
    pub quotas: Vec<QuotaUsage>,
}

#[derive(Debug)]
struct Issued {
    identity: Identity,
    at: Instant,
    deadline: Instant,
    answered: Option<(Instant, Source)>,
    is_closed: bool,
}

#[derive(Debug)]
struct Execution {
    at: Instant,
    /// The place of the server; see [`ServerClocks`].
    place: usize,
    /// Executions are numbered by their order.
    number: u64,
    told: Told,
}

/// The log of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    operations: Vec<Issued>,
    /// The operations that the server has not executed.
    waiting: BTreeMap<Identity, Vec<usize>>,
    /// What the server executed and no caller has received yet.
    untold: BTreeMap<Identity, Vec<Execution>>,
    leases: LeaseAccounts,
    denials: Denials,
    admissions: Admissions,
    clocks: ServerClocks,
    /// The processes that have died.
    dead: BTreeSet<usize>,
    first_issued: BTreeMap<usize, Instant>,
    /// While these processes hear nothing.
    stalls: Vec<(usize, Instant, Instant)>,
    /// When these processes found that a connection had ended.
    disconnections: Vec<(usize, Instant)>,
    /// When these processes began to connect.
    attempts: Vec<(usize, Instant)>,
    /// The reasons that faults may have given so far.
    pub reasons: BTreeSet<&'static str>,
    /// The option `first_connect_max`.
    pub first_connect_max: Duration,
    /// Whether callers ask so often that most of their operations meet an open breaker.
    pub asks_often: bool,
    /// What did not hold.
    pub violations: Vec<String>,
    /// Everything that happened, mixed into one number: two runs of a seed have the same.
    pub trace: u64,
    /// How many operations were executed, and how many were answered by each source.
    pub executed: u64,
    /// Answers by their source.
    pub sources: BTreeMap<&'static str, u64>,
}

impl Ledger {
    fn fail_if(&mut self, checked: Result<(), String>) {
        self.violations.extend(checked.err());
    }

    fn fail(&mut self, text: String) {
        self.violations.push(text);
    }

    fn mix(&mut self, what: impl std::hash::Hash) {
        use std::hash::{DefaultHasher, Hasher};
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.trace);
        what.hash(&mut hasher);
        self.trace = hasher.finish();
    }

    /// A caller issues an operation; returns its number.
    pub fn issue(&mut self, identity: Identity) -> usize {
        let at = Instant::now();
        let first = *self.first_issued.entry(identity.process).or_insert(at);
        let deadline = at.max(first + self.first_connect_max) + DEADLINE;
        let number = self.operations.len();
        self.operations.push(Issued { identity, at, deadline, answered: None, is_closed: false });
        self.waiting.entry(identity).or_default().push(number);
        number
    }

    /// The server at a place executed an operation of a process. Returns the number of the execution.
    pub fn execute(&mut self, place: usize, identity: Identity, told: Told, taken: u64) -> u64 {
        let at = Instant::now();
        self.executed += 1;
        let execution = self.executed;
        self.mix((
            identity.process,
            identity.policy,
            identity.key,
            identity.action as u8,
            identity.cost,
            told.allowed,
        ));
        let Identity { process, policy, key, action, cost } = identity;
        if self.dead.contains(&process) {
            self.fail(format!("{identity:?} ran after its process had died"));
        }
        match action {
            Action::Refund => self.admissions.refund(policy, key, cost),
            Action::Take => self.admissions.debit(policy, key, taken),
            Action::Check if told.allowed => self.admissions.debit(policy, key, cost),
            Action::Check => self.denials.deny((process, policy, key), execution),
            _ => {}
        }
        let is_leased = ROWS[policy].lease.is_some();
        if is_leased && matches!(action, Action::Take | Action::Refund) {
            if action == Action::Take {
                self.leases.take(process, key, taken);
            } else {
                let returned = self.leases.give_back(process, key, cost);
                self.fail_if(returned);
            }
            return execution;
        }
        let waiting = self.waiting.entry(identity).or_default();
        // Of operations with one identity, the first that may still run: the server's clock may have gone back.
        let most_late = |number: usize| self.clocks.may_be_late(process, place, self.operations[number].at);
        let in_time =
            |number: &usize| self.operations[*number].deadline + most_late(*number) + ROUNDING >= at;
        match waiting.iter().position(in_time) {
            // The limiter may ask again after it gave its lease back.
            Some(_) if is_leased && !told.allowed => {}
            Some(first) => {
                waiting.remove(first);
            }
            None if waiting.is_empty() => {
                self.fail(format!("{identity:?} was applied more often than it was issued"));
            }
            None => {
                let number = waiting.remove(0);
                let late = at - self.operations[number].deadline;
                self.fail(format!("{identity:?} ran {late:?} after its deadline"));
            }
        }
        self.untold.entry(identity).or_default().push(Execution { at, place, number: execution, told });
        execution
    }

    /// A process has read the message that an execution refunded a key.
    pub fn hear(&mut self, process: usize, policy: usize, key: usize, execution: u64) {
        self.denials.hear((process, policy, key), execution);
    }

    /// A process has died: nothing of it runs any more.
    pub fn die(&mut self, process: usize) {
        self.dead.insert(process);
    }

    /// The limiter answered an operation.
    pub fn answer(&mut self, number: usize, told: &Told, source: Source, degraded: Option<Degradation>) {
        let now = Instant::now();
        self.mix((number, told.allowed, source.name(), degraded.map(Degradation::name)));
        *self.sources.entry(source.name()).or_default() += 1;
        let Issued { identity, at, deadline, .. } = self.operations[number];
        let Identity { process, policy, key, action, cost } = identity;
        self.operations[number].answered = Some((now, source));
        if now > deadline + TIMER {
            self.fail(format!("{identity:?} was answered {:?} after its deadline", now - deadline));
        }
        if let Some(reason) = degraded {
            if !source.is_outage() {
                self.fail(format!(
                    "{identity:?}: the source {} has the reason {}",
                    source.name(),
                    reason.name()
                ));
            } else if !self.reasons.contains(reason.name()) {
                self.fail(format!("{identity:?}: no fault is a reason for {}", reason.name()));
            }
        } else if source.is_outage() {
            self.fail(format!("{identity:?}: the source {} has no reason", source.name()));
        }
        let row = ROWS[policy];
        let is_admitted = action == Action::Check && told.allowed;
        match source {
            Source::Store => {
                let untold = self.untold.entry(identity).or_default();
                match untold.iter().position(|execution| execution.told == *told && execution.at >= at) {
                    Some(first) => {
                        let Execution { at: executed, place, number, .. } = untold.remove(first);
                        self.clocks.learn(process, place, at, executed);
                        match action {
                            Action::Check if told.allowed => {
                                self.admissions.tell(policy, key, executed, cost);
                            }
                            Action::Refund => self.denials.hear((process, policy, key), number),
                            _ => {}
                        }
                    }
                    None => self.fail(format!("{identity:?}: the store has not answered {told:?}")),
                }
            }
            Source::DenialCache => {
                if told.allowed {
                    self.fail(format!("{identity:?}: the denial cache has admitted it"));
                }
                if let Err(why) = self.denials.may_answer((process, policy, key)) {
                    self.fail(format!("{identity:?}: the denial cache has no denial: {why}"));
                }
            }
            Source::Lease if row.lease.is_some() && is_admitted => {
                let spent = self.leases.spend(process, key, cost);
                self.fail_if(spent);
                self.admissions.tell(policy, key, now, cost);
            }
            Source::Fallback if row.outage == Outage::Fallback => {
                if is_admitted {
                    self.admissions.tell(policy, key, now, cost);
                } else if action == Action::Refund {
                    self.admissions.refund_by_fallback(policy, key, cost);
                }
            }
            Source::Allow if row.outage == Outage::Allow && told.allowed => {}
            Source::Deny if row.outage == Outage::Deny && (!told.allowed || action != Action::Check) => {}
            _ => self.fail(format!("{identity:?}: the source {} cannot answer {told:?}", source.name())),
        }
    }

    /// The limiter was closed before it answered.
    pub fn close(&mut self, number: usize) {
        self.mix((number, "closed"));
        self.operations[number].is_closed = true;
    }

    /// The server at a place lost state, or its clock was set.
    pub fn event(&mut self, place: usize, event: Event) {
        if let Event::Step(us) = event
            && us < 0
        {
            self.clocks.step_back(place, Duration::from_micros(us.unsigned_abs()));
        }
        self.admissions.events.push((Instant::now(), event));
    }

    /// A process hears nothing until then.
    pub fn stall(&mut self, process: usize, until: Instant) {
        let now = Instant::now();
        // It takes the place of an earlier stall, also of one that would have lasted longer.
        for (_, _, until) in self.stalls.iter_mut().filter(|(other, ..)| *other == process) {
            *until = now.min(*until);
        }
        self.stalls.push((process, now, until));
    }

    /// A process finds that its connection has ended, and connects anew.
    pub fn disconnect(&mut self, process: usize) {
        self.disconnections.push((process, Instant::now()));
    }

    /// A process begins to connect.
    pub fn connect(&mut self, process: usize) {
        self.attempts.push((process, Instant::now()));
    }

    /// What was executed for a process without an answer by the store, but for its leases.
    fn untold(&self, process: usize) -> u64 {
        let is_counted =
            |identity: &Identity| identity.process == process && ROWS[identity.policy].lease.is_none();
        let untold = self.untold.iter().filter(|(identity, _)| is_counted(identity));
        untold.map(|(_, executions)| executions.len() as u64).sum()
    }

    /// The limiter's counts at the end: what ran without an answer has to count as unknown, and units that came back to the server
    /// as returned or lost.
    pub fn count(&mut self, process: usize, stats: &Stats) {
        let (untold, unknown) = (self.untold(process), stats.unknown);
        if untold > unknown {
            self.fail(format!(
                "process {process}: {untold} operations ran without an answer, and {unknown} count as unknown"
            ));
        }
        let returned = self.leases.count(process, stats);
        self.fail_if(returned);
    }

    /// At the end the store has to decide again.
    pub fn recovered(&mut self, process: usize, policy: usize, source: Source) {
        if source.is_outage() {
            self.fail(format!(
                "process {process} is not back on the store: {} was answered by {}",
                ROWS[policy].name,
                source.name()
            ));
        }
    }

    /// Checks the properties of the whole run.
    pub fn finish(&mut self, processes: usize) {
        for number in 0..self.operations.len() {
            let Issued { identity, answered, is_closed, .. } = self.operations[number];
            if answered.is_none() && !is_closed {
                self.fail(format!("{identity:?} was never answered"));
            }
        }
        let exceeded = self.admissions.check(processes as u64);
        self.violations.extend(exceeded);
        if self.asks_often {
            self.check_breakers();
        }
    }

    /// While a process hears nothing for long, its breaker answers most operations at once.
    fn check_breakers(&mut self) {
        let known_after = Duration::from_millis(400);
        for (process, from, until) in std::mem::take(&mut self.stalls) {
            // An attempt to connect that hangs fails after a second only, and then the breaker opens. Attempts that begin later are
            // the breaker's own: it replaces the connection after two missed deadlines.
            let last_answer =
                self.operations.iter().filter(|operation| operation.identity.process == process);
            let last_answer = last_answer
                .filter_map(|operation| operation.answered)
                .filter(|(at, source)| *at < from && *source == Source::Store)
                .map(|(at, _)| at)
                .max();
            let Some(last_answer) = last_answer else { continue };
            let is_in =
                |(other, at): &(usize, Instant), span: Range<Instant>| *other == process && span.contains(at);
            let is_connecting = self.disconnections.iter().any(|it| is_in(it, from..until))
                || self.attempts.iter().any(|it| is_in(it, last_answer..from + DEADLINE));
            if is_connecting {
                continue;
            }
            let known = from + known_after + self.first_connect_max;
            let asked = self.operations.iter().filter(|operation| {
                operation.identity.process == process && operation.at > known && operation.deadline < until
            });
            let (mut slow, mut all) = (0, 0);
            for operation in asked {
                if let Some((at, source)) = operation.answered
                    && source.is_outage()
                {
                    all += 1;
                    slow += u32::from(at - operation.at > TIMER);
                }
            }
            if all >= 10 && slow * 10 > all * 8 {
                self.fail(format!(
                    "process {process} waited for {slow} of {all} operations while it heard nothing"
                ));
            }
        }
    }
}
