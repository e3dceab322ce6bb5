//! Who holds a lock, and whether he is still there.

#![expect(unsafe_code, reason = "tests make calls of the system that the standard library has not")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use polylimit::blocking::Limiter;

use super::Store;
use super::child::{Other, QUOTA};

/// Of the first owner, and of the lock of the first shard, in a file of 1 MiB.
const OWNERS_AT: u64 = 512 * 8;
const LOCK_AT: u64 = (512 + 4 * 1024) * 8;

fn word(file: &File, at: u64) -> u64 {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at).unwrap();
    u64::from_ne_bytes(word)
}

/// Leaves the lock of the only shard with a process, as if it were in the midst of a decision.
fn lock_for(store: &Store, process: u32) {
    let file = OpenOptions::new().read(true).write(true).open(&store.0).unwrap();
    let mut owners = (0..1024).map(|number| OWNERS_AT + number * 32);
    let owner = owners.find(|at| word(&file, at + 8) == u64::from(process)).unwrap();
    file.write_all_at(&word(&file, owner).to_ne_bytes(), LOCK_AT).unwrap();
}

/// Its child keeps the file open, and nobody has waited for it: it is there as a number only.
#[test]
fn a_killed_process_that_nobody_waited_for_holds_nothing() {
    let store = Store::new();
    let limiter = store.limiter(QUOTA);
    let _ = limiter.check("key").unwrap();
    let mut other = Other::start("leaves a child", &store.url());
    assert_eq!(other.hear().as_deref(), Some("ready"));
    lock_for(&store, other.id());
    other.kill_only();
    let started = Instant::now();
    assert_eq!(limiter.check("key").map(|decision| decision.remaining()), Ok(97));
    assert!(started.elapsed() < Duration::from_millis(500));
}

/// A system may hide processes from each other (hidepid), also those of one user.
#[test]
fn a_process_that_is_hidden_keeps_its_lock() {
    const USER: &str = "54321";
    let directory = Store::new();
    std::fs::create_dir(&directory.0).unwrap();
    let store = Store(directory.0.join("store"));
    let as_user = |before: &str| {
        let mut shell = Command::new("unshare");
        let said =
            format!("{before} exec setpriv --reuid {USER} --regid {USER} --clear-groups \"$0\" \"$@\"");
        // Where that user may run it.
        let program = directory.0.join("program");
        if !program.exists() {
            std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        }
        shell.args(["-m", "sh", "-c", &said]).arg(program);
        shell
    };
    let hides = "mount -t proc -o hidepid=2 proc /proc || exit 1;";
    let allowed = std::os::unix::fs::chown(&directory.0, Some(54_321), None).is_ok()
        && Command::new("unshare").args(["-m", "sh", "-c", hides]).status().is_ok_and(|done| done.success());
    if allowed {
        let url = format!("{}?size=1MiB", store.url());
        let mut other = Other::of(as_user(""), "hidden", &url);
        assert_eq!(other.hear().as_deref(), Some("ready"));
        lock_for(&store, other.id());
        let said = Other::of(as_user(hides), "once", &url).hear().unwrap();
        assert!(said.starts_with("store_unavailable") && said.contains("is it stopped?"), "{said}");
        let _ = Other::of(as_user(""), "once", &url);
    } else {
        eprintln!("not looked at: to hide processes takes the right to mount");
    }
    std::fs::remove_dir_all(&directory.0).unwrap();
}

/// Runs in a process of its own, which nobody else may look at.
pub(crate) fn hidden(limiter: &Limiter, said: impl Fn(&str)) {
    assert!(limiter.check("key").unwrap().allowed());
    // SAFETY: It changes nothing but who may look.
    assert_eq!(unsafe { nix::libc::prctl(nix::libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0);
    said("ready");
    let _ = std::io::stdin().lines().next();
}
