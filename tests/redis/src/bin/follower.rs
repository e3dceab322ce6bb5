//! Follows a configuration and writes a line for each version that it applies: the version, and when, in microseconds since
//! the Unix epoch. It ends with its input.
//!
//! Usage: `polylimit-follower URL [fork]`. With `fork` a child process follows in place of this one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]
#![expect(unsafe_code, reason = "a fork is unsafe")]

use std::io::Read as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use polylimit::configuration_testing::Followed;

const AWHILE: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (url, forks) = match arguments.as_slice() {
        [url] => (url, false),
        [url, fork] if fork == "fork" => (url, true),
        _ => panic!("usage: polylimit-follower URL [fork]"),
    };
    let followed = Followed::start(Some(url), "store", None).unwrap();
    followed.ready(AWHILE).unwrap();
    if !forks {
        return follow(&followed);
    }
    // SAFETY: The child follows and ends without unwinding. It takes no lock that a thread of the parent may hold but the
    // allocator's, which the C library sees to.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let mine = followed.after_fork();
            assert!(mine.is_ready(), "the child decides by what its parent had");
            follow(&mine);
            // SAFETY: It ends the process, and nothing else.
            unsafe { nix::libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
}

fn follow(followed: &Followed) {
    // The main thread ends the process when nothing follows any more.
    let next = followed.status().version;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = next;
            while followed.wait_for_version(next, AWHILE) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                let version = followed.status().version;
                println!("{version} {}", now.as_micros());
                next = version + 1;
            }
        });
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        std::process::exit(0);
    });
}
