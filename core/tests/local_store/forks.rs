//! A process that forks: the child opens the file anew.

#![expect(unsafe_code, reason = "forking is")]

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::Store;
use super::child::Other;
use polylimit::{Limiter, Policy, Request};

const FORKS: u64 = 200;

#[test]
fn children_and_parent_share_the_budget() {
    let store = Store::new();
    let mut other = Other::start("forks", &store.url());
    assert_eq!(other.hear().as_deref(), Some("done"));
}

/// Runs in a process of its own: forks while other threads decide.
pub(crate) fn forks(url: &str, said: impl Fn(&str)) {
    let policy = Policy::parse("test", "1000000/52w fixed_window").unwrap();
    let limiter = Limiter::builder().store(url).policy(policy).build().unwrap().blocking();
    let used = || 1_000_000 - limiter.peek("key").unwrap().remaining();
    assert_eq!(used(), 0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, limiter) = (&stop, &limiter);
            scope.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
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
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    said("done");
}

/// Runs in a process of its own: a child of it has its file, and lives until nobody writes to it any more.
pub(crate) fn leaves_a_child(limiter: &polylimit::blocking::Limiter, said: impl Fn(&str)) {
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
        ForkResult::Parent { .. } => said("ready"),
    }
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}
