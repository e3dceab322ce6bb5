//! Recent denials, readable without the shard's lock.
//!
//! A denied client often retries at once. A denial writes nothing, so concurrent denials need not wait for each other.
//! An entry states for a key: until `denied_until_us` one unit does not fit, and at `reset_at_us` nothing counts any
//! more. With a single token bucket both are fixed points in time for as long as the key's state is not written: the
//! debt `d` at `now` is `d0 - (now - t0) * rate`, so `now + ceil(d / rate)` is `t0 + ceil(d0 / rate)`; and while one
//! unit does not fit, 0 remain.
//!
//! Entries are published and invalidated only under the shard's lock. A writer of a state invalidates the entry in its
//! key's place, even if it belongs to another key, before it releases the lock. A reader that still sees the entry is
//! ordered before the write.

use std::fmt;
use std::sync::OnceLock;

use polylimit_rules::decision::{Cause, Decision, QuotaUsage, Source};
use polylimit_runtime::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use polylimit_store::charge::PolicyId;

/// The number of denials that a shard can publish at the same time.
const PLACES: usize = 32;
/// One of this many denials of other keys replaces an entry that is still valid.
const MISSES: u32 = 64;

#[derive(Default)]
pub(crate) struct RecentDenials {
    /// The number of published entries; readers skip the lookup when it is 0.
    published: AtomicU32,
    /// Denials whose place was taken by another key.
    missed: AtomicU32,
    /// Allocated at the first denial: many limiters never deny.
    places: OnceLock<Box<[RecentDenial; PLACES]>>,
}

/// One denial, in one cache line.
#[derive(Default)]
#[repr(align(64))]
struct RecentDenial {
    /// Odd while the other fields are being written.
    version: AtomicU64,
    key: [AtomicU64; 2],
    /// The key's length and the policy; 0 where nothing is published.
    identity: AtomicU64,
    limit: AtomicU64,
    published_at_us: AtomicU64,
    denied_until_us: AtomicU64,
    reset_at_us: AtomicU64,
}

/// A key in two words, and its length with the number of its policy: together they identify it.
#[derive(Clone, Copy)]
struct EntryKey {
    key: [u64; 2],
    identity: u64,
}

impl EntryKey {
    /// `None` for keys of more than 16 bytes.
    #[inline]
    fn of(id: PolicyId, key: &[u8]) -> Option<Self> {
        let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let half = |bytes: Option<&[u8; 4]>| bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)));
        let words = match key.len() {
            // Two overlapping parts contain the whole key.
            8..=16 => [word(key.first_chunk()), word(key.last_chunk())],
            4..=7 => [half(key.first_chunk()), half(key.last_chunk())],
            0..=3 => [key.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0],
            _ => return None,
        };
        let length = key.len() as u64;
        Some(Self { key: words, identity: (length + 1) << 56 | id.0 })
    }
}

/// Does not show keys.
impl fmt::Debug for RecentDenials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentDenials").field("published", &self.published).finish_non_exhaustive()
    }
}

impl RecentDenials {
    /// The decision on one unit of that key, if a valid denial is published.
    #[inline]
    pub(crate) fn denial(&self, id: PolicyId, hash: u64, key: &[u8], now_us: u64) -> Option<Decision> {
        if self.published.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let entry = &self.places.get()?[place(hash)];
        let EntryKey { key, identity } = EntryKey::of(id, key)?;
        let version = entry.version.load(Ordering::Acquire);
        let same = entry.identity.load(Ordering::Relaxed) == identity
            && entry.key[0].load(Ordering::Relaxed) == key[0]
            && entry.key[1].load(Ordering::Relaxed) == key[1];
        if !same {
            return None;
        }
        let limit = entry.limit.load(Ordering::Relaxed);
        let published_at_us = entry.published_at_us.load(Ordering::Relaxed);
        let denied_until_us = entry.denied_until_us.load(Ordering::Relaxed);
        let reset_at_us = entry.reset_at_us.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && entry.version.load(Ordering::Relaxed) == version;
        // Times before the publication mean that the clock went back, which the transition has to handle.
        if !whole || now_us < published_at_us || now_us >= denied_until_us {
            return None;
        }
        Some(Decision {
            total: QuotaUsage { limit, remaining: 0, reset_after_us: reset_at_us - now_us, over: 0 },
            several: None,
            wait_us: denied_until_us - now_us,
            allowed: false,
            source: Source::Store,
            degraded: None,
            cause: Some(Cause::Quota),
            crossed: false,
            elastic: false,
            shadowed: false,
            repeated: false,
        })
    }

    /// Publishes the denial of one unit that has just been decided and wrote nothing, unless the place is taken.
    #[inline(never)]
    pub(crate) fn publish(
        &self,
        id: PolicyId,
        hash: u64,
        key: &[u8],
        now_us: u64,
        wait_us: u64,
        usage: QuotaUsage,
    ) {
        // An entry has no room for units of an excess.
        if usage.over > 0 {
            return;
        }
        let Some(EntryKey { key, identity }) = EntryKey::of(id, key) else { return };
        let entry = &self.places.get_or_init(Box::default)[place(hash)];
        if entry.identity.load(Ordering::Relaxed) != 0
            && now_us < entry.denied_until_us.load(Ordering::Relaxed)
        {
            let missed = self.missed.load(Ordering::Relaxed).wrapping_add(1);
            self.missed.store(missed, Ordering::Relaxed);
            if !missed.is_multiple_of(MISSES) {
                return;
            }
        }
        self.invalidate_entry(entry);
        entry.write(|| {
            entry.key[0].store(key[0], Ordering::Relaxed);
            entry.key[1].store(key[1], Ordering::Relaxed);
            entry.identity.store(identity, Ordering::Relaxed);
            entry.limit.store(usage.limit, Ordering::Relaxed);
            entry.published_at_us.store(now_us, Ordering::Relaxed);
            entry.denied_until_us.store(now_us + wait_us, Ordering::Relaxed);
            entry.reset_at_us.store(now_us + usage.reset_after_us, Ordering::Relaxed);
        });
        self.published.store(self.published.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Invalidates the entry in the place of a key whose state is about to be written.
    #[inline]
    pub(crate) fn invalidate(&self, hash: u64) {
        if self.published.load(Ordering::Relaxed) > 0
            && let Some(places) = self.places.get()
        {
            self.invalidate_entry(&places[place(hash)]);
        }
    }

    /// Invalidates every entry.
    pub(crate) fn invalidate_all(&self) {
        for entry in self.places.get().into_iter().flat_map(|places| &**places) {
            self.invalidate_entry(entry);
        }
    }

    fn invalidate_entry(&self, entry: &RecentDenial) {
        if entry.identity.load(Ordering::Relaxed) != 0 {
            entry.write(|| entry.identity.store(0, Ordering::Relaxed));
            self.published.store(self.published.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
        }
    }
}

/// The place of a key with that hash.
#[inline]
fn place(hash: u64) -> usize {
    // These bits do not select the shard.
    (hash >> 48) as usize % PLACES
}

impl RecentDenial {
    /// Writes so that a reader sees all of the fields or none.
    fn write(&self, fields: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // A reader that sees one of the new values also sees the odd version.
        fence(Ordering::Release);
        fields();
        self.version.store(version + 2, Ordering::Release);
    }
}

#[cfg(all(test, polylimit_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use polylimit_runtime::atomic::AtomicU8;

    const ID: PolicyId = PolicyId(0);

    /// Bounds how often threads are interrupted in one run: without a bound the runs take minutes.
    fn model(run: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(run);
    }

    fn usage(limit: u64) -> QuotaUsage {
        QuotaUsage { limit, remaining: 0, reset_after_us: 20, over: 0 }
    }

    /// A reader concurrent with two publications finds all fields of one of them, or none.
    #[test]
    fn reader_finds_a_whole_entry() {
        model(|| {
            let denials = Arc::new(RecentDenials::default());
            denials.publish(ID, 0, b"a", 5, 10, usage(1));
            let reader = {
                let denials = Arc::clone(&denials);
                thread::spawn(move || denials.denial(ID, 0, b"a", 7))
            };
            denials.invalidate(0);
            denials.publish(ID, 0, b"a", 6, 30, usage(2));
            if let Some(found) = reader.join().unwrap() {
                let numbers = (found.total.limit, found.wait_us, found.total.reset_after_us);
                assert!(matches!(numbers, (1, 8, 18) | (2, 29, 19)), "{numbers:?}");
            }
        });
    }

    /// A thread that has seen that a state was written finds no denial from before.
    #[test]
    fn invalidation_is_visible_after_the_write() {
        model(|| {
            let denials = Arc::new(RecentDenials::default());
            let released = Arc::new(AtomicU8::new(0));
            denials.publish(ID, 0, b"a", 5, 10, usage(1));
            let writer = {
                let (denials, released) = (Arc::clone(&denials), Arc::clone(&released));
                thread::spawn(move || {
                    denials.invalidate(0);
                    // As when the lock of the shard is released.
                    released.store(1, Ordering::Release);
                })
            };
            if released.load(Ordering::Acquire) == 1 {
                assert!(denials.denial(ID, 0, b"a", 7).is_none());
            }
            writer.join().unwrap();
            assert!(denials.denial(ID, 0, b"a", 7).is_none());
        });
    }
}

#[cfg(test)]
mod tests;
