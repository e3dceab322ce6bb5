//! The store of this host: a file in shared memory that all its processes map.
//!
//! - The file is a fixed number of shards, each a hash table with a lock of its own: see [`shard`]. The transition is the
//!   core's own, under the lock, on states that are kept as [bytes](crate::rules::codec).
//! - Any process may be killed at any time. What it was doing is done or not done, and whoever needs the lock that it held
//!   takes it over: see [`lock`], [`owner`] and [`recovery`].
//! - It is bounded by its size. As in the memory store, what is spent makes room, what is in use does not, and when a
//!   shard is full of that, new keys share one state a policy: those are in a shard of their own, the overflow.
//! - A process opens the file when it first asks, once for all of its limiters: see [`sharing`]. After a fork, the child opens
//!   it anew. The last limiter to be closed closes it.
//!
//! # Why not an embedded database
//!
//! One that copies pages and has one writer at a time (LMDB) takes 0.8 to 1.5 us for a decision on its only key, and 4 to
//! 6.5 us with a million of them, if its pages are written through the mapping; 5 and 21 us if they are not. This takes a
//! tenth of that, decides several keys at once, never needs a page more to free one, and survives whatever is in the
//! file, which such a database takes at its word.

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
    /// Of this process, or of the one that it was forked from.
    mapped: ArcSwapOption<MappedStore>,
    closed: AtomicBool,
}

impl SharedFileStore {
    /// Opens nothing yet.
    pub(crate) fn new(options: SharedFileOptions, clock: Clock) -> Self {
        Self {
            options,
            clock,
            policies: Policies::default(),
            mapped: ArcSwapOption::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// The same store for a process that was forked from the one that uses this.
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

    /// Opens the file if it is not.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        self.with_opened(|_| Ok(()))
    }

    /// How many keys the file holds a state for.
    pub(crate) fn keys(&self) -> Option<usize> {
        self.with_opened(|mapped| Ok(mapped.keys())).ok()
    }

    /// Answers a request, at once.
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
        // Closing it meanwhile found nothing there, or what was there before.
        self.check_open().inspect_err(|_| self.replace(None))?;
        Ok(mapped)
    }

    /// Lets go of the file, for good. The last limiter of this process to do so closes it: its place among the owners, its
    /// mapping and its descriptor are free then, or once the operations of other threads that are under way have ended.
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
            // Whatever another thread of the parent was doing with it when it forked is never finished here.
            std::mem::forget(old);
        }
    }
}
