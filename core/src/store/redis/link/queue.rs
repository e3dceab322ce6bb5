//! The tickets that wait to be sent, in order of arrival.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::store::redis::failure::Failure;
use crate::store::redis::ticket::Ticket;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<Arc<Ticket>>>,
}

impl Queue {
    /// Adds a ticket, and says whether it is the only one.
    pub(crate) fn push(&self, ticket: Arc<Ticket>) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.push_back(ticket);
        waiting.len() == 1
    }

    /// Puts tickets back that were taken first and not sent.
    pub(crate) fn put_back(&self, tickets: impl DoubleEndedIterator<Item = Arc<Ticket>>) {
        let mut waiting = self.waiting.lock();
        for ticket in tickets.rev() {
            waiting.push_front(ticket);
        }
    }

    /// Takes all of them.
    pub(crate) fn take_all(&self) -> VecDeque<Arc<Ticket>> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Takes at most so many tickets that somebody still waits for.
    pub(crate) fn take(&self, most: usize, into: &mut Vec<Arc<Ticket>>) {
        let mut waiting = self.waiting.lock();
        while into.len() < most
            && let Some(ticket) = waiting.pop_front()
        {
            if !ticket.is_over() {
                into.push(ticket);
            }
        }
    }

    /// When the first of them has to be answered.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.lock().front().map(|first| first.deadline)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Answers everybody.
    pub(crate) fn answer_all(&self, failure: Failure) {
        for ticket in self.take_all() {
            ticket.answer(Err(failure));
        }
    }

    /// Answers those whose deadline has passed, and says when the next one does.
    pub(crate) fn expire(&self, now: Instant, failure: Failure) -> Option<Instant> {
        let mut waiting = self.waiting.lock();
        // All have the same time to wait, so they stand in the order of their deadlines as well; one that was put back
        // came even earlier.
        while let Some(first) = waiting.front() {
            if first.deadline > now && !first.is_over() {
                return Some(first.deadline);
            }
            if let Some(ticket) = waiting.pop_front() {
                ticket.answer(Err(failure));
            }
        }
        None
    }
}
