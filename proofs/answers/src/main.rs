//! Prints what the rules answer in given cases. The models of the proofs are compared with it.
//!
//! A line `quota <text>` chooses a quota; the answer is its tick in microseconds. Every other line is a case: a time in microseconds, a
//! cost, and a state as numbers, or `-` for a key that was never seen. The answer has, for a check, a peek, a take, a charge and a
//! refund of this cost from this state: whether it is allowed, the units spent, what remains, when to retry, when nothing counts any
//! more, the delay, and the state afterwards.
//!
//! | state of | numbers |
//! |---|---|
//! | a bucket | debt, at (ticks); if it was written under other numbers, also their limit and the power of ten of their tick |
//! | a stepped bucket | used, at |
//! | a fixed window | count, start |
//! | a sliding window | number of the newest sub-window, its count, the count before it, and so on |
//! | a log | for each entry its time and the running total up to and including it |

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};

use polylimit_rules::algorithm::State;
use polylimit_rules::algorithm::sliding_log;
use polylimit_rules::codec::{Bytes, PolicyCodec, Reader, States, Tag, read_log, write_log};
use polylimit_rules::general::KeyOperation;
use polylimit_rules::history::Change;
use polylimit_rules::quota::Algorithm;
use polylimit_rules::transition::{Operation, PolicyRules};
use polylimit_rules::{Policy, Quota};

const OPERATIONS: [Operation; 5] =
    [Operation::Check, Operation::Peek, Operation::Take, Operation::Charge, Operation::Refund];

type Failure = Box<dyn std::error::Error>;

struct Prepared {
    quota: Quota,
    rules: PolicyRules,
    codec: PolicyCodec,
}

impl Prepared {
    fn new(text: &str) -> Result<Self, Failure> {
        let quota: Quota = text.parse()?;
        let policy = Policy::new("proofs", [quota.clone()])?;
        let codec = PolicyCodec::new(&policy, Change::NONE);
        Ok(Self { quota, rules: PolicyRules::new(&policy), codec })
    }

    fn is_log(&self) -> bool {
        self.quota.algorithm() == Algorithm::SlidingLog
    }

    /// The form of the state's record, and how many bytes each number has; see `codec`.
    fn form(&self) -> (u8, &'static [usize]) {
        match (self.quota.algorithm(), self.quota.step()) {
            (Algorithm::TokenBucket, Some(_)) => (3, &[6, 7]),
            (Algorithm::FixedWindow, _) => (4, &[6, 7]),
            (Algorithm::SlidingWindow, _) => (5, &[]),
            _ => (2, &[7, 7]),
        }
    }

    fn state(&self, numbers: &[u64], now_us: u64) -> Option<States> {
        if numbers.is_empty() {
            return Some([State::fresh(&self.quota)].into_iter().collect());
        }
        if self.is_log() {
            let entries = numbers.chunks_exact(2).map(|entry| (entry[0], entry[1]));
            let log = State::SlidingLog(Box::new(sliding_log::State::of_parts(entries)));
            return Some([log].into_iter().collect());
        }
        let (form, _) = self.form();
        let mut record = vec![form];
        record.extend(Tag::of(&self.quota).0);
        let mut put = |number: u64, bytes: usize| record.extend(&number.to_be_bytes()[8 - bytes..]);
        match (form, numbers) {
            (2, [debt, at, others @ ..]) => {
                let (limit, exponent) = match others {
                    [limit, exponent] => (*limit, *exponent),
                    _ => (self.quota.limit(), u64::from(self.quota.tick_us().ilog10())),
                };
                put(*at, 7);
                put(*debt, 7);
                put(limit, 5);
                put(exponent, 1);
            }
            (3, [used, at_us]) => {
                put(*used, 6);
                put(*at_us, 7);
                put(self.quota.limit(), 5);
            }
            (4, [count, start_us]) => {
                put(*count, 6);
                put(*start_us, 7);
            }
            (5, [newest, counts @ ..]) if counts.len() > 1 => {
                put(6, 1);
                put(counts.len() as u64 - 1, 1);
                put(*newest, 7);
                put(counts[..counts.len() - 1].iter().sum(), 6);
                for count in &counts[1..] {
                    put(*count, 6);
                }
            }
            _ => return None,
        }
        self.codec.read(&record, now_us).ok()
    }

    /// The numbers of a state; `-` when nothing is used.
    fn shown(&self, states: &States) -> Option<String> {
        let mut bytes = Bytes::new();
        if let Some(State::SlidingLog(log)) = states.first() {
            return Some(shown_log(log));
        }
        self.codec.write(states, &mut bytes);
        if bytes.is_empty() {
            return Some("-".to_owned());
        }
        let mut reader = Reader(&bytes);
        let form = reader.byte()?;
        reader.bytes(4)?;
        let numbers = match form {
            // A bucket has its time first.
            1 | 2 => {
                let at = reader.number(7)?;
                vec![reader.number(if form == 1 { 5 } else { 7 })?, at]
            }
            3 | 4 => vec![reader.number(6)?, reader.number(7)?],
            _ => {
                let (width, length) = (usize::from(reader.byte()?), reader.byte()?);
                let (newest, sum) = (reader.number(7)?, reader.number(6)?);
                let older = (0..length).map(|_| reader.number(width)).collect::<Option<Vec<_>>>()?;
                let first = sum - older[..usize::from(length) - 1].iter().sum::<u64>();
                [&[newest, first], &*older].concat()
            }
        };
        Some(listed(numbers))
    }

    fn answer(&self, now_us: u64, cost: u64, numbers: &[u64]) -> Option<String> {
        let before = self.state(numbers, now_us)?;
        let mut line = String::new();
        for operation in OPERATIONS {
            let mut states = before.clone();
            let asked = KeyOperation { now_us, operation, cost, headroom: 0, hold: None };
            let (decision, applied) = self.rules.decide(&mut states, asked, None);
            let retry = decision.retry_after_us().map_or_else(|| "never".to_owned(), |us| us.to_string());
            let state = self.shown(&states)?;
            write!(
                line,
                "{} {} {} {retry} {} {} {state};",
                u8::from(applied.allowed),
                applied.spent,
                decision.remaining(),
                decision.reset_after_us(),
                decision.delay_us(),
            )
            .ok()?;
        }
        Some(line)
    }
}

/// A log as it is written: its totals start at 0.
fn shown_log(log: &sliding_log::State) -> String {
    let mut bytes = Bytes::new();
    write_log(log, &mut bytes);
    let mut reader = Reader(&bytes);
    let mut numbers = Vec::new();
    if let (Some(origin_us), Some(width)) = (reader.number(7), reader.byte()) {
        reader.number(usize::from(width));
        while let (Some(after_us), Some(total)) = (reader.number(6), reader.number(usize::from(width))) {
            numbers.extend([origin_us + after_us, total]);
        }
    }
    debug_assert!(bytes.is_empty() || read_log(&bytes).is_some());
    if numbers.is_empty() { "-".to_owned() } else { listed(numbers) }
}

fn listed(numbers: Vec<u64>) -> String {
    let texts: Vec<String> = numbers.into_iter().map(|number| number.to_string()).collect();
    texts.join(",")
}

fn main() -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut prepared = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        if let Some(text) = line.strip_prefix("quota ") {
            prepared = Prepared::new(text).ok();
            let tick_us = prepared.as_ref().map(|prepared| prepared.quota.tick_us());
            writeln!(out, "{}", tick_us.map_or_else(|| "refused".to_owned(), |us| us.to_string()))?;
            continue;
        }
        let mut words = line.split(' ');
        let (now_us, cost) = (words.next().unwrap_or("").parse()?, words.next().unwrap_or("").parse()?);
        let numbers = match words.next() {
            None | Some("-") => Vec::new(),
            Some(numbers) => numbers.split(',').map(str::parse).collect::<Result<_, _>>()?,
        };
        let answer = prepared.as_ref().and_then(|prepared| prepared.answer(now_us, cost, &numbers));
        writeln!(out, "{}", answer.as_deref().unwrap_or("malformed"))?;
    }
    out.flush()?;
    Ok(())
}
