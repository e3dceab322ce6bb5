//! Lists the keys in the file, some buckets of a shard at a time, and reads the states of keys.

use super::{LockedShard, MappedStore, Place, Stop};
use crate::failure::Failure;
use crate::patience::Patience;
use crate::policies::{Secret, expiry, read_key};
use crate::shard::{Broken, Bytes, From, Shard};
use crate::sweep;
use polylimit_rules::codec::{States, Unreadable};
use polylimit_rules::decision::Degradation;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::{PolicyId, PreparedQuotas};
use polylimit_store::scan::{
    FoundKey, FoundPolicy, KeyName, Look, LookRequest, ScanFilter, ScanStep, StoredKey,
};
use polylimit_store::stored_policy::{StoredPolicies, StoredPolicy, policy_of};

impl MappedStore {
    /// Distinguishes this file from every other one.
    pub(crate) fn identity(&self) -> u64 {
        self.file.secret.hash(b"scan")
    }

    /// Copies names from this many buckets of one shard, while its lock is held. `at` counts the buckets of all shards.
    pub(crate) fn scan(
        &self,
        clock: &Clock,
        filter: ScanFilter<'_>,
        (at, buckets): (u64, usize),
        patience: Patience,
    ) -> Result<ScanStep, Failure> {
        let in_shard = self.shard(0).layout.buckets as u64;
        let number = usize::try_from(at / in_shard).unwrap_or(usize::MAX);
        if number >= self.file.layout.shards {
            return Ok(ScanStep { found: Vec::new(), examined: 0, next: None });
        }
        let first = usize::try_from(at % in_shard).unwrap_or(0);
        let locked = self.lock(number, patience)?;
        let LockedShard(shard) = &locked;
        let now_us = self.now_us(clock, shard);
        let end = first.saturating_add(buckets).min(shard.layout.buckets);
        let mut step = self.repaired(shard, || {
            let mut step = ScanStep { found: Vec::new(), examined: 0, next: None };
            for bucket in first..end {
                copy_names(shard, bucket, filter, now_us, &mut step)?;
            }
            Ok(step)
        })?;
        let next = number as u64 * in_shard + end as u64;
        step.next = Some(next).filter(|next| *next < in_shard * self.file.layout.shards as u64);
        Ok(step)
    }

    /// The states of a key, or those that it would get.
    pub(crate) fn look(
        &self,
        clock: &Clock,
        policies: &StoredPolicies,
        request: LookRequest<'_>,
        patience: Patience,
    ) -> Result<Look, Failure> {
        let registered = policies.load(request.id);
        let policy = policy_of(registered.as_deref(), request.effective)?;
        let name = policy.policy.name();
        let key = match request.key {
            StoredKey::Plain(key) => self.file.secret.key(name, key),
            StoredKey::Digest(digest) => Secret::digest_key(name, digest),
        };
        let own = self.work_on(clock, (&key, false), patience, |place| {
            let states = match states_at(place, policy)? {
                Some(states) => Some(states),
                None if has_room(place, policies)? => Some(policy.fresh()),
                None => None,
            };
            Ok(states.map(|states| Look { states, now_us: place.now_us, degraded: None }))
        })?;
        match own {
            Some(own) => Ok(own),
            None => self.work(clock, policy, (&[], true), patience, |place| {
                let states = states_at(place, policy)?.unwrap_or_else(|| policy.fresh());
                Ok(Look { states, now_us: place.now_us, degraded: Some(Degradation::StoreFull) })
            }),
        }
    }

    /// Forgets a key of which only the digest is known.
    pub(crate) fn forget_digest(
        &self,
        clock: &Clock,
        policies: &StoredPolicies,
        (id, effective): (PolicyId, Option<&PreparedQuotas>),
        digest: &[u8],
        patience: Patience,
    ) -> Result<(), Failure> {
        let registered = policies.load(id);
        let policy = policy_of(registered.as_deref(), effective)?;
        let key = Secret::digest_key(policy.policy.name(), digest);
        self.work_on(clock, (&key, false), patience, |&Place { shard, hash, key, .. }| {
            if let Some(found) = shard.find(hash, key, &mut Bytes::new())? {
                shard.remove(found.from, found.block)?;
            }
            Ok(())
        })
    }
}

/// The states of the entry of a key, if it has one.
fn states_at(place: &Place<'_>, policy: &StoredPolicy) -> Result<Option<States>, Stop> {
    let Place { shard, hash, key, now_us } = *place;
    let mut bytes = Bytes::new();
    let Some(found) = shard.find(hash, key, &mut bytes)? else { return Ok(None) };
    let value = bytes.get(key.len()..).unwrap_or_default();
    match found.lengths.read(policy, value, now_us, &mut Vec::new()) {
        Ok(states) => Ok(Some(states)),
        Err(Unreadable::Malformed) => Ok(Some(policy.used_up(now_us))),
        Err(Unreadable::Newer) => Err(Stop::Newer),
    }
}

fn has_room(place: &Place<'_>, policies: &StoredPolicies) -> Result<bool, Broken> {
    sweep::make_room(place.shard, 1, place.now_us, |bytes, lengths, at_us| {
        expiry(policies, bytes, lengths, at_us)
    })
}

/// Adds the names of one bucket.
fn copy_names(
    shard: &Shard<'_>,
    bucket: usize,
    filter: ScanFilter<'_>,
    now_us: u64,
    step: &mut ScanStep,
) -> Result<(), Broken> {
    let mut number = shard.follow(From::Bucket(bucket))?;
    let mut bytes = Bytes::new();
    for _ in 0..=shard.layout.blocks {
        if number == 0 {
            return Ok(());
        }
        let entry = shard.entry(number)?;
        shard.read(number, &entry, &mut bytes)?;
        step.examined += 1;
        let key = bytes.get(..usize::from(entry.lengths.key)).and_then(read_key);
        if let Some((policy, key)) = key
            && filter.takes_policy(policy)
            && filter.takes_key(key)
        {
            let key = match key {
                StoredKey::Plain(key) => KeyName::Bytes(key.into()),
                StoredKey::Digest(digest) => KeyName::Digest(digest.into()),
            };
            let expires_after_us = Some(entry.expires_at_us.saturating_sub(now_us));
            step.found.push(FoundKey { policy: FoundPolicy::Named(policy.into()), key, expires_after_us });
        }
        number = entry.next;
    }
    Err(Broken)
}
