//! The contract of stores finds those that break it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylimit::storage::{Change, Decide, Store, Update, contract};

type States = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// A name ends at its first zero.
    CutsNames,
    /// A state has at most 1,000 bytes.
    CutsStates,
    /// What is removed stays.
    KeepsRemoved,
    /// Other transactions run between the read and the write.
    LosesUpdates,
    /// A transaction writes one state after the other.
    ShowsParts,
    /// Each opening has states of its own.
    SharesNothing,
    /// It decides, and writes nothing.
    WritesNothing,
    /// It does not ask what becomes of the states.
    DoesNotDecide,
    /// Every third transaction fails.
    Fails,
}

#[derive(Clone, Debug)]
struct Map {
    states: Arc<Mutex<States>>,
    transactions: Arc<Mutex<u64>>,
    defect: Defect,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Map {
    fn open(defect: Defect, shared: &Arc<Mutex<States>>) -> Self {
        let states = if defect == Defect::SharesNothing { Arc::default() } else { Arc::clone(shared) };
        Self { states, transactions: Arc::default(), defect }
    }

    fn name(&self, name: &[u8]) -> Vec<u8> {
        let cut = if self.defect == Defect::CutsNames { name.split(|byte| *byte == 0).next() } else { None };
        cut.unwrap_or(name).to_vec()
    }

    fn write(&self, states: &mut States, name: &[u8], change: Change) {
        match change {
            Change::Put { mut state, .. } => {
                if self.defect == Defect::CutsStates {
                    state.truncate(1_000);
                }
                drop(states.insert(self.name(name), state));
            }
            Change::Remove if self.defect != Defect::KeepsRemoved => drop(states.remove(&self.name(name))),
            Change::Keep | Change::Remove => {}
        }
    }

    fn transact(&self, names: &[Vec<u8>], decide: Decide<'_>) -> Result<(), &'static str> {
        let number = {
            let mut transactions = lock(&self.transactions);
            *transactions += 1;
            *transactions
        };
        if self.defect == Defect::Fails && number.is_multiple_of(3) {
            return Err("it fails");
        }
        let read = |states: &States| -> Vec<_> {
            names.iter().map(|name| states.get(&self.name(name)).cloned()).collect()
        };
        let mut states = lock(&self.states);
        let found = read(&states);
        match self.defect {
            Defect::DoesNotDecide => {}
            Defect::WritesNothing => drop(decide(&found)),
            Defect::LosesUpdates => {
                drop(states);
                std::thread::yield_now();
                let changes = decide(&found);
                let mut states = lock(&self.states);
                for (name, change) in names.iter().zip(changes) {
                    self.write(&mut states, name, change);
                }
            }
            Defect::ShowsParts => {
                // Each state is read and written by itself.
                drop(states);
                let mut found = found;
                for at in 0..names.len() {
                    let mut states = lock(&self.states);
                    found[at] = states.get(&names[at]).cloned();
                    let change = decide(&found).swap_remove(at);
                    self.write(&mut states, &names[at], change);
                    drop(states);
                    std::thread::yield_now();
                }
            }
            _ => {
                for (name, change) in names.iter().zip(decide(&found)) {
                    self.write(&mut states, name, change);
                }
            }
        }
        Ok(())
    }
}

impl Store for Map {
    fn place(&self) -> String {
        "a map".to_owned()
    }

    fn update<'a>(&'a self, names: &'a [Vec<u8>], decide: Decide<'a>) -> Update<'a> {
        Box::pin(async move { self.transact(names, decide).map_err(Into::into) })
    }

    fn after_fork(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }
}

#[test]
fn defects_are_found() {
    for (defect, expected) in [
        (Defect::None, ""),
        (Defect::CutsNames, "states that were put: expected"),
        (Defect::CutsStates, "states that were put: expected"),
        (Defect::KeepsRemoved, "states of which one was replaced and one removed: expected"),
        (Defect::LosesUpdates, "transactions at a time some were lost"),
        // Which of the two is seen first depends on the threads.
        (Defect::ShowsParts, "transaction"),
        (Defect::SharesNothing, "transactions at a time some were lost"),
        (Defect::WritesNothing, "states that were put: expected"),
        (Defect::DoesNotDecide, "a transaction has not called decide"),
        (Defect::Fails, "a transaction failed: it fails"),
    ] {
        let shared = Arc::default();
        let found = contract(|| Map::open(defect, &shared)).err().unwrap_or_default();
        assert!(
            if expected.is_empty() { found.is_empty() } else { found.contains(expected) },
            "{defect:?}: {found}"
        );
    }
}
