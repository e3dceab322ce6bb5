//! Denials of the denial cache: each has a denial by the server, which is not too old and came after the last refund of which the process
//! has heard.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{DENIAL_CACHE_MAX, TIMER};

/// A process, policy and key.
type Place = (usize, usize, usize);

/// What each process may still answer by its denial cache.
#[derive(Debug, Default)]
pub(super) struct Denials {
    /// The last denial by the server: when, and the number of its execution.
    denied: BTreeMap<Place, (Instant, u64)>,
    /// The last refund of which a process has heard: when it heard of it, and the number of the refund's execution.
    heard: BTreeMap<Place, (Instant, u64)>,
}

impl Denials {
    /// The server denied a check.
    pub(super) fn deny(&mut self, place: Place, execution: u64) {
        self.denied.insert(place, (Instant::now(), execution));
    }

    /// A process has read that a key was refunded by that execution.
    pub(super) fn hear(&mut self, place: Place, execution: u64) {
        let heard = self.heard.entry(place).or_insert((Instant::now(), execution));
        if heard.1 < execution {
            *heard = (Instant::now(), execution);
        }
    }

    /// Whether the denial cache may deny a check now.
    pub(super) fn may_answer(&self, place: Place) -> Result<(), &'static str> {
        let now = Instant::now();
        let Some((at, execution)) = self.denied.get(&place) else {
            return Err("the server has denied nothing");
        };
        if now > *at + DENIAL_CACHE_MAX + TIMER {
            return Err("the server's denial is too old");
        }
        match self.heard.get(&place) {
            Some((heard_at, refund)) if refund > execution && now > *heard_at + TIMER => {
                Err("the process has heard of a refund after the server's denial")
            }
            _ => Ok(()),
        }
    }
}
