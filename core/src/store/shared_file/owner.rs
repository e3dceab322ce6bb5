//! Which processes have the file open, and which of them are still there.
//!
//! Each opening claims a number and holds a lock of the file's (an open file description lock on a byte far beyond its
//! end) that the kernel drops when the process is gone, however it ends and wherever it ran. What the opening does carries
//! its token, the number and a random part; so a token tells whether its owner is still there.
//!
//! After a fork the child holds its parent's file as well, and the lock with it. So the owner's process is noted too: a
//! process that is gone in the same namespace owns nothing.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::runtime::monotonic;
use crate::store::shared_file::layout::{OWNERS, owner_at};

/// The byte that is locked while somebody opens the file; those of the owners come after it.
const OPENING: i64 = 1 << 40;
/// How long opening waits for another process that opens.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Which opening of the file, in which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u64);

const NUMBER_BITS: u32 = 16;

impl Token {
    /// Of the owner, from 1, so that no token is 0.
    fn number(self) -> u16 {
        let bytes = self.0.to_be_bytes();
        u16::from_be_bytes([bytes[6], bytes[7]])
    }
}

/// Locks or unlocks bytes; `false` when somebody else holds one of them.
fn set(file: &File, kind: i32, start: i64, length: i64) -> std::io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&bytes(kind, start, length))) {
        Ok(_) => Ok(true),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether another opening holds one of these bytes.
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

/// While it is held nobody else opens the file.
#[derive(Debug)]
pub(crate) struct Opening<'a>(&'a File);

impl<'a> Opening<'a> {
    /// Waits for others; `None` when they take too long.
    pub(crate) fn wait(file: &'a File) -> std::io::Result<Option<Self>> {
        let started = monotonic::now();
        while !set(file, libc::F_WRLCK, OPENING, 1)? {
            if monotonic::now().saturating_duration_since(started) > LOCK_TIMEOUT {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Some(Self(file)))
    }

    /// Whether nobody else has it open.
    pub(crate) fn is_first(&self) -> std::io::Result<bool> {
        Ok(!held(self.0, OPENING + 1, i64::from(OWNERS))?)
    }

    /// Makes this opening an owner; `None` when there are as many as there may be.
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
        // Closing the file unlocks it as well.
        let _ = set(self.0, libc::F_UNLCK, OPENING, 1);
    }
}

/// Gives back the place of an owner whose process goes on. The last one to leave sees to what it leaves.
pub(crate) fn leave(file: &File, token: Token, leave_in_order: impl FnOnce()) {
    // Where another process opens it at the moment, that one sees to it.
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

/// Whether the owner of a token is gone for sure.
pub(crate) fn is_gone(file: &File, words: &[AtomicU64], token: Token) -> bool {
    let Some(number) = token.number().checked_sub(1).filter(|number| *number < OWNERS) else {
        return true;
    };
    let owner = &words[owner_at(number)..];
    if owner[0].load(Ordering::Acquire) != token.0 {
        return true;
    }
    let [id, started, namespace] = [1, 2, 3].map(|at: usize| owner[at].load(Ordering::Relaxed));
    match held(file, OPENING + 1 + i64::from(number), 1) {
        Ok(true) => Process { id, started, namespace }.is_gone(),
        Ok(false) => true,
        Err(_) => false,
    }
}

/// The number of the process that owns a token.
pub(crate) fn process_of(words: &[AtomicU64], token: Token) -> u64 {
    let number = token.number().saturating_sub(1).min(OWNERS - 1);
    words[owner_at(number) + 1].load(Ordering::Relaxed)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: u64,
    /// When it started, in ticks since the system did; 0 when the system does not say.
    started: u64,
    /// Whose numbers of processes these are; 0 when the system does not say.
    namespace: u64,
}

impl Process {
    fn this() -> Self {
        let id = u64::from(std::process::id());
        let started = Seen::of(id).filter(|_| sees_its_own()).map_or(0, |seen| seen.started);
        Self { id, started, namespace: namespace().unwrap_or(0) }
    }

    fn is_gone(self) -> bool {
        let known = self.started != 0 && self.namespace != 0 && namespace() == Some(self.namespace);
        known
            && match Seen::of(self.id).filter(|_| sees_its_own()) {
                Some(seen) => seen.is_over || seen.started != self.started,
                // Processes may be hidden from each other there, but not whether they exist.
                None => !exists(self.id),
            }
    }
}

/// What the system shows of a process.
struct Seen {
    started: u64,
    /// It has ended, and is a number that nobody has waited for.
    is_over: bool,
}

impl Seen {
    /// By the fields of `stat` after the second, a name in parentheses that may hold anything.
    fn of(process: u64) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let [state, threads, started] = [0, 17, 19].map(|at: usize| fields.get(at));
        // The first thread of a process may end before the others.
        let is_over = matches!(state, Some(&("Z" | "X"))) && matches!(threads, Some(&("0" | "1")));
        Some(Self { started: started?.parse().ok()?, is_over })
    }
}

/// Whether what the system shows are the processes of this one's namespace.
fn sees_its_own() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|link| link.to_str() == Some(&std::process::id().to_string()))
}

/// Whether there is a process of that number, as far as can be told.
fn exists(process: u64) -> bool {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    id.is_none_or(|id| rustix::process::test_kill_process(id) != Err(Errno::SRCH))
}

fn namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let digits = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?;
    digits.parse().ok()
}
