//! Distinguishes the process that created an object from its forked children.
//!
//! A fork copies the memory but only one thread: the child's locks may be held by threads that do not exist there, and
//! its descriptors lead to the parent's files and sockets. So an owner of such objects remembers the process in which it
//! created them.
//!
//! What the whole process has, such as its clock, is initialised once, and threads that come meanwhile wait for the one that
//! does it. A child that is forked meanwhile would wait for ever: that thread does not exist there. So a fork waits until
//! none of these initialisations is in progress.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

#[cfg(target_os = "linux")]
use crate::mmap::Mapping;

/// Identifies the process that created an object.
#[derive(Clone, Copy, Debug)]
pub struct ProcessGeneration {
    /// A word that every fork wipes. Reading it needs no system call, which would take longer than a decision.
    word: Option<&'static AtomicU64>,
    /// The word's value at creation; without such a word the process id.
    number: u64,
}

impl ProcessGeneration {
    pub fn here() -> Self {
        let Some(word) = word() else { return Self { word: None, number: process_id() } };
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
    pub fn is_here(&self) -> bool {
        match self.word {
            Some(word) => word.load(Ordering::Relaxed) == self.number,
            None => self.number == process_id(),
        }
    }
}

/// The number of this process. A WebAssembly module cannot fork, and has none.
pub fn process_id() -> u64 {
    if cfg!(target_family = "wasm") { 1 } else { u64::from(std::process::id()) }
}

/// Leaks an object that belongs to the parent process. Dropping it could take locks of threads that do not exist in this
/// process, or close what the parent has open, and would copy pages that the two processes share. The object stays
/// reachable, so that leak detectors do not report it.
pub fn leave<T>(inherited: T) {
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

/// The value of something that the whole process has, which the first caller initialises. A fork waits for that.
pub fn once<T>(cell: &OnceLock<T>, initialise: impl FnOnce() -> T) -> &T {
    cell.get().unwrap_or_else(|| {
        let _in_progress = InProgress::begin();
        cell.get_or_init(initialise)
    })
}

/// An initialisation, for which forks wait until this is dropped. The initialisation must not fork.
pub(crate) struct InProgress(());

/// The initialisations that are in progress, and the threads that are about to fork.
static INITIALISATIONS: AtomicU32 = AtomicU32::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The initialisations of this thread: one may need another, which must not wait for a fork that waits for the first.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

impl InProgress {
    pub(crate) fn begin() -> Self {
        wait_before_forks();
        let depth = DEPTH.get();
        DEPTH.set(depth + 1);
        loop {
            INITIALISATIONS.fetch_add(1, Ordering::SeqCst);
            if depth > 0 || FORKS.load(Ordering::SeqCst) == 0 {
                return Self(());
            }
            INITIALISATIONS.fetch_sub(1, Ordering::SeqCst);
            thread::sleep(CHECK_INTERVAL);
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        INITIALISATIONS.fetch_sub(1, Ordering::SeqCst);
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// How often a thread looks whether the others have ended what they do. They take microseconds, and the clock of the
/// processor some milliseconds, once in a process.
const CHECK_INTERVAL: Duration = Duration::from_micros(50);

/// Has every fork of this process wait for initialisations.
fn wait_before_forks() {
    static HANDLES_FORKS: AtomicBool = AtomicBool::new(false);
    if !HANDLES_FORKS.load(Ordering::Relaxed) && !HANDLES_FORKS.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers use atomics and sleep, which each of the three may. Where memory is too short for them, forks
        // do not wait.
        #[cfg(unix)]
        #[allow(unsafe_code, reason = "only libc has this function")]
        let _ =
            unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
    }
}

#[cfg(unix)]
extern "C" fn before_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    while INITIALISATIONS.load(Ordering::SeqCst) > 0 {
        thread::sleep(CHECK_INTERVAL);
    }
}

#[cfg(unix)]
extern "C" fn after_fork() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// Other threads that were about to fork do not exist in the child.
#[cfg(unix)]
extern "C" fn after_fork_in_child() {
    FORKS.store(0, Ordering::SeqCst);
    INITIALISATIONS.store(0, Ordering::SeqCst);
}

/// The number of the newest generation. Only processes with a common ancestor are compared, and those continue each
/// other's count.
static LAST: AtomicU64 = AtomicU64::new(0);

#[cfg(target_os = "linux")]
fn word() -> Option<&'static AtomicU64> {
    static PAGE: OnceLock<Option<Mapping>> = OnceLock::new();
    once(&PAGE, Mapping::wiped_by_fork).as_ref()?.words().first()
}

#[cfg(not(target_os = "linux"))]
fn word() -> Option<&'static AtomicU64> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "no library forks without starting a program")]
    fn fork_waits_for_initialisations() {
        static NUMBER: OnceLock<u32> = OnceLock::new();
        static INNER: OnceLock<u32> = OnceLock::new();
        let (starts, started) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                once(&NUMBER, || {
                    starts.send(()).unwrap();
                    // While the other thread is about to fork, this one needs a further value.
                    thread::sleep(Duration::from_millis(200));
                    *once(&INNER, || 7)
                })
            });
            started.recv().unwrap();
            // SAFETY: the child calls nothing but atomics and _exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_known = NUMBER.get().is_some_and(|number| *number == 7);
                // SAFETY: it ends the process without running anything of the parent's.
                unsafe { libc::_exit(i32::from(!is_known)) };
            }
            let mut status = -1;
            // SAFETY: the status is writable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        });
        assert_eq!(FORKS.load(Ordering::SeqCst), 0);
    }
}
