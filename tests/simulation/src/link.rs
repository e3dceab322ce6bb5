//! What is special about a process's way to the servers.

use std::time::Duration;

use tokio::time::Instant;

/// A process's way to the servers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) least: Duration,
    pub(crate) jitter: Duration,
    pub(crate) most_written: usize,
    pub(crate) window: usize,
    pub(crate) stalled_until: Option<Instant>,
    pub(crate) reply_fault: Option<ReplyFault>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyFault {
    Cut(usize),
    Duplicate,
    DuplicateNoScript,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            least: Duration::from_micros(300),
            jitter: Duration::from_millis(1),
            most_written: usize::MAX,
            window: 1 << 20,
            stalled_until: None,
            reply_fault: None,
        }
    }
}
