//! The keys that are denied and admitted most often, counted from a sample in a bounded number of counters.
//! The counters are those of Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k
//! Elements in Data Streams", ICDT 2005): a key without a counter takes over the one with the smallest count and
//! continues from that count, so a count is never too low, and too high by at most the count that was taken over. All
//! counts are halved once a minute, so that they reflect the last minutes.
//! minutes.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;

use polylimit_rules::report::sha256;
use polylimit_runtime::monotonic;
use polylimit_store::charge::PolicyId;
use polylimit_store::option::{OptionKind, StoreOption};
use polylimit_store::scan::KeyName;

pub(crate) const OBSERVE_KEYS: StoreOption = StoreOption {
    name: "observe_keys",
    kind: OptionKind::Number,
    about: "How many keys are counted, to show which are denied and admitted most often.",
    allowed: "0 (none) to 65536",
    default: Some("0"),
    secret: false,
};
pub(crate) const MAX_OBSERVED: usize = 1 << 16;

/// 1/n of denials and admissions are counted, on average.
const DENIALS: u32 = 16;
const ADMISSIONS: u32 = 64;
/// The time in which counts are halved.
pub(crate) const HALF_LIFE: Duration = Duration::from_secs(60);
/// Longer keys are counted by their digest.
const MAX_PLAIN_KEY: usize = 256;
const DIGEST_BYTES: usize = 20;

/// How often a key was denied or admitted, estimated from the sample, and the most by which that is too high.
pub(crate) struct Counted {
    pub(crate) id: PolicyId,
    pub(crate) key: KeyName,
    pub(crate) count: u64,
    pub(crate) error: u64,
}

/// The counters of a limiter.
#[derive(Debug)]
pub(crate) struct Observed {
    keys: usize,
    denied: Mutex<Sketch>,
    admitted: Mutex<Sketch>,
}

thread_local! {
    /// How many denials and admissions are left before the next one that is counted; 0 before the first.
    static LEFT: [Cell<u32>; 2] = const { [Cell::new(0), Cell::new(0)] };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

impl Observed {
    /// `None` for 0 keys.
    pub(crate) fn new(keys: usize) -> Option<Self> {
        let sketch = || Mutex::new(Sketch::new(keys));
        (keys > 0).then(|| Self { keys, denied: sketch(), admitted: sketch() })
    }

    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Counts a decision if it is in the sample. A sample that would have to wait for another one is dropped.
    pub(crate) fn observe(&self, id: PolicyId, key: &[u8], allowed: bool) {
        let (sketch, one_in) = if allowed { (&self.admitted, ADMISSIONS) } else { (&self.denied, DENIALS) };
        if is_sampled(usize::from(allowed), one_in)
            && let Some(mut sketch) = sketch.try_lock()
        {
            sketch.add(id, key);
        }
    }

    /// The keys that were denied most often recently.
    pub(crate) fn top_denied(&self, most: usize) -> Vec<Counted> {
        self.denied.lock().top(most, DENIALS)
    }

    /// The keys that were admitted most often recently.
    pub(crate) fn top_admitted(&self, most: usize) -> Vec<Counted> {
        self.admitted.lock().top(most, ADMISSIONS)
    }

    /// How often a key was denied recently, and the most by which that is too high.
    pub(crate) fn denials(&self, id: PolicyId, key: &[u8]) -> Option<(u64, u64)> {
        let mut sketch = self.denied.lock();
        sketch.decay();
        let at = sketch.find(id, &name_of(key))?;
        let Counter { count, error, .. } = &sketch.counters[at];
        Some((count * u64::from(DENIALS), error * u64::from(DENIALS)))
    }
}

/// Whether this decision is counted; 1/n of them are. The distances are random: with equal ones, a regular pattern of
/// requests could hide keys.
#[inline]
fn is_sampled(kind: usize, one_in: u32) -> bool {
    LEFT.with(|left| {
        let left = &left[kind];
        match left.get() {
            2.. => {
                left.set(left.get() - 1);
                false
            }
            reached => {
                // From 1 to twice the mean, less 1.
                left.set(1 + random() % (2 * one_in - 1));
                reached == 1
            }
        }
    })
}

/// Xorshift (Marsaglia, 2003), seeded for each thread.
#[cold]
fn random() -> u32 {
    RANDOM.with(|state| {
        let mut x = state.get();
        if x == 0 {
            x = std::hash::RandomState::new().hash_one(0) | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        (x >> 32) as u32
    })
}

#[derive(Debug)]
struct Sketch {
    most: usize,
    counters: Vec<Counter>,
    /// The places of the counters, by the hashes of their keys.
    places: HashTable<usize>,
    seed: RandomState,
    halved: Duration,
}

#[derive(Debug)]
struct Counter {
    id: PolicyId,
    key: KeyName,
    count: u64,
    error: u64,
}

impl Sketch {
    fn new(most: usize) -> Self {
        let (places, seed) = (HashTable::new(), RandomState::default());
        Self { most, counters: Vec::new(), places, seed, halved: monotonic::ticks() }
    }

    fn add(&mut self, id: PolicyId, key: &[u8]) {
        self.decay();
        let key = name_of(key);
        if let Some(at) = self.find(id, &key) {
            self.counters[at].count += 1;
            return;
        }
        let hash = self.seed.hash_one((id, &key));
        let at = if self.counters.len() < self.most {
            self.counters.push(Counter { id, key, count: 1, error: 0 });
            self.counters.len() - 1
        } else {
            let Some(at) = (0..self.counters.len()).min_by_key(|at| self.counters[*at].count) else { return };
            self.forget(at);
            let error = self.counters[at].count;
            self.counters[at] = Counter { id, key, count: error + 1, error };
            at
        };
        let Self { places, counters, seed, .. } = self;
        places.insert_unique(hash, at, |at| seed.hash_one((counters[*at].id, &counters[*at].key)));
    }

    fn find(&self, id: PolicyId, key: &KeyName) -> Option<usize> {
        let hash = self.seed.hash_one((id, key));
        let is_of = |at: &usize| self.counters[*at].id == id && self.counters[*at].key == *key;
        self.places.find(hash, is_of).copied()
    }

    /// Takes the place of a counter out of the table.
    fn forget(&mut self, at: usize) {
        let Counter { id, key, .. } = &self.counters[at];
        let hash = self.seed.hash_one((id, key));
        if let Ok(place) = self.places.find_entry(hash, |place| *place == at) {
            place.remove();
        }
    }

    /// Halves the counts for the time that has passed.
    fn decay(&mut self) {
        self.decay_until(monotonic::ticks());
    }

    fn decay_until(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.halved);
        let times = u32::try_from(passed.as_micros() / HALF_LIFE.as_micros()).unwrap_or(u32::MAX);
        if times == 0 {
            return;
        }
        self.halved += HALF_LIFE * times.min(64);
        if times >= 64 {
            self.halved = now;
        }
        for counter in &mut self.counters {
            counter.count = counter.count.checked_shr(times).unwrap_or(0);
            counter.error = counter.error.checked_shr(times).unwrap_or(0);
        }
        self.counters.retain(|counter| counter.count > 0);
        let Self { places, counters, seed, .. } = self;
        places.clear();
        for (at, counter) in counters.iter().enumerate() {
            let hash = seed.hash_one((counter.id, &counter.key));
            places.insert_unique(hash, at, |at| seed.hash_one((counters[*at].id, &counters[*at].key)));
        }
    }

    /// The counters with the highest counts.
    fn top(&mut self, most: usize, one_in: u32) -> Vec<Counted> {
        self.decay();
        let mut counters: Vec<&Counter> = self.counters.iter().collect();
        counters.sort_by_key(|counter| std::cmp::Reverse((counter.count, counter.count - counter.error)));
        let one_in = u64::from(one_in);
        let counted = |Counter { id, key, count, error }: &Counter| Counted {
            id: *id,
            key: key.clone(),
            count: count * one_in,
            error: error * one_in,
        };
        counters.into_iter().take(most).map(counted).collect()
    }
}

/// The key, or the digest of a long one: the first bytes of its SHA-256, as in Redis without a secret.
fn name_of(key: &[u8]) -> KeyName {
    if key.len() <= MAX_PLAIN_KEY {
        return KeyName::Bytes(key.into());
    }
    KeyName::Digest(sha256(key)[..DIGEST_BYTES].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sketch: &Sketch) -> Vec<(KeyName, u64, u64)> {
        let mut counts: Vec<_> = sketch
            .counters
            .iter()
            .map(|counter| (counter.key.clone(), counter.count, counter.error))
            .collect();
        counts.sort();
        counts
    }

    #[test]
    fn key_without_a_counter_takes_the_smallest_one() {
        let mut sketch = Sketch::new(2);
        for key in [&b"a"[..], b"a", b"b", b"c", b"a"] {
            sketch.add(PolicyId(0), key);
        }
        let name = |key: &[u8]| KeyName::Bytes(key.into());
        assert_eq!(counts(&sketch), [(name(b"a"), 3, 0), (name(b"c"), 2, 1)]);
        assert_eq!(sketch.find(PolicyId(0), &name(b"b")), None);
        assert_eq!(sketch.find(PolicyId(1), &name(b"a")), None);
    }

    #[test]
    fn no_count_is_too_low_nor_too_high_by_more_than_its_error() {
        let mut sketch = Sketch::new(20);
        let mut real = std::collections::HashMap::new();
        let mut x = 1_u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The smaller a number, the more often it occurs.
            let key = ((x >> 33) % 1_000) * ((x >> 43) % 1_000) / 10_000;
            let key = key.to_string().into_bytes();
            *real.entry(KeyName::Bytes(key.clone())).or_insert(0_u64) += 1;
            sketch.add(PolicyId(0), &key);
        }
        assert_eq!(sketch.counters.len(), 20);
        for (key, count, error) in counts(&sketch) {
            assert!(
                (real[&key]..=real[&key] + error).contains(&count),
                "{count} with {error}, {}",
                real[&key]
            );
        }
        // Every key that occurred more often than all events divided by the counters has one.
        for (key, real) in real.iter().filter(|(_, real)| **real > 20_000 / 20) {
            assert!(sketch.find(PolicyId(0), key).is_some(), "{real}");
        }
    }

    #[test]
    fn counts_are_halved_as_time_passes() {
        let mut sketch = Sketch::new(4);
        for key in [&b"a"[..], b"a", b"a", b"a", b"b"] {
            sketch.add(PolicyId(0), key);
        }
        sketch.decay_until(sketch.halved + HALF_LIFE);
        assert_eq!(counts(&sketch), [(KeyName::Bytes(b"a".into()), 2, 0)]);
        sketch.add(PolicyId(0), b"a");
        assert_eq!(counts(&sketch), [(KeyName::Bytes(b"a".into()), 3, 0)]);
    }

    #[test]
    fn about_one_of_so_many_is_in_the_sample() {
        let sampled = (0..64_000).filter(|_| is_sampled(0, 16)).count();
        assert!((3_500..4_500).contains(&sampled), "{sampled}");
    }
}
