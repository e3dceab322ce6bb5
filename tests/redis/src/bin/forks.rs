//! Forks while its threads make decisions. Each child makes two decisions and ends. Prints `done` if the store made all
//! decisions and, where the processes share the store, counted all of them. Each key names the process that requests it,
//! such as `pid-4711-12`.
//!
//! Usage: `polylimit-forks URL COUNT [DIRECT_URL]`. With another URL of the store, the units of the children are read there, so
//! that a connection to the first URL carries only keys of the process that opened it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is part of a test: what it cannot do fails the test"
)]
#![expect(unsafe_code, reason = "a fork is unsafe")]

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use polylimit::decision::Source;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (url, count, direct) = match arguments.as_slice() {
        [url, count] => (url, count, None),
        [url, count, direct] => (url, count, Some(direct)),
        _ => panic!("usage: polylimit-forks URL COUNT [DIRECT_URL]"),
    };
    let policy = Policy::parse("forks", "1000000/52w fixed_window").unwrap();
    // On a busy machine the outage policy may not answer in place of the store.
    let is_shared = url != "memory:";
    let build = |url: &str| {
        let limiter = Limiter::builder().store(url).policy(policy.clone());
        let limiter = if is_shared { limiter.outage("forks", Outage::Deny) } else { limiter };
        limiter.build().unwrap().blocking()
    };
    let limiter = build(url);
    let reader = direct.map_or_else(|| limiter.clone(), |direct| build(direct));
    let used = |key: &str| 1_000_000 - reader.peek(key).unwrap().remaining();
    let decides = |key: &str| limiter.check(key).is_ok_and(|it| it.allowed() && it.source() == Source::Store);
    // Identifiers of processes may be used again.
    let key = |process: u32, name: &str| format!("pid-{process}-{name}");
    let parent = std::process::id();
    assert_eq!(used(&key(parent, "0")), 0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, limiter, key) = (&stop, &limiter, key(parent, &format!("thread{thread}")));
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let decision = limiter.check(&key).unwrap();
                    assert_eq!(decision.source(), Source::Store);
                }
            });
        }
        for forked in 1..=count.parse::<u64>().unwrap() {
            let name = forked.to_string();
            // SAFETY: The child decides, which takes no lock that a thread of the parent may hold but the allocator's,
            // which the C library sees to, and ends without unwinding.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let key = key(std::process::id(), &name);
                    let good = decides(&key) && decides(&key);
                    // The child drops a clone of the parent's limiter.
                    drop(limiter.clone());
                    // SAFETY: It ends the process, and nothing else.
                    unsafe { nix::libc::_exit(i32::from(!good)) }
                }
                ForkResult::Parent { child } => {
                    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
                    let of_child = key(u32::try_from(child.as_raw()).unwrap(), &name);
                    assert_eq!(used(&of_child), if is_shared { 2 } else { 0 });
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("done");
}
