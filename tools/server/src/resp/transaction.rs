//! The commands between `MULTI` and `EXEC`, which clients send for pipelines. They are carried out one after another, and other clients'
//! commands may come in between.

use crate::app::App;
use crate::resp::asked::Asked;

/// The commands since `MULTI`.
#[derive(Default)]
pub(super) struct Transaction {
    queued: Vec<Queued>,
    bytes: usize,
    /// Whether a command was refused, so that none is carried out.
    pub(super) is_refused: bool,
}

/// A command that waits for `EXEC`.
pub(super) enum Queued {
    /// An operation on a key.
    Ask(Asked<'static>),
    /// A command about the connection: its name and its arguments.
    Session(Vec<u8>, Vec<Vec<u8>>),
}

impl Transaction {
    /// Adds a command of this size in bytes.
    pub(super) fn add(&mut self, app: &App, queued: Queued, bytes: usize) -> Result<(), String> {
        let limits = &app.options.limits;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.queued.len() >= limits.requests || self.bytes > limits.body {
            self.queued.clear();
            return Err(format!(
                "ERR the transaction is too large: allowed are {} commands of {} bytes in all",
                limits.requests, limits.body
            ));
        }
        self.queued.push(queued);
        Ok(())
    }

    pub(super) fn into_queued(self) -> Vec<Queued> {
        self.queued
    }
}
