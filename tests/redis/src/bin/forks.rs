//! Forks while its threads make decisions. Each child makes two decisions and ends. Prints `done` if the store made all
//! decisions and, where the processes share the store, counted all of them.
//!
//! Usage: `polylimit-forks URL COUNT`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]
#![expect(unsafe_code, reason = "a fork is unsafe")]

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use polylimit::{Limiter, Outage, Policy, Source};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, count] = arguments.as_slice() else { panic!("usage: polylimit-forks URL COUNT") };
    let policy = Policy::parse("forks", "1000000/52w fixed_window").unwrap();
    // On a busy machine the outage policy may not answer in place of the store.
    let is_shared = url != "memory:";
    let limiter = Limiter::builder().store(url).policy(policy);
    let limiter = if is_shared { limiter.outage("forks", Outage::Deny) } else { limiter };
    let limiter = limiter.build().unwrap().blocking();
    let used = || 1_000_000 - limiter.peek("key").unwrap().remaining();
    let decides = || limiter.check("key").is_ok_and(|it| it.allowed() && it.source() == Source::Store);
    assert_eq!(used(), 0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, limiter) = (&stop, &limiter);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let decision = limiter.check(&format!("{thread}")).unwrap();
                    assert_eq!(decision.source(), Source::Store);
                }
            });
        }
        for forked in 1..=count.parse().unwrap() {
            // SAFETY: The child decides, which takes no lock that a thread of the parent may hold but the allocator's,
            // which the C library sees to, and ends without unwinding.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let good = decides() && decides();
                    // The child drops a clone of the parent's limiter.
                    drop(limiter.clone());
                    // SAFETY: It ends the process, and nothing else.
                    unsafe { nix::libc::_exit(i32::from(!good)) }
                }
                ForkResult::Parent { child } => {
                    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
                    assert_eq!(used(), if is_shared { 2 * forked } else { 0 });
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("done");
}
