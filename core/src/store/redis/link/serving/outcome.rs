//! What became of what was sent: who is answered, and what is tried again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{End, Serving};
use crate::backoff;
use crate::decision::Degradation;
use crate::store::redis::call::Naming;
use crate::store::redis::failure::{Class, Failure, Refusal};
use crate::store::redis::link::batch::Command;
use crate::store::redis::reply::{Answers, Found};
use crate::store::redis::ticket::Ticket;

/// So many calls in a row without a reply in time make a connection suspect.
const SUSPECT_AFTER: u32 = 2;
/// How long to wait at most before a server that refuses for the moment is asked again.
const PAUSE: Duration = Duration::from_millis(10);

impl Serving {
    /// The store decided: every ticket is answered, in order.
    pub(super) fn decided(command: &Command, now_us: u64, answers: Answers<'_>) -> Result<(), Degradation> {
        if Self::answer_each(command, now_us, answers).is_some() {
            return Ok(());
        }
        command.answer(Failure::unknown(Degradation::Protocol));
        Err(Degradation::Protocol)
    }

    /// `None` when the reply makes no sense.
    fn answer_each(command: &Command, now_us: u64, mut answers: Answers<'_>) -> Option<()> {
        for entry in &command.entries {
            let wanted = entry.wanted();
            let answer = command.call.next_answer(&mut answers, &wanted).ok()?;
            match answer.found {
                Found::States => {}
                Found::Malformed => entry.first.member().counters.healed.add(1),
                Found::Foreign => {
                    let failure = Failure::permanent(Degradation::WrongType);
                    entry.tickets().for_each(|ticket| ticket.answer(Err(failure)));
                    continue;
                }
            }
            let mut tickets = entry.tickets();
            let each = |replied| {
                if let Some(ticket) = tickets.next() {
                    ticket.answer(Ok(replied));
                }
            };
            command.call.decide(answer, now_us, &wanted, each).ok()?;
        }
        answers.finish().ok()
    }

    /// The server refused the command.
    pub(super) fn refused(&mut self, command: Command, refusal: Refusal) {
        match refusal {
            Refusal::NoScript => {
                command.count(|counters| counters.scripts_sent.add(1));
                self.send(command, Naming::BySource);
            }
            Refusal::Moved { slot, address } => self.redirect(command, Some(slot), &address),
            Refusal::Ask { address } => self.redirect(command, None, &address),
            Refusal::ReadOnly => {
                self.leaving = Some(End::Broken);
                self.shared.failed(Degradation::ReadOnly);
                self.again(command, Failure::not_applied(Degradation::ReadOnly));
            }
            Refusal::TryAgain => self.while_keys_move(command),
            Refusal::Failed(failure) => {
                if failure.reason == Degradation::Auth {
                    // A new connection brings the credentials of then.
                    self.leaving = Some(End::Broken);
                }
                // Only that key is in a bad state, not the server.
                if failure.reason != Degradation::WrongType {
                    self.shared.failed(failure.reason);
                }
                match failure.class {
                    Class::NotApplied => self.later(command, failure),
                    Class::Unknown | Class::Permanent => command.answer(failure),
                }
            }
        }
    }

    fn redirect(&mut self, command: Command, moved: Option<u16>, address: &str) {
        let Some(redirect) = &self.shared.redirect else {
            command.answer(Failure::permanent(Degradation::ClusterDown));
            return;
        };
        if let Some(slot) = moved {
            redirect.moved(slot, address, &self.shared.address);
        }
        for ticket in into_tickets(command) {
            if ticket.may_retry() {
                ticket.member().counters.redirected.add(1);
                redirect.send(&ticket, address, &self.shared.address, moved.is_none());
            } else {
                ticket.answer(Err(Failure::not_applied(Degradation::ClusterDown)));
            }
        }
    }

    /// Some of the command's keys have moved along with their slot, and some have not. Entries that went together may
    /// be in different places, so each goes for itself; the keys of one are in one place again in a moment. That is no
    /// failure of the server, and lasts as long as it lasts.
    fn while_keys_move(&mut self, command: Command) {
        if command.entries.len() > 1 {
            command.count(|counters| counters.retried.add(command.tickets().count() as u64));
            for command in command.split() {
                self.send(command, Naming::ByHash);
            }
            return;
        }
        let tickets: Vec<_> = into_tickets(command).filter(|ticket| !ticket.is_over()).collect();
        for ticket in &tickets {
            ticket.member().counters.retried.add(1);
        }
        self.in_a_moment(tickets, Failure::not_applied(Degradation::ClusterDown));
    }

    /// What provably did not run goes first in the queue again.
    pub(super) fn again(&mut self, command: Command, failure: Failure) {
        let tickets = Self::retried(command, failure);
        self.shared.queue.put_back(tickets.into_iter());
    }

    /// What provably did not run is tried again in a moment, if its deadline and the breaker allow.
    fn later(&mut self, command: Command, failure: Failure) {
        if !self.shared.health.is_closed() {
            command.answer(failure);
            return;
        }
        let tickets = Self::retried(command, failure);
        self.in_a_moment(tickets, failure);
    }

    fn in_a_moment(&mut self, tickets: Vec<Arc<Ticket>>, failure: Failure) {
        let at = Instant::now() + PAUSE / 2 + backoff::part_of(PAUSE / 2);
        for ticket in tickets {
            if at < ticket.deadline() {
                self.later.push((at, ticket));
            } else {
                ticket.answer(Err(failure));
            }
        }
    }

    /// The tickets that may be tried again; the others are answered.
    fn retried(command: Command, failure: Failure) -> Vec<Arc<Ticket>> {
        let mut tickets: Vec<_> = into_tickets(command).collect();
        let now = Instant::now();
        tickets.retain(|ticket| {
            let retried = !ticket.is_over() && ticket.deadline() > now && ticket.may_retry();
            if !retried {
                ticket.answer(Err(failure));
            }
            retried
        });
        for ticket in &tickets {
            ticket.member().counters.retried.add(1);
        }
        tickets
    }

    /// Answers those whose deadline has passed; says so when the connection is suspect.
    pub(super) fn expire(&mut self, now: Instant) -> Result<(), Degradation> {
        for flight in &mut self.flights {
            let first =
                flight.expire(now, |ticket| ticket.answer(Err(Failure::unknown(Degradation::Timeout))));
            if first {
                self.timeouts += 1;
                self.shared.failed(Degradation::Timeout);
            }
        }
        let failure = Failure::not_applied(Degradation::Late);
        self.shared.queue.expire(now, failure);
        if self.timeouts >= SUSPECT_AFTER { Err(Degradation::Timeout) } else { Ok(()) }
    }

    /// The connection is given up: what was sent may have run, what was not sent in whole has not.
    pub(super) fn leave(&mut self, end: End, reason: Degradation) {
        if end == End::Broken {
            self.shared.context.counters.connections_lost.add(1);
            self.stream.reset_when_closed();
        }
        let written = self.written_before + self.written as u64;
        let mut unsent = Vec::new();
        for flight in std::mem::take(&mut self.flights) {
            if flight.ends_at <= written {
                flight.command.answer(Failure::unknown(reason));
            } else {
                unsent.extend(Self::retried(flight.command, Failure::not_applied(reason)));
            }
        }
        unsent.extend(self.later.drain(..).map(|(_, ticket)| ticket));
        self.shared.queue.put_back(unsent.into_iter());
    }
}

fn into_tickets(command: Command) -> impl Iterator<Item = Arc<Ticket>> {
    command.entries.into_iter().flat_map(|entry| std::iter::once(entry.first).chain(entry.more))
}
