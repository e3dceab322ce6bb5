//! Limiters of one process on one file share its descriptor, mapping and owner entry. The last one to be closed releases them.

#![expect(unsafe_code, reason = "a fork is unsafe")]

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use polylimit::{ErrorKind, Limiter, Policy, Request, blocking};

use super::Store;
use super::child::{ChildProcess, QUOTA};

/// The most processes that may have the file open.
const OWNERS: i64 = 1024;

/// How many processes have the file open.
fn owners(store: &Store) -> usize {
    let file = File::options().read(true).write(true).open(&store.0).unwrap();
    let is_held = |number: &i64| {
        let mut found = libc::flock {
            l_type: i16::try_from(libc::F_WRLCK).unwrap(),
            l_whence: i16::try_from(libc::SEEK_SET).unwrap(),
            l_start: (1 << 40) + 1 + *number,
            l_len: 1,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_OFD_GETLK(&mut found)).unwrap();
        i32::from(found.l_type) != libc::F_UNLCK
    };
    (0..OWNERS).filter(is_held).count()
}

/// How many descriptors and mappings of the file this process has.
fn resources_of(store: &Store) -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_its =
        |entry: &std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|path| path == store.0);
    let descriptors = descriptors.filter_map(Result::ok).filter(is_its).count();
    let path = store.0.to_str().unwrap();
    let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, mappings.lines().filter(|line| line.ends_with(path)).count())
}

fn close(limiter: &blocking::Limiter) {
    limiter.asynchronous().close();
}

#[test]
fn limiters_of_one_process_share_one_owner_and_mapping() {
    let store = Store::new();
    let limiters: Vec<_> = (0..OWNERS + 76).map(|_| store.limiter("10000/52w fixed_window")).collect();
    for (limiter, used) in limiters.iter().zip(1..) {
        assert_eq!(limiter.check("busy").unwrap().remaining(), 10_000 - used);
    }
    assert_eq!((owners(&store), resources_of(&store)), (1, (1, 1)));
    assert_eq!(ChildProcess::start("once", &store.url()).receive().as_deref(), Some("allowed"));
    for limiter in &limiters[1..] {
        close(limiter);
    }
    // One limiter is still open.
    assert_eq!((owners(&store), resources_of(&store)), (1, (1, 1)));
    assert!(limiters[0].check("key").unwrap().allowed());
    close(&limiters[0]);
    assert_eq!((owners(&store), resources_of(&store)), (0, (0, 0)));
}

#[test]
fn closed_limiters_that_are_referenced_hold_no_resources() {
    let store = Store::new();
    let mut closed = Vec::new();
    for used in 1..=2 * OWNERS.unsigned_abs() {
        let limiter = store.limiter("10000/52w fixed_window");
        assert_eq!(limiter.check("busy").unwrap().remaining(), 10_000 - used);
        close(&limiter);
        closed.push(limiter);
    }
    assert_eq!((owners(&store), resources_of(&store)), (0, (0, 0)));
    for limiter in &closed[..3] {
        assert_eq!(limiter.check("key").unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(limiter.asynchronous().admin().keys(), None);
    }
    assert_eq!((owners(&store), resources_of(&store)), (0, (0, 0)));
    assert_eq!(ChildProcess::start("once", &store.url()).receive().as_deref(), Some("allowed"));
}

#[test]
fn ten_thousand_limiters_are_opened_and_closed_in_sequence() {
    let store = Store::new();
    for used in 1..=10_000 {
        let limiter = store.limiter("100000/52w fixed_window");
        assert_eq!(limiter.check("key").unwrap().remaining(), 100_000 - used);
        close(&limiter);
    }
    assert_eq!((owners(&store), resources_of(&store)), (0, (0, 0)));
}

#[test]
fn each_limiter_has_its_own_policies() {
    let store = Store::new();
    let limiter = |policy: &str, quotas: &str| {
        let policy = Policy::parse(policy, quotas).unwrap();
        let builder = Limiter::builder().store(&store.url()).local_size(1 << 20);
        builder.policy(policy).build().unwrap().blocking()
    };
    let [few, many] = ["10/52w fixed_window", "100/52w fixed_window"].map(|quotas| limiter("test", quotas));
    let other = limiter("other", "5/52w sliding_log");
    assert_eq!(few.check("key").unwrap().remaining(), 9);
    assert_eq!(many.check("key").unwrap().remaining(), 98);
    assert_eq!(other.check("key").unwrap().remaining(), 4);
    assert_eq!(few.check(Request::new("key").cost(8)).unwrap().remaining(), 0);
    assert!(!few.check("key").unwrap().allowed());
    assert_eq!(many.check("key").unwrap().remaining(), 89);
    close(&few);
    assert_eq!(other.check("key").unwrap().remaining(), 3);
    assert_eq!((owners(&store), resources_of(&store)), (1, (1, 1)));
}

#[test]
fn size_that_differs_from_the_open_file_is_refused() {
    let store = Store::new();
    let limiter = store.limiter(QUOTA);
    let _ = limiter.check("key").unwrap();
    let larger = store.builder(QUOTA).local_size(2 << 20).build().unwrap().blocking();
    assert_eq!(larger.check("key").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(limiter.check("key").unwrap().remaining(), 98);
}

#[test]
fn close_affects_no_other_limiter() {
    let store = Store::new();
    let stays = store.limiter(QUOTA);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = stays.check("busy").unwrap();
            }
        });
        for _ in 0..200 {
            let limiter = store.limiter(QUOTA);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        let closed = loop {
                            if let Err(error) = limiter.check("key") {
                                break error;
                            }
                        };
                        assert_eq!(closed.kind(), ErrorKind::Closed);
                    });
                }
                close(&limiter);
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!((owners(&store), resources_of(&store)), (1, (1, 1)));
    close(&stays);
    assert_eq!((owners(&store), resources_of(&store)), (0, (0, 0)));
}

#[test]
fn forked_child_is_an_owner_of_its_own() {
    let mut other = ChildProcess::start("forks with two limiters", &Store::new().url());
    assert_eq!(other.receive().as_deref(), Some("done"));
}

/// Runs in a child process.
pub(crate) fn fork_twice(send: impl Fn(&str)) {
    let store = Store::new();
    let [limiter, another] = [(); 2].map(|()| store.limiter(QUOTA));
    assert!(limiter.check("key").unwrap().allowed() && another.check("key").unwrap().allowed());
    // SAFETY: No other thread of this process holds a lock, and the child ends without unwinding.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let decided = limiter.check("key").is_ok() && another.check("key").is_ok();
            let owners_of_both = owners(&store);
            close(&limiter);
            close(&another);
            let good = decided && owners_of_both == 2 && owners(&store) == 1;
            // SAFETY: It ends the process, and nothing else.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
    assert_eq!(limiter.check("key").unwrap().remaining(), 95);
    // SAFETY: As above.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => loop {
            // It inherits the descriptor of the parent and makes no requests.
            std::thread::sleep(std::time::Duration::from_secs(1));
        },
        ForkResult::Parent { child } => {
            close(&limiter);
            assert_eq!(owners(&store), 1);
            close(&another);
            assert_eq!((owners(&store), resources_of(&store)), (0, (0, 0)));
            nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).unwrap();
            waitpid(child, None).unwrap();
        }
    }
    send("done");
}
