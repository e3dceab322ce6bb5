//! The interface between the module and its server: the commands, their arguments, keys and replies. Everything unsafe is in this
//! file and in `api`.
//!
//! The server runs a module's commands one at a time, on its main thread. A panic would end the server with all of its data, so none leaves
//! a command.

#![allow(
    unsafe_code,
    reason = "a module and its server share pointers; each function says why those that it uses are valid"
)]

mod api;

use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use api::{Api, Context, OpenKey, Text};
use polylimit_rules::units::MAX_US;
use sha1::{Digest, Sha1};

use crate::by_hand;
use crate::call::Call;
use crate::keyspace::{Change, Effect, Expiry, Found, Keyspace, Notice};
use crate::policies::Policies;
use crate::refusal::Refusal;

const NAME: &CStr = c"polylimit";
/// What `POLYLIMIT.VERSION` replies: the number of the clients' protocol.
const PROTOCOL: i64 = 2;

/// What the commands keep.
#[derive(Default)]
struct Session {
    policies: Policies,
    /// Empty between commands; kept for its allocation.
    reply: Vec<u8>,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// A command, with its flags and its keys: the first, the last and the step.
type Command = (&'static CStr, api::CommandFunction, &'static CStr, [c_int; 3]);

const COMMANDS: [Command; 4] = [
    (c"polylimit.version", version, c"fast", [0, 0, 0]),
    (c"polylimit.decide", decide, c"write deny-oom", [4, -1, 1]),
    (c"polylimit.check", check, c"write deny-oom fast", [2, 2, 1]),
    (c"cl.throttle", throttle, c"write deny-oom fast", [1, 1, 1]),
];

/// The server calls this function when it loads the module.
// SAFETY: the names are those that servers look for, here and below.
#[unsafe(no_mangle)]
extern "C" fn RedisModule_OnLoad(context: *mut Context, _: *mut *mut Text, _: c_int) -> c_int {
    // SAFETY: the context comes from the server.
    let loaded = catch_unwind(|| unsafe { load(context) });
    if loaded.ok().flatten().is_some() { api::OK } else { api::ERROR }
}

/// # Safety
/// The context comes from the server.
unsafe fn load(context: *mut Context) -> Option<()> {
    // SAFETY: as for this function.
    let api = unsafe { Api::load(context) }?;
    if !api.register(context, NAME) {
        return None;
    }
    for (name, function, flags, keys) in COMMANDS {
        if api.create_command(context, name, function, flags, keys) {
            continue;
        }
        // Another module may have it: redis-cell.
        if name != c"cl.throttle" {
            return None;
        }
        api.log(context, c"warning", c"another module has CL.THROTTLE, so that it is not polylimit's");
    }
    *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = Some(Session::default());
    Some(())
}

/// The server calls this function before it unloads the module.
#[unsafe(no_mangle)]
extern "C" fn RedisModule_OnUnload(_: *mut Context) -> c_int {
    let dropped = catch_unwind(|| *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = None);
    if dropped.is_ok() { api::OK } else { api::ERROR }
}

/// The arguments of a command, after its name, and its context.
struct Invocation<'a> {
    api: &'a Api,
    context: *mut Context,
    texts: &'a [*mut Text],
}

impl<'a> Invocation<'a> {
    /// Runs a command, and replies with an error where it has none, or panics.
    ///
    /// # Safety
    /// All pointers come from the server, which calls a command of this module.
    unsafe fn run(
        context: *mut Context,
        texts: *mut *mut Text,
        length: c_int,
        command: impl FnOnce(&Self, &mut Session) -> Result<(), Refusal>,
    ) -> c_int {
        let Some(api) = Api::get() else { return api::ERROR };
        let run = || {
            let length = usize::try_from(length).unwrap_or(0);
            // SAFETY: the server passes `length` arguments, of which the first is the command's name.
            let texts = unsafe { std::slice::from_raw_parts(texts, length) };
            let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
            let session = session.get_or_insert_default();
            session.reply.clear();
            command(&Invocation { api, context, texts: texts.get(1..).unwrap_or_default() }, session)
        };
        let refusal = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => return api::OK,
            Ok(Err(refusal)) => refusal,
            Err(_) => Refusal::of_defect(),
        };
        api.reply_error(context, &refusal.text())
    }

    /// An argument.
    fn bytes(&self, at: usize) -> Option<&'a [u8]> {
        self.texts.get(at).map(|text| self.api.bytes(*text))
    }

    fn required(&self, at: usize) -> Result<&'a [u8], Refusal> {
        self.bytes(at).ok_or_else(|| Refusal::of("an argument is missing"))
    }

    fn reply_numbers(&self, numbers: &[i64]) {
        self.api.reply_array(self.context, numbers.len());
        for number in numbers {
            self.api.reply_number(self.context, *number);
        }
    }
}

extern "C" fn version(context: *mut Context, texts: *mut *mut Text, length: c_int) -> c_int {
    // SAFETY: the server calls its command.
    unsafe {
        Invocation::run(context, texts, length, |invocation, _| {
            invocation.api.reply_number(context, PROTOCOL);
            Ok(())
        })
    }
}

extern "C" fn decide(context: *mut Context, texts: *mut *mut Text, length: c_int) -> c_int {
    // SAFETY: the server calls its command.
    unsafe {
        Invocation::run(context, texts, length, |invocation, session| {
            let (policy, call, holds) =
                (invocation.required(0)?, invocation.required(1)?, invocation.required(2)?);
            invocation.required(3)?;
            let mut keys = Keys { invocation, first: 3 };
            let policy = session.policies.named(policy)?;
            if policy.lacks_windows() {
                return Err(Refusal::of("the policy has a quota by the calendar and no window"));
            }
            let names = invocation.texts.iter().skip(3).map(|name| invocation.api.bytes(*name));
            let call = Call::read(call, holds, policy.entries(names)?)?;
            call.decide(&policy, now_us(), &mut keys, &mut session.reply);
            invocation.api.reply_bytes(context, &session.reply);
            Ok(())
        })
    }
}

extern "C" fn check(context: *mut Context, texts: *mut *mut Text, length: c_int) -> c_int {
    // SAFETY: the server calls its command.
    unsafe {
        Invocation::run(context, texts, length, |invocation, session| {
            let (quotas, cost) = (invocation.required(0)?, invocation.bytes(2));
            invocation.required(1)?;
            if invocation.texts.len() > 3 {
                return Err(Refusal::of("allowed are POLYLIMIT.CHECK quotas key [cost]"));
            }
            let mut keys = Keys { invocation, first: 1 };
            let reply = by_hand::check(&mut session.policies, quotas, cost, now_us(), &mut keys)?;
            invocation.reply_numbers(&reply);
            Ok(())
        })
    }
}

extern "C" fn throttle(context: *mut Context, texts: *mut *mut Text, length: c_int) -> c_int {
    // SAFETY: the server calls its command.
    unsafe {
        Invocation::run(context, texts, length, |invocation, session| {
            if !(4..=5).contains(&invocation.texts.len()) {
                return Err(Refusal::of(
                    "allowed are CL.THROTTLE key max_burst count_per_period period [quantity]",
                ));
            }
            let numbers = [invocation.required(1)?, invocation.required(2)?, invocation.required(3)?];
            let quantity = invocation.bytes(4);
            let mut keys = Keys { invocation, first: 0 };
            let reply = by_hand::throttle(&mut session.policies, numbers, quantity, now_us(), &mut keys)?;
            invocation.reply_numbers(&reply);
            Ok(())
        })
    }
}

/// The server's time in microseconds.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX).min(MAX_US)
}

/// The keys of a command, which begin at one of its arguments.
struct Keys<'a> {
    invocation: &'a Invocation<'a>,
    first: usize,
}

impl Keyspace for Keys<'_> {
    fn update(&mut self, key: usize, decide: &mut dyn FnMut(Found<'_>) -> Effect) {
        let Invocation { api, context, texts } = *self.invocation;
        let Some(name) = texts.get(self.first + key).copied() else { return };
        let (effect, part) = {
            let opened = api.open(context, name);
            let effect = decide(opened.found());
            let part = opened.apply(&effect.change);
            (effect, part)
        };
        self.spread(name, effect, part);
    }

    fn update_together(&mut self, keys: Range<usize>, decide: &mut dyn FnMut(&[Found<'_>]) -> Vec<Effect>) {
        let Invocation { api, context, texts } = *self.invocation;
        let names = texts.get(self.first + keys.start..self.first + keys.end).unwrap_or_default();
        let effects = {
            // The server may give a string other bytes when they are read for the first time. So each key is opened after the bytes of those
            // before it were read, in case that two names are the same, and none is changed before all are closed.
            let open = |name: &*mut Text| {
                let opened = api.open(context, *name);
                opened.found();
                opened
            };
            let opened: Vec<_> = names.iter().map(open).collect();
            let found: Vec<_> = opened.iter().map(OpenKey::found).collect();
            decide(&found)
        };
        for (name, effect) in names.iter().zip(effects) {
            if effect == Effect::default() {
                continue;
            }
            let part = api.open(context, *name).apply(&effect.change);
            self.spread(*name, effect, part);
        }
    }
}

impl Keys<'_> {
    /// Makes replicas, clients that watch or cache the key, and those that follow a channel, know of the effects on a key, of which a part was
    /// overwritten.
    fn spread(&self, name: *mut Text, Effect { change, notice }: Effect, part: Range<usize>) {
        let Invocation { api, context, .. } = *self.invocation;
        if change != Change::Nothing {
            api.signal(context, name, &change);
        }
        match change {
            Change::Nothing => {}
            Change::Delete => api.replicate_delete(context, name),
            // A part of a long value costs replicas less than all of it.
            Change::Overwrite(bytes) => api.replicate_overwrite(context, name, part.start, &bytes[part]),
            Change::Set(bytes, Expiry::Kept) => api.replicate_set(context, name, &bytes, Some(c"KEEPTTL")),
            Change::Set(bytes, Expiry::Never) => api.replicate_set(context, name, &bytes, None),
            Change::Set(bytes, Expiry::At(ms)) => api.replicate_set_until(context, name, &bytes, ms),
            Change::Write(at, bytes, expiry) => {
                api.replicate_overwrite(context, name, at, &bytes);
                if let Expiry::At(ms) = expiry {
                    api.replicate_expiry(context, name, ms);
                }
            }
        }
        if let Some(notice) = notice
            && let Some((channel, message)) = publication(api.bytes(name), notice)
        {
            api.publish(context, &channel, &message);
        }
    }
}

/// The channel and the message of a notice about a main key; `None` for a key that no limiter uses. The hash of the main key selects one of
/// 256 channels: core/store-redis/src/keys/channel.rs.
fn publication(key: &[u8], notice: Notice) -> Option<(Vec<u8>, Vec<u8>)> {
    let open = key.windows(2).rposition(|two| two == b":{")?;
    let close = open + key[open..].iter().position(|byte| *byte == b'}')? + 1;
    let space = key[..open].iter().rposition(|byte| *byte == b':').filter(|at| *at > 0)?;
    let main = &key[..close];
    let digest = Sha1::digest(main);
    let channel = [&key[..space], format!(":invalidations:{:02x}", digest[0]).as_bytes()].concat();
    let mark: &[u8] = if notice == Notice::Blocked { b"!" } else { b"" };
    Some((channel, [main, mark].concat()))
}
