//! Follows a configuration and writes a line for each version that it applies: the version, and when, in microseconds since
//! the Unix epoch. It ends with its input.
//!
//! Usage: `polylimit-follower URL [fork]`. With `fork` a limiter follows, in a child process in place of this one.

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
use polylimit::Limiter;
use polylimit::testing::configuration::Followed;

const AWHILE: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (url, forks) = match arguments.as_slice() {
        [url] => (url, false),
        [url, fork] if fork == "fork" => (url, true),
        _ => panic!("usage: polylimit-follower URL [fork]"),
    };
    if !forks {
        let followed = Followed::start(Some(url), "store", None).unwrap();
        followed.ready(AWHILE).unwrap();
        let wait = |version| followed.wait_for_version(version, AWHILE).then(|| followed.status().version);
        return follow(followed.status().version, wait);
    }
    let limiter = Limiter::builder().store(url).configuration("store").build().unwrap().blocking();
    let version = limiter.admin().wait_for_version(1, AWHILE).unwrap().version;
    // SAFETY: The child follows and ends without unwinding. It takes no lock that a thread of the parent may hold but the
    // allocator's, which the C library sees to.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let has = limiter.asynchronous().admin().configuration().unwrap().version;
            assert_eq!(has, version, "the child decides by what its parent had");
            follow(version, |version| {
                limiter.admin().wait_for_version(version, AWHILE).ok().map(|status| status.version)
            });
            // SAFETY: It ends the process, and nothing else.
            unsafe { nix::libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
}

/// Writes every version from this one on. `wait` waits for a version and returns the one that is there.
fn follow(first: u64, wait: impl Fn(u64) -> Option<u64> + Sync) {
    // The main thread ends the process when nothing follows any more.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = first;
            while let Some(version) = wait(next) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                println!("{version} {}", now.as_micros());
                next = version + 1;
            }
        });
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        std::process::exit(0);
    });
}
