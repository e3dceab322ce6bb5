//! Batches: queued operations become commands, one for each policy and slot.
//!
//! Consecutive operations that request the same of the same key become one entry, which the store decides as that many
//! single checks; the operations are answered in order of arrival. All operations on one key stay in order.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::pipeline::call_span::{CallSpan, CallerSpan};
use crate::pipeline::pending::{PendingOperation, QueuedCharge, ScriptRequest};
use crate::script::call::{self, CallHeader, PolicyCall, RequestEntry, ScriptReference};
use crate::transport::failure::Failure;
use polylimit_rules::transition::Operation;
use polylimit_runtime::monotonic;
use polylimit_store::charge::Action;
use polylimit_store::stats::Counters;

/// The maximum number of charges of the requests in one call. Lua passes up to 8,000 values to a function, and a call should not keep
/// the server from others for more than a millisecond.
const MAX_CHARGES: usize = 500;

/// A script call that decides one or more entries of one policy, or one or more requests over the same policies.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) call: Arc<PolicyCall>,
    pub(crate) slot: u16,
    /// Whether the slot's owner redirected the operations with `ASK` while the slot moves.
    pub(crate) asking: bool,
    pub(crate) entries: Vec<Entry>,
}

/// Equal operations that are decided one after the other.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) first: Arc<PendingOperation>,
    pub(crate) more: Vec<Arc<PendingOperation>>,
}

impl Entry {
    pub(crate) fn operations(&self) -> impl Iterator<Item = &Arc<PendingOperation>> {
        std::iter::once(&self.first).chain(&self.more)
    }

    pub(crate) fn count(&self) -> usize {
        1 + self.more.len()
    }

    /// The entry in the form that the script call takes.
    pub(crate) fn wanted(&self) -> call::CallEntry<'_> {
        let ScriptRequest { key, action, cost, headroom, hold, .. } = &**self.first;
        let count = u16::try_from(self.count()).unwrap_or(u16::MAX);
        let (action, cost, headroom) = (*action, *cost, *headroom);
        // A request's reservation applies to those of its charges that reserve.
        let hold = hold.as_deref().filter(|_| action != Action::Apply(Operation::Check));
        call::CallEntry { key, action, cost, headroom, count, hold }
    }

    /// The charges of a request, if it has several.
    pub(crate) fn request(&self) -> Option<Vec<RequestEntry<'_>>> {
        let ScriptRequest { call, others, hold, decides, .. } = &**self.first;
        if others.is_empty() {
            return None;
        }
        let others = others.iter().map(|QueuedCharge { call, key, action, cost, headroom, decides }| {
            let hold = hold.as_deref().filter(|_| *action == Action::Apply(Operation::Reserve));
            let (action, cost, headroom) = (*action, *cost, *headroom);
            let entry = call::CallEntry { key, action, cost, headroom, count: 1, hold };
            RequestEntry { call, entry, decides: *decides }
        });
        Some(
            [RequestEntry { call, entry: self.wanted(), decides: *decides }]
                .into_iter()
                .chain(others)
                .collect(),
        )
    }

    /// Whether an operation can be decided together with these.
    fn takes(&self, operation: &PendingOperation) -> bool {
        let first = &self.first;
        operation.action == Action::Apply(Operation::Check)
            && operation.others.is_empty()
            && first.action == operation.action
            && (first.cost, first.headroom) == (operation.cost, operation.headroom)
            && first.call.can_coalesce()
            && self.count() < call::most_checks(first.headroom)
    }
}

impl Command {
    fn of(operation: &PendingOperation) -> Self {
        let call = Arc::clone(&operation.call);
        Self { call, slot: operation.slot, asking: operation.is_asking(), entries: Vec::new() }
    }

    fn takes(&self, operation: &PendingOperation) -> bool {
        Arc::ptr_eq(&self.call, &operation.call)
            && self.entries.first().is_none_or(|entry| self.is_for_request(&entry.first, operation))
            && self.slot == operation.slot
            && self.asking == operation.is_asking()
    }

    /// Whether operations have further charges of the same policies, or none. Requests that reserve are sent alone.
    fn is_for_request(&self, first: &PendingOperation, operation: &PendingOperation) -> bool {
        let calls = first.others.iter().zip(&operation.others);
        let has_same_calls = first.others.len() == operation.others.len()
            && calls.into_iter().all(|(one, other)| Arc::ptr_eq(&one.call, &other.call));
        let is_alone = |request: &PendingOperation| !request.others.is_empty() && request.hold.is_some();
        let charges = 1 + operation.others.len();
        has_same_calls
            && !is_alone(first)
            && !is_alone(operation)
            && (charges == 1 || (self.entries.len() + 1) * charges <= MAX_CHARGES)
    }

    /// Whether the module in the server can decide it.
    pub(crate) fn suits_module(&self) -> bool {
        self.call.suits_module() && self.entries.iter().all(|entry| entry.first.others.is_empty())
    }

    /// Whether a quota of its operations counts by the calendar.
    pub(crate) fn has_windows(&self) -> bool {
        let of_others = |entry: &Entry| entry.first.others.iter().any(|other| other.call.has_windows());
        self.call.has_windows() || self.entries.first().is_some_and(of_others)
    }

    /// Counts for the operations' limiter. There is only one: a call contains operations of one limiter's policy.
    pub(crate) fn count(&self, counted: impl FnOnce(&Counters)) {
        if let Some(entry) = self.entries.first() {
            counted(&entry.first.member().counters);
        }
    }

    /// Records how long a reply took, or was waited for.
    pub(crate) fn took(&self, time: Duration) {
        if let Some(entry) = self.entries.first() {
            entry.first.member().durations.add(time, 1);
        }
    }

    /// Answers all of its operations with a failure.
    pub(crate) fn answer(&self, failure: Failure) {
        for operation in self.operations() {
            operation.answer(Err(failure));
        }
    }

    pub(crate) fn split(self) -> impl Iterator<Item = Self> {
        let Self { call, slot, asking, entries } = self;
        entries.into_iter().map(move |entry| Self {
            call: Arc::clone(&call),
            slot,
            asking,
            entries: vec![entry],
        })
    }

    pub(crate) fn operations(&self) -> impl Iterator<Item = &Arc<PendingOperation>> {
        self.entries.iter().flat_map(Entry::operations)
    }

    /// The spans of its operations' callers.
    pub(crate) fn callers(&self) -> impl Iterator<Item = &CallerSpan> {
        self.operations().map(|operation| &operation.caller_span)
    }

    /// The earliest deadline of its operations.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.operations().map(|operation| operation.deadline()).min()
    }
}

pub(crate) fn commands(operations: &mut Vec<Arc<PendingOperation>>) -> Vec<Command> {
    if operations.len() == 1
        && let Some(operation) = operations.pop()
    {
        let mut command = Command::of(&operation);
        command.entries.push(Entry { first: operation, more: Vec::new() });
        return vec![command];
    }
    let mut grouping = Grouping::default();
    for operation in operations.drain(..) {
        grouping.add(operation);
    }
    grouping.commands
}

#[derive(Default)]
struct Grouping {
    commands: Vec<Command>,
    /// All commands but the first, by the operations that they accept.
    others: HashTable<usize>,
    /// The last entry of each key: its command and its index there.
    last_of_key: HashTable<(usize, usize)>,
    hasher: RandomState,
}

impl Grouping {
    fn add(&mut self, operation: Arc<PendingOperation>) {
        let at = self.command_for(&operation);
        let hash = self.hasher.hash_one((at, &operation.key));
        let Self { commands, last_of_key, hasher, .. } = self;
        let last = last_of_key.find_mut(hash, |&(command, entry)| {
            command == at && commands[command].entries[entry].first.key == operation.key
        });
        let entries = commands[at].entries.len();
        if let Some((_, last)) = last {
            let entry = &mut commands[at].entries[*last];
            if entry.takes(&operation) {
                entry.more.push(operation);
                return;
            }
            *last = entries;
        }
        let is_known = last.is_some();
        commands[at].entries.push(Entry { first: operation, more: Vec::new() });
        if !is_known {
            last_of_key.insert_unique(hash, (at, entries), |&(command, entry)| {
                hasher.hash_one((command, &commands[command].entries[entry].first.key))
            });
        }
    }

    /// The index of the command that accepts an operation; a new command if there is none.
    fn command_for(&mut self, operation: &PendingOperation) -> usize {
        let Self { commands, others, hasher, .. } = self;
        // In most cases there is one policy, and one slot where slots matter.
        if commands.first().is_some_and(|first| first.takes(operation)) {
            return 0;
        }
        let made = commands.len();
        let hash_of =
            |command: &Command| hasher.hash_one((Arc::as_ptr(&command.call) as usize, command.slot));
        let command = Command::of(operation);
        let hash = hash_of(&command);
        if let Some(&at) = others.find(hash, |&at| commands[at].takes(operation)) {
            return at;
        }
        commands.push(command);
        if made > 0 {
            others.insert_unique(hash, made, |&at| hash_of(&commands[at]));
        }
        made
    }
}

/// A command in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) command: Command,
    pub(crate) header: CallHeader,
    pub(crate) script: ScriptReference,
    pub(crate) sent: Instant,
    /// The position of its end in all bytes written to the connection: if fewer were written, it cannot have run.
    pub(crate) ends_at: u64,
    /// The number of its batch.
    pub(crate) batch: u64,
    /// The number of replies that precede its own.
    pub(crate) skip: u8,
    /// The next deadline of its operations; `None` when all are answered.
    pub(crate) expires: Option<Instant>,
    pub(crate) overdue: bool,
    pub(crate) span: CallSpan,
}

impl InFlight {
    pub(crate) fn new(
        command: Command,
        header: CallHeader,
        script: ScriptReference,
        ends_at: u64,
        batch: u64,
        span: CallSpan,
    ) -> Self {
        let expires = command.deadline();
        let sent = monotonic::now();
        Self { command, header, script, sent, ends_at, batch, skip: 0, expires, overdue: false, span }
    }

    /// Passes the operations whose deadline has passed to `give_out`; returns whether they are the first of this
    /// command.
    pub(crate) fn expire(&mut self, now: Instant, mut give_out: impl FnMut(&Arc<PendingOperation>)) -> bool {
        if self.expires.is_none_or(|expires| expires > now) {
            return false;
        }
        let (mut next, mut first) = (None::<Instant>, false);
        for operation in self.command.operations() {
            if operation.deadline() > now {
                next = Some(next.map_or(operation.deadline(), |next| next.min(operation.deadline())));
            } else {
                first = !self.overdue;
                give_out(operation);
            }
        }
        self.expires = next;
        self.overdue = true;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::pending::Member;
    use polylimit_rules::history::Change;
    use polylimit_rules::policy::Policy;
    use polylimit_rules::reservation::id::ReservationId;
    use polylimit_rules::reservation::list::Hold;

    fn call(name: &str) -> Arc<PolicyCall> {
        Arc::new(PolicyCall::new(&Policy::parse(name, "10/s").unwrap(), Change::NONE))
    }

    fn operation(key: &str, calls: &[&Arc<PolicyCall>], hold: Option<Hold>) -> Arc<PendingOperation> {
        let action = Action::Apply(if hold.is_some() { Operation::Reserve } else { Operation::Check });
        let (first, others) = calls.split_first().unwrap();
        let charge = |call: &&Arc<PolicyCall>| QueuedCharge {
            call: Arc::clone(call),
            key: key.into(),
            action,
            cost: 1,
            headroom: 0,
            decides: true,
        };
        let wanted = ScriptRequest {
            call: Arc::clone(first),
            key: key.into(),
            slot: 0,
            action,
            cost: 1,
            headroom: 0,
            hold: hold.map(Box::new),
            decides: true,
            others: others.iter().map(charge).collect(),
            until: monotonic::now() + Duration::from_secs(60),
            is_first: false,
            in_background: false,
        };
        PendingOperation::new(wanted, Member::new(1, usize::MAX).permit(0).unwrap())
    }

    /// The keys of each command, with the number of operations of each.
    fn grouped(mut operations: Vec<Arc<PendingOperation>>) -> Vec<Vec<(String, usize)>> {
        let key = |entry: &Entry| (String::from_utf8_lossy(&entry.first.key).into_owned(), entry.count());
        let commands = commands(&mut operations);
        commands.iter().map(|command| command.entries.iter().map(key).collect()).collect()
    }

    #[test]
    fn requests_over_the_same_policies_share_a_call() {
        let (a, b) = (call("a"), call("b"));
        let hold = || Some(Hold { id: ReservationId::new("x").unwrap(), ttl_us: 1, remember_us: 0 });
        let entry = |key: &str, count| (key.to_owned(), count);
        let grouped = grouped(vec![
            operation("1", &[&a, &b], None),
            operation("2", &[&a], None),
            operation("3", &[&a, &b], None),
            operation("1", &[&a, &b], None),
            operation("2", &[&a], None),
            operation("4", &[&b, &a], None),
            operation("5", &[&a, &b], hold()),
            operation("6", &[&a, &b], hold()),
        ]);
        let expected = [
            // A request is decided as a whole, so that those of one key are not one entry.
            vec![entry("1", 1), entry("3", 1), entry("1", 1)],
            vec![entry("2", 2)],
            vec![entry("4", 1)],
            vec![entry("5", 1)],
            vec![entry("6", 1)],
        ];
        assert_eq!(grouped, expected);
    }

    #[test]
    fn calls_of_requests_have_a_bounded_number_of_charges() {
        let (a, b) = (call("a"), call("b"));
        let crowd = (0..MAX_CHARGES).map(|number| operation(&number.to_string(), &[&a, &b], None));
        let grouped = grouped(crowd.collect());
        assert_eq!(grouped.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_CHARGES / 2; 2]);
    }
}
