//! Tells the process that made something from those that were forked from it.
//!
//! A fork copies memory and no threads but one: locks may be held by threads that are not there, and descriptors lead to
//! what is the parent's. So whoever owns such things remembers in which process they were made.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use crate::runtime::mmap::Mapping;

/// The process in which something was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessGeneration {
    /// A word that every fork wipes. Looking at it takes no call of the system, which would take longer than deciding.
    word: Option<&'static AtomicU64>,
    /// What the word was; without such a word the number of the process.
    number: u64,
}

impl ProcessGeneration {
    pub(crate) fn here() -> Self {
        let Some(word) = word() else { return Self { word: None, number: u64::from(std::process::id()) } };
        let mut number = word.load(Ordering::Acquire);
        if number == 0 {
            let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            number = match word.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => next,
                Err(meanwhile) => meanwhile,
            };
        }
        Self { word: Some(word), number }
    }

    /// Whether this is the process that it was made in.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        match self.word {
            Some(word) => word.load(Ordering::Relaxed) == self.number,
            None => self.number == u64::from(std::process::id()),
        }
    }
}

/// Leaves something alone for good that belongs to the process that this one was forked from. Dropping it could take locks of
/// threads that are not here, or what the parent has open; and it would copy pages that the two share. It stays reachable, so
/// that tools that look for leaks do not take it for one.
pub(crate) fn leave<T>(inherited: T) {
    let what = Box::into_raw(Box::new(inherited)).cast();
    let left: &'static mut Left =
        Box::leak(Box::new(Left { _what: what, before: LEFT.load(Ordering::Relaxed) }));
    // It may be left by several threads at a time.
    while let Err(before) =
        LEFT.compare_exchange(left.before, &raw mut *left, Ordering::Release, Ordering::Relaxed)
    {
        left.before = before;
    }
}

/// What was left last, and all before it.
static LEFT: AtomicPtr<Left> = AtomicPtr::new(std::ptr::null_mut());

struct Left {
    _what: *mut (),
    before: *mut Self,
}

/// Processes of one ancestry count on from each other; others never meet.
static LAST: AtomicU64 = AtomicU64::new(0);

#[cfg(target_os = "linux")]
fn word() -> Option<&'static AtomicU64> {
    static PAGE: OnceLock<Option<Mapping>> = OnceLock::new();
    PAGE.get_or_init(Mapping::wiped_by_fork).as_ref()?.words().first()
}

#[cfg(not(target_os = "linux"))]
fn word() -> Option<&'static AtomicU64> {
    None
}
