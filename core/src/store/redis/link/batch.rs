//! What waits together goes together: tickets become commands, one for each policy and slot.
//!
//! Tickets that want the same of the same key, one after the other, become one entry, which the store decides as so
//! many single checks; they are answered in order of arrival. Whatever is asked of one key stays in that order.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::store::Action;
use crate::store::redis::call::{self, PolicyCall};
use crate::store::redis::counters::Counters;
use crate::store::redis::failure::Failure;
use crate::store::redis::ticket::{Ticket, Wanted};
use crate::transition::Operation;

/// A script call that decides one or more entries of one policy.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) call: Arc<PolicyCall>,
    pub(super) slot: u16,
    /// Whether the slot's owner sent us here while the slot moves.
    pub(super) asking: bool,
    pub(super) entries: Vec<Entry>,
}

/// Tickets that are decided one after the other.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) first: Arc<Ticket>,
    pub(super) more: Vec<Arc<Ticket>>,
}

impl Entry {
    pub(super) fn tickets(&self) -> impl Iterator<Item = &Arc<Ticket>> {
        std::iter::once(&self.first).chain(&self.more)
    }

    pub(super) fn count(&self) -> usize {
        1 + self.more.len()
    }

    /// What the store is asked.
    pub(super) fn wanted(&self) -> call::Entry<'_> {
        let Wanted { key, action, cost, .. } = &**self.first;
        let count = u16::try_from(self.count()).unwrap_or(u16::MAX);
        call::Entry { key, action: *action, cost: *cost, count }
    }

    /// Whether a ticket can be decided along with those that are here.
    fn takes(&self, ticket: &Ticket) -> bool {
        let first = &self.first;
        ticket.action == Action::Apply(Operation::Check)
            && first.action == ticket.action
            && first.cost == ticket.cost
            && first.call.counts()
            && self.count() < MOST_IN_ENTRY
    }
}

/// As many as the count of an entry can say.
const MOST_IN_ENTRY: usize = u16::MAX as usize;

impl Command {
    fn of(ticket: &Ticket) -> Self {
        let call = Arc::clone(&ticket.call);
        Self { call, slot: ticket.slot, asking: ticket.is_asking(), entries: Vec::new() }
    }

    fn takes(&self, ticket: &Ticket) -> bool {
        Arc::ptr_eq(&self.call, &ticket.call) && self.slot == ticket.slot && self.asking == ticket.is_asking()
    }

    /// Counts something for its limiter, of which there is one: a limiter's calls are made of its own policies.
    pub(super) fn count(&self, counted: impl FnOnce(&Counters)) {
        if let Some(entry) = self.entries.first() {
            counted(&entry.first.member().counters);
        }
    }

    /// Answers all of its tickets.
    pub(super) fn answer(&self, failure: Failure) {
        for ticket in self.tickets() {
            ticket.answer(Err(failure));
        }
    }

    /// A command for each entry.
    pub(super) fn split(self) -> impl Iterator<Item = Self> {
        let Self { call, slot, asking, entries } = self;
        entries.into_iter().map(move |entry| Self {
            call: Arc::clone(&call),
            slot,
            asking,
            entries: vec![entry],
        })
    }

    pub(super) fn tickets(&self) -> impl Iterator<Item = &Arc<Ticket>> {
        self.entries.iter().flat_map(Entry::tickets)
    }

    /// When the first of its tickets has to be answered.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.tickets().map(|ticket| ticket.deadline()).min()
    }
}

/// Groups tickets into commands.
pub(super) fn commands(tickets: &mut Vec<Arc<Ticket>>) -> Vec<Command> {
    if tickets.len() == 1
        && let Some(ticket) = tickets.pop()
    {
        let mut command = Command::of(&ticket);
        command.entries.push(Entry { first: ticket, more: Vec::new() });
        return vec![command];
    }
    let mut grouping = Grouping::default();
    for ticket in tickets.drain(..) {
        grouping.add(ticket);
    }
    grouping.commands
}

#[derive(Default)]
struct Grouping {
    commands: Vec<Command>,
    /// The commands by what they take, but for the first.
    others: HashTable<usize>,
    /// The last entry of each key: its command and its place there.
    last_of_key: HashTable<(usize, usize)>,
    hasher: RandomState,
}

impl Grouping {
    fn add(&mut self, ticket: Arc<Ticket>) {
        let at = self.command_for(&ticket);
        let hash = self.hasher.hash_one((at, &ticket.key));
        let Self { commands, last_of_key, hasher, .. } = self;
        let last = last_of_key.find_mut(hash, |&(command, entry)| {
            command == at && commands[command].entries[entry].first.key == ticket.key
        });
        let entries = commands[at].entries.len();
        if let Some((_, last)) = last {
            let entry = &mut commands[at].entries[*last];
            if entry.takes(&ticket) {
                entry.more.push(ticket);
                return;
            }
            *last = entries;
        }
        let is_known = last.is_some();
        commands[at].entries.push(Entry { first: ticket, more: Vec::new() });
        if !is_known {
            last_of_key.insert_unique(hash, (at, entries), |&(command, entry)| {
                hasher.hash_one((command, &commands[command].entries[entry].first.key))
            });
        }
    }

    /// The command that takes a ticket, by its number; made if there is none.
    fn command_for(&mut self, ticket: &Ticket) -> usize {
        let Self { commands, others, hasher, .. } = self;
        // Nearly always there is one policy, and one slot where slots matter.
        if commands.first().is_some_and(|first| first.takes(ticket)) {
            return 0;
        }
        let made = commands.len();
        let hash_of =
            |command: &Command| hasher.hash_one((Arc::as_ptr(&command.call) as usize, command.slot));
        let command = Command::of(ticket);
        let hash = hash_of(&command);
        if let Some(&at) = others.find(hash, |&at| commands[at].takes(ticket)) {
            return at;
        }
        commands.push(command);
        if made > 0 {
            others.insert_unique(hash, made, |&at| hash_of(&commands[at]));
        }
        made
    }
}
