//! The machine of a run: connections, servers, the faults in force, and the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use fastrand::Rng;
use polylimit::simulation::{Connecting, Machine, Socket};
use polylimit::testing::{Operation, Outcome, Read, Script};
use tokio::time::{Instant, sleep, sleep_until};

use crate::database::{self, Database, Reply};
use crate::interpreter::{self, Call};
use crate::ledger::{Action, Event, Identity, Ledger, Told};
use crate::network::{Connection, Ending, Pipe, Shared, Side, SimulatedSocket, serve};
use crate::policies::{KEYS, ROWS};
use crate::schedule::{Fault, Schedule};

/// The time of the first server at the start, in microseconds since the Unix epoch.
pub const START_US: u64 = 1_800_000_000_000_000;
/// How many states a server remembers for a failover that loses writes.
const REMEMBERED: usize = 21;

/// What is special about a process's way to the server.
#[derive(Debug)]
struct Link {
    least: Duration,
    jitter: Duration,
    most_written: usize,
    window: usize,
    stalled_until: Option<Instant>,
    reply_fault: Option<ReplyFault>,
}

#[derive(Clone, Copy, Debug)]
enum ReplyFault {
    Cut(usize),
    Duplicate,
    DuplicateNoScript,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            least: Duration::from_micros(300),
            jitter: Duration::from_millis(1),
            most_written: usize::MAX,
            window: 1 << 20,
            stalled_until: None,
            reply_fault: None,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Server {
    database: Database,
    /// The states before the last writes, oldest first.
    before: VecDeque<Database>,
    scripts: BTreeSet<Vec<u8>>,
    is_replica: bool,
    /// By how much the clock differs from the simulation's.
    clock_us: i64,
}

/// The scripts of the policies, to read what they replied.
struct Scripts(Vec<Script>);

/// The machine of a run.
pub struct World {
    /// All connections by number.
    pub connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    servers: Vec<Server>,
    /// The texts of scripts by hash; a text never changes.
    sources: BTreeMap<Vec<u8>, Vec<u8>>,
    scripts: Scripts,
    primary: usize,
    links: BTreeMap<usize, Link>,
    down_until: Option<Instant>,
    stopped_until: Option<Instant>,
    refuses: Option<(&'static str, Instant)>,
    began: Instant,
    random: Rng,
    /// The log.
    pub ledger: Ledger,
}

impl World {
    /// The world of a schedule, in which nothing has happened.
    pub fn new(schedule: &Schedule) -> Self {
        let mut ledger = Ledger::default();
        ledger.first_connect_max = schedule.first_connect_max;
        ledger.may_run_late = schedule.sets_clock_back();
        ledger.asks_often = schedule.callers >= 2 && schedule.pause <= Duration::from_millis(60);
        Self {
            connections: BTreeMap::new(),
            next_connection: 0,
            servers: vec![Server::default()],
            sources: BTreeMap::new(),
            scripts: Scripts(ROWS.iter().map(|row| Script::new(&row.policy())).collect()),
            primary: 0,
            links: BTreeMap::new(),
            down_until: None,
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
            None => connection.pipes[Side::Client as usize].send(&bytes, at),
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
            [name @ (b"SUBSCRIBE" | b"UNSUBSCRIBE"), channels @ ..] => {
                let connection = self.connections.get_mut(&id);
                Reply::Several(connection.map_or_else(Vec::new, |it| it.subscribe(name, channels)))
            }
            [b"EVAL", source, ..] => {
                let hash = interpreter::hex_sha1(source);
                self.sources.entry(hash.clone().into_bytes()).or_insert_with(|| source.to_vec());
                self.servers[server].scripts.insert(hash.clone().into_bytes());
                self.script(process, server, hash.as_bytes(), &words[2..])
            }
            [b"EVALSHA", hash, ..] => self.script(process, server, hash, &words[2..]),
            _ => Reply::Error("ERR the model server has no such command".into()),
        }
    }

    fn script(&mut self, process: usize, at: usize, hash: &[u8], words: &[Vec<u8>]) -> Reply {
        let now_us = self.now_us(at);
        let server = &mut self.servers[at];
        if !server.scripts.contains(hash) {
            return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".into());
        }
        if server.is_replica {
            return Reply::Error("READONLY You can't write against a read only replica.".into());
        }
        let count: usize = std::str::from_utf8(&words[0]).unwrap().parse().unwrap();
        let (keys, arguments) = words[1..].split_at(count);
        server.before.push_back(server.database.clone());
        if server.before.len() > REMEMBERED {
            server.before.pop_front();
        }
        let database = std::mem::take(&mut server.database);
        let mut call = Call { database, now_us, published: Vec::new() };
        let reply = interpreter::run(&mut call, hash, &self.sources[hash], keys, arguments);
        self.servers[at].database = call.database;
        for (channel, message) in call.published {
            self.publish(at, &channel, &message);
        }
        match &reply {
            Reply::Bulk(bytes) => self.record(process, keys, &arguments[0], bytes),
            reply => self.ledger.violations.push(format!("a script failed: {reply:?}")),
        }
        reply
    }

    fn publish(&mut self, server: usize, channel: &[u8], message: &[u8]) {
        let bulk = |bytes: &[u8]| Reply::Bulk(bytes.into());
        let mut bytes = Vec::new();
        Reply::Array(vec![bulk(b"message"), bulk(channel), bulk(message)]).write(&mut bytes);
        let hears = |it: &Connection| it.channels.contains(channel) && it.server == server;
        let ids: Vec<u64> = self.connections.iter().filter(|(_, it)| hears(it)).map(|(id, _)| *id).collect();
        for id in ids {
            let at = self.arrives(self.connections[&id].process);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.pipes[Side::Client as usize].send(&bytes, at);
            }
        }
    }

    /// Tells the log what a script has done, which its call and its reply say.
    fn record(&mut self, process: usize, keys: &[Vec<u8>], argument: &[u8], reply: &[u8]) {
        let Some((policy, _)) = keys.first().and_then(|key| read_key(key)) else {
            return self.ledger.violations.push("a script without a key of ours".into());
        };
        let script = &self.scripts.0[policy];
        let header = &argument[script.header_at()..];
        let nonce: [u8; 6] = header[..6].try_into().unwrap();
        let items = items(keys, header);
        let outcomes = match script.read(reply, nonce, &items) {
            Read::Decided { outcomes, .. } => outcomes,
            Read::Late(_) => return,
            read => return self.ledger.violations.push(format!("a script replied {read:?}")),
        };
        let mut outcomes = outcomes.into_iter();
        for (key, operation, cost, count) in items {
            let Some((policy, key)) = read_key(key) else { continue };
            for outcome in outcomes.by_ref().take(count.into()) {
                let (allowed, taken) = match &outcome {
                    Outcome::Decision(decision) => (decision.allowed(), 0),
                    Outcome::Usage(usage) => (true, usage.taken()),
                };
                let told = Told { allowed, quotas: outcome.quotas().to_vec() };
                let action = action(operation);
                self.ledger.execute(Identity { process, policy, key, action, cost }, told, taken);
            }
        }
    }

    /// What a fault may make a limiter say.
    fn may_say(&mut self, reasons: &[&'static str]) {
        self.ledger.reasons.extend(reasons);
    }

    /// Injects a fault; `processes` are the numbers of the processes that are alive.
    pub fn inject(&mut self, fault: Fault, processes: &[usize]) {
        let now = Instant::now();
        self.may_say(&["timeout", "late", "unreachable", "connection_lost"]);
        match fault {
            Fault::Delay { process, least, jitter } => {
                let link = self.links.entry(processes[process]).or_default();
                (link.least, link.jitter) = (least, jitter);
            }
            Fault::Cut { process, resets } => {
                let ending = if resets { Ending::Reset } else { Ending::Closed };
                for connection in self.connections.values_mut() {
                    if connection.process == processes[process] {
                        for pipe in &mut connection.pipes {
                            pipe.truncate(self.random.usize(..=pipe.bytes()));
                            pipe.end(now, ending);
                        }
                    }
                }
            }
            Fault::Stall { process, lasts } => {
                let process = processes[process];
                self.links.entry(process).or_default().stalled_until = Some(now + lasts);
                self.ledger.stall(process, now + lasts);
                self.wake(|connection| connection.process == process);
            }
            Fault::HalfOpen { process } => {
                for connection in self.connections.values_mut() {
                    if connection.process == processes[process] {
                        connection.pipes.iter_mut().for_each(|pipe| pipe.hold(now + Duration::from_secs(60)));
                    }
                }
            }
            Fault::PartialWrites { process, bytes, window } => {
                let link = self.links.entry(processes[process]).or_default();
                (link.most_written, link.window) = (bytes, window);
            }
            Fault::CutReply { process, after } => {
                self.links.entry(processes[process]).or_default().reply_fault = Some(ReplyFault::Cut(after));
            }
            Fault::DuplicateReply { process } => {
                self.may_say(&["protocol"]);
                self.links.entry(processes[process]).or_default().reply_fault = Some(ReplyFault::Duplicate);
            }
            Fault::DuplicateNoScript { process } => {
                self.may_say(&["protocol"]);
                self.links.entry(processes[process]).or_default().reply_fault =
                    Some(ReplyFault::DuplicateNoScript);
            }
            Fault::Stop { lasts } => {
                self.stopped_until = Some(now + lasts);
                self.wake(|_| true);
            }
            Fault::Restart { lasts, keeps_data } => self.restart(now + lasts, keeps_data),
            Fault::FlushScripts => self.servers[self.primary].scripts.clear(),
            Fault::Failover { lost_writes, clock_us } => self.fail_over(lost_writes, clock_us),
            Fault::StepClock { us } => self.step(us),
            Fault::Refuse { error, lasts } => {
                self.may_say(&["loading", "busy", "out_of_memory", "misconfigured", "no_replicas"]);
                self.refuses = Some((error, now + lasts));
            }
            // The run ends the process; its connections go with it.
            Fault::Kill { .. } => {}
        }
    }

    fn step(&mut self, us: i64) {
        self.servers[self.primary].clock_us += us;
        if us != 0 {
            self.ledger.event(Event::Step(us));
        }
    }

    fn restart(&mut self, until: Instant, keeps_data: bool) {
        let primary = self.primary;
        self.down_until = Some(until);
        let server = &mut self.servers[primary];
        server.scripts.clear();
        server.before.clear();
        if !keeps_data {
            server.database = Database::default();
            self.ledger.event(Event::Loss);
        }
        let now = Instant::now();
        for connection in self.connections.values_mut().filter(|connection| connection.server == primary) {
            connection.pipes[Side::Server as usize].end(now, Ending::Reset);
            let ending = if self.random.bool() { Ending::Reset } else { Ending::Closed };
            connection.pipes[Side::Client as usize].end(now, ending);
        }
    }

    fn fail_over(&mut self, lost_writes: usize, clock_us: i64) {
        self.may_say(&["read_only"]);
        let old = &mut self.servers[self.primary];
        old.is_replica = true;
        let mut new = Server { clock_us: old.clock_us, database: old.database.clone(), ..Server::default() };
        if lost_writes > 0 {
            let kept = old.before.len().saturating_sub(lost_writes);
            new.database = old.before.get(kept).cloned().unwrap_or_default();
            self.ledger.event(Event::Loss);
        }
        self.servers.push(new);
        self.primary = self.servers.len() - 1;
        self.step(clock_us);
    }

    /// Ends every fault that lasts.
    pub fn heal(&mut self) {
        for link in self.links.values_mut() {
            *link = Link::default();
        }
        (self.down_until, self.stopped_until, self.refuses) = (None, None, None);
        self.wake(|_| true);
    }

    fn wake(&mut self, which: impl Fn(&Connection) -> bool) {
        for connection in self.connections.values_mut().filter(|connection| which(connection)) {
            connection.pipes.iter_mut().for_each(Pipe::wake);
        }
    }

    /// Until when a process cannot reach the server at all.
    fn stalled(&self, process: usize) -> Option<Instant> {
        let now = Instant::now();
        self.links.get(&process).and_then(|link| link.stalled_until).filter(|until| *until > now)
    }

    fn open(&mut self, process: usize) -> io::Result<u64> {
        if self.down_until.is_some_and(|until| until > Instant::now()) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let id = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(id, Connection::new(process, self.primary));
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
    /// A host is the number of the process behind its name's dot.
    fn connect(&self, host: &str, _: u16) -> Connecting {
        let process: usize = host.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap();
        let shared = self.shared.clone();
        Box::pin(async move {
            loop {
                let stalled = shared.lock().stalled(process);
                let Some(until) = stalled else { break };
                // Woken now and then, because the simulation may heal earlier.
                sleep_until(until.min(Instant::now() + Duration::from_millis(20))).await;
            }
            let arrives = shared.lock().arrives(process);
            sleep(2 * (arrives - Instant::now())).await;
            let id = shared.lock().open(process)?;
            tokio::spawn(serve(shared.clone(), id));
            Ok(Box::new(SimulatedSocket::new(shared, id)) as Box<dyn Socket>)
        })
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().u64(..)
    }
}

/// The policy and the user's key of a main key.
fn read_key(key: &[u8]) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(key).ok()?;
    let (prefix, tag) = text.strip_suffix('}')?.split_once(":{")?;
    let name = prefix.rsplit(':').next()?;
    Some((ROWS.iter().position(|row| row.name == name)?, KEYS.iter().position(|key| *key == tag)?))
}

/// The operations of a call: key, operation, cost and the number of checks; see lua/main.lua.
fn items<'a>(keys: &'a [Vec<u8>], header: &[u8]) -> Vec<(&'a [u8], Operation, u64, u16)> {
    let number = |from: usize, length: usize| {
        header[from..from + length].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    if header[13] == 0 {
        return vec![(&keys[0], Operation::Check, number(14, 5), 1)];
    }
    let operation = |code| match code {
        0 => Operation::Check,
        1 => Operation::Peek,
        2 => Operation::Take,
        3 => Operation::Charge,
        4 => Operation::Refund,
        _ => Operation::Reset,
    };
    let entry = |(place, key): (usize, &'a Vec<u8>)| {
        let at = 24 + 8 * place;
        (key.as_slice(), operation(number(at, 1)), number(at + 1, 5), number(at + 6, 2) as u16)
    };
    keys.iter().enumerate().map(entry).collect()
}

fn action(operation: Operation) -> Action {
    match operation {
        Operation::Check => Action::Check,
        Operation::Peek => Action::Peek,
        Operation::Take => Action::Take,
        Operation::Charge => Action::Charge,
        Operation::Refund => Action::Refund,
        Operation::Reset => Action::Reset,
    }
}
