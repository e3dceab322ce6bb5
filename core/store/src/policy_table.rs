//! Entries for policies, by id and by name. Reading takes no lock; the limiter's registry serializes the changes.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use foldhash::fast::RandomState;

use crate::charge::PolicyId;

/// The chunks of a table double in size, so that no entry ever moves.
const CHUNKS: usize = PolicyId::SLOT_BITS as usize;
/// A name is compared with those in one bucket. All groups together have enough buckets for a few names in each, up to some ten thousand
/// names; they are created in groups, because most limiters have few names.
const GROUPS: u64 = 1 << 7;
const BUCKETS_OF_GROUP: u64 = 1 << 7;

/// An entry of a [`PolicyTable`].
pub trait OfPolicy {
    fn id(&self) -> PolicyId;
    fn name(&self) -> &str;
}

/// Entries by the ids of their policies and by their names.
pub struct PolicyTable<T> {
    chunks: [OnceLock<Box<[ArcSwapOption<T>]>>; CHUNKS],
    names: NameTable<T>,
}

impl<T> Default for PolicyTable<T> {
    fn default() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], names: NameTable::default() }
    }
}

impl<T: fmt::Debug + OfPolicy> fmt::Debug for PolicyTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

impl<T: OfPolicy> PolicyTable<T> {
    /// The entry of a policy; `None` if the policy was forgotten.
    #[inline]
    pub fn load(&self, id: PolicyId) -> Guard<Option<Arc<T>>> {
        let (chunk, at) = place(id);
        let places = self.chunks.get(chunk).and_then(OnceLock::get);
        let found = places.and_then(|places| places.get(at)).map(ArcSwapOption::load);
        let is_of = |found: &Guard<Option<Arc<T>>>| found.as_ref().is_some_and(|found| found.id() == id);
        found.filter(is_of).unwrap_or_else(|| Guard::from_inner(None))
    }

    pub fn get(&self, id: PolicyId) -> Option<Arc<T>> {
        Guard::into_inner(self.load(id))
    }

    /// The entry of the policy with this name.
    pub fn named(&self, name: &str) -> Option<Arc<T>> {
        self.names.get(name)
    }

    /// Adds or replaces the entry of a policy.
    pub fn set(&self, entry: Arc<T>) {
        let (chunk, at) = place(entry.id());
        let made = || (0..1_usize << chunk).map(|_| ArcSwapOption::empty()).collect();
        let Some(places) = self.chunks.get(chunk).map(|places| places.get_or_init(made)) else { return };
        self.names.set(entry.name().into(), Arc::clone(&entry));
        places[at].store(Some(entry));
    }

    /// Removes the entry of a policy. A later policy may reuse its slot, but never its id.
    pub fn forget(&self, id: PolicyId) {
        let Some(found) = self.get(id) else { return };
        let (chunk, at) = place(id);
        if let Some(place) = self.chunks.get(chunk).and_then(OnceLock::get).and_then(|places| places.get(at))
        {
            place.store(None);
        }
        self.names.remove(found.name());
    }

    /// All entries, in the order in which their policies were registered.
    pub fn all(&self) -> Vec<Arc<T>> {
        let places = self.chunks.iter().filter_map(OnceLock::get).flatten();
        let mut all: Vec<_> = places.filter_map(ArcSwapOption::load_full).collect();
        all.sort_by_key(|entry| entry.id());
        all
    }

    /// The same entries, for a forked child.
    #[must_use]
    pub fn after_fork(&self) -> Self {
        let table = Self::default();
        self.all().into_iter().for_each(|entry| table.set(entry));
        table
    }
}

/// The chunk of a policy's entry, and the index in it.
#[inline]
fn place(id: PolicyId) -> (usize, usize) {
    let number = id.slot() + 1;
    let chunk = number.ilog2();
    (chunk as usize, number - (1 << chunk))
}

type Bucket<T> = Box<[(u64, Arc<str>, Arc<T>)]>;
type Group<T> = OnceLock<Box<[ArcSwapOption<Bucket<T>>]>>;

/// Entries by names. A change copies one bucket, so it takes the same time however many entries there are, up to some ten thousand.
pub struct NameTable<T> {
    hash: RandomState,
    groups: OnceLock<Box<[Group<T>]>>,
}

impl<T> Default for NameTable<T> {
    fn default() -> Self {
        Self { hash: RandomState::default(), groups: OnceLock::new() }
    }
}

impl<T> fmt::Debug for NameTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameTable")
    }
}

impl<T> NameTable<T> {
    #[inline]
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.with(name, Arc::clone)
    }

    /// Applies `of` to the entry with this name.
    #[inline]
    pub fn with<R>(&self, name: &str, of: impl FnOnce(&Arc<T>) -> R) -> Option<R> {
        let groups = self.groups.get()?;
        let hash = self.hash.hash_one(name);
        let (group, at) = bucket_of(hash);
        let bucket = groups[group].get()?[at].load();
        let mut entries = bucket.as_ref()?.iter();
        entries.find(|(known, text, _)| *known == hash && **text == *name).map(|(.., entry)| of(entry))
    }

    pub fn set(&self, name: Arc<str>, entry: Arc<T>) {
        self.change(&name.clone(), Some((name, entry)));
    }

    pub fn remove(&self, name: &str) {
        self.change(name, None);
    }

    fn change(&self, name: &str, new: Option<(Arc<str>, Arc<T>)>) {
        let hash = self.hash.hash_one(name);
        let (group, at) = bucket_of(hash);
        let groups = self.groups.get_or_init(|| (0..GROUPS).map(|_| Group::new()).collect());
        let made = || (0..BUCKETS_OF_GROUP).map(|_| ArcSwapOption::empty()).collect();
        let bucket = &groups[group].get_or_init(made)[at];
        let known = bucket.load_full();
        let others = known.iter().flat_map(|entries| entries.iter());
        let others = others.filter(|(known, text, _)| *known != hash || **text != *name).cloned();
        let changed: Bucket<T> = others.chain(new.map(|(name, entry)| (hash, name, entry))).collect();
        bucket.store((!changed.is_empty()).then(|| Arc::new(changed)));
    }

    /// All entries with their names.
    pub fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let groups = self.groups.get().into_iter().flatten().filter_map(OnceLock::get);
        let mut all = Vec::new();
        for bucket in groups.flatten().filter_map(ArcSwapOption::load_full) {
            all.extend(bucket.iter().map(|(_, name, entry)| (Arc::clone(name), Arc::clone(entry))));
        }
        all
    }
}

/// The group of a name's bucket, and the index in it.
fn bucket_of(hash: u64) -> (usize, usize) {
    (((hash >> 48) & (GROUPS - 1)) as usize, ((hash >> 32) & (BUCKETS_OF_GROUP - 1)) as usize)
}
