//! How long a caller waits for other processes.

use std::time::Duration;

/// The longest wait, even if the processes waited for change.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long impatient callers try, all of them together during one hold of a lock.
pub(crate) const SPIN_FOR: Duration = Duration::from_micros(50);

/// How long a caller waits for a lock of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A few microseconds, without sleeping: the caller must not hold up others, and will retry.
    Spin,
    /// As [`Spin`](Self::Spin), but the caller will not retry.
    Last,
    /// Until the lock is free or its owner is known to be stuck.
    Wait,
}
