//! A command in flight.

use std::sync::Arc;
use std::time::Instant;

use crate::runtime::monotonic;
use crate::store::redis::pipeline::batch::Command;
use crate::store::redis::pipeline::pending::PendingOperation;

#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) command: Command,
    pub(crate) nonce: [u8; 6],
    pub(crate) sent: Instant,
    /// The position of its end in all bytes written to the connection: if fewer were written, it cannot have run.
    pub(crate) ends_at: u64,
    /// The number of its batch.
    pub(crate) batch: u64,
    /// The number of replies that precede its own.
    pub(crate) skip: u8,
    /// The next deadline of its operations; `None` when all are answered.
    expires: Option<Instant>,
    overdue: bool,
}

impl InFlight {
    pub(crate) fn new(command: Command, nonce: [u8; 6], ends_at: u64, batch: u64) -> Self {
        let (skip, expires) = (u8::from(command.asking), command.deadline());
        Self { command, nonce, sent: monotonic::now(), ends_at, batch, skip, expires, overdue: false }
    }

    pub(crate) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Passes the operations whose deadline has passed to `give_out`; returns whether they are the first of this
    /// command.
    pub(crate) fn expire(&mut self, now: Instant, mut give_out: impl FnMut(&Arc<PendingOperation>)) -> bool {
        if self.expires.is_none_or(|expires| expires > now) {
            return false;
        }
        let (mut next, mut first) = (None::<Instant>, false);
        for operation in self.command.operations() {
            if operation.deadline() > now {
                next = Some(next.map_or(operation.deadline(), |next| next.min(operation.deadline())));
            } else {
                first = !self.overdue;
                give_out(operation);
            }
        }
        self.expires = next;
        self.overdue = true;
        first
    }
}
