//! The model server of the fleet: one queue, the real scripts, and measured service times.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::database::{self, Database, Reply};
use crate::fleet::network::Network;
use crate::interpreter::{self, Call};
use crate::network::read_command;
use crate::world::START_US;

/// What a call of a script with one entry costs, in nanoseconds of the server's CPU.
pub(super) const LONE_NS: u64 = 3_500;
/// What each further entry of a batch costs: with it a decision takes 1.4 us in a batch of 5 and 0.9 us in one of 30.
pub(super) const ENTRY_NS: u64 = 800;
/// What publishing costs, and each listener of the message.
pub(super) const PUBLISH_NS: u64 = 900;
pub(super) const LISTENER_NS: u64 = 300;
/// What any other command costs.
const OTHER_NS: u64 = 1_000;

/// What the server has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) busy_ns: u64,
    /// The part of it that publishing took.
    pub(super) publishing_ns: u64,
    /// The part that publishing would have taken if all processes listened to one channel.
    pub(super) publishing_to_all_ns: u64,
    pub(super) calls: u64,
    pub(super) entries: u64,
    pub(super) other_commands: u64,
    pub(super) published: u64,
    pub(super) messages: u64,
}

pub(super) struct FleetServer {
    database: Database,
    scripts: HashMap<Vec<u8>, Vec<u8>>,
    /// The connections that are subscribed to each channel.
    listeners: BTreeMap<Vec<u8>, BTreeSet<usize>>,
    /// The channels of each connection that is subscribed.
    subscribed: BTreeMap<usize, BTreeSet<Vec<u8>>>,
    /// Until when the server is busy, in nanoseconds since the start.
    busy_until_ns: u64,
    pub(super) most_subscribed: usize,
    pub(super) work: Work,
    /// The first reply that was an error; a run without defects has none.
    pub(super) error: Option<String>,
}

impl FleetServer {
    pub(super) fn new() -> Self {
        Self {
            database: Database::default(),
            scripts: HashMap::new(),
            listeners: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            busy_until_ns: 0,
            most_subscribed: 0,
            work: Work::default(),
            error: None,
        }
    }

    /// Executes the commands of a connection whose bytes have arrived.
    pub(super) fn receive(&mut self, network: &mut Network, id: usize, bytes: &[u8]) {
        let Some(connection) = network.connection(id) else { return };
        let mut input = std::mem::take(&mut connection.input);
        input.extend_from_slice(bytes);
        while let Some((words, used)) = read_command(&input) {
            input.drain(..used);
            self.execute(network, id, &words);
        }
        if let Some(connection) = network.connection(id) {
            connection.input = input;
        }
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, id: usize) {
        for channel in self.subscribed.remove(&id).unwrap_or_default() {
            self.unsubscribe(id, &channel);
        }
    }

    /// The server ends; its data stay.
    pub(super) fn end(&mut self) {
        self.scripts.clear();
        self.listeners.clear();
        self.subscribed.clear();
    }

    fn execute(&mut self, network: &mut Network, id: usize, words: &[Vec<u8>]) {
        let began_ns = self.busy_until_ns.max(network.now_us * 1_000);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let now_us = START_US + began_ns / 1_000;
        let mut published = Vec::new();
        let (reply, took_ns) = match words.as_slice() {
            [b"TIME"] => (database::time(now_us), OTHER_NS),
            [b"CLIENT", ..] => (Reply::Okay, OTHER_NS),
            [name @ (b"SUBSCRIBE" | b"UNSUBSCRIBE"), channels @ ..] => {
                (self.subscribe(id, name, channels), OTHER_NS * channels.len() as u64)
            }
            [b"EVAL", source, rest @ ..] => {
                let hash = interpreter::sha1hex(source);
                self.scripts.entry(hash.clone()).or_insert_with(|| source.to_vec());
                self.script(now_us, &hash, rest, &mut published)
            }
            [b"EVALSHA", hash, rest @ ..] => self.script(now_us, hash, rest, &mut published),
            // What a server without the module replies.
            [b"POLYLIMIT.VERSION"] => (Reply::Error("ERR unknown command".into()), OTHER_NS),
            _ => (Reply::Error("ERR the model server has no such command".into()), OTHER_NS),
        };
        if !matches!(words[0], b"EVAL" | b"EVALSHA") {
            self.work.other_commands += 1;
        }
        if let Reply::Error(error) = &reply
            && !["NOSCRIPT", "ERR unknown command"].iter().any(|known| error.starts_with(known))
        {
            self.error.get_or_insert_with(|| error.clone());
        }
        self.work.busy_ns += took_ns;
        self.busy_until_ns = began_ns + took_ns;
        for (channel, message) in published {
            self.publish(network, &channel, &message);
        }
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        network.send_to_client(id, self.busy_until_ns.div_ceil(1_000), bytes);
    }

    fn script(
        &mut self,
        now_us: u64,
        hash: &[u8],
        words: &[&[u8]],
        published: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> (Reply, u64) {
        let Some(source) = self.scripts.get(hash) else {
            return (Reply::Error("NOSCRIPT No matching script. Please use EVAL.".into()), OTHER_NS);
        };
        let count = words.first().and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
        let Some(count) = count.filter(|count| *count < words.len()) else {
            return (Reply::Error("ERR Number of keys is greater than number of args".into()), OTHER_NS);
        };
        let owned: Vec<Vec<u8>> = words[1..].iter().map(|word| word.to_vec()).collect();
        let (keys, arguments) = owned.split_at(count);
        let mut call = Call { database: std::mem::take(&mut self.database), now_us, published: Vec::new() };
        let reply = interpreter::run(&mut call, hash, source, keys, arguments);
        self.database = call.database;
        *published = call.published;
        // Logs next to a main key are no entries of their own.
        let entries = keys.iter().filter(|key| key.ends_with(b"}")).count() as u64;
        self.work.calls += 1;
        self.work.entries += entries;
        (reply, LONE_NS + ENTRY_NS * entries.saturating_sub(1))
    }

    fn subscribe(&mut self, id: usize, name: &[u8], channels: &[&[u8]]) -> Reply {
        let kind = name.to_ascii_lowercase();
        let mut replies = Vec::with_capacity(channels.len());
        for channel in channels {
            let of_connection = self.subscribed.entry(id).or_default();
            if kind == b"subscribe" {
                of_connection.insert(channel.to_vec());
                self.listeners.entry(channel.to_vec()).or_default().insert(id);
            } else {
                of_connection.remove(*channel);
            }
            let count = of_connection.len();
            if count == 0 {
                self.subscribed.remove(&id);
            }
            if kind == b"unsubscribe" {
                self.unsubscribe(id, channel);
            }
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            replies.push(Reply::Array(vec![
                Reply::Bulk(kind.clone()),
                Reply::Bulk(channel.to_vec()),
                Reply::Int(count),
            ]));
        }
        self.most_subscribed = self.most_subscribed.max(self.subscribed.len());
        Reply::Each(replies)
    }

    fn unsubscribe(&mut self, id: usize, channel: &[u8]) {
        if let Some(listeners) = self.listeners.get_mut(channel) {
            listeners.remove(&id);
            if listeners.is_empty() {
                self.listeners.remove(channel);
            }
        }
    }

    fn publish(&mut self, network: &mut Network, channel: &[u8], message: &[u8]) {
        let listeners: Vec<usize> = self
            .listeners
            .get(channel)
            .map_or_else(Vec::new, |listeners| listeners.iter().copied().collect());
        let took_ns = PUBLISH_NS + LISTENER_NS * listeners.len() as u64;
        self.busy_until_ns += took_ns;
        self.work.busy_ns += took_ns;
        self.work.publishing_ns += took_ns;
        self.work.publishing_to_all_ns += PUBLISH_NS + LISTENER_NS * self.subscribed.len() as u64;
        self.work.published += 1;
        self.work.messages += listeners.len() as u64;
        let bulk = |bytes: &[u8]| Reply::Bulk(bytes.into());
        let mut bytes = Vec::new();
        Reply::Array(vec![bulk(b"message"), bulk(channel), bulk(message)]).write(&mut bytes);
        for id in listeners {
            network.send_to_client(id, self.busy_until_ns.div_ceil(1_000), bytes.clone());
        }
    }
}
