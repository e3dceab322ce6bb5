//! An operation on a key whose quotas have sliding logs, which are keys of their own. A log may be long, so that a decision is made from the
//! number of its units, and only what is needed of it is read and written.

use polylimit_rules::algorithm::State;
use polylimit_rules::codec::log::{Log, LogChange};
use polylimit_rules::codec::{Bytes, States, Unreadable};
use polylimit_rules::general::KeyOperation;
use polylimit_rules::transition::{Applied, Operation};

use crate::keyspace::{Change, Effect, Expiry, Found};
use crate::policies::Prepared;
use crate::transition::Transition;

/// The bytes of a view of a log without units.
const EMPTY_VIEW: [u8; 15] = [0; 15];

/// The result of an operation.
#[derive(Debug)]
pub struct WithLogs<'a> {
    /// That on the main key.
    pub transition: Transition<'a>,
    /// What the explanation needs of each log.
    pub views: Bytes,
    /// What happens to the keys after the main key.
    pub logs: Vec<Change>,
}

/// A log, and the place of its quota; `None` under a limit of 0, where it is neither read nor written.
type Logs<'a> = Vec<(usize, Option<Log<'a>>)>;

impl Prepared {
    /// Appends the views of logs that are not read.
    pub(crate) fn put_empty_views(&self, reply: &mut Vec<u8>) {
        self.logs.iter().for_each(|_| reply.extend_from_slice(&EMPTY_VIEW));
    }

    /// Applies an operation, or as many equal checks, to the keys of an entry; `None`, and nothing happens, where one of them has another type
    /// than a string.
    pub fn apply_with_logs<'a>(
        &self,
        found: &[Found<'a>],
        request: KeyOperation<'_>,
        count: u16,
        is_manual: bool,
    ) -> Option<WithLogs<'a>> {
        let (main, rest) = found.split_first()?;
        let main = match main {
            Found::Nothing => None,
            Found::String(value) => Some(*value),
            Found::Foreign => return None,
        };
        let (of_logs, dropped) = rest.split_at_checked(self.logs.len())?;
        let Some(mut logs) = self.read_logs(of_logs, request.now_us) else {
            // What a later version has written is not decided either way.
            let is_newer = self.codec.cut(main.unwrap_or_default()).err() == Some(Unreadable::Newer);
            return is_newer.then(|| self.newer(of_logs.len() + dropped.len()));
        };
        loop {
            let mut next = logs.clone();
            let mut views = Bytes::new();
            let (mut broken, mut is_written) = (None, false);
            let transition = self.change(main, request, is_manual, |states| {
                let applied = self.apply_to_logs(states, &mut next, request, count);
                is_written = applied.written;
                broken = put_views(states, &next, request, applied.allowed, &mut views);
                (applied.spent, applied.written)
            });
            if let Some(at) = broken {
                // Its entries are not in their order: it is malformed, which only a look at them shows.
                let (place, log) = &mut logs[at];
                *log = Some(Log::full(&self.policy.quotas()[*place], request.now_us));
                continue;
            }
            if transition.unreadable == Some(Unreadable::Newer) {
                return Some(self.newer(of_logs.len() + dropped.len()));
            }
            let is_healed = next.iter().any(|(_, log)| log.as_ref().is_some_and(Log::is_healed));
            let change = |(_, log): &(usize, Option<Log<'_>>)| match log {
                Some(log) => change_of(log, is_manual),
                None => Change::Nothing,
            };
            let drop = |found: &Found<'_>| match found {
                Found::Nothing => Change::Nothing,
                _ if is_written || is_healed => Change::Delete,
                _ => Change::Nothing,
            };
            let changes = next.iter().map(change).chain(dropped.iter().map(drop)).collect();
            let unreadable = transition.unreadable.or(is_healed.then_some(Unreadable::Malformed));
            return Some(WithLogs {
                transition: Transition { unreadable, ..transition },
                views,
                logs: changes,
            });
        }
    }

    /// Reads the logs; `None` where one has another type than a string.
    fn read_logs<'a>(&self, found: &[Found<'a>], now_us: u64) -> Option<Logs<'a>> {
        let read = |(place, found): (&usize, &Found<'a>)| {
            let quota = self.policy.quotas().get(*place)?;
            let log = match found {
                _ if quota.limit() == 0 => None,
                Found::Nothing => Some(Log::read(quota, &[], now_us)),
                Found::String(bytes) => Some(Log::read(quota, bytes, now_us)),
                Found::Foreign => return None,
            };
            Some((*place, log))
        };
        self.logs.iter().zip(found).map(read).collect()
    }

    /// Applies an operation to states and the logs that belong to them.
    fn apply_to_logs(
        &self,
        states: &mut States,
        logs: &mut Logs<'_>,
        request: KeyOperation<'_>,
        count: u16,
    ) -> Applied {
        for (place, log) in logs.iter() {
            if let Some(log) = log {
                states[*place] = State::SlidingLog(Box::new(log.state()));
            }
        }
        let applied = self.apply_checks(states, request, count);
        let is_refund = request.operation == Operation::Refund && request.cost > 0;
        for (place, log) in logs {
            if let (Some(log), State::SlidingLog(state)) = (log, &states[*place]) {
                log.follow(state, is_refund.then_some(request.cost));
            }
        }
        applied
    }

    /// The answer about a key of which a later version has written a state.
    fn newer<'a>(&self, others: usize) -> WithLogs<'a> {
        let (unreadable, effect) = (Some(Unreadable::Newer), Effect::default());
        let transition = Transition { spent: 0, unreadable, before: (&[]).into(), effect };
        let mut views = Bytes::new();
        self.logs.iter().for_each(|_| views.extend_from_slice(&EMPTY_VIEW));
        WithLogs { transition, views, logs: vec![Change::Nothing; others] }
    }
}

/// Appends the view of each log. Returns the place of a log whose entries are not in their order.
fn put_views(
    states: &States,
    logs: &Logs<'_>,
    request: KeyOperation<'_>,
    is_allowed: bool,
    views: &mut Bytes,
) -> Option<usize> {
    for (at, (place, log)) in logs.iter().enumerate() {
        let (Some(log), State::SlidingLog(state)) = (log, &states[*place]) else {
            views.extend_from_slice(&EMPTY_VIEW);
            continue;
        };
        let wanted = log.wanted(states, state, request, is_allowed);
        if log.put_view(wanted, views).is_err() {
            return Some(at);
        }
    }
    None
}

/// What happens to the key of a log. With a manual clock keys live for ever.
fn change_of(log: &Log<'_>, is_manual: bool) -> Change {
    let (change, until_us) = log.change();
    let until_us = until_us.filter(|_| !is_manual);
    // The server counts in milliseconds.
    let lives = until_us.map_or(Expiry::Kept, |until_us| Expiry::At(until_us.div_ceil(1_000) + 1));
    match change {
        LogChange::Nothing => Change::Nothing,
        LogChange::Delete => Change::Delete,
        LogChange::Set(bytes) if is_manual => Change::Set(bytes, Expiry::Never),
        LogChange::Set(bytes) => Change::Set(bytes, lives),
        LogChange::Write(at, bytes) => Change::Write(at, bytes, lives),
    }
}
