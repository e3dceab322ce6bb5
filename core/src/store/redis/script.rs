//! The scripts: the transition where the states live.
//!
//! A script is put together for a kind of policy: from the algorithms that it needs, so that a call does not pay for the
//! others. What it is told of a policy are [numbers](crate::store::redis::numbers); so there are few scripts, whatever the policies.
//!
//! Each has the general transition, which does whatever [`crate::rules::transition`] does. It is made in a call only when
//! an entry needs it. Before it stand checks of states that are found as they are expected, written out for the
//! [sequence of quotas](ordinary): most of what is asked.

mod ordinary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sha1::{Digest, Sha1};

pub(crate) use self::ordinary::Ordinary;
use crate::rules::policy::Policy;
use crate::rules::quota::{Algorithm, Quota};

const PROLOGUE: &str = include_str!("script/prologue.lua");
const ENTRIES: &str = include_str!("script/entries.lua");
const DECIDE: &str = include_str!("script/decide.lua");
/// The general transition: what it starts with, each algorithm, and the operations.
const GENERAL: &str = include_str!("script/general.lua");
const ALGORITHMS: [&str; 5] = [
    include_str!("script/bucket.lua"),
    include_str!("script/stepped_bucket.lua"),
    include_str!("script/fixed_window.lua"),
    include_str!("script/sliding_window.lua"),
    include_str!("script/sliding_log.lua"),
];
const TRANSITION: &str = include_str!("script/transition.lua");

/// Which algorithm of the scripts a quota needs, from 1.
pub(crate) fn kind(quota: &Quota) -> u8 {
    match quota.algorithm() {
        Algorithm::TokenBucket if quota.step().is_some() => 2,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => 1,
        Algorithm::FixedWindow => 3,
        Algorithm::SlidingWindow => 4,
        Algorithm::SlidingLog => 5,
    }
}

/// A script and the name by which a server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    /// The SHA-1 of the source in hexadecimal digits.
    pub(crate) hash: [u8; 40],
}

/// What a script is put together from: which algorithms, and which ordinary checks.
type Kind = (usize, Ordinary);

impl Script {
    /// The script for a policy, whose ordinary checks are these.
    pub(crate) fn of(policy: &Policy, ordinary: &Ordinary) -> Arc<Self> {
        static SCRIPTS: Mutex<BTreeMap<Kind, Arc<Script>>> = Mutex::new(BTreeMap::new());
        let needed = policy.quotas().iter().fold(0, |needed, quota| needed | 1 << (kind(quota) - 1));
        let assemble = || Arc::new(Self::assemble(needed, ordinary));
        Arc::clone(SCRIPTS.lock().entry((needed, ordinary.clone())).or_insert_with(assemble))
    }

    fn assemble(needed: usize, ordinary: &Ordinary) -> Self {
        let algorithms = ALGORITHMS.iter().enumerate().filter(|(at, _)| needed >> at & 1 == 1);
        let algorithms: String = algorithms.map(|(_, part)| *part).collect();
        let general = [GENERAL, &algorithms, TRANSITION].concat();
        let decide = DECIDE.replace("@general", &general).replace("@size", &ordinary.size().to_string());
        let source = [&ordinary.prologue(PROLOGUE), ordinary.before(), ENTRIES].concat();
        let source = source.replace("@check", &ordinary.check()).replace("@lone", ordinary::LONE_CHECK);
        Self::named(compact(&source.replace("@decide", &decide)))
    }

    fn named(source: String) -> Self {
        let mut hash = [0; 40];
        for (digits, byte) in hash.chunks_exact_mut(2).zip(Sha1::digest(&source)) {
            digits[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            digits[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        Self { source, hash }
    }
}

/// The source without comments and indentation.
fn compact(source: &str) -> String {
    let lines = source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.flat_map(|line| [line, "\n"]).collect()
}
