//! Processes that use the file: which one holds a lock, whether it is still alive, and forks.

#![expect(unsafe_code, reason = "forks and system calls that the standard library does not have")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use polylimit::blocking::Limiter;
use polylimit::{Policy, Request};

use super::child::{ChildProcess, QUOTA};
use super::{Store, skip};

/// The offsets of the first owner and of the lock of the first shard in a file of 1 MiB.
const OWNERS_AT: u64 = 512 * 8;
pub(crate) const LOCK_AT: u64 = (512 + 4 * 1024) * 8;

fn word(file: &File, at: u64) -> u64 {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at).unwrap();
    u64::from_ne_bytes(word)
}

/// Gives the lock of the only shard to a process, as if it were making a decision.
pub(crate) fn lock_for(store: &Store, process: u32) {
    let file = OpenOptions::new().read(true).write(true).open(&store.0).unwrap();
    let mut owners = (0..1024).map(|number| OWNERS_AT + number * 32);
    let owner = owners.find(|at| word(&file, at + 8) == u64::from(process)).unwrap();
    file.write_all_at(&word(&file, owner).to_ne_bytes(), LOCK_AT).unwrap();
}

/// The killed process is a zombie, and its child keeps the file open.
#[test]
fn lock_of_a_zombie_process_is_taken_over() {
    let store = Store::new();
    let limiter = store.limiter(QUOTA);
    let _ = limiter.check("key").unwrap();
    let mut other = ChildProcess::start("leaves a child", &store.url());
    assert_eq!(other.receive().as_deref(), Some("ready"));
    lock_for(&store, other.id());
    other.kill_without_wait();
    let started = Instant::now();
    assert_eq!(limiter.check("key").map(|decision| decision.remaining()), Ok(97));
    assert!(started.elapsed() < Duration::from_millis(500));
}

/// A system may hide processes from each other (hidepid), even those of one user.
#[test]
fn lock_of_a_hidden_process_is_kept() {
    const USER: &str = "54321";
    let directory = Store::new();
    std::fs::create_dir(&directory.0).unwrap();
    let store = Store(directory.0.join("store"));
    let as_user = |before: &str| {
        let mut shell = Command::new("unshare");
        let script =
            format!("{before} exec setpriv --reuid {USER} --regid {USER} --clear-groups \"$0\" \"$@\"");
        // A copy that this user may execute.
        let program = directory.0.join("program");
        if !program.exists() {
            std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        }
        shell.args(["-m", "sh", "-c", &script]).arg(program);
        shell
    };
    let hides = "mount -t proc -o hidepid=2 proc /proc || exit 1;";
    let allowed = std::os::unix::fs::chown(&directory.0, Some(54_321), None).is_ok()
        && Command::new("unshare").args(["-m", "sh", "-c", hides]).status().is_ok_and(|done| done.success());
    if allowed {
        let url = format!("{}?size=1MiB", store.url());
        let mut other = ChildProcess::of(as_user(""), "hidden", &url);
        assert_eq!(other.receive().as_deref(), Some("ready"));
        lock_for(&store, other.id());
        let message = ChildProcess::of(as_user(hides), "once", &url).receive().unwrap();
        assert!(message.starts_with("fallback busy") && message.contains("is it stopped?"), "{message}");
        let _ = ChildProcess::of(as_user(""), "once", &url);
    } else {
        skip("hiding processes needs the permission to mount");
    }
    std::fs::remove_dir_all(&directory.0).unwrap();
}

/// Runs in a child process that other processes may not inspect.
pub(crate) fn hide(limiter: &Limiter, send: impl Fn(&str)) {
    assert!(limiter.check("key").unwrap().allowed());
    // SAFETY: It changes only the permission to inspect this process.
    assert_eq!(unsafe { nix::libc::prctl(nix::libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0);
    send("ready");
    let _ = std::io::stdin().lines().next();
}

const FORKS: u64 = 200;

#[test]
fn forked_children_share_the_quota_with_the_parent() {
    let store = Store::new();
    let mut other = ChildProcess::start("forks", &store.url());
    assert_eq!(other.receive().as_deref(), Some("done"));
}

/// Runs in a child process: forks while other threads decide.
pub(crate) fn fork_repeatedly(url: &str, send: impl Fn(&str)) {
    let policy = Policy::parse("test", "1000000/52w fixed_window").unwrap();
    let limiter = polylimit::Limiter::builder().store(url).policy(policy).build().unwrap().blocking();
    let used = || 1_000_000 - limiter.peek("key").unwrap().remaining();
    assert_eq!(used(), 0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, limiter) = (&stop, &limiter);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = limiter.check(Request::new(&format!("{thread}"))).unwrap();
                }
            });
        }
        for forked in 1..=FORKS {
            // SAFETY: The child decides, which takes no lock that a thread of the parent may hold but the allocator's,
            // which the C library sees to, and ends without unwinding.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let good = limiter.check("key").is_ok_and(|decision| decision.allowed());
                    // SAFETY: It ends the process, and nothing else.
                    unsafe { nix::libc::_exit(i32::from(!good)) }
                }
                ForkResult::Parent { child } => {
                    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
                    assert_eq!(used(), forked);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    send("done");
}

/// Runs in a child process: its own child inherits the file and lives until its input ends.
pub(crate) fn leave_a_child(limiter: &Limiter, send: impl Fn(&str)) {
    assert!(limiter.check("key").unwrap().allowed());
    // SAFETY: The child waits for the end of its input, and ends without unwinding.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => loop {
            let mut byte = 0_u8;
            // SAFETY: There is room for one byte; and ending the process is all that comes after.
            unsafe {
                if nix::libc::read(0, (&raw mut byte).cast(), 1) == 0 {
                    nix::libc::_exit(0);
                }
            }
        },
        ForkResult::Parent { .. } => send("ready"),
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}
