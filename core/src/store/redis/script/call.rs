//! A call of a policy's script: one command that decides one or more entries of one policy, in order.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::arguments::policy_arguments;
use super::assembly::Script;
use super::fast_path::FastPath;
use crate::rules::codec::PolicyCodec;
use crate::rules::history::Superseded;
use crate::rules::policy::Policy;
use crate::rules::quota::Algorithm;
use crate::rules::transition::{Operation, PolicyRules};
use crate::store::request::Action;

/// How a call refers to its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptReference {
    /// `EVALSHA`: the server has to know the script.
    Hash,
    /// `EVAL`: the server learns the script.
    Source,
}

/// What all entries of a call have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHeader {
    /// The reply repeats it.
    pub(crate) nonce: [u8; 6],
    /// The server's time in microseconds after which the script refuses the call; 0: none.
    pub(crate) deadline_us: u64,
    /// The time of a manual clock in place of the server's.
    pub(crate) manual_now_us: Option<u64>,
}

/// One key of a call, and what is done to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The main key, as it is in Redis.
    pub(crate) key: &'a [u8],
    pub(crate) action: Action,
    pub(crate) cost: u64,
    /// The number of checks, one after the other: 1 for every other action, and for policies that
    /// [cannot coalesce](PolicyCall::can_coalesce).
    pub(crate) count: u16,
}

/// A policy, ready to be called.
#[derive(Debug)]
pub(crate) struct PolicyCall {
    pub(crate) rules: PolicyRules,
    pub(crate) codec: PolicyCodec,
    pub(crate) policy: Policy,
    script: Arc<Script>,
    fast_path_arguments: Box<[u8]>,
    policy_arguments: Box<[u8]>,
    /// The suffixes that make the keys of an entry of its main key; empty for the main key itself.
    suffixes: Box<[Box<[u8]>]>,
    /// Whether a denial leaves a trace.
    pub(crate) counts_denied: bool,
}

/// The length of the header before the entries.
const HEADER_BYTES: usize = 24;
/// The length of the header of a single check, with its cost.
const SINGLE_CHECK_BYTES: usize = 19;
const ENTRY_BYTES: usize = 8;
const SERVER_CLOCK: u64 = u64::MAX;

impl PolicyCall {
    /// For a policy of which this process knows these past numbers, oldest first.
    pub(crate) fn new(policy: &Policy, superseded: &[Superseded]) -> Self {
        let mut suffixes = suffixes(policy);
        let used = suffixes.len();
        // The next write deletes the keys that only past quotas used.
        for past in superseded {
            for suffix in self::suffixes(&past.policy) {
                if !suffixes.contains(&suffix) {
                    suffixes.push(suffix);
                }
            }
        }
        suffixes.truncate(used + usize::from(u8::MAX));
        let dropped = u8::try_from(suffixes.len() - used).unwrap_or(u8::MAX);
        let fast_path = if dropped == 0 { FastPath::of(policy) } else { FastPath::default() };
        Self {
            rules: PolicyRules::new(policy),
            codec: PolicyCodec::new(policy, superseded),
            policy: policy.clone(),
            script: Script::of(policy, &fast_path),
            fast_path_arguments: fast_path.arguments_of(policy),
            policy_arguments: policy_arguments(policy, superseded, dropped),
            suffixes: suffixes.into(),
            counts_denied: policy.quotas().iter().any(crate::rules::quota::Quota::count_denied),
        }
    }

    /// Whether an entry can stand for several checks. It cannot where each check leaves a trace of its own.
    pub(crate) fn can_coalesce(&self) -> bool {
        let one_by_one = |quota: &crate::rules::quota::Quota| {
            quota.count_denied() || quota.algorithm() == Algorithm::SlidingLog
        };
        !self.policy.quotas().iter().any(one_by_one)
    }

    /// The length of a call of these entries in bytes, at most.
    pub(crate) fn call_length(&self, script: ScriptReference, entries: &[Entry<'_>]) -> usize {
        let suffixes: usize = self.suffixes.iter().map(|suffix| suffix.len() + 16).sum();
        let keys: usize = entries.iter().map(|entry| suffixes + self.suffixes.len() * entry.key.len()).sum();
        let script = match script {
            ScriptReference::Hash => self.script.hash.len(),
            ScriptReference::Source => self.script.source.len(),
        };
        128 + script + self.arguments_length() + keys + entries.len() * ENTRY_BYTES
    }

    fn arguments_length(&self) -> usize {
        self.fast_path_arguments.len() + self.policy_arguments.len()
    }

    /// Appends the command.
    pub(crate) fn write_call(
        &self,
        out: &mut Vec<u8>,
        script: ScriptReference,
        header: &CallHeader,
        entries: &[Entry<'_>],
    ) {
        out.reserve(self.call_length(script, entries));
        let keys = entries.len() * self.suffixes.len();
        put_count(out, b'*', 4 + keys);
        match script {
            ScriptReference::Hash => {
                put_text(out, b"EVALSHA");
                put_text(out, &self.script.hash);
            }
            ScriptReference::Source => {
                put_text(out, b"EVAL");
                put_text(out, self.script.source.as_bytes());
            }
        }
        let (digits, from) = decimal(keys);
        put_text(out, &digits[from..]);
        for entry in entries {
            for suffix in &self.suffixes {
                put_count(out, b'$', entry.key.len() + suffix.len());
                out.extend_from_slice(entry.key);
                out.extend_from_slice(suffix);
                out.extend_from_slice(b"\r\n");
            }
        }
        let is_single_check = is_single_check(header, entries);
        let length =
            if is_single_check { SINGLE_CHECK_BYTES } else { HEADER_BYTES + ENTRY_BYTES * entries.len() };
        put_count(out, b'$', length + self.arguments_length());
        out.extend_from_slice(&self.fast_path_arguments);
        put_header(out, header, entries, is_single_check);
        out.extend_from_slice(&self.policy_arguments);
        out.extend_from_slice(b"\r\n");
    }
}

/// The suffixes of the keys of a policy, in their order.
fn suffixes(policy: &Policy) -> Vec<Box<[u8]>> {
    let (mut main, mut logs) = (None, Vec::new());
    for quota in policy.quotas() {
        if quota.algorithm() == Algorithm::SlidingLog {
            logs.push(format!(":log:{}", quota.period_us()).into_bytes().into());
        } else {
            main = Some(Box::default());
        }
    }
    main.into_iter().chain(logs).collect()
}

/// Whether the call is one check by the server's clock, as most calls are.
fn is_single_check(header: &CallHeader, entries: &[Entry<'_>]) -> bool {
    let is_check = |entry: &Entry<'_>| entry.action == Action::Apply(Operation::Check) && entry.count == 1;
    header.manual_now_us.is_none() && entries.len() == 1 && entries.iter().all(is_check)
}

fn put_header(out: &mut Vec<u8>, header: &CallHeader, entries: &[Entry<'_>], is_single_check: bool) {
    out.extend_from_slice(&header.nonce);
    out.extend_from_slice(&header.deadline_us.min(crate::units::MAX_US).to_be_bytes()[1..]);
    if is_single_check {
        out.push(0);
        return out.extend_from_slice(&entries[0].cost.to_be_bytes()[3..]);
    }
    out.push(1);
    out.extend_from_slice(&header.manual_now_us.unwrap_or(SERVER_CLOCK).to_be_bytes()[1..]);
    out.push(u8::from(all_differ(entries)) | u8::from(all_ask_the_same(entries)) << 1);
    let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    for entry in entries {
        out.push(code(entry.action));
        out.extend_from_slice(&entry.cost.to_be_bytes()[3..]);
        out.extend_from_slice(&entry.count.to_be_bytes());
    }
}

/// Whether no key occurs twice. The answer may be no although none does.
fn all_differ(entries: &[Entry<'_>]) -> bool {
    if entries.len() < 2 {
        return true;
    }
    let seed = FixedState::default();
    let mut hashes: SmallVec<[u64; 128]> = entries.iter().map(|entry| seed.hash_one(entry.key)).collect();
    hashes.sort_unstable();
    hashes.windows(2).all(|pair| pair[0] != pair[1])
}

/// Whether all entries ask for the same.
fn all_ask_the_same(entries: &[Entry<'_>]) -> bool {
    let what = |entry: &Entry<'_>| (entry.action, entry.cost, entry.count);
    entries.windows(2).all(|pair| what(&pair[0]) == what(&pair[1]))
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_count(out, b'$', text.len());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn put_count(out: &mut Vec<u8>, kind: u8, count: usize) {
    let (digits, from) = decimal(count);
    out.push(kind);
    out.extend_from_slice(&digits[from..]);
    out.extend_from_slice(b"\r\n");
}

/// The decimal digits of a number, and where they start.
fn decimal(mut number: usize) -> ([u8; 20], usize) {
    let (mut digits, mut from) = ([b'0'; 20], 20);
    loop {
        from -= 1;
        digits[from] = b"0123456789"[number % 10];
        number /= 10;
        if number == 0 {
            return (digits, from);
        }
    }
}

/// The number of an action in the scripts.
fn code(action: Action) -> u8 {
    match action {
        Action::Apply(Operation::Check) => 0,
        Action::Apply(Operation::Peek) => 1,
        Action::Apply(Operation::Take) => 2,
        Action::Apply(Operation::Charge) => 3,
        Action::Apply(Operation::Refund) => 4,
        Action::Reset => 5,
    }
}
