//! The assembly of a script from its parts in Lua.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sha1::{Digest, Sha1};

use super::arguments::algorithm_number;
use super::fast_path::{self, FastPath};
use super::template::Template;
use crate::rules::policy::Policy;

const MAIN: Template<4> =
    Template::cut(include_str!("lua/main.lua"), ["arguments", "prefetch", "check", "general"]);

/// The general transition: the policy, an algorithm for each kind of quota, and the operations.
const POLICY: &str = include_str!("lua/transition/policy.lua");
const ALGORITHMS: [&str; 5] = [
    include_str!("lua/transition/bucket.lua"),
    include_str!("lua/transition/stepped_bucket.lua"),
    include_str!("lua/transition/fixed_window.lua"),
    include_str!("lua/transition/sliding_window.lua"),
    include_str!("lua/transition/sliding_log.lua"),
];
const DECIDE: &str = include_str!("lua/transition/decide.lua");

/// A script and the name by which a server knows it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) source: String,
    /// The SHA-1 of the source in hexadecimal digits.
    pub(super) hash: [u8; 40],
}

impl Script {
    /// The script for a policy with this fast path.
    pub(super) fn of(policy: &Policy, fast_path: &FastPath) -> Arc<Self> {
        static SCRIPTS: Mutex<BTreeMap<(usize, FastPath), Arc<Script>>> = Mutex::new(BTreeMap::new());
        let needed =
            policy.quotas().iter().fold(0, |needed, quota| needed | 1 << (algorithm_number(quota) - 1));
        let assemble = || Arc::new(Self::assemble(needed, fast_path));
        Arc::clone(SCRIPTS.lock().entry((needed, fast_path.clone())).or_insert_with(assemble))
    }

    /// The script with the algorithms whose bits are set.
    pub(super) fn assemble(needed: usize, fast_path: &FastPath) -> Self {
        let algorithms = ALGORITHMS.iter().enumerate().filter(|(at, _)| needed >> at & 1 == 1);
        let algorithms: String = algorithms.map(|(_, lua)| *lua).collect();
        let (format, names) = fast_path.arguments();
        let arguments = format!(
            "local {names}nonce, deadline, format, cost, policy_at = read('>{format}I6I7BI5', input)\n"
        );
        let (prefetch, check) =
            if fast_path.is_empty() { ("", String::new()) } else { (fast_path::PREFETCH, fast_path.check()) };
        let general = [POLICY, &algorithms, DECIDE].concat();
        let source = compact(&MAIN.fill([&arguments, prefetch, &check, &general]));
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
