//! The lines in which callers of `acquire` wait: one for each key that somebody waits for.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as FairMutex, MutexGuard as Turn, Notify};

use crate::store::PolicyId;

type Key = (PolicyId, Box<[u8]>);

#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Mutex<HashMap<Key, Arc<Line>>>,
}

#[derive(Debug, Default)]
struct Line {
    /// Whose turn it is; handed on in order of arrival.
    turn: FairMutex<()>,
    /// Tells whose turn it is that the key may admit sooner than it was said to.
    sooner: Notify,
    /// Who is in the line, the one whose turn it is included.
    standing: Mutex<Standing>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    callers: usize,
    units: u64,
}

/// A place in a line, given up when dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    lines: &'a Lines,
    key: Key,
    line: Arc<Line>,
    cost: u64,
    units_ahead: u64,
}

impl Lines {
    pub(super) fn join(&self, id: PolicyId, key: &[u8], cost: u64) -> Place<'_> {
        let key: Key = (id, key.into());
        let mut lines = self.lines.lock();
        let line = Arc::clone(lines.entry(key.clone()).or_default());
        let mut standing = line.standing.lock();
        let units_ahead = standing.units;
        standing.callers += 1;
        standing.units = standing.units.saturating_add(cost);
        drop(standing);
        Place { lines: self, key, line, cost, units_ahead }
    }

    /// Lets the first in the line for a key ask again.
    pub(super) fn wake(&self, id: PolicyId, key: &[u8]) {
        let lines = self.lines.lock();
        if !lines.is_empty()
            && let Some(line) = lines.get(&(id, key.into()))
        {
            line.sooner.notify_one();
        }
    }

    /// Lets the first in every line of a policy ask again.
    pub(super) fn wake_all(&self, id: PolicyId) {
        for ((of, _), line) in &*self.lines.lock() {
            if *of == id {
                line.sooner.notify_one();
            }
        }
    }
}

impl Place<'_> {
    /// The units that those ahead want.
    pub(super) fn units_ahead(&self) -> u64 {
        self.units_ahead
    }

    /// Waits until everybody ahead is served or has left.
    pub(super) async fn turn(&self) -> Turn<'_, ()> {
        self.line.turn.lock().await
    }

    /// Waits until the key may admit sooner than it was said to.
    pub(super) async fn sooner(&self) {
        self.line.sooner.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.lines.lines.lock();
        let mut standing = self.line.standing.lock();
        standing.callers -= 1;
        standing.units = standing.units.saturating_sub(self.cost);
        if standing.callers == 0 {
            lines.remove(&self.key);
        }
    }
}
