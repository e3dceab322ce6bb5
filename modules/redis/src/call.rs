//! The command of polylimit's clients: a call that decides one or more entries of one policy, in order.
//!
//! ```text
//! POLYLIMIT.DECIDE policy call holds key [key ...]
//! ```
//!
//! `policy` is a text (`polylimit_rules::wire`). `call` and `holds` are the arguments of the scripts without those of a policy, and the
//! reply is theirs (`core/store-redis/src/script/lua/main.lua`): a client writes and reads both in the same way. Each entry has the keys that
//! it has for the scripts: the main key, and those of logs.

use polylimit_rules::codec::{Reader, Unreadable};
use polylimit_rules::general::KeyOperation;
use polylimit_rules::quota::Quota;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::{AS_RESERVED, Hold, ReservationTerms};
use polylimit_rules::transition::Operation;
use polylimit_rules::units::MAX_US;

use crate::keyspace::{Change, Effect, Found, Keyspace, Notice};
use crate::logs::WithLogs;
use crate::policies::Prepared;
use crate::refusal::Refusal;

/// The most checks of a call: the server waits for it.
const MAX_CHECKS: u32 = 65_535;
const RESET: u8 = 5;
/// Added to the code of an operation with headroom, which is above its count.
const WITH_HEADROOM: u8 = 16;
const HEADROOM_SHIFT: u32 = 9;
/// The time of a call by the server's clock.
const SERVER_CLOCK: u64 = (1 << 56) - 1;
/// The flag of a call whose time is an estimate of the server's; the others spare the scripts something.
const IS_ESTIMATE: u8 = 4;
/// The statuses of replies.
const LATE: u8 = 1;
const ELSEWHERE: u8 = 5;
const SEVERAL: u8 = 0;
const SINGLE: u8 = 16;
/// The answer of the general transition.
const GENERAL: u8 = 5;

/// A call that was read and can be decided.
#[derive(Debug)]
pub struct Call<'a> {
    nonce: &'a [u8],
    deadline_us: u64,
    /// The call's own time.
    now_us: Option<u64>,
    is_manual: bool,
    entries: Vec<Entry>,
    /// The reservations and blocks of the entries that have some, in their order.
    holds: Vec<Hold>,
}

/// What is asked of one key.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// `None` resets the key.
    operation: Option<Operation>,
    cost: u64,
    headroom: u8,
    count: u16,
    /// The index of its reservation or block.
    hold: Option<usize>,
}

impl<'a> Call<'a> {
    /// Reads the arguments of a call with this number of entries. They are not trusted.
    ///
    /// # Errors
    /// When they are not those of a call that the module can decide.
    pub fn read(call: &'a [u8], holds: &[u8], entries: usize) -> Result<Self, Refusal> {
        let refused = || Refusal::of("the call is cut off, or has numbers out of their range");
        let (mut call, mut holds) = (Reader(call), Reader(holds));
        let read = Self::read_head(&mut call, entries).ok_or_else(refused)?;
        let number = entries;
        let mut entries = Vec::with_capacity(number);
        let (mut checks, mut read_holds) = (0, Vec::new());
        for _ in 0..number {
            let entry = if read.is_single { Entry::check(read.cost) } else { Entry::read(&mut call) };
            let entry = entry.ok_or_else(refused)?;
            checks += u32::from(entry.count);
            let entry = if entry.takes_hold() {
                read_holds.push(entry.read_hold(&mut holds).ok_or_else(refused)?);
                Entry { hold: Some(read_holds.len() - 1), ..entry }
            } else {
                entry
            };
            entries.push(entry);
        }
        if checks > MAX_CHECKS {
            return Err(Refusal::of(format!("the call has {checks} checks: allowed are up to {MAX_CHECKS}")));
        }
        if !call.is_empty() || !holds.is_empty() {
            return Err(refused());
        }
        Ok(Self {
            nonce: read.nonce,
            deadline_us: read.deadline_us,
            now_us: read.now_us,
            is_manual: read.is_manual,
            entries,
            holds: read_holds,
        })
    }

    fn read_head(call: &mut Reader<'a>, number: usize) -> Option<Head<'a>> {
        let (nonce, deadline_us, format) = (call.bytes(6)?, call.number(7)?, call.byte()?);
        if format == 0 {
            let cost = call.number(5)?;
            let head = Head { nonce, deadline_us, now_us: None, is_manual: false, is_single: true, cost };
            return (number == 1).then_some(head);
        }
        let (now_us, flags, entries) = (call.number(7)?, call.byte()?, call.length(2)?);
        let now_us = (now_us != SERVER_CLOCK).then_some(now_us);
        let is_valid =
            format == 1 && flags < 8 && entries == number && now_us.is_none_or(|now| now <= MAX_US);
        is_valid.then_some(Head {
            nonce,
            deadline_us,
            now_us,
            is_manual: now_us.is_some() && flags & IS_ESTIMATE == 0,
            is_single: false,
            cost: 0,
        })
    }

    /// Decides the entries on their keys, one after the other, and appends the reply.
    pub fn decide(&self, policy: &Prepared, server_us: u64, keys: &mut impl Keyspace, reply: &mut Vec<u8>) {
        reply.extend_from_slice(self.nonce);
        if self.deadline_us > 0 && server_us > self.deadline_us {
            put(reply, server_us, 7);
            reply.push(LATE);
            return;
        }
        let now_us = self.now_us.unwrap_or(server_us);
        put(reply, now_us, 7);
        if !policy.is_in_windows(now_us) {
            reply.push(ELSEWHERE);
            return;
        }
        if self.entries.len() == 1 {
            reply.push(SINGLE + GENERAL);
        } else {
            reply.push(SEVERAL);
            put(reply, self.entries.len() as u64, 2);
            reply.extend(self.entries.iter().map(|_| GENERAL));
        }
        let each = policy.keys_of_entry();
        for (at, entry) in self.entries.iter().enumerate() {
            if each == 1 {
                keys.update(at, &mut |found| self.decide_entry(policy, now_us, entry, found, reply));
            } else {
                let together = at * each..(at + 1) * each;
                keys.update_together(together, &mut |found| {
                    self.decide_with_logs(policy, now_us, entry, found, reply)
                });
            }
        }
    }

    /// Decides an entry with logs, which are keys of their own.
    fn decide_with_logs(
        &self,
        policy: &Prepared,
        now_us: u64,
        entry: &Entry,
        found: &[Found<'_>],
        reply: &mut Vec<u8>,
    ) -> Vec<Effect> {
        let Some(operation) = entry.operation else {
            put_answer(reply, 0, FOUND_STATES, &[]);
            policy.put_empty_views(reply);
            let effect = |(at, found): (usize, &Found<'_>)| Effect {
                change: if *found == Found::Nothing { Change::Nothing } else { Change::Delete },
                notice: (at == 0).then_some(Notice::Released),
            };
            return found.iter().enumerate().map(effect).collect();
        };
        let Entry { cost, headroom, count, hold, .. } = *entry;
        let hold = hold.and_then(|at| self.holds.get(at));
        let request = KeyOperation { now_us, operation, cost, headroom, hold };
        let Some(WithLogs { transition, views, logs }) =
            policy.apply_with_logs(found, request, count, self.is_manual)
        else {
            put_answer(reply, 0, FOUND_FOREIGN, &[]);
            policy.put_empty_views(reply);
            return Vec::new();
        };
        put_answer(reply, transition.spent, code_of(transition.unreadable), &transition.before);
        reply.extend_from_slice(&views);
        let of_logs = logs.into_iter().map(|change| Effect { change, notice: None });
        [transition.effect].into_iter().chain(of_logs).collect()
    }

    fn decide_entry(
        &self,
        policy: &Prepared,
        now_us: u64,
        entry: &Entry,
        found: Found<'_>,
        reply: &mut Vec<u8>,
    ) -> Effect {
        let Some(operation) = entry.operation else {
            put_answer(reply, 0, FOUND_STATES, &[]);
            let change = if found == Found::Nothing { Change::Nothing } else { Change::Delete };
            return Effect { change, notice: Some(Notice::Released) };
        };
        let value = match found {
            Found::Nothing => None,
            Found::String(value) => Some(value),
            Found::Foreign => {
                put_answer(reply, 0, FOUND_FOREIGN, &[]);
                return Effect::default();
            }
        };
        let Entry { cost, headroom, count, hold, .. } = *entry;
        let hold = hold.and_then(|at| self.holds.get(at));
        let request = KeyOperation { now_us, operation, cost, headroom, hold };
        let transition = policy.apply(value, request, count, self.is_manual);
        put_answer(reply, transition.spent, code_of(transition.unreadable), &transition.before);
        transition.effect
    }
}

const FOUND_STATES: u8 = 0;
const FOUND_MALFORMED: u8 = 1;
const FOUND_FOREIGN: u8 = 2;
const FOUND_NEWER: u8 = 3;

/// What was found, as a client reads it.
fn code_of(unreadable: Option<Unreadable>) -> u8 {
    match unreadable {
        None => FOUND_STATES,
        Some(Unreadable::Malformed) => FOUND_MALFORMED,
        Some(Unreadable::Newer) => FOUND_NEWER,
    }
}

/// Appends the answer of the general transition: the units spent, what was found, and the value from before.
fn put_answer(reply: &mut Vec<u8>, spent: u64, found: u8, before: &[u8]) {
    put(reply, spent, 6);
    reply.push(found);
    put(reply, before.len() as u64, 3);
    reply.extend_from_slice(before);
}

/// Appends a number, big-endian, in `bytes` bytes.
fn put(out: &mut Vec<u8>, number: u64, bytes: usize) {
    out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
}

/// What all entries of a call share.
struct Head<'a> {
    nonce: &'a [u8],
    deadline_us: u64,
    now_us: Option<u64>,
    is_manual: bool,
    /// Whether the call is one check of a cost.
    is_single: bool,
    cost: u64,
}

impl Entry {
    /// A check.
    fn check(cost: u64) -> Option<Self> {
        let entry = Self { operation: Some(Operation::Check), cost, headroom: 0, count: 1, hold: None };
        (cost <= Quota::MAX_UNITS).then_some(entry)
    }

    fn read(call: &mut Reader<'_>) -> Option<Self> {
        let (code, cost, count) = (call.byte()?, call.number(5)?, call.number(2)?);
        let (code, headroom, count) = if code >= WITH_HEADROOM {
            (code - WITH_HEADROOM, count >> HEADROOM_SHIFT, count & ((1 << HEADROOM_SHIFT) - 1))
        } else {
            (code, 0, count)
        };
        let operation = match code {
            0 => Some(Operation::Check),
            1 => Some(Operation::Peek),
            2 => Some(Operation::Take),
            3 => Some(Operation::Charge),
            4 => Some(Operation::Refund),
            RESET => None,
            6 => Some(Operation::Reserve),
            7 => Some(Operation::Commit),
            8 => Some(Operation::Cancel),
            9 => Some(Operation::Renew),
            10 => Some(Operation::Block),
            _ => return None,
        };
        let (headroom, count) = (u8::try_from(headroom).ok()?, u16::try_from(count).ok()?);
        let is_check = operation == Some(Operation::Check);
        let is_commit_as_reserved = operation == Some(Operation::Commit) && cost == AS_RESERVED;
        let is_valid = (cost <= Quota::MAX_UNITS || is_commit_as_reserved)
            && headroom < 100
            && (1..=if is_check { u16::MAX } else { 1 }).contains(&count);
        is_valid.then_some(Self { operation, cost, headroom, count, hold: None })
    }

    /// Whether the entry concerns a reservation, or blocks.
    fn takes_hold(&self) -> bool {
        matches!(
            self.operation,
            Some(
                Operation::Reserve
                    | Operation::Commit
                    | Operation::Cancel
                    | Operation::Renew
                    | Operation::Block
            )
        )
    }

    fn read_hold(&self, holds: &mut Reader<'_>) -> Option<Hold> {
        let (ttl_us, remember_us, length) = (holds.number(6)?, holds.number(5)?, holds.length(1)?);
        let id = holds.bytes(length)?;
        let is_block = self.operation == Some(Operation::Block);
        let id = if is_block && id.is_empty() { ReservationId::NONE } else { ReservationId::new(id).ok()? };
        let longest_us = if is_block { Hold::MAX_BLOCK_US } else { ReservationTerms::MAX_TTL_US };
        let is_valid = ttl_us <= longest_us && remember_us <= ReservationTerms::MAX_TTL_US;
        is_valid.then_some(Hold { id, ttl_us, remember_us })
    }
}
