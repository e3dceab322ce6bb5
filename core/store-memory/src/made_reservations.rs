//! The reservations that the outage policy `fallback` has made in this process.
//!
//! The store does not know them, so they are committed, cancelled and renewed here, even when the store decides again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use polylimit_rules::decision::Degradation;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::ReservationTerms;
use polylimit_store::charge::{Charge, PolicyId};

/// With fewer reservations than this, those that have ended are not removed.
const FEW: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct MadeReservations {
    table: Mutex<Table>,
    /// Their number; at 0 the lookup is skipped.
    number: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    made: HashMap<Name, Made, RandomState>,
    /// The number at which ended reservations are removed.
    full: usize,
}

type Name = (PolicyId, Box<[u8]>, ReservationId);

#[derive(Debug)]
struct Made {
    reason: Degradation,
    at_us: u64,
}

impl MadeReservations {
    /// The reason for which a reservation was made in-process; `None` for any other.
    #[inline]
    pub(crate) fn find(&self, charge: Charge<'_>) -> Option<Degradation> {
        if charge.hold.is_none() || self.number.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table.lock().made.get(&name_of(charge)?).map(|made| made.reason)
    }

    pub(crate) fn add(&self, charge: Charge<'_>, reason: Degradation, now_us: u64) {
        let Some(name) = name_of(charge) else { return };
        let mut table = self.table.lock();
        if table.made.len() >= table.full.max(FEW) {
            // Renewing a reservation adds it again, with a new time.
            let is_recent =
                |_: &Name, made: &mut Made| now_us.saturating_sub(made.at_us) < ReservationTerms::MAX_TTL_US;
            table.made.retain(is_recent);
            table.full = 2 * table.made.len();
        }
        table.made.insert(name, Made { reason, at_us: now_us });
        self.number.store(table.made.len(), Ordering::Release);
    }

    pub(crate) fn remove(&self, charge: Charge<'_>) {
        let Some(name) = name_of(charge) else { return };
        let mut table = self.table.lock();
        table.made.remove(&name);
        self.number.store(table.made.len(), Ordering::Release);
    }
}

fn name_of(charge: Charge<'_>) -> Option<Name> {
    Some((charge.id, charge.key.into(), charge.hold?.id))
}
