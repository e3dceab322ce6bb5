//! A command on its way.

use std::sync::Arc;
use std::time::Instant;

use super::batch::Command;
use crate::store::redis::ticket::Ticket;

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) command: Command,
    pub(super) nonce: [u8; 6],
    pub(super) sent: Instant,
    /// Where it ends in all that is written to the connection: as long as less was written, it cannot have run.
    pub(super) ends_at: u64,
    /// Which batch it belongs to.
    pub(super) batch: u64,
    /// How many replies come before its own.
    pub(super) skip: u8,
    /// When the next of its tickets has to be answered; `None` when all are.
    expires: Option<Instant>,
    overdue: bool,
}

impl Flight {
    pub(super) fn new(command: Command, nonce: [u8; 6], ends_at: u64, batch: u64) -> Self {
        let (skip, expires) = (u8::from(command.asking), command.deadline());
        Self { command, nonce, sent: Instant::now(), ends_at, batch, skip, expires, overdue: false }
    }

    pub(super) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Gives out the tickets whose deadline has passed, and says whether these are the first of it.
    pub(super) fn expire(&mut self, now: Instant, mut give_out: impl FnMut(&Arc<Ticket>)) -> bool {
        if self.expires.is_none_or(|expires| expires > now) {
            return false;
        }
        let (mut next, mut first) = (None::<Instant>, false);
        for ticket in self.command.tickets() {
            if ticket.deadline() > now {
                next = Some(next.map_or(ticket.deadline(), |next| next.min(ticket.deadline())));
            } else {
                first = !self.overdue;
                give_out(ticket);
            }
        }
        self.expires = next;
        self.overdue = true;
        first
    }
}
