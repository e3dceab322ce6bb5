//! The shared-file store: a file in the host's shared memory that all processes of the host map.
//!
//! - The file is a fixed number of shards, each a hash table with its own lock: see [`shard`]. The core's transition
//!   runs under the lock, on states that are stored as [bytes](crate::rules::codec).
//! - Any process may be killed at any time. Its current operation is then either applied or not, and the next process
//!   that needs a lock which the killed process held takes the lock over: see [`lock`], [`owner`] and [`recovery`].
//! - The file's size bounds the store. As in the memory store, expired entries make room and other entries are never
//!   dropped. When a shard is full of entries that are not expired, new keys share one state per policy; these shared
//!   states are in a separate shard, the overflow.
//! - A process opens the file at its first operation, once for all of its limiters: see [`sharing`]. A forked child
//!   opens the file again. Closing the last limiter closes the file.
//!
//! # Why not an embedded database
//!
//! A database that copies pages and has a single writer (LMDB) takes 0.8 to 1.5 us for a decision on its only key, and
//! 4 to 6.5 us with a million keys, if its pages are written through the mapping; 5 and 21 us if they are not. This
//! store takes a tenth of that, decides several keys at once, never needs an additional page to free one, and survives
//! any file content, whereas such a database trusts its file.

mod file;
mod key;
mod layout;
mod location;
mod lock;
pub(crate) mod mapped_store;
mod owner;
mod policies;
mod recovery;
mod shard;
mod sharing;
mod sweep;
mod tidy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;

pub(crate) use self::location::SharedFileOptions;
use self::policies::Policies;
use crate::error::{Error, ErrorKind};
use crate::rules::policy::Policy;
use crate::runtime::clock::Clock;
use crate::store::request::{Action, Answer, PolicyId, StoreRequest};
use crate::store::shared_file::mapped_store::MappedStore;

#[derive(Debug)]
pub(crate) struct SharedFileStore {
    options: SharedFileOptions,
    clock: Clock,
    policies: Policies,
    /// Opened by this process or by the process that it was forked from.
    mapped: ArcSwapOption<MappedStore>,
    closed: AtomicBool,
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
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn set_policy(&self, id: PolicyId, policy: &Policy) {
        self.policies.set(id, policy, self.clock.now_us());
    }

    /// Opens the file if it is not open.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        self.with_opened(|_| Ok(()))
    }

    /// The number of keys that have a state in the file.
    pub(crate) fn keys(&self) -> Option<usize> {
        self.with_opened(|mapped| Ok(mapped.keys())).ok()
    }

    pub(crate) fn answer(&self, request: StoreRequest<'_>) -> Result<Answer, Error> {
        let policies = self.policies.load();
        self.with_opened(|mapped| {
            let StoreRequest { id, key, action, cost } = request;
            let asked =
                mapped_store::Asked { policies: &policies, policy: &policies[id.0 as usize], key, cost };
            match action {
                Action::Apply(operation) => mapped.apply(&self.clock, asked, operation),
                Action::Reset => Ok((mapped.reset(&self.clock, asked)?, 0)),
            }
        })
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
        let mapped = sharing::open(&self.options)?;
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
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the limiter is closed"));
        }
        Ok(())
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
