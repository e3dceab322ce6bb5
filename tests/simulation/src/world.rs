//! The machine of a run: connections, servers, the active faults, and the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use fastrand::Rng;
use polylimit::testing::script::{Outcome, Read, Script};
use polylimit::testing::simulation::{Connecting, Machine, Socket};
use tokio::time::{Duration, Instant, sleep, sleep_until};

use crate::cluster::{Cluster, FIRST_PORT};
use crate::database::{self, Database, Reply};
use crate::interpreter::{self, Call, sha1hex};
use crate::ledger::{Action, Identity, Ledger, Told};
use crate::link::{Link, ReplyFault};
use crate::network::{Connection, Ending, Message, Shared, Side, SimulatedSocket, serve};
use crate::policies::ROWS;
use crate::schedule::Schedule;
use crate::script_call::{action, items, read_key};

/// The time of the first server at the start, in microseconds since the Unix epoch.
pub const START_US: u64 = 1_800_000_000_000_000;
/// How many states a server remembers for a failover that loses writes.
const REMEMBERED: usize = 21;

/// A server, or a node of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) database: Database,
    /// The states before the last writes, oldest first.
    pub(crate) before: VecDeque<Database>,
    pub(crate) scripts: BTreeSet<Vec<u8>>,
    pub(crate) is_replica: bool,
    /// By how much the clock differs from the simulation's.
    pub(crate) clock_us: i64,
    /// It refuses connections until then.
    pub(crate) down_until: Option<Instant>,
}

impl Server {
    /// Loses its keys and scripts.
    pub(crate) fn forget(&mut self) {
        (self.database, self.scripts) = (Database::default(), BTreeSet::new());
        self.before.clear();
    }
}

/// An execution that refunded a key: the policy, the key, and the number of the execution.
type Refunded = (usize, usize, u64);

/// The scripts of the policies, to read what they replied.
struct Scripts(Vec<Script>);

/// The machine of a run.
pub struct World {
    /// All connections by number.
    pub connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    pub(crate) servers: Vec<Server>,
    /// The cluster of the servers; without one there is a primary.
    pub(crate) cluster: Option<Cluster>,
    /// The texts of scripts by hash; a text never changes.
    sources: BTreeMap<Vec<u8>, Vec<u8>>,
    scripts: Scripts,
    pub(crate) primary: usize,
    pub(crate) links: BTreeMap<usize, Link>,
    pub(crate) stopped_until: Option<Instant>,
    /// The processes that have died.
    pub(crate) dead: BTreeSet<usize>,
    pub(crate) refuses: Option<(&'static str, Instant)>,
    began: Instant,
    pub(crate) random: Rng,
    /// The log.
    pub ledger: Ledger,
}

impl World {
    /// The world of a schedule, in which nothing has happened.
    pub fn new(schedule: &Schedule) -> Self {
        let mut ledger = Ledger::default();
        ledger.first_connect_max = schedule.first_connect_max;
        ledger.asks_often =
            schedule.nodes == 1 && schedule.callers >= 2 && schedule.pause <= Duration::from_millis(60);
        Self {
            connections: BTreeMap::new(),
            next_connection: 0,
            servers: vec![Server::default(); schedule.nodes],
            cluster: (schedule.nodes > 1).then(|| Cluster::new(schedule.nodes)),
            sources: BTreeMap::new(),
            scripts: Scripts(ROWS.iter().map(|row| Script::new(&row.policy())).collect()),
            primary: 0,
            links: BTreeMap::new(),
            dead: BTreeSet::new(),
            stopped_until: None,
            refuses: None,
            began: Instant::now(),
            random: Rng::with_seed(schedule.seed ^ 0x6e65_7477_6f72_6b73),
            ledger,
        }
    }

    fn now_us(&self, server: usize) -> u64 {
        let passed = (Instant::now() - self.began).as_micros() as u64;
        (START_US + passed).saturating_add_signed(self.servers[server].clock_us)
    }

    /// When something sent now arrives at the other end of a process's connection.
    fn arrives(&mut self, process: usize) -> Instant {
        let Link { least, jitter, .. } = *self.links.entry(process).or_default();
        Instant::now() + least + jitter.mul_f64(self.random.f64())
    }

    /// Until when nothing arrives at that end of a connection.
    pub fn held_until(&mut self, id: u64, side: Side) -> Option<Instant> {
        let process = self.connections.get(&id)?.process;
        let stalled = self.links.entry(process).or_default().stalled_until;
        if side == Side::Server { stalled.max(self.stopped_until) } else { stalled }
    }

    /// The place of a server in the log: servers that take the place of one another are one place, because a process sees one address.
    pub(crate) fn place(&self, server: usize) -> usize {
        if self.cluster.is_some() { server } else { 0 }
    }

    /// Whether the process of a connection has died.
    pub fn is_dead(&self, id: u64) -> bool {
        self.connections.get(&id).is_none_or(|connection| self.dead.contains(&connection.process))
    }

    /// The client's end of a connection has read something.
    pub fn hear(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        while let Some(Message { policy, key, execution, .. }) = connection.heard() {
            self.ledger.hear(connection.process, policy, key, execution);
        }
    }

    /// When a write arrives, how many bytes a socket takes at once, and how many it holds.
    pub fn before_write(&mut self, id: u64) -> (Instant, usize, usize) {
        let process = self.connections.get(&id).map_or(usize::MAX, |connection| connection.process);
        let at = self.arrives(process);
        let Link { most_written, window, .. } = &self.links[&process];
        (at, *most_written, *window)
    }

    /// The server's end of a connection has ended.
    pub fn leave(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        if connection.is_left {
            self.connections.remove(&id);
            return;
        }
        let at = self.arrives(connection.process);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.channels.clear();
            connection.pipes[Side::Client as usize].end(at, Ending::Closed);
        }
    }

    /// Executes a command of a connection and sends its reply.
    pub fn execute(&mut self, id: u64, words: &[Vec<u8>]) {
        let Some(Connection { process, server, .. }) = self.connections.get(&id) else { return };
        let (process, server) = (*process, *server);
        self.advance();
        let is_script = matches!(words.first().map(Vec::as_slice), Some(b"EVAL" | b"EVALSHA"));
        let reply = self.reply(id, process, server, words);
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        let at = self.arrives(process);
        let link = self.links.entry(process).or_default();
        let concerns = |fault: &mut ReplyFault| match (fault, &reply) {
            (ReplyFault::DuplicateNoScript, Reply::Error(error)) => error.starts_with("NOSCRIPT"),
            (ReplyFault::Cut(_) | ReplyFault::Duplicate, Reply::Bulk(_)) => is_script,
            _ => false,
        };
        let fault = link.reply_fault.take_if(concerns);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match fault {
            None => {
                connection.pipes[Side::Client as usize].send(&bytes, at);
            }
            Some(ReplyFault::Duplicate | ReplyFault::DuplicateNoScript) => {
                connection.pipes[Side::Client as usize].send(&bytes.repeat(2), at);
            }
            Some(ReplyFault::Cut(after)) => {
                connection.pipes[Side::Client as usize].send(&bytes[..after.min(bytes.len() - 1)], at);
                connection.pipes[Side::Client as usize].end(at, Ending::Closed);
                connection.pipes[Side::Server as usize].end(Instant::now(), Ending::Reset);
            }
        }
    }

    fn reply(&mut self, id: u64, process: usize, server: usize, words: &[Vec<u8>]) -> Reply {
        if let Some((error, until)) = self.refuses
            && Instant::now() < until
        {
            return Reply::Error(error.into());
        }
        match words.iter().map(Vec::as_slice).collect::<Vec<_>>().as_slice() {
            [b"TIME"] => database::time(self.now_us(server)),
            [b"CLIENT", ..] => Reply::Okay,
            [b"ASKING"] => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.is_asking = true;
                }
                Reply::Okay
            }
            [b"CLUSTER", b"SLOTS"] => self.cluster.as_ref().map_or_else(
                || Reply::Error("ERR This instance has cluster support disabled".into()),
                Cluster::slots,
            ),
            [command @ (b"SUBSCRIBE" | b"UNSUBSCRIBE"), channels @ ..] => {
                let is_added = *command == b"SUBSCRIBE";
                self.subscribe(id, is_added, channels)
            }
            [b"EVAL", source, ..] => {
                let hash = sha1hex(source);
                self.sources.entry(hash.clone()).or_insert_with(|| source.to_vec());
                self.script(id, process, server, &hash, &words[2..], true)
            }
            [b"EVALSHA", hash, ..] => self.script(id, process, server, hash, &words[2..], false),
            _ => Reply::Error("ERR the model server has no such command".into()),
        }
    }

    fn subscribe(&mut self, id: u64, is_added: bool, channels: &[&[u8]]) -> Reply {
        let Some(connection) = self.connections.get_mut(&id) else { return Reply::Nil };
        let change = |channel: &&[u8]| {
            let name: &[u8] = if is_added {
                connection.channels.insert(channel.to_vec());
                b"subscribe"
            } else {
                connection.channels.remove(*channel);
                b"unsubscribe"
            };
            let count = Reply::Int(connection.channels.len() as i64);
            Reply::Array(vec![Reply::Bulk(name.into()), Reply::Bulk((*channel).into()), count])
        };
        Reply::Each(channels.iter().map(change).collect())
    }

    fn script(
        &mut self,
        id: u64,
        process: usize,
        at: usize,
        hash: &[u8],
        words: &[Vec<u8>],
        has_source: bool,
    ) -> Reply {
        let count: usize = std::str::from_utf8(&words[0]).unwrap().parse().unwrap();
        let (keys, arguments) = words[1..].split_at(count);
        let connection = self.connections.get_mut(&id);
        let is_asking = connection.is_some_and(|connection| std::mem::take(&mut connection.is_asking));
        if let Some(elsewhere) = self.redirection(at, keys, is_asking) {
            return elsewhere;
        }
        let now_us = self.now_us(at);
        let server = &mut self.servers[at];
        if has_source {
            server.scripts.insert(hash.into());
        }
        if !server.scripts.contains(hash) {
            return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".into());
        }
        if server.is_replica {
            return Reply::Error("READONLY You can't write against a read only replica.".into());
        }
        server.before.push_back(server.database.clone());
        if server.before.len() > REMEMBERED {
            server.before.pop_front();
        }
        let database = std::mem::take(&mut server.database);
        let mut call = Call { database, now_us, published: Vec::new() };
        let reply = interpreter::run(&mut call, hash, &self.sources[hash], keys, arguments);
        self.servers[at].database = call.database;
        let refunded = match &reply {
            Reply::Bulk(bytes) => self.record(process, at, keys, &arguments[0], bytes),
            reply => {
                self.ledger.violations.push(format!("a script failed: {reply:?}"));
                Vec::new()
            }
        };
        for (channel, message) in call.published {
            let concerned = read_key(&message);
            let is_of = |(policy, key, _): &&Refunded| concerned == Some((*policy, *key));
            self.publish(at, &channel, &message, refunded.iter().rfind(is_of).copied());
        }
        reply
    }

    /// Sends a message to those who have subscribed at the server, or at any node of a cluster.
    fn publish(&mut self, server: usize, channel: &[u8], message: &[u8], refunded: Option<Refunded>) {
        let bulk = |bytes: &[u8]| Reply::Bulk(bytes.into());
        let mut bytes = Vec::new();
        Reply::Array(vec![bulk(b"message"), bulk(channel), bulk(message)]).write(&mut bytes);
        let is_everywhere = self.cluster.is_some();
        let hears = |connection: &Connection| {
            connection.channels.contains(channel) && (is_everywhere || connection.server == server)
        };
        let ids: Vec<u64> = self.connections.iter().filter(|(_, it)| hears(it)).map(|(id, _)| *id).collect();
        for id in ids {
            let at = self.arrives(self.connections[&id].process);
            if let Some(connection) = self.connections.get_mut(&id) {
                let sent = connection.pipes[Side::Client as usize].send(&bytes, at);
                if let (Some(ends_at), Some((policy, key, execution))) = (sent, refunded) {
                    connection.messages.push_back(Message { ends_at, policy, key, execution });
                }
            }
        }
    }

    /// Records in the log what a script has done, which its call and its reply show. Returns what it has refunded.
    fn record(
        &mut self,
        process: usize,
        at: usize,
        keys: &[Vec<u8>],
        argument: &[u8],
        reply: &[u8],
    ) -> Vec<Refunded> {
        let mut refunded = Vec::new();
        let Some((policy, _)) = keys.first().and_then(|key| read_key(key)) else {
            self.ledger.violations.push("a script without a key of ours".into());
            return refunded;
        };
        let script = &self.scripts.0[policy];
        let header = &argument[script.header_at()..];
        let nonce: [u8; 6] = header[..6].try_into().unwrap();
        let items = items(keys, header);
        let outcomes = match script.read(reply, nonce, &items) {
            Read::Decided { outcomes, .. } => outcomes,
            Read::Late(_) => return refunded,
            read => {
                self.ledger.violations.push(format!("a script replied {read:?}"));
                return refunded;
            }
        };
        let mut outcomes = outcomes.into_iter();
        let place = self.place(at);
        for (key, operation, cost, count) in items {
            let Some((policy, key)) = read_key(key) else { continue };
            for outcome in outcomes.by_ref().take(count.into()) {
                let (allowed, taken) = match &outcome {
                    Outcome::Decision(decision) => (decision.allowed(), 0),
                    Outcome::Usage(usage) => (true, usage.taken()),
                };
                let told = Told { allowed, quotas: outcome.quotas().to_vec() };
                let action = action(operation);
                let identity = Identity { process, policy, key, action, cost };
                let execution = self.ledger.execute(place, identity, told, taken);
                if action == Action::Refund {
                    refunded.push((policy, key, execution));
                }
            }
        }
        refunded
    }

    /// Until when a process cannot reach the server at all.
    fn stalled(&self, process: usize) -> Option<Instant> {
        let now = Instant::now();
        self.links.get(&process).and_then(|link| link.stalled_until).filter(|until| *until > now)
    }

    fn open(&mut self, process: usize, port: u16) -> io::Result<u64> {
        self.advance();
        let is_node = |port: &usize| self.cluster.is_some() && *port < self.servers.len();
        let server = port.checked_sub(FIRST_PORT).map(usize::from).filter(is_node).unwrap_or(self.primary);
        let is_down = self.servers[server].down_until.is_some_and(|until| until > Instant::now());
        if is_down || self.dead.contains(&process) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let id = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(id, Connection::new(process, server));
        Ok(id)
    }
}

/// The machine that limiters see.
pub struct SimulatedMachine {
    shared: Shared,
    random: std::cell::RefCell<Rng>,
}

impl SimulatedMachine {
    /// The machine of a world.
    pub fn new(shared: Shared, seed: u64) -> Self {
        Self { shared, random: Rng::with_seed(seed ^ 0x6c69_6d69_7465_7273).into() }
    }
}

impl Machine for SimulatedMachine {
    /// The last part of a host's name is the number of the process.
    fn connect(&self, host: &str, port: u16) -> Connecting {
        let process: usize = host.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap();
        let shared = self.shared.clone();
        Box::pin(async move {
            shared.lock().ledger.connect(process);
            loop {
                let stalled = shared.lock().stalled(process);
                let Some(until) = stalled else { break };
                // Woken now and then, because the simulation may heal earlier.
                sleep_until(until.min(Instant::now() + Duration::from_millis(20))).await;
            }
            let arrives = shared.lock().arrives(process);
            sleep(2 * (arrives - Instant::now())).await;
            let id = shared.lock().open(process, port)?;
            tokio::spawn(serve(shared.clone(), id));
            Ok(Box::new(SimulatedSocket::new(shared, id)) as Box<dyn Socket>)
        })
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().u64(..)
    }
}
