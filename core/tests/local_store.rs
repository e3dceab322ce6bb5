//! The local store: the same decisions as the memory store, one quota for all processes of a host, and recovery from
//! killed processes and damaged files.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "local_store/agreement.rs"]
mod agreement;
#[path = "local_store/child.rs"]
mod child;
#[path = "local_store/damage.rs"]
mod damage;
#[path = "local_store/full.rs"]
mod full;
#[path = "local_store/held.rs"]
mod held;
#[path = "local_store/limiters.rs"]
mod limiters;
#[path = "local_store/opening.rs"]
mod opening;
#[path = "local_store/outages.rs"]
mod outages;
#[path = "local_store/owners.rs"]
mod owners;
#[path = "local_store/processes.rs"]
mod processes;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use polylimit::{Limiter, LimiterBuilder, Policy, blocking};

/// A file that is removed on drop.
struct Store(PathBuf);

impl Store {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("/dev/shm/polylimit-test-{}-{number}", std::process::id()).into())
    }

    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }

    /// A limiter of one policy on a small file.
    fn limiter(&self, quotas: &str) -> blocking::Limiter {
        self.builder(quotas).build().unwrap().blocking()
    }

    /// A limiter on a file of any existing size.
    fn limiter_of_any_size(&self, quotas: &str) -> blocking::Limiter {
        let policy = Policy::parse("test", quotas).unwrap();
        Limiter::builder().store(&self.url()).policy(policy).build().unwrap().blocking()
    }

    fn builder(&self, quotas: &str) -> LimiterBuilder {
        let policy = Policy::parse("test", quotas).unwrap();
        Limiter::builder().store(&self.url()).local_size(1 << 20).policy(policy)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reports that the running test examined nothing; `tests/steps.sh` counts such lines.
fn skip(reason: &str) {
    let thread = std::thread::current();
    // The harness captures what `eprintln!` writes, but not this.
    let _ = writeln!(std::io::stderr(), "test {} ... skipped, {reason}", thread.name().unwrap_or("?"));
}

/// The number of repetitions: the environment variable, or this default.
fn times(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|times| times.parse().ok()).unwrap_or(default)
}
