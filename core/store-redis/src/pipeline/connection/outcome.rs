//! The outcome of a command, from its reply or the lack of one: its operations are answered or retried.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{RedisError, parse_redis_value};
use tokio::time::timeout_at;

use crate::pipeline::batch::{Command, InFlight};
use crate::pipeline::connection::{Connection, End};
use crate::pipeline::pending::{OperationResult, PendingOperation};
use crate::script::call::{RequestEntry, ScriptClock, ScriptReference};
use crate::script::reply::{EntryAnswers, Found, ScriptDecision, ScriptReply, read_reply};
use crate::transport::connect::server_us;
use crate::transport::failure::{Class, Failure, Refusal};
use crate::transport::resp::Reply;
use polylimit_rules::decision::Degradation;
use polylimit_runtime::backoff;
use polylimit_runtime::monotonic;

/// This many consecutive calls without a reply in time make a connection suspect.
const SUSPECT_AFTER: u32 = 2;
/// The longest pause before a retry on a server that refuses temporarily.
const PAUSE: Duration = Duration::from_millis(10);

impl Connection {
    /// Answers the oldest command in flight.
    pub(crate) fn replied(&mut self, reply: Reply<'_>) -> Result<(), Degradation> {
        let Some(mut in_flight) = self.flights.pop_front() else { return Err(Degradation::Protocol) };
        if in_flight.skip > 0 {
            if let Reply::Pair(seconds, micros) = reply {
                self.learn_time(seconds, micros, in_flight.sent);
            }
            in_flight.skip -= 1;
            self.flights.push_front(in_flight);
            return Ok(());
        }
        self.timeouts = 0;
        // The server has answered after that, and may have closed the connection since: the process may have been suspended.
        self.last_open = self.last_open.max(in_flight.sent);
        // An overdue reply was counted when it was given up.
        if !in_flight.overdue {
            in_flight.command.took(self.last_used.saturating_duration_since(in_flight.sent));
        }
        match reply {
            Reply::Line(value) => {
                if let Err(error) = value.extract_error() {
                    let refusal = Refusal::read(&error);
                    if in_flight.script == ScriptReference::Module && refusal.lacks_module(&error) {
                        // It has done nothing, and scripts decide from now on.
                        self.differences.module = false;
                        self.send(in_flight.command, ScriptReference::Hash);
                        return Ok(());
                    }
                    let makes_no_sense = match refusal {
                        Refusal::NoScript => in_flight.script == ScriptReference::Source,
                        Refusal::NoFirstLine => in_flight.header.is_plain,
                        _ => false,
                    };
                    if makes_no_sense {
                        // The reply belongs to another command, or to none.
                        return Self::not_a_reply(&in_flight);
                    }
                    if let Refusal::Failed(failure) = &refusal {
                        in_flight.span.failed(failure.reason);
                    }
                    self.refused(in_flight.command, refusal, error);
                    return Ok(());
                }
            }
            Reply::Bulk(bytes) => match read_reply(bytes, in_flight.header.nonce) {
                Ok(ScriptReply::Decided { now_us, entries }) => {
                    self.has_decided = true;
                    // Otherwise the reply has the call's time.
                    if in_flight.header.clock == ScriptClock::Server {
                        self.server.time.learn(now_us, in_flight.sent, self.last_used);
                    }
                    self.server.succeeded();
                    return Self::decided(&in_flight.command, now_us, entries);
                }
                Ok(ScriptReply::Late { server_now_us }) => {
                    self.server.time.learn(server_now_us, in_flight.sent, self.last_used);
                    self.requeue(in_flight.command, Failure::not_applied(Degradation::Late));
                    return Ok(());
                }
                Ok(ScriptReply::Elsewhere { now_us }) if in_flight.command.has_windows() => {
                    if in_flight.header.clock == ScriptClock::Server {
                        self.server.time.learn(now_us, in_flight.sent, self.last_used);
                    }
                    self.send_with(in_flight.command, in_flight.script, Some(now_us));
                    return Ok(());
                }
                Ok(ScriptReply::TimeRefused { error }) => {
                    return self.time_refused(in_flight, error);
                }
                Ok(ScriptReply::Elsewhere { .. }) | Err(_) => {}
            },
            Reply::Pair(..) => {}
        }
        Self::not_a_reply(&in_flight)
    }

    /// Records the server's time, which was queried before a call.
    fn learn_time(&self, seconds: &[u8], micros: &[u8], sent: Instant) {
        let number = |digits| std::str::from_utf8(digits).ok()?.parse().ok();
        if let (Some(seconds), Some(micros)) = (number(seconds), number(micros))
            && let Some(server_us) = server_us((seconds, micros))
        {
            self.server.time.learn(server_us, sent, self.last_used);
        }
    }

    /// The script may not read the server's time, and has done nothing: from now on calls carry an estimate of it.
    fn time_refused(&mut self, in_flight: InFlight, error: &[u8]) -> Result<(), Degradation> {
        let asks_for_time = in_flight.header.clock == ScriptClock::Server || in_flight.header.deadline_us > 0;
        let line = [b"-", error, b"\r\n"].concat();
        let error = parse_redis_value(&line).ok().and_then(|value| value.extract_error().err());
        let Some(error) = error.filter(|_| asks_for_time) else { return Self::not_a_reply(&in_flight) };
        let refusal = Refusal::read(&error);
        let is_refused = refusal == Refusal::Failed(Failure::permanent(Degradation::Refused));
        if is_refused && self.server.time.latest_at(monotonic::now()).is_some() {
            self.differences.time = true;
            self.send(in_flight.command, in_flight.script);
        } else {
            self.refused(in_flight.command, refusal, error);
        }
        Ok(())
    }

    /// The script may have run, but the reply is not valid.
    fn not_a_reply(in_flight: &InFlight) -> Result<(), Degradation> {
        in_flight.span.failed(Degradation::Protocol);
        in_flight.command.answer(Failure::unknown(Degradation::Protocol));
        Err(Degradation::Protocol)
    }

    /// The store decided: answers every operation, in order.
    fn decided(command: &Command, now_us: u64, answers: EntryAnswers<'_>) -> Result<(), Degradation> {
        if Self::answer_each(command, now_us, answers).is_some() {
            return Ok(());
        }
        command.answer(Failure::unknown(Degradation::Protocol));
        Err(Degradation::Protocol)
    }

    /// `None` when the reply is not valid.
    fn answer_each(command: &Command, now_us: u64, mut answers: EntryAnswers<'_>) -> Option<()> {
        for entry in &command.entries {
            if let Some(charges) = entry.request() {
                entry.first.answer(request_decisions(&entry.first, &charges, now_us, &mut answers)?);
                continue;
            }
            let wanted = entry.wanted();
            let answer = command.call.next_answer(&mut answers, &wanted).ok()?;
            match answer.found {
                Found::States => {}
                Found::Malformed => entry.first.member().counters.healed.add(1),
                Found::Foreign | Found::Newer => {
                    let failure = Failure::permanent(unreadable(answer.found));
                    entry.operations().for_each(|operation| operation.answer(Err(failure)));
                    continue;
                }
            }
            let mut operations = entry.operations();
            let each = |replied| {
                if let Some(operation) = operations.next() {
                    operation.answer(Ok(replied));
                }
            };
            command.call.decide(answer, now_us, &wanted, each).ok()?;
        }
        answers.finish().ok()
    }

    /// The server refused the command.
    fn refused(&mut self, command: Command, refusal: Refusal, error: RedisError) {
        match refusal {
            Refusal::NoScript => {
                command.count(|counters| counters.scripts_sent.add(1));
                self.send(command, ScriptReference::Source);
            }
            Refusal::NoFirstLine => {
                self.differences.first_line = true;
                self.send(command, ScriptReference::Hash);
            }
            Refusal::Moved { slot, address } => self.redirect(command, Some(slot), &address, error),
            Refusal::Ask { address } => self.redirect(command, None, &address, error),
            Refusal::ReadOnly => {
                self.leaving = Some(End::Broken);
                self.server.failed(Degradation::ReadOnly);
                self.requeue(command, Failure::not_applied(Degradation::ReadOnly));
            }
            Refusal::TryAgain => self.while_keys_move(command),
            Refusal::Failed(failure) => {
                if failure.reason == Degradation::Auth {
                    // A new connection authenticates with the current credentials.
                    self.leaving = Some(End::Broken);
                }
                // Only that key is in a bad state, not the server.
                if failure.reason != Degradation::WrongType {
                    self.server.failed(failure.reason);
                }
                match failure.class {
                    Class::NotApplied => self.retry_with_delay(command, failure),
                    Class::Permanent if failure.reason == Degradation::Refused => {
                        self.answer_with_cause(command, failure, error);
                    }
                    Class::Unknown | Class::Permanent => command.answer(failure),
                }
            }
        }
    }

    /// Answers a refused command after querying the server's identity, so that the event of the outage reports it.
    fn answer_with_cause(&self, command: Command, failure: Failure, error: RedisError) {
        let server = Arc::clone(&self.server);
        let described = server.address.describe();
        if !server.context.connector.refusal.note(failure.reason, &described, &error) {
            return command.answer(failure);
        }
        let deadline = command.deadline().unwrap_or_else(monotonic::now);
        let answered = AnsweredWhenDropped { command, failure };
        tokio::spawn(async move {
            let connector = &server.context.connector;
            let identified = async {
                let mut session = connector.session(&server.address).await.ok()?;
                connector.refusal.describe(failure.reason, &mut session, &described, &error).await;
                Some(())
            };
            // Without the name and version, the server's message remains.
            let _ = timeout_at(deadline.into(), identified).await;
            drop(answered);
        });
    }

    fn redirect(&mut self, command: Command, moved: Option<u16>, address: &str, error: RedisError) {
        let Some(redirect) = &self.server.redirect else {
            return self.answer_with_cause(command, Failure::permanent(Degradation::ClusterDown), error);
        };
        if let Some(slot) = moved {
            redirect.moved(slot, address, &self.server.address);
        }
        for operation in into_operations(command) {
            if operation.may_retry() {
                operation.member().counters.redirected.add(1);
                redirect.send(&operation, address, &self.server.address, moved.is_none());
            } else {
                operation.answer(Err(Failure::not_applied(Degradation::ClusterDown)));
            }
        }
    }

    /// Some of the command's keys have moved with their slot, others have not. Entries that were sent together may be
    /// on different nodes, so each is retried separately; the keys of one entry are soon on one node again. This is no
    /// failure of the server, and retries continue until the deadline.
    fn while_keys_move(&mut self, command: Command) {
        if command.entries.len() > 1 {
            command.count(|counters| counters.retried.add(command.operations().count() as u64));
            for command in command.split() {
                let by = self.best_for(&command);
                self.send(command, by);
            }
            return;
        }
        let operations: Vec<_> = into_operations(command).filter(|operation| !operation.is_over()).collect();
        for operation in &operations {
            operation.member().counters.retried.add(1);
        }
        self.schedule(operations, Failure::not_applied(Degradation::ClusterDown));
    }

    /// Puts operations that certainly did not run back to the front of the queue.
    fn requeue(&mut self, command: Command, failure: Failure) {
        self.server.queue.put_back(Self::retried(command, failure).into_iter());
    }

    /// Retries operations that certainly did not run after a pause, if their deadline and the breaker allow.
    fn retry_with_delay(&mut self, command: Command, failure: Failure) {
        if !self.server.breaker.is_closed() {
            command.answer(failure);
            return;
        }
        self.schedule(Self::retried(command, failure), failure);
    }

    fn schedule(&mut self, operations: Vec<Arc<PendingOperation>>, failure: Failure) {
        let at = monotonic::now() + PAUSE / 2 + backoff::part_of(PAUSE / 2);
        for operation in operations {
            if at < operation.deadline() {
                self.later.push((at, operation));
            } else {
                operation.answer(Err(failure));
            }
        }
    }

    /// Selects the operations that may be retried, and answers the others.
    fn retried(command: Command, failure: Failure) -> Vec<Arc<PendingOperation>> {
        let now = monotonic::now();
        let may_retry = |operation: &Arc<PendingOperation>| {
            let retried = !operation.is_over() && operation.deadline() > now && operation.may_retry();
            if retried {
                operation.member().counters.retried.add(1);
            } else {
                operation.answer(Err(failure));
            }
            retried
        };
        into_operations(command).filter(may_retry).collect()
    }

    /// Answers operations whose deadline has passed; an error when the connection is suspect.
    pub(crate) fn expire(&mut self, now: Instant) -> Result<(), Degradation> {
        for in_flight in &mut self.flights {
            let first = in_flight
                .expire(now, |operation| operation.answer(Err(Failure::unknown(Degradation::Timeout))));
            if first {
                in_flight.span.failed(Degradation::Timeout);
                in_flight.command.took(now.saturating_duration_since(in_flight.sent));
                self.timeouts += 1;
                self.server.failed(Degradation::Timeout);
            }
        }
        let failure = Failure::not_applied(Degradation::Late);
        self.server.queue.expire(now, failure);
        if self.timeouts >= SUSPECT_AFTER { Err(Degradation::Timeout) } else { Ok(()) }
    }

    /// Gives the connection up: commands that were sent may have run, commands that were not sent in whole have not.
    pub(crate) fn leave(&mut self, end: End, reason: Degradation) {
        if end == End::Broken {
            self.server.context.counters.connections_lost.add(1);
            self.stream.reset_when_closed();
        }
        let written = self.written_before + self.written as u64;
        let mut unsent = Vec::new();
        for in_flight in std::mem::take(&mut self.flights) {
            in_flight.span.failed(reason);
            if in_flight.ends_at <= written {
                in_flight.command.answer(Failure::unknown(reason));
            } else {
                unsent.extend(Self::retried(in_flight.command, Failure::not_applied(reason)));
            }
        }
        unsent.extend(self.later.drain(..).map(|(_, operation)| operation));
        self.server.queue.put_back(unsent.into_iter());
    }
}

/// The decisions of the charges of a request; `None` when the answers are not valid.
fn request_decisions(
    operation: &PendingOperation,
    charges: &[RequestEntry<'_>],
    now_us: u64,
    answers: &mut EntryAnswers<'_>,
) -> Option<OperationResult> {
    let (mut decisions, mut refused) = (Vec::with_capacity(charges.len()), None);
    for RequestEntry { call, entry, .. } in charges {
        let answer = call.next_answer(answers, entry).ok()?;
        match answer.found {
            Found::States => {}
            Found::Malformed => operation.member().counters.healed.add(1),
            Found::Foreign | Found::Newer => {
                refused = Some(unreadable(answer.found));
                continue;
            }
        }
        call.decide(answer, now_us, entry, |decided| decisions.push(decided)).ok()?;
    }
    if let Some(reason) = refused {
        return Some(Err(Failure::permanent(reason)));
    }
    let mut decisions = decisions.into_iter();
    let first = decisions.next()?;
    Some(Ok(ScriptDecision { others: decisions.collect(), ..first }))
}

/// Why the content of a key decides nothing.
fn unreadable(found: Found) -> Degradation {
    if found == Found::Newer { Degradation::NewerFormat } else { Degradation::WrongType }
}

/// Answers a command even if the runtime ends.
struct AnsweredWhenDropped {
    command: Command,
    failure: Failure,
}

impl Drop for AnsweredWhenDropped {
    fn drop(&mut self) {
        self.command.answer(self.failure);
    }
}

fn into_operations(command: Command) -> impl Iterator<Item = Arc<PendingOperation>> {
    command.entries.into_iter().flat_map(|entry| std::iter::once(entry.first).chain(entry.more))
}
