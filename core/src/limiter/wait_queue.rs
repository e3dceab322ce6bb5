//! The queues in which callers of `acquire` wait: one for each key with waiters.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as FairMutex, Notify};

use polylimit_store::charge::PolicyId;

type Key = (PolicyId, Box<[u8]>);

#[derive(Debug, Default)]
pub(crate) struct WaitQueues(Mutex<HashMap<Key, Arc<WaitQueue>>>);

#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    /// Held by the first waiter; handed on in order of arrival.
    pub(crate) turn: FairMutex<()>,
    /// Wakes the first waiter when the key may admit it sooner than the store had reported.
    pub(crate) recheck: Notify,
    demand: Mutex<Demand>,
}

/// The waiters in a queue, including the first one, and the units that they request.
#[derive(Debug, Default)]
struct Demand {
    callers: usize,
    units: u64,
}

/// A place in the queue, which is given up when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    wait_queues: &'a WaitQueues,
    key: Key,
    pub(crate) queue: Arc<WaitQueue>,
    cost: u64,
    /// The units that the waiters ahead request.
    pub(crate) units_ahead: u64,
}

impl WaitQueues {
    pub(crate) fn join(&self, id: PolicyId, key: &[u8], cost: u64) -> Waiter<'_> {
        let key: Key = (id, key.into());
        let mut wait_queues = self.0.lock();
        let queue = Arc::clone(wait_queues.entry(key.clone()).or_default());
        let mut demand = queue.demand.lock();
        let units_ahead = demand.units;
        demand.callers += 1;
        demand.units = demand.units.saturating_add(cost);
        drop(demand);
        Waiter { wait_queues: self, key, queue, cost, units_ahead }
    }

    /// Wakes the first waiter for a key, which then calls the store again.
    pub(crate) fn wake(&self, id: PolicyId, key: &[u8]) {
        let wait_queues = self.0.lock();
        if !wait_queues.is_empty()
            && let Some(queue) = wait_queues.get(&(id, key.into()))
        {
            queue.recheck.notify_one();
        }
    }

    /// Wakes the first waiter for every key of a policy.
    pub(crate) fn wake_all(&self, id: PolicyId) {
        for ((of, _), queue) in &*self.0.lock() {
            if *of == id {
                queue.recheck.notify_one();
            }
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut wait_queues = self.wait_queues.0.lock();
        let mut demand = self.queue.demand.lock();
        demand.callers -= 1;
        demand.units = demand.units.saturating_sub(self.cost);
        if demand.callers == 0 {
            wait_queues.remove(&self.key);
        }
    }
}
