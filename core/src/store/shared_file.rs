//! The shared-file store: a file in the host's shared memory that all processes of the host map.
//!
//! - The file is a fixed number of shards, each a hash table with its own lock: see [`shard`]. The core's transition
//!   runs under the lock, on states that are stored as [bytes](crate::rules::codec).
//! - Any process may be killed at any time. Its current operation is then either applied or not, and the next process
//!   that needs a lock which the killed process held takes the lock over: see [`lock`], [`owner`] and [`recovery`].
//! - The file's size bounds the store. As in the memory store, expired entries make room and other entries are never
//!   dropped. When a shard is full of entries that are not expired, new keys share one state per policy; these shared
//!   states are in a separate shard, the overflow.
//! - A process opens the file at its first operation, once for all of its limiters: so it takes one place among
//!   the owners of the file, one mapping and one descriptor. A forked child opens the file again. Closing the last
//!   limiter closes the file.
//!
//! # Why not an embedded database
//!
//! A database that copies pages and has a single writer (LMDB) takes 0.8 to 1.5 us for a decision on its only key, and
//! 4 to 6.5 us with a million keys, if its pages are written through the mapping; 5 and 21 us if they are not. This
//! store takes a tenth of that, decides several keys at once, never needs an additional page to free one, and survives
//! any file content, whereas such a database trusts its file.

mod file;
mod layout;
mod location;
mod lock;
mod mapped_store;
mod owner;
mod policies;
mod recovery;
mod shard;
mod sweep;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

pub(crate) use self::location::SharedFileOptions;
use self::mapped_store::MappedStore;
use self::policies::{Policies, SharedFilePolicy};
use crate::error::{Error, ErrorKind};
use crate::rules::history::Change;
use crate::rules::policy::Policy;
use crate::runtime::clock::Clock;
use crate::runtime::close_signal::closed;
use crate::runtime::fork::ProcessGeneration;
use crate::store::request::{Answer, Numbers, PolicyId, PolicyOptions, StoreRequest};
use crate::store::scan::{Look, LookRequest, ScanFilter, ScanStep};
use crate::store::stats::{Counters, Stats};

#[derive(Debug)]
pub(crate) struct SharedFileStore {
    options: SharedFileOptions,
    clock: Clock,
    policies: Policies,
    /// Opened by this process or by the process that it was forked from.
    mapped: ArcSwapOption<MappedStore>,
    closed: AtomicBool,
    counters: Counters,
}

impl SharedFileStore {
    /// Creates the store without opening the file.
    pub(crate) fn new(options: SharedFileOptions, clock: Clock) -> Self {
        Self {
            options,
            clock,
            policies: Policies::default(),
            mapped: ArcSwapOption::default(),
            closed: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// The same store for a forked child.
    pub(crate) fn after_fork(&self) -> Self {
        Self {
            options: self.options.clone(),
            clock: self.clock.clone(),
            policies: self.policies.after_fork(),
            mapped: ArcSwapOption::default(),
            closed: AtomicBool::new(self.closed.load(Ordering::SeqCst)),
            counters: Counters::default(),
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Prepares numbers that decide about some keys of a policy, whose keys may also have these others.
    pub(crate) fn prepare_numbers(id: PolicyId, policy: &Policy, others: &[Policy]) -> Numbers {
        Numbers::new(SharedFilePolicy::new(id, policy, Change::Now(others)))
    }

    pub(crate) fn set_policy(&self, id: PolicyId, policy: &Policy, options: PolicyOptions) {
        self.policies.set(id, policy, options.has_numbers_of_keys, self.clock.now_us());
    }

    /// The path of the file.
    pub(crate) fn place(&self) -> Option<Arc<str>> {
        self.options.path().ok().map(|path| path.to_string_lossy().into())
    }

    pub(crate) fn forget_policy(&self, id: PolicyId) {
        self.policies.forget(id);
    }

    /// Opens the file if it is not open.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        self.with_opened(|_| Ok(()))
    }

    /// The number of keys that have a state in the file.
    pub(crate) fn keys(&self) -> Option<usize> {
        self.with_opened(|mapped| Ok(mapped.keys())).ok()
    }

    /// How many keys fit whose states are short.
    pub(crate) fn keys_capacity(&self) -> Option<usize> {
        self.with_opened(|mapped| Ok(mapped.keys_capacity())).ok()
    }

    /// The operations that it could not apply.
    pub(crate) fn stats(&self) -> Stats {
        self.counters.read()
    }

    pub(crate) fn answer(&self, request: StoreRequest<'_>) -> Result<Answer, Error> {
        let answer = self.with_opened(|mapped| mapped.answer(&self.clock, &self.policies, request));
        answer.inspect_err(|error| self.failed(error))
    }

    #[cold]
    fn failed(&self, error: &Error) {
        match error.kind() {
            ErrorKind::StoreUnavailable => self.counters.not_applied.add(1),
            ErrorKind::StoreFailed => self.counters.permanent.add(1),
            _ => {}
        }
    }

    /// Tells the file apart from every other one, whose places mean nothing here.
    pub(crate) fn identity(&self) -> Result<u64, Error> {
        self.with_opened(|mapped| Ok(mapped.identity()))
    }

    /// Copies names from so many buckets of one shard.
    pub(crate) fn scan(&self, filter: ScanFilter<'_>, at: u64, buckets: usize) -> Result<ScanStep, Error> {
        self.with_opened(|mapped| mapped.scan(&self.clock, filter, at, buckets))
    }

    /// The states of a key, or those that it would get.
    pub(crate) fn look(&self, request: LookRequest<'_>) -> Result<Look, Error> {
        self.with_opened(|mapped| mapped.look(&self.clock, &self.policies, request))
    }

    /// Forgets a key of which only the digest is known.
    pub(crate) fn forget_digest(
        &self,
        id: PolicyId,
        numbers: Option<&Numbers>,
        digest: &[u8],
    ) -> Result<(), Error> {
        self.with_opened(|mapped| mapped.forget_digest(&self.clock, &self.policies, (id, numbers), digest))
    }

    fn with_opened<T>(&self, ask: impl FnOnce(&MappedStore) -> Result<T, Error>) -> Result<T, Error> {
        let mapped = self.mapped.load();
        match &*mapped {
            Some(mapped) if mapped.is_usable() => ask(mapped),
            _ => {
                drop(mapped);
                ask(&*self.open()?)
            }
        }
    }

    #[cold]
    fn open(&self) -> Result<Arc<MappedStore>, Error> {
        self.check_open()?;
        let mapped = open_shared(&self.options)?;
        self.replace(Some(Arc::clone(&mapped)));
        // A concurrent `close` found no file here, or the previous one.
        self.check_open().inspect_err(|_| self.replace(None))?;
        Ok(mapped)
    }

    /// Releases the file for good. The last limiter of this process to do so closes the file: its place among the
    /// owners, its mapping and its descriptor are released then, or when the running operations of other threads have
    /// ended.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.replace(None);
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::SeqCst) { Err(closed()) } else { Ok(()) }
    }

    fn replace(&self, mapped: Option<Arc<MappedStore>>) {
        if let Some(old) = self.mapped.swap(mapped)
            && !old.is_of_this_process()
        {
            // An operation that another thread of the parent was running at the fork never ends in the child.
            std::mem::forget(old);
        }
    }
}

/// The open files of one process. A forked child starts without any: locks may be held by threads that do not exist in
/// the child.
struct Files {
    generation: ProcessGeneration,
    by_path: Mutex<Vec<(PathBuf, Arc<Place>)>>,
}

/// One file, shared by the limiters of a process; locked while one of them opens the file.
type Place = Mutex<Weak<MappedStore>>;

static FILES: ArcSwapOption<Files> = ArcSwapOption::const_empty();

/// The file that the options name: the one that this process has open, or newly opened.
fn open_shared(options: &SharedFileOptions) -> Result<Arc<MappedStore>, Error> {
    let path = options.path()?;
    let place = files().place(&path);
    let mut known = place.lock();
    if let Some(opened) = known.upgrade().filter(|opened| opened.is_usable())
        && opened.is_good_for(options)?
    {
        return Ok(opened);
    }
    let opened = Arc::new(MappedStore::open(options, &path)?);
    *known = Arc::downgrade(&opened);
    Ok(opened)
}

fn files() -> Arc<Files> {
    loop {
        let found = FILES.load();
        if let Some(files) = found.as_ref().filter(|files| files.generation.is_here()) {
            return Arc::clone(files);
        }
        let made = Arc::new(Files { generation: ProcessGeneration::here(), by_path: Mutex::default() });
        FILES.compare_and_swap(&found, Some(made));
    }
}

impl Files {
    fn place(&self, path: &Path) -> Arc<Place> {
        let mut by_path = self.by_path.lock();
        if let Some((_, place)) = by_path.iter().find(|(known, _)| known == path) {
            return Arc::clone(place);
        }
        by_path.retain(|(_, place)| Arc::strong_count(place) > 1 || is_open(place));
        let place = Arc::default();
        by_path.push((path.to_owned(), Arc::clone(&place)));
        place
    }
}

fn is_open(place: &Place) -> bool {
    place.lock().strong_count() > 0
}
