//! A call of a policy's script: one command that decides one or more entries of one policy, in order.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::rules::codec::PolicyCodec;
use crate::rules::history::Superseded;
use crate::rules::policy::Policy;
use crate::rules::quota::Algorithm;
use crate::rules::transition::{Operation, PolicyRules};
use crate::store::redis::numbers::numbers;
use crate::store::redis::script::{Ordinary, Script};
use crate::store::request::Action;

/// How the script is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By its hash: the server has to know it.
    ByHash,
    /// By its source, from which the server learns it.
    BySource,
}

/// What holds for the whole call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Comes back with the reply.
    pub(crate) nonce: [u8; 6],
    /// By the server's clock in microseconds: what comes later is not applied. 0 is none.
    pub(crate) deadline_us: u64,
    /// What a manual clock shows; otherwise the server's clock is used.
    pub(crate) manual_now_us: Option<u64>,
}

/// One key of a call, and what is done to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The main key, as it is in Redis.
    pub(crate) key: &'a [u8],
    pub(crate) action: Action,
    pub(crate) cost: u64,
    /// How many times it is checked, one after the other: 1 for every other action, and where
    /// [`counts`](PolicyCall::counts) says so.
    pub(crate) count: u16,
}

/// A policy, ready to be called.
#[derive(Debug)]
pub(crate) struct PolicyCall {
    pub(crate) rules: PolicyRules,
    pub(crate) codec: PolicyCodec,
    pub(crate) policy: Policy,
    script: Arc<Script>,
    numbers: Box<[u8]>,
    /// What follows the main key in the name of each key of an entry; nothing for the main key itself.
    keys: Box<[Box<[u8]>]>,
    /// Whether a denial leaves a trace.
    pub(crate) counts_denied: bool,
}

/// The head before the entries.
const HEAD: usize = 24;
/// The head of a plain call.
const PLAIN_HEAD: usize = 19;
const ENTRY: usize = 8;
const SERVER_CLOCK: u64 = u64::MAX;

impl PolicyCall {
    /// For a policy of which this process knows these past numbers, oldest first.
    pub(crate) fn new(policy: &Policy, superseded: &[Superseded]) -> Self {
        let mut keys = keys(policy);
        let used = keys.len();
        // What the quotas that are gone used goes with the next write.
        for past in superseded {
            for key in self::keys(&past.policy) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys.truncate(used + usize::from(u8::MAX));
        let dropped = u8::try_from(keys.len() - used).unwrap_or(u8::MAX);
        let ordinary = if dropped == 0 { Ordinary::of(policy) } else { Ordinary::None };
        Self {
            rules: PolicyRules::new(policy),
            codec: PolicyCodec::new(policy, superseded),
            policy: policy.clone(),
            script: Script::of(policy, &ordinary),
            numbers: numbers(policy, superseded, &ordinary, dropped),
            keys: keys.into(),
            counts_denied: policy.quotas().iter().any(crate::Quota::count_denied),
        }
    }

    /// Whether an entry can stand for several checks: not where each leaves a trace of its own.
    pub(crate) fn counts(&self) -> bool {
        let one_by_one = |quota: &crate::rules::quota::Quota| {
            quota.count_denied() || quota.algorithm() == Algorithm::SlidingLog
        };
        !self.policy.quotas().iter().any(one_by_one)
    }

    /// How many bytes a call of these entries takes at most.
    pub(crate) fn call_length(&self, naming: Naming, entries: &[Entry<'_>]) -> usize {
        let keys: usize = self.keys.iter().map(|key| key.len() + 16).sum();
        let names: usize = entries.iter().map(|entry| keys + self.keys.len() * entry.key.len()).sum();
        let script = match naming {
            Naming::ByHash => self.script.hash.len(),
            Naming::BySource => self.script.source.len(),
        };
        128 + script + self.numbers.len() + names + entries.len() * ENTRY
    }

    /// Appends the command.
    pub(crate) fn write_call(&self, out: &mut Vec<u8>, naming: Naming, head: &Head, entries: &[Entry<'_>]) {
        out.reserve(self.call_length(naming, entries));
        let keys = entries.len() * self.keys.len();
        put_count(out, b'*', 4 + keys);
        match naming {
            Naming::ByHash => {
                put_text(out, b"EVALSHA");
                put_text(out, &self.script.hash);
            }
            Naming::BySource => {
                put_text(out, b"EVAL");
                put_text(out, self.script.source.as_bytes());
            }
        }
        let (digits, from) = decimal(keys);
        put_text(out, &digits[from..]);
        for entry in entries {
            for suffix in &self.keys {
                put_count(out, b'$', entry.key.len() + suffix.len());
                out.extend_from_slice(entry.key);
                out.extend_from_slice(suffix);
                out.extend_from_slice(b"\r\n");
            }
        }
        let head_length = if is_plain(head, entries) { PLAIN_HEAD } else { HEAD + ENTRY * entries.len() };
        put_count(out, b'$', head_length + self.numbers.len());
        put_head(out, head, entries);
        out.extend_from_slice(&self.numbers);
        out.extend_from_slice(b"\r\n");
    }
}

/// What follows the main key in the names of the keys of a policy, in their order.
fn keys(policy: &Policy) -> Vec<Box<[u8]>> {
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

/// Whether it is one check by the server's clock, which is most of what is called.
fn is_plain(head: &Head, entries: &[Entry<'_>]) -> bool {
    let is_check = |entry: &Entry<'_>| entry.action == Action::Apply(Operation::Check) && entry.count == 1;
    head.manual_now_us.is_none() && entries.len() == 1 && entries.iter().all(is_check)
}

fn put_head(out: &mut Vec<u8>, head: &Head, entries: &[Entry<'_>]) {
    out.extend_from_slice(&head.nonce);
    out.extend_from_slice(&head.deadline_us.min(crate::units::MAX_US).to_be_bytes()[1..]);
    if is_plain(head, entries) {
        out.push(0);
        return out.extend_from_slice(&entries[0].cost.to_be_bytes()[3..]);
    }
    out.push(1);
    out.extend_from_slice(&head.manual_now_us.unwrap_or(SERVER_CLOCK).to_be_bytes()[1..]);
    out.push(u8::from(all_differ(entries)) | u8::from(all_ask_the_same(entries)) << 1);
    let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    for entry in entries {
        out.push(code(entry.action));
        out.extend_from_slice(&entry.cost.to_be_bytes()[3..]);
        out.extend_from_slice(&entry.count.to_be_bytes());
    }
}

/// Whether no key is there twice; it may say no where none is.
fn all_differ(entries: &[Entry<'_>]) -> bool {
    if entries.len() < 2 {
        return true;
    }
    let seed = FixedState::default();
    let mut hashes: SmallVec<[u64; 128]> = entries.iter().map(|entry| seed.hash_one(entry.key)).collect();
    hashes.sort_unstable();
    hashes.windows(2).all(|pair| pair[0] != pair[1])
}

/// Whether the same is done to every key.
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

/// How the script is told what to do.
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
