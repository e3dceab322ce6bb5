//! Distinguishes the process that created an object from its forked children.
//!
//! A fork copies the memory but only one thread: the child's locks may be held by threads that do not exist there, and
//! its descriptors lead to the parent's files and sockets. So an owner of such objects remembers the process in which it
//! created them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use crate::runtime::mmap::Mapping;

/// Identifies the process that created an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessGeneration {
    /// A word that every fork wipes. Reading it needs no system call, which would take longer than a decision.
    word: Option<&'static AtomicU64>,
    /// The word's value at creation; without such a word the process id.
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

    /// The number of this generation: above 0, and below 2^56.
    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// Whether this is the process that created the object.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        match self.word {
            Some(word) => word.load(Ordering::Relaxed) == self.number,
            None => self.number == u64::from(std::process::id()),
        }
    }
}

/// Leaks an object that belongs to the parent process. Dropping it could take locks of threads that do not exist in this
/// process, or close what the parent has open, and would copy pages that the two processes share. The object stays
/// reachable, so that leak detectors do not report it.
pub(crate) fn leave<T>(inherited: T) {
    let what = Box::into_raw(Box::new(inherited)).cast();
    let left: &'static mut Left =
        Box::leak(Box::new(Left { _what: what, before: LEFT.load(Ordering::Relaxed) }));
    // Several threads may leak objects at a time.
    while let Err(before) =
        LEFT.compare_exchange(left.before, &raw mut *left, Ordering::Release, Ordering::Relaxed)
    {
        left.before = before;
    }
}

/// The object that was leaked last, with a pointer to the one before.
static LEFT: AtomicPtr<Left> = AtomicPtr::new(std::ptr::null_mut());

struct Left {
    _what: *mut (),
    before: *mut Self,
}

/// The number of the newest generation. Only processes with a common ancestor are compared, and those continue each
/// other's count.
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
