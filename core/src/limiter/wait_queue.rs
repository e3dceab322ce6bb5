//! The queues in which callers of `acquire` wait: one for each key with waiters.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as FairMutex, MutexGuard as Turn, Notify};

use crate::store::request::PolicyId;

type Key = (PolicyId, Box<[u8]>);

#[derive(Debug, Default)]
pub(crate) struct WaitQueues {
    wait_queues: Mutex<HashMap<Key, Arc<WaitQueue>>>,
}

#[derive(Debug, Default)]
struct WaitQueue {
    /// Held by the first waiter; handed on in order of arrival.
    turn: FairMutex<()>,
    /// Wakes the first waiter when the key may admit it sooner than the store had said.
    recheck: Notify,
    /// The waiters in the queue, including the first one.
    standing: Mutex<QueuedDemand>,
}

#[derive(Clone, Copy, Debug, Default)]
struct QueuedDemand {
    callers: usize,
    units: u64,
}

/// A place in the queue, which is given up when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    wait_queues: &'a WaitQueues,
    key: Key,
    queue: Arc<WaitQueue>,
    cost: u64,
    units_ahead: u64,
}

impl WaitQueues {
    pub(crate) fn join(&self, id: PolicyId, key: &[u8], cost: u64) -> Waiter<'_> {
        let key: Key = (id, key.into());
        let mut wait_queues = self.wait_queues.lock();
        let queue = Arc::clone(wait_queues.entry(key.clone()).or_default());
        let mut standing = queue.standing.lock();
        let units_ahead = standing.units;
        standing.callers += 1;
        standing.units = standing.units.saturating_add(cost);
        drop(standing);
        Waiter { wait_queues: self, key, queue, cost, units_ahead }
    }

    /// Wakes the first waiter for a key, which then asks the store again.
    pub(crate) fn wake(&self, id: PolicyId, key: &[u8]) {
        let wait_queues = self.wait_queues.lock();
        if !wait_queues.is_empty()
            && let Some(queue) = wait_queues.get(&(id, key.into()))
        {
            queue.recheck.notify_one();
        }
    }

    /// Wakes the first waiter for every key of a policy.
    pub(crate) fn wake_all(&self, id: PolicyId) {
        for ((of, _), queue) in &*self.wait_queues.lock() {
            if *of == id {
                queue.recheck.notify_one();
            }
        }
    }
}

impl Waiter<'_> {
    /// The units that the waiters ahead ask for.
    pub(crate) fn units_ahead(&self) -> u64 {
        self.units_ahead
    }

    /// Waits until all waiters ahead have left the queue.
    pub(crate) async fn turn(&self) -> Turn<'_, ()> {
        self.queue.turn.lock().await
    }

    /// Waits until the key may admit the caller sooner than the store had said.
    pub(crate) async fn recheck(&self) {
        self.queue.recheck.notified().await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut wait_queues = self.wait_queues.wait_queues.lock();
        let mut standing = self.queue.standing.lock();
        standing.callers -= 1;
        standing.units = standing.units.saturating_sub(self.cost);
        if standing.callers == 0 {
            wait_queues.remove(&self.key);
        }
    }
}
