//! A policy's script, assembled from its parts in Lua, and a call of it: one command that decides one or more entries of
//! the policy, in order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::BuildHasher;
use std::ptr;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use bytes::BufMut;
use foldhash::fast::FixedState;
use redis::{Cmd, RedisWrite};
use sha1::{Digest, Sha1};
use smallvec::SmallVec;

use super::arguments::{GROUPS, algorithm_number, has_state, numbers_at, policy_arguments};
use super::fast_path::{self, FastPath, RequestPath, Template};
use polylimit_rules::codec::{PolicyCodec, log};
use polylimit_rules::general::KeyOperation;
use polylimit_rules::history::Change;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::calendar::Calendar;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::reservation::list::Hold;
use polylimit_rules::transition::{Operation, PolicyRules};
use polylimit_rules::wire;
use polylimit_store::charge::Action;

/// How a call identifies its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptReference {
    /// `EVALSHA`: the server has to know the script.
    Hash,
    /// `EVAL`: the server receives and caches the script.
    Source,
    /// `POLYLIMIT.DECIDE`: the module decides in place of a script.
    Module,
}

/// The fields that all entries of a call share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHeader {
    /// The reply repeats it.
    pub(crate) nonce: [u8; 6],
    /// The server's time in microseconds after which the script refuses the call; 0: none.
    pub(crate) deadline_us: u64,
    pub(crate) clock: ScriptClock,
    /// The time whose windows quotas by the calendar get: as near to that of the decision as the caller can know.
    pub(crate) windows_us: u64,
    /// Whether the server does not know the first line of scripts, so that it gets [others](Script::plain).
    pub(crate) is_plain: bool,
}

/// The clock by which a call decides, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptClock {
    /// The server's clock, read by the script.
    Server,
    /// An estimate of the server's time, for servers that refuse `TIME` in scripts.
    Estimate(u64),
    /// A manual clock. Keys do not expire, and the server's clock is read only where the call has a deadline.
    Manual(u64),
}

impl ScriptClock {
    /// The time that is written, and whether it is an estimate.
    fn parts(self) -> (u64, bool) {
        match self {
            Self::Server => (SERVER_CLOCK, false),
            Self::Estimate(now_us) => (now_us, true),
            Self::Manual(now_us) => (now_us, false),
        }
    }
}

/// One key of a call, and the operation on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallEntry<'a> {
    /// The main key, as it is in Redis.
    pub(crate) key: &'a [u8],
    pub(crate) action: Action,
    pub(crate) cost: u64,
    /// The part of each quota's capacity that a check, a peek or a reserve leaves for others, in percent.
    pub(crate) headroom: u8,
    /// The number of checks, one after the other: 1 for every other action, and for policies that
    /// [cannot coalesce](PolicyCall::can_coalesce); at most [`most_checks`].
    pub(crate) count: u16,
    /// The reservation, for operations on one, or the time of a block.
    pub(crate) hold: Option<&'a Hold>,
}

impl<'a> CallEntry<'a> {
    /// The operation of this entry on its key, at a time.
    pub(crate) fn operation(&self, operation: Operation, now_us: u64) -> KeyOperation<'a> {
        KeyOperation { now_us, operation, cost: self.cost, headroom: self.headroom, hold: self.hold }
    }
}

/// A charge of a request over several policies.
#[derive(Debug)]
pub(crate) struct RequestEntry<'a> {
    pub(crate) call: &'a PolicyCall,
    pub(crate) entry: CallEntry<'a>,
    /// Whether its denial denies the request.
    pub(crate) decides: bool,
}

/// The maximum number of checks in one entry: with headroom, its count has 9 bits.
pub(crate) fn most_checks(headroom: u8) -> usize {
    if headroom == 0 { u16::MAX.into() } else { (1 << HEADROOM_SHIFT) - 1 }
}

/// Added to the code of an operation that has headroom, which is above its count.
const WITH_HEADROOM: u8 = 16;
const HEADROOM_SHIFT: u32 = 9;

/// A policy with its script and its encoded arguments.
#[derive(Debug)]
pub(crate) struct PolicyCall {
    pub(crate) rules: PolicyRules,
    pub(crate) codec: PolicyCodec,
    pub(crate) policy: Policy,
    script: Arc<Script>,
    fast_path: FastPath,
    pub(super) fast_path_arguments: Box<[u8]>,
    policy_arguments: Box<[u8]>,
    /// The policy as the module reads it; `None` where only scripts can decide.
    of_module: Option<Box<str>>,
    windows: Box<[WindowArgument]>,
    /// The suffixes that turn an entry's main key into its keys; empty for the main key itself.
    suffixes: Box<[Box<[u8]>]>,
    /// Whether a denial changes a state: that of a quota that counts denied requests, or the record of a penalty.
    pub(crate) counts_denied: bool,
}

/// Where the arguments have the window of a quota by the calendar, which depends on the time of the call.
#[derive(Debug)]
struct WindowArgument {
    calendar: Calendar,
    in_fast_path: Option<usize>,
    in_policy: usize,
}

/// These arguments with the windows of a time.
fn with_windows<'a>(
    arguments: &'a [u8],
    windows: &[WindowArgument],
    position: impl Fn(&WindowArgument) -> Option<usize>,
    windows_us: u64,
) -> Cow<'a, [u8]> {
    let mut arguments = Cow::Borrowed(arguments);
    for (window, at) in windows.iter().filter_map(|window| Some((window, position(window)?))) {
        let bounds_us = window.calendar.window_us(windows_us);
        for (at, bound_us) in [(at, bounds_us.start), (at + 7, bounds_us.end)] {
            arguments.to_mut()[at..at + 7].copy_from_slice(&bound_us.to_be_bytes()[1..]);
        }
    }
    arguments
}

const SERVER_CLOCK: u64 = u64::MAX;
/// The flags of requests.
const KEYS_DIFFER: u8 = 1;
const ASK_THE_SAME: u8 = 2;
/// The time is an estimate.
const IS_ESTIMATE: u8 = 4;
/// All charges are single checks that decide.
const ARE_PLAIN: u8 = 8;

impl PolicyCall {
    /// Prepares a policy. `change` has the other quotas of it that this process knows.
    pub(crate) fn new(policy: &Policy, change: Change<'_>) -> Self {
        // The next write deletes the keys that only other quotas used.
        let dropped_logs = log::dropped_logs(policy, change);
        let logs = policy.quotas().iter().filter_map(log::log_period_us).chain(dropped_logs.iter().copied());
        // The main key is there for the reservations in any case.
        let suffixes = [Box::default()].into_iter().chain(logs.map(log::suffix)).collect();
        let dropped = u8::try_from(dropped_logs.len()).unwrap_or(u8::MAX);
        let fast_path = if dropped == 0 { FastPath::of(policy) } else { FastPath::default() };
        let (fast_path_arguments, in_fast_path) = fast_path.arguments_of(policy);
        let rates = policy.quotas().iter().filter(|quota| quota.algorithm().is_rate()).enumerate();
        let windows = rates.filter_map(|(place, quota)| {
            let in_fast_path = in_fast_path.iter().find(|(of, _)| *of == place).map(|(_, at)| *at);
            Some(WindowArgument {
                calendar: quota.calendar()?.clone(),
                in_fast_path,
                in_policy: numbers_at(place),
            })
        });
        Self {
            windows: windows.collect(),
            rules: PolicyRules::new(policy),
            codec: PolicyCodec::new(policy, change),
            policy: policy.clone(),
            script: Script::of(policy, &fast_path),
            fast_path_arguments,
            fast_path,
            policy_arguments: policy_arguments(policy, change, dropped),
            of_module: wire::write_policy(policy, change).map(Box::from),
            suffixes,
            counts_denied: policy.penalty().is_some()
                || policy.groups().is_some()
                || policy.quotas().iter().any(Quota::count_denied),
        }
    }

    /// Whether an entry can stand for several checks. It cannot with `count_denied` or a penalty, where a denied check changes
    /// the state, or with a log, which records each check.
    pub(crate) fn can_coalesce(&self) -> bool {
        !self.has_log() && !self.counts_denied
    }

    pub(crate) fn has_log(&self) -> bool {
        self.policy.quotas().iter().any(|quota| quota.algorithm() == Algorithm::SlidingLog)
    }

    /// Whether the module can decide in place of the script.
    pub(crate) fn suits_module(&self) -> bool {
        self.of_module.is_some()
    }

    /// Whether a quota counts by the calendar, so that a call has windows.
    pub(crate) fn has_windows(&self) -> bool {
        !self.windows.is_empty()
    }

    fn fast_path_arguments(&self, windows_us: u64) -> Cow<'_, [u8]> {
        with_windows(&self.fast_path_arguments, &self.windows, |window| window.in_fast_path, windows_us)
    }

    /// The policy as the module reads it, with the windows of a time.
    fn with_windows_of_module(&self, policy: &str, windows_us: u64) -> String {
        let mut text = String::with_capacity(policy.len() + 48 * self.windows.len());
        text.push_str(policy);
        for window in &self.windows {
            wire::write_window(&mut text, &window.calendar.window_us(windows_us));
        }
        text
    }

    fn policy_arguments(&self, windows_us: u64) -> Cow<'_, [u8]> {
        with_windows(&self.policy_arguments, &self.windows, |window| Some(window.in_policy), windows_us)
    }

    pub(crate) fn has_excess(&self) -> bool {
        self.policy.quotas().iter().any(|quota| quota.excess() > 0)
    }

    /// Appends the command, which is assembled in `buffer`.
    pub(crate) fn write_call(
        &self,
        out: &mut Vec<u8>,
        CommandBuffer(command): &mut CommandBuffer,
        script: ScriptReference,
        header: &CallHeader,
        entries: &[CallEntry<'_>],
    ) {
        command.clear();
        if let (ScriptReference::Module, Some(policy)) = (script, &self.of_module) {
            command.arg("POLYLIMIT.DECIDE");
            if self.windows.is_empty() {
                command.arg(&**policy);
            } else {
                command.arg(self.with_windows_of_module(policy, header.windows_us));
            }
            put_header(&mut command.bufmut_for_next_arg(0), header, entries);
            put_holds(&mut command.bufmut_for_next_arg(0), entries);
            for entry in entries {
                put_keys(command, self, entry.key);
            }
            return command.write_packed_command(out);
        }
        let called = if header.is_plain { self.script.plain() } else { &self.script };
        put_script(command, called, script);
        command.arg(entries.len() * self.suffixes.len());
        for entry in entries {
            put_keys(command, self, entry.key);
        }
        let mut arguments = command.bufmut_for_next_arg(0);
        arguments.put_slice(&self.fast_path_arguments(header.windows_us));
        put_header(&mut arguments, header, entries);
        arguments.put_slice(&self.policy_arguments(header.windows_us));
        drop(arguments);
        if entries.iter().any(|entry| entry.hold.is_some()) {
            put_holds(&mut command.bufmut_for_next_arg(0), entries);
        }
        command.write_packed_command(out);
    }
}

/// Appends the command that decides requests with charges of the same policies, which is assembled in `buffer`: a check or a reserve of
/// each policy. Only a lone request can reserve.
pub(crate) fn write_requests<'a>(
    out: &mut Vec<u8>,
    CommandBuffer(command): &mut CommandBuffer,
    script: ScriptReference,
    header: &CallHeader,
    requests: &[Vec<RequestEntry<'a>>],
) {
    let Some(charges) = requests.first() else { return };
    let all = || requests.iter().flatten();
    command.clear();
    let needed = charges.iter().fold(0, |all, RequestEntry { call, .. }| all | needed(&call.policy));
    let path = RequestPath::of(charges.iter().map(|charge| &charge.call.fast_path));
    let has_path = path.is_some();
    let called = Script::of_requests(needed, path);
    let called = if header.is_plain { called.plain() } else { &called };
    put_script(command, called, script);
    command.arg(requests.len() * charges.iter().map(|charge| charge.call.suffixes.len()).sum::<usize>());
    for RequestEntry { call, entry, .. } in all() {
        put_keys(command, call, entry.key);
    }
    let mut arguments = command.bufmut_for_next_arg(0);
    if has_path {
        for charge in charges {
            arguments.put_slice(&charge.call.fast_path_arguments(header.windows_us));
        }
    }
    arguments.put_slice(&header.nonce);
    arguments.put_uint(header.deadline_us.min(polylimit_rules::units::MAX_US), 7);
    let (now_us, is_estimate) = header.clock.parts();
    arguments.put_uint(now_us, 7);
    let is_plain = |charge: &RequestEntry<'_>| {
        let CallEntry { action, cost, headroom, .. } = charge.entry;
        charge.decides && action == Action::Apply(Operation::Check) && cost > 0 && headroom == 0
    };
    let asked = |charge: &RequestEntry<'_>| {
        let CallEntry { action, cost, headroom, count, .. } = charge.entry;
        (charge.decides, action, cost, headroom, count)
    };
    let is_as_first =
        |request: &Vec<RequestEntry<'_>>| request.iter().map(asked).eq(charges.iter().map(asked));
    let ask_the_same = requests.iter().all(is_as_first);
    let flags = [
        (all_differ(all().map(|charge| charge.entry.key)), KEYS_DIFFER),
        (ask_the_same, ASK_THE_SAME),
        (is_estimate, IS_ESTIMATE),
        (all().all(is_plain), ARE_PLAIN),
    ];
    arguments.put_u8(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
    let mut policies: Vec<&PolicyCall> = Vec::new();
    let mut number_of = |call: &'a PolicyCall| {
        policies.iter().position(|known| ptr::eq(*known, call)).unwrap_or_else(|| {
            policies.push(call);
            policies.len() - 1
        })
    };
    let numbers: Vec<_> = charges.iter().map(|charge| number_of(charge.call)).collect();
    for number in [policies.len(), charges.len(), requests.len()] {
        arguments.put_u16(u16::try_from(number).unwrap_or(u16::MAX));
    }
    for (charge, number) in charges.iter().zip(numbers) {
        arguments.put_u16(u16::try_from(number + 1).unwrap_or(u16::MAX));
        arguments.put_u8(u8::try_from(charge.call.suffixes.len()).unwrap_or(u8::MAX));
    }
    let asked = if ask_the_same { &requests[..1] } else { requests };
    for RequestEntry { entry, decides, .. } in asked.iter().flatten() {
        let (code, count) = code_and_count(entry);
        arguments.put_uint(entry.cost, 5);
        arguments.put_u8(u8::from(*decides));
        arguments.put_u8(code);
        arguments.put_u16(count);
    }
    drop(arguments);
    let hold = charges.iter().map(|charge| &charge.entry).find(|entry| entry.hold.is_some());
    put_holds(&mut command.bufmut_for_next_arg(0), hold);
    for policy in policies {
        command.arg(&*policy.policy_arguments(header.windows_us));
    }
    command.write_packed_command(out);
}

/// The command that calls a script, and the script.
fn put_script(command: &mut Cmd, called: &Script, by: ScriptReference) {
    match by {
        ScriptReference::Source => command.arg("EVAL").arg(&*called.source),
        // The module decides no call that gets here.
        ScriptReference::Hash | ScriptReference::Module => command.arg("EVALSHA").arg(&called.hash),
    };
}

/// The keys of an entry.
fn put_keys(command: &mut Cmd, call: &PolicyCall, main: &[u8]) {
    for suffix in &call.suffixes {
        let mut key = command.bufmut_for_next_arg(main.len() + suffix.len());
        key.put_slice(main);
        key.put_slice(suffix);
    }
}

/// The buffer in which a connection assembles its commands. The redis crate's `Debug` output of a command contains
/// keys.
#[derive(Default)]
pub(crate) struct CommandBuffer(Cmd);

impl fmt::Debug for CommandBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommandBuffer")
    }
}

/// Whether the call is one check by the server's clock, as most calls are.
fn is_single_check(header: &CallHeader, entries: &[CallEntry<'_>]) -> bool {
    let is_check = |entry: &CallEntry<'_>| {
        entry.action == Action::Apply(Operation::Check) && entry.count == 1 && entry.headroom == 0
    };
    header.clock == ScriptClock::Server && entries.len() == 1 && entries.iter().all(is_check)
}

fn put_header(out: &mut impl BufMut, header: &CallHeader, entries: &[CallEntry<'_>]) {
    out.put_slice(&header.nonce);
    out.put_uint(header.deadline_us.min(polylimit_rules::units::MAX_US), 7);
    if is_single_check(header, entries) {
        out.put_u8(0);
        return out.put_uint(entries[0].cost, 5);
    }
    out.put_u8(1);
    let (now_us, is_estimate) = header.clock.parts();
    out.put_uint(now_us, 7);
    let all_differ = all_differ(entries.iter().map(|entry| entry.key));
    let flags = [all_differ, all_ask_the_same(entries), is_estimate];
    out.put_u8(flags.iter().rev().fold(0, |flags, flag| flags << 1 | u8::from(*flag)));
    out.put_u16(u16::try_from(entries.len()).unwrap_or(u16::MAX));
    for entry in entries {
        put_entry(out, entry);
    }
}

fn put_entry(out: &mut impl BufMut, entry: &CallEntry<'_>) {
    let (code, count) = code_and_count(entry);
    out.put_u8(code);
    out.put_uint(entry.cost, 5);
    out.put_u16(count);
}

/// The numbers of an entry's operation and of its checks, both with its headroom.
fn code_and_count(entry: &CallEntry<'_>) -> (u8, u16) {
    let (with_headroom, headroom) = match entry.headroom {
        0 => (0, 0),
        percent => (WITH_HEADROOM, u16::from(percent) << HEADROOM_SHIFT),
    };
    (code(entry.action) + with_headroom, entry.count | headroom)
}

/// The reservations of the entries that concern one, and the times of blocks, in their order: ttl (6), how long
/// the commit is remembered (5), length of the id (1), id.
fn put_holds<'a>(out: &mut impl BufMut, entries: impl IntoIterator<Item = &'a CallEntry<'a>>) {
    for Hold { id, ttl_us, remember_us } in entries.into_iter().filter_map(|entry| entry.hold) {
        out.put_uint(*ttl_us, 6);
        out.put_uint(*remember_us, 5);
        // At most 64 bytes.
        out.put_uint(id.as_bytes().len() as u64, 1);
        out.put_slice(id.as_bytes());
    }
}

/// Whether all keys differ. False is possible even if they do.
fn all_differ<'a>(keys: impl Iterator<Item = &'a [u8]>) -> bool {
    let seed = FixedState::default();
    let mut hashes: SmallVec<[u64; 128]> = keys.map(|key| seed.hash_one(key)).collect();
    hashes.sort_unstable();
    hashes.windows(2).all(|pair| pair[0] != pair[1])
}

fn all_ask_the_same(entries: &[CallEntry<'_>]) -> bool {
    let what = |entry: &CallEntry<'_>| (entry.action, entry.cost, entry.count, entry.headroom);
    entries.windows(2).all(|pair| what(&pair[0]) == what(&pair[1]))
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
        Action::Apply(Operation::Reserve) => 6,
        Action::Apply(Operation::Commit) => 7,
        Action::Apply(Operation::Cancel) => 8,
        Action::Apply(Operation::Renew) => 9,
        Action::Apply(Operation::Block) => 10,
    }
}

const MAIN: Template<6> = Template::cut(
    include_str!("lua/main.lua"),
    ["arguments", "time", "prefetch", "check", "held", "general"],
);
const REQUEST: Template<5> =
    Template::cut(include_str!("lua/request.lua"), ["arguments", "time", "prefetch", "check", "general"]);
const TIME: &str = include_str!("lua/time.lua");

/// The general transition: the policy, an algorithm for each kind of quota, and the operations.
const POLICY: &str = include_str!("lua/transition/policy.lua");
const ALGORITHMS: [&str; 7] = [
    include_str!("lua/transition/bucket.lua"),
    include_str!("lua/transition/stepped_bucket.lua"),
    include_str!("lua/transition/fixed_window.lua"),
    include_str!("lua/transition/sliding_window.lua"),
    include_str!("lua/transition/sliding_log.lua"),
    include_str!("lua/transition/calendar_window.lua"),
    include_str!("lua/transition/groups.lua"),
];
/// Makes a server that cannot take writes refuse a script at once; `PLAIN` does so in its place.
const FIRST_LINE: &str = "#!lua\n";
const PLAIN: &str = include_str!("lua/plain.lua");
const RESERVATIONS: &str = include_str!("lua/transition/reservations.lua");
const PENALTY: &str = include_str!("lua/transition/penalty.lua");
const DECIDE: &str = include_str!("lua/transition/decide.lua");

/// The algorithms that a policy needs, a bit for each.
fn needed(policy: &Policy) -> usize {
    let stored = policy.quotas().iter().filter(|quota| has_state(quota));
    stored.fold(0, |needed, quota| needed | 1 << (algorithm_number(quota).min(GROUPS) - 1))
}

/// The general transition with the algorithms whose bits are set.
fn general(needed: usize) -> String {
    let algorithms = ALGORITHMS.iter().enumerate().filter(|(at, _)| needed >> at & 1 == 1);
    let algorithms: String = algorithms.map(|(_, lua)| *lua).collect();
    [POLICY, &algorithms, RESERVATIONS, PENALTY, DECIDE].concat()
}

/// A script and the name by which a server knows it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) source: String,
    /// The SHA-1 of the source in hexadecimal digits.
    hash: [u8; 40],
    /// The same script without its first line, once a server needs it.
    plain: OnceLock<Box<Self>>,
}

/// Scripts by what they are assembled from. No lock guards them: a child that is forked while another thread has it would wait for ever.
struct Scripts<K>(ArcSwapOption<BTreeMap<K, Arc<Script>>>);

impl<K: Clone + Ord> Scripts<K> {
    const fn new() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    fn get(&self, parts: &K, assemble: impl FnOnce() -> Script) -> Arc<Script> {
        if let Some(known) = self.0.load().as_ref().and_then(|scripts| scripts.get(parts)) {
            return Arc::clone(known);
        }
        let made = Arc::new(assemble());
        self.0.rcu(|scripts| {
            let mut scripts = scripts.as_deref().cloned().unwrap_or_default();
            scripts.entry(parts.clone()).or_insert_with(|| Arc::clone(&made));
            Some(Arc::new(scripts))
        });
        made
    }
}

impl Script {
    fn of(policy: &Policy, fast_path: &FastPath) -> Arc<Self> {
        static SCRIPTS: Scripts<(usize, FastPath)> = Scripts::new();
        let needed = needed(policy);
        SCRIPTS.get(&(needed, fast_path.clone()), || Self::assemble(needed, fast_path))
    }

    /// The script for requests over several policies, which need the algorithms whose bits are set.
    fn of_requests(needed: usize, path: Option<RequestPath>) -> Arc<Self> {
        static SCRIPTS: Scripts<(usize, Option<RequestPath>)> = Scripts::new();
        let parts = (needed, path);
        SCRIPTS.get(&parts, || Self::assemble_requests(needed, parts.1.as_ref()))
    }

    pub(super) fn assemble_requests(needed: usize, path: Option<&RequestPath>) -> Self {
        let (format, names) = path.map(RequestPath::arguments).unwrap_or_default();
        let arguments = format!(
            "local {names}nonce, deadline, now, flags, policies, charges, requests, charges_at = read('>{format}I6I7I7BHHH', input)\n"
        );
        let prefetch = path.map(RequestPath::prefetch).unwrap_or_default();
        let check = path.map(RequestPath::check).unwrap_or_default();
        Self::new(compact(&REQUEST.fill([&arguments, TIME, &prefetch, &check, &general(needed)])))
    }

    /// The script with the algorithms whose bits are set.
    pub(super) fn assemble(needed: usize, fast_path: &FastPath) -> Self {
        let (format, names) = fast_path.arguments(1);
        let arguments = format!(
            "local {names}nonce, deadline, format, cost, policy_at = read('>{format}I6I7BI5', input)\n"
        );
        let (prefetch, check, held) = if fast_path.is_empty() {
            ("", String::new(), String::new())
        } else {
            (fast_path::PREFETCH, fast_path.check(), fast_path.held())
        };
        Self::new(compact(&MAIN.fill([&arguments, TIME, prefetch, &check, &held, &general(needed)])))
    }

    fn new(source: String) -> Self {
        // `redis::Script::get_hash` is no better: it compiles the crate sha1_smol in place of sha1, and keeps the text a second time.
        let mut hash = [0; 40];
        for (digits, byte) in hash.chunks_exact_mut(2).zip(Sha1::digest(&source)) {
            digits[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            digits[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        Self { source, hash, plain: OnceLock::new() }
    }

    /// The script for servers that do not know the first line.
    fn plain(&self) -> &Self {
        self.plain.get_or_init(|| {
            let body = self.source.strip_prefix(FIRST_LINE).unwrap_or(&self.source);
            Box::new(Self::new([&compact(PLAIN), body].concat()))
        })
    }
}

/// The source without comments and indentation.
fn compact(source: &str) -> String {
    let lines = source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests;
