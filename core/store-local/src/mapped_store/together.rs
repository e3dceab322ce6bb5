//! The operations of a request over several policies: all are applied, or none, while the locks of all their shards are held.

use super::{FULL, Loaded, LockedShard, MappedStore, Place, Stop, decide};
use crate::failure::{Failure, unavailable};
use crate::patience::Patience;
use crate::policies::KeyBytes;
use crate::shard::head;
use polylimit_rules::codec::States;
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::Error;
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::{Action, Charge, PolicyId, StoreAnswers};
use polylimit_store::stored_policy::{StoredPolicies, StoredPolicy};
use polylimit_store_memory::known_or;

/// An operation, with the key as it is in the file.
struct Placed<'a> {
    policy: &'a StoredPolicy,
    charge: Charge<'a>,
    key: KeyBytes,
    hash: u64,
    /// The number of its shard.
    shard: usize,
}

/// The shards whose locks are held, in the order of their numbers.
struct Locked<'a> {
    store: &'a MappedStore,
    shards: Vec<(usize, LockedShard<'a>)>,
    patience: Patience,
}

impl<'a> Locked<'a> {
    /// Acquires the locks in one order, so that no two callers wait for each other.
    fn acquire(store: &'a MappedStore, placed: &[Placed<'_>], patience: Patience) -> Result<Self, Failure> {
        let mut numbers: Vec<_> = placed.iter().map(|placed| placed.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let shards = numbers.into_iter().map(|number| Ok((number, store.lock(number, patience)?)));
        Ok(Self { store, shards: shards.collect::<Result<_, Failure>>()?, patience })
    }

    fn now_us(&self, clock: &Clock) -> u64 {
        let of_each = self.shards.iter().map(|(_, LockedShard(shard))| self.store.now_us(clock, shard));
        let now_us = of_each.max().unwrap_or_else(|| clock.now_us());
        if clock.manual().is_none() {
            for (_, LockedShard(shard)) in &self.shards {
                shard.set(head::LAST_US, now_us);
            }
        }
        now_us
    }

    /// Works on the entry of a key, or on the shared state if there is no room for it.
    fn work<T>(
        &mut self,
        placed: &Placed<'_>,
        now_us: u64,
        mut work: impl FnMut(&Place<'_>, Option<Degradation>) -> Result<Option<T>, Stop>,
    ) -> Result<T, Failure> {
        let own =
            self.in_shard(placed.shard, (placed.hash, &placed.key), now_us, |place| work(place, None))?;
        if let Some(done) = own {
            return Ok(done);
        }
        // The overflow has the highest number, so it is the last lock in the order.
        let overflow = self.store.file.layout.shards;
        if self.shards.last().is_none_or(|(number, _)| *number != overflow) {
            self.shards.push((overflow, self.store.lock(overflow, self.patience)?));
        }
        let key = self.store.file.secret.key(placed.policy.policy.name(), &[]);
        let hash = self.store.file.secret.hash(&key);
        self.in_shard(overflow, (hash, &key), now_us, |place| work(place, Some(Degradation::StoreFull)))?
            .ok_or_else(|| unavailable(&self.store.file.path, Degradation::StoreFull, FULL))
    }

    fn in_shard<T>(
        &self,
        number: usize,
        (hash, key): (u64, &[u8]),
        now_us: u64,
        mut work: impl FnMut(&Place<'_>) -> Result<T, Stop>,
    ) -> Result<T, Failure> {
        let at = self.shards.partition_point(|(other, _)| *other < number);
        let LockedShard(shard) = &self.shards[at].1;
        self.store.repaired(shard, || work(&Place { shard, hash, key, now_us }))
    }
}

impl MappedStore {
    /// Applies the charges of a request, each for a different key or policy: all of them if every deciding one is admitted, otherwise only
    /// the denied ones. The others are answered as a peek.
    pub(crate) fn answer_together(
        &self,
        clock: &Clock,
        policies: &StoredPolicies,
        charges: &[(&StoredPolicy, Charge<'_>)],
        patience: Patience,
    ) -> Result<StoreAnswers, Failure> {
        let placed: Vec<_> = charges
            .iter()
            .map(|(policy, charge)| {
                let key = self.file.secret.key(policy.policy.name(), charge.key);
                let hash = self.file.secret.hash(&key);
                Placed { policy, charge: *charge, key, hash, shard: self.shard_of(hash) }
            })
            .collect();
        let mut locked = Locked::acquire(self, &placed, patience)?;
        let now_us = locked.now_us(clock);
        // Several keys of the request may share the states of the overflow.
        let mut shared: Vec<(PolicyId, States)> = Vec::new();
        let (mut admits, mut admitted) = (Vec::with_capacity(placed.len()), true);
        for placed in &placed {
            let Placed { policy, charge, .. } = placed;
            let operation = charge.operation(operation_of(*charge)?, now_us);
            let is_admitted = locked.work(placed, now_us, |place, degraded| {
                let Some(mut loaded) = Loaded::of(place, policies, policy, degraded)? else {
                    return Ok(None);
                };
                if degraded.is_none() {
                    return Ok(Some(policy.rules.would_admit(&mut loaded.states, operation)));
                }
                let states = known_or(&mut shared, charge.id, || loaded.states);
                Ok(Some(policy.rules.decide(states, operation, degraded).0.allowed))
            })?;
            admits.push(is_admitted);
            admitted &= is_admitted || !charge.decides;
        }
        let mut answers = StoreAnswers::with_capacity(placed.len());
        for (placed, is_admitted) in placed.iter().zip(admits) {
            let Placed { policy, charge, .. } = placed;
            let operation = operation_of(*charge)?;
            answers.push(locked.work(placed, now_us, |place, degraded| {
                if admitted || !is_admitted {
                    return decide(place, (policies, policy), operation, *charge, degraded);
                }
                let loaded = Loaded::of(place, policies, policy, degraded)?;
                let operation = charge.operation(operation, now_us);
                Ok(loaded.map(|mut loaded| {
                    (policy.rules.view_admitted(&mut loaded.states, operation, degraded), 0)
                }))
            })?);
        }
        Ok(answers)
    }
}

fn operation_of(charge: Charge<'_>) -> Result<Operation, Failure> {
    match charge.action {
        Action::Apply(operation) => Ok(operation),
        Action::Reset => Err(Failure::from(Error::no_answer())),
    }
}
