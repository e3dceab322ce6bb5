//! Lists the keys of the memory store, some slots of a shard at a time, and reads the states of keys.

use crate::key::{read_stored, stored_digest};
use crate::shard::{KeyRequest, NoSlot};
use crate::{MemoryStore, PaddedShard, quotas_of};
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::Error;
use polylimit_rules::general::KeyStates;
use polylimit_store::charge::PolicyId;
use polylimit_store::scan::{
    FoundKey, FoundPolicy, KeyName, Look, LookRequest, ScanFilter, ScanStep, StoredKey,
};

/// A position among all slots of the store. The count of moves shows whether the entries of the shard are still where they were.
#[derive(Clone, Copy)]
struct Place {
    shard: usize,
    moves: u16,
    slot: u32,
}

impl Place {
    fn read(at: u64) -> Self {
        let part = |shift: u32, bits: u64| at >> shift & bits;
        Self {
            shard: usize::try_from(part(48, 0xFFFF)).unwrap_or(usize::MAX),
            moves: u16::try_from(part(32, 0xFFFF)).unwrap_or(0),
            slot: u32::try_from(part(0, 0xFFFF_FFFF)).unwrap_or(0),
        }
    }

    fn write(self) -> u64 {
        (self.shard as u64) << 48 | u64::from(self.moves) << 32 | u64::from(self.slot)
    }
}

impl MemoryStore {
    /// Identifies this store: positions in any other store are meaningless here.
    pub fn identity(&self) -> u64 {
        self.key_hash.of(PolicyId(u64::MAX), b"scan")
    }

    /// Copies names from this many slots of one shard, while its lock is held.
    pub fn scan(&self, filter: ScanFilter<'_>, at: u64, slots: usize) -> ScanStep {
        let Place { shard: number, moves, slot } = Place::read(at);
        let Some(PaddedShard { shard, .. }) = self.shards.get(number) else {
            return ScanStep { found: Vec::new(), examined: 0, next: None };
        };
        let (mut found, mut examined) = (Vec::new(), 0);
        let place = (usize::try_from(slot).unwrap_or(0), moves);
        let shard = shard.lock();
        let (next, moves) = shard.visit(place, slots, |entry| {
            examined += 1;
            // Entries of a forgotten policy are as good as expired.
            if shard.registered(entry.under.id).is_none() {
                return;
            }
            let stored = read_stored(&entry.key);
            if filter.takes_policy(entry.under.policy.name()) && filter.takes_key(stored) {
                let key = match stored {
                    StoredKey::Plain(key) => KeyName::Bytes(key.into()),
                    StoredKey::Digest(digest) => KeyName::Digest(digest.into()),
                };
                found.push(FoundKey {
                    policy: FoundPolicy::Known(entry.under.id),
                    key,
                    expires_after_us: None,
                });
            }
        });
        let next = match next.and_then(|slot| u32::try_from(slot).ok()) {
            Some(slot) => Some(Place { shard: number, moves, slot }),
            None if number + 1 < self.shards.len() => Some(Place { shard: number + 1, moves: 0, slot: 0 }),
            None => None,
        };
        ScanStep { found, examined, next: next.map(Place::write) }
    }

    /// The states of a key, or those that it would get.
    #[doc(hidden)]
    pub fn look(&self, request: LookRequest<'_>) -> Result<Look, Error> {
        let LookRequest { id, key, .. } = request;
        let effective = quotas_of(request.effective);
        let digest;
        let key = match key {
            StoredKey::Plain(key) => {
                digest = self.long_keys.digest(key);
                digest.as_ref().map_or(key, |digest| digest)
            }
            StoredKey::Digest(known) => {
                digest = Some(stored_digest(known));
                digest.as_ref().map_or(known, |digest| digest)
            }
        };
        let hash = self.key_hash.of(id, key);
        let PaddedShard { shard, recent_denials } = self.shard(hash);
        let mut shard = shard.lock();
        let now_us = shard.time(self.clock.now_us(), &self.clock);
        let mut overflow;
        let wanted = KeyRequest { id, hash, key, now_us, effective };
        let (mut slot, degraded) = match shard.slot(recent_denials, &self.key_hash, wanted) {
            Ok(slot) => (slot, None),
            Err(NoSlot::Unknown) => return Err(Error::unknown_to_store()),
            Err(NoSlot::Full(current)) => {
                overflow = self.overflow.lock();
                (overflow.slot(current, now_us), Some(Degradation::StoreFull))
            }
        };
        let (_, states) = slot.parts();
        Ok(Look { states: states.as_slice().into(), now_us, degraded })
    }

    /// Forgets a key of which only the digest is known.
    pub fn forget_digest(&self, id: PolicyId, digest: &[u8]) {
        let key = stored_digest(digest);
        let hash = self.key_hash.of(id, &key);
        let PaddedShard { shard, recent_denials } = self.shard(hash);
        let mut shard = shard.lock();
        recent_denials.invalidate(hash);
        shard.forget(id, hash, &key);
    }
}
