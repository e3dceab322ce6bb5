//! Units that elastic policies have spent and that their pools have not been charged for yet.
//!
//! With Redis, charges are collected for up to [`COLLECTED_FOR`], or until this process calls the pool, if that is
//! sooner. The other stores are charged at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// How long charges are collected.
pub(crate) const COLLECTED_FOR: Duration = Duration::from_millis(100);

/// A pool: the name of its policy, and the key under it.
pub(crate) type Pool = (Arc<str>, Box<[u8]>);

#[derive(Debug, Default)]
pub(crate) struct PoolCharges {
    charges: Mutex<HashMap<Pool, u64, RandomState>>,
    /// The number of pools that are owed units, so that an operation that owes nothing takes no lock.
    number: AtomicUsize,
}

impl PoolCharges {
    /// Adds units that a pool has to be charged for; true for the first ones, after which the caller arranges that they are
    /// [taken](Self::take_all) in time.
    pub(crate) fn add(&self, pool: &Pool, units: u64) -> bool {
        let mut charges = self.charges.lock();
        let is_first = charges.is_empty();
        if let Some(charge) = charges.get_mut(pool) {
            *charge += units;
        } else {
            charges.insert(pool.clone(), units);
        }
        self.number.store(charges.len(), Ordering::Release);
        is_first
    }

    /// Whether no pool is owed anything.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.number.load(Ordering::Acquire) == 0
    }

    pub(crate) fn take(&self, pool: &Pool) -> u64 {
        let mut charges = self.charges.lock();
        let units = charges.remove(pool).unwrap_or(0);
        self.number.store(charges.len(), Ordering::Release);
        units
    }

    pub(crate) fn take_all(&self) -> Vec<(Pool, u64)> {
        let mut charges = self.charges.lock();
        self.number.store(0, Ordering::Release);
        charges.drain().collect()
    }
}
