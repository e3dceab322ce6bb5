//! The owners of the file: which processes have it open, and whether they still exist.
//!
//! Each opening claims a number and holds a file lock (an open file description lock on a byte far beyond the end). The
//! kernel releases it when the process ends, however it ends and in whichever container it ran. The opening marks its
//! work with its token, the number and a random part, so other processes can find out from a token whether its owner still
//! exists.
//!
//! A forked child inherits its parent's file and the file lock. So the owner's process is recorded too: an owner whose
//! process has ended is gone, as far as both processes are in the same namespace.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::layout::{OWNERS, owner_at};
use crate::patience::{LOCK_TIMEOUT, Patience};
use polylimit_runtime::monotonic;

/// The byte that is locked during opening; the owners' bytes follow.
const OPENING: i64 = 1 << 40;
/// Identifies one opening of the file in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u64);

const NUMBER_BITS: u32 = 16;

/// What is known of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    Gone,
    Suspended,
    /// It runs, or waits for a processor.
    Runs,
    /// It waits in the system, such as for a page of its program to be read from a disk, or is frozen by a control group of version 1.
    Waits,
    /// It exists, but this process cannot see more.
    Unseen,
}

impl Token {
    /// The owner's number, from 1, so that no token is 0.
    fn number(self) -> u16 {
        let bytes = self.0.to_be_bytes();
        u16::from_be_bytes([bytes[6], bytes[7]])
    }
}

/// Locks or unlocks bytes; `false` when another opening holds one of them.
fn set(file: &File, kind: i32, start: i64, length: i64) -> std::io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&bytes(kind, start, length))) {
        Ok(_) => Ok(true),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether another opening of the file holds a lock on one of these bytes.
fn held(file: &File, start: i64, length: i64) -> std::io::Result<bool> {
    let mut found = bytes(libc::F_WRLCK, start, length);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

fn bytes(kind: i32, start: i64, length: i64) -> libc::flock {
    let small = |number: i32| i16::try_from(number).unwrap_or(0);
    libc::flock {
        l_type: small(kind),
        l_whence: small(libc::SEEK_SET),
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

/// While it is held, no other process can open the file.
#[derive(Debug)]
pub(crate) struct Opening<'a>(&'a File);

impl<'a> Opening<'a> {
    /// Waits for other openings as long as the caller's patience lasts; `None` after that.
    pub(crate) fn wait(file: &'a File, patience: Patience) -> std::io::Result<Option<Self>> {
        let started = monotonic::now();
        while !set(file, libc::F_WRLCK, OPENING, 1)? {
            let waited = monotonic::now().saturating_duration_since(started);
            if patience != Patience::Wait || waited > LOCK_TIMEOUT {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Some(Self(file)))
    }

    /// Whether no other opening of the file exists.
    pub(crate) fn is_first(&self) -> std::io::Result<bool> {
        Ok(!held(self.0, OPENING + 1, i64::from(OWNERS))?)
    }

    /// Makes this opening an owner; `None` when the number of owners is at its limit.
    pub(crate) fn claim(&self, words: &[AtomicU64]) -> std::io::Result<Option<Token>> {
        for number in 0..OWNERS {
            if !set(self.0, libc::F_WRLCK, OPENING + 1 + i64::from(number), 1)? {
                continue;
            }
            // Number 0 is stored as 1, and so on.
            let random = RandomState::new().hash_one(number) << NUMBER_BITS;
            let token = Token(random | (u64::from(number) + 1));
            let owner = &words[owner_at(number)..];
            let Process { id, started, namespace } = Process::this();
            for (word, value) in owner[1..].iter().zip([id, started, namespace]) {
                word.store(value, Ordering::Relaxed);
            }
            owner[0].store(token.0, Ordering::Release);
            return Ok(Some(token));
        }
        Ok(None)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        // If this fails, closing the file unlocks the byte as well.
        let _ = set(self.0, libc::F_UNLCK, OPENING, 1);
    }
}

/// Releases the place of an owner whose process continues. The last owner to leave calls `leave_in_order`.
pub(crate) fn leave(file: &File, token: Token, leave_in_order: impl FnOnce()) {
    // If another process is opening the file at the moment, that process takes care of it.
    let alone = set(file, libc::F_WRLCK, OPENING, 1).unwrap_or(false).then(|| Opening(file));
    if let Some(number) = token.number().checked_sub(1) {
        let _ = set(file, libc::F_UNLCK, OPENING + 1 + i64::from(number), 1);
    }
    if let Some(opening) = alone
        && opening.is_first().unwrap_or(false)
    {
        leave_in_order();
    }
}

/// Looks at the owner of a token: whether it is certainly gone, and what its process does.
pub(crate) fn state_of(file: &File, words: &[AtomicU64], token: Token) -> OwnerState {
    let Some(number) = token.number().checked_sub(1).filter(|number| *number < OWNERS) else {
        return OwnerState::Gone;
    };
    let owner = &words[owner_at(number)..];
    if owner[0].load(Ordering::Acquire) != token.0 {
        return OwnerState::Gone;
    }
    let [id, started, namespace] = [1, 2, 3].map(|at: usize| owner[at].load(Ordering::Relaxed));
    match held(file, OPENING + 1 + i64::from(number), 1) {
        Ok(true) => Process { id, started, namespace }.state(),
        Ok(false) => OwnerState::Gone,
        Err(_) => OwnerState::Unseen,
    }
}

/// The id of the process that owns a token.
pub(crate) fn process_of(words: &[AtomicU64], token: Token) -> u64 {
    let number = token.number().saturating_sub(1).min(OWNERS - 1);
    words[owner_at(number) + 1].load(Ordering::Relaxed)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: u64,
    /// The process's start time in ticks since boot; 0 when the system does not report it.
    started: u64,
    /// The namespace of the process id; 0 when the system does not report it.
    namespace: u64,
}

impl Process {
    fn this() -> Self {
        let id = u64::from(std::process::id());
        let started = ProcessStatus::of(id).filter(|_| sees_its_own()).map_or(0, |seen| seen.started);
        Self { id, started, namespace: namespace().unwrap_or(0) }
    }

    fn state(self) -> OwnerState {
        if self.started == 0 || self.namespace == 0 || namespace() != Some(self.namespace) {
            return OwnerState::Unseen;
        }
        match ProcessStatus::of(self.id).filter(|_| sees_its_own()) {
            Some(seen) if seen.is_over || seen.started != self.started => OwnerState::Gone,
            Some(_) => {
                state_of_threads(Path::new(&format!("/proc/{}/task", self.id))).unwrap_or(OwnerState::Unseen)
            }
            // `/proc` may hide processes, but a signal shows whether they exist.
            None if exists(self.id) => OwnerState::Unseen,
            None => OwnerState::Gone,
        }
    }
}

/// What `/proc` shows of a process.
struct ProcessStatus {
    started: u64,
    /// The process has ended, but its parent has not waited for it.
    is_over: bool,
    state: ThreadState,
}

impl ProcessStatus {
    /// Parses `stat` after its second field, a name in parentheses that may contain any character.
    fn of(process: u64) -> Option<Self> {
        Self::read(Path::new(&format!("/proc/{process}/stat")))
    }

    fn read(path: &Path) -> Option<Self> {
        let stat = std::fs::read(path).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let [state, threads, started] = [0, 17, 19].map(|at: usize| fields.get(at));
        // The first thread of a process may end before the others.
        let is_over = matches!(state, Some(&("Z" | "X"))) && matches!(threads, Some(&("0" | "1")));
        Some(Self {
            started: started?.parse().ok()?,
            is_over,
            state: match *state? {
                "R" | "Z" | "X" => ThreadState::Moves,
                "D" => ThreadState::Waits,
                _ => ThreadState::Sleeps,
            },
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ThreadState {
    Sleeps,
    /// It waits in the system and takes no signals.
    Waits,
    /// It runs, waits for a processor, or ends.
    Moves,
}

/// The state of the threads in a folder of `/proc`; `None` when the system does not show it. A thread that holds a lock does nothing else,
/// so a process whose threads all sleep is suspended: by a signal, a debugger or its control group.
fn state_of_threads(folder: &Path) -> Option<OwnerState> {
    let threads = std::fs::read_dir(folder).ok()?;
    let states = threads.flatten().filter_map(|thread| ProcessStatus::read(&thread.path().join("stat")));
    Some(match states.map(|seen| seen.state).max() {
        // A process that ends has no threads any more, or some that have ended before others.
        None | Some(ThreadState::Moves) => OwnerState::Runs,
        Some(ThreadState::Waits) => OwnerState::Waits,
        Some(ThreadState::Sleeps) => OwnerState::Suspended,
    })
}

/// Whether `/proc` shows the processes of this process's namespace.
fn sees_its_own() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|link| link.to_str() == Some(&std::process::id().to_string()))
}

/// Whether a process with this id exists, as far as can be known.
fn exists(process: u64) -> bool {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    id.is_none_or(|id| rustix::process::test_kill_process(id) != Err(Errno::SRCH))
}

fn namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let digits = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_suspended_when_all_its_threads_sleep() {
        let folder = tempfile::tempdir().unwrap();
        for (threads, expected) in [
            ("", OwnerState::Runs),
            ("S", OwnerState::Suspended),
            ("ST", OwnerState::Suspended),
            ("SDT", OwnerState::Waits),
            ("SDR", OwnerState::Runs),
            ("ZS", OwnerState::Runs),
        ] {
            for (at, state) in threads.chars().enumerate() {
                let thread = folder.path().join(at.to_string());
                std::fs::create_dir_all(&thread).unwrap();
                let fields =
                    format!("{at} (a ) name) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 0", 500 + at);
                std::fs::write(thread.join("stat"), fields).unwrap();
            }
            assert_eq!(state_of_threads(folder.path()), Some(expected), "{threads}");
        }
        assert_eq!(state_of_threads(&folder.path().join("none")), None);
    }
}
