//! The leased units of each process and key: what is spent and returned was debited before, and no grant is returned twice.

use std::collections::BTreeMap;

use polylimit::metrics::Stats;

/// The units that a process leased of a key.
#[derive(Clone, Debug, Default)]
struct Account {
    taken: u64,
    returned: u64,
    spent: u64,
    /// The sizes of grants that were not returned yet.
    grants: Vec<u64>,
}

/// All accounts, by process and key.
#[derive(Debug, Default)]
pub(super) struct LeaseAccounts(BTreeMap<(usize, usize), Account>);

impl LeaseAccounts {
    /// The server debited units for a lease.
    pub(super) fn take(&mut self, process: usize, key: usize, units: u64) {
        let account = self.0.entry((process, key)).or_default();
        account.taken += units;
        account.grants.extend(Some(units).filter(|units| *units > 0));
    }

    /// The server was given leased units back.
    pub(super) fn give_back(&mut self, process: usize, key: usize, units: u64) -> Result<(), String> {
        let account = self.0.entry((process, key)).or_default();
        account.returned += units;
        // The smallest grant that holds as many units: a refund names no grant.
        let fitting = (0..account.grants.len()).filter(|place| account.grants[*place] >= units);
        let Some(place) = fitting.min_by_key(|place| account.grants[*place]) else {
            return Err(format!(
                "process {process} returned {units} leased units, and no grant is left that had as many"
            ));
        };
        account.grants.swap_remove(place);
        account.check(process)
    }

    /// A check was paid for by leased units.
    pub(super) fn spend(&mut self, process: usize, key: usize, units: u64) -> Result<(), String> {
        let account = self.0.entry((process, key)).or_default();
        account.spent += units;
        account.check(process)
    }

    /// At the end of a process no unit is held any more, and those that came back to the server have to count as returned or lost.
    pub(super) fn count(&self, process: usize, stats: &Stats) -> Result<(), String> {
        if stats.lease_units_held > 0 {
            let held = stats.lease_units_held;
            return Err(format!("process {process} still holds {held} leased units, which have expired"));
        }
        let accounts = self.0.iter().filter(|((of, _), _)| *of == process);
        let returned: u64 = accounts.map(|(_, account)| account.returned).sum();
        let counted = stats.lease_units_returned + stats.lease_units_lost;
        if returned <= counted {
            return Ok(());
        }
        Err(format!(
            "process {process}: {returned} leased units were returned, and {counted} count as returned or lost"
        ))
    }
}

impl Account {
    fn check(&self, process: usize) -> Result<(), String> {
        let Self { taken, returned, spent, .. } = self;
        if spent + returned <= *taken {
            return Ok(());
        }
        Err(format!(
            "process {process} has spent {spent} and returned {returned} leased units of a key, and the server was \
             debited {taken}"
        ))
    }
}
