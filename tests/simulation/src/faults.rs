//! Faults of a schedule, as they change the world.

use std::time::Duration;

use tokio::time::Instant;

use crate::database::Database;
use crate::ledger::Event;
use crate::link::{Link, ReplyFault};
use crate::network::{Connection, Ending, Pipe, Side};
use crate::schedule::{FAULTS_LAST, Fault};
use crate::world::{Server, World};

impl World {
    /// What a fault may make a limiter say.
    pub(crate) fn may_say(&mut self, reasons: &[&'static str]) {
        self.ledger.reasons.extend(reasons);
    }

    /// Injects a fault; `processes` are the numbers of the processes that are alive.
    pub fn inject(&mut self, fault: Fault, processes: &[usize]) {
        let now = Instant::now();
        // A slot that moves is no reason for an outage.
        if !matches!(fault, Fault::MoveSlot { .. }) {
            self.may_say(&["timeout", "late", "unreachable", "connection_lost"]);
            if self.cluster.is_some() {
                self.may_say(&["cluster_down"]);
            }
        }
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
            Fault::FlushScripts => self.servers.iter_mut().for_each(|server| server.scripts.clear()),
            Fault::Failover { lost_writes, clock_us } => self.fail_over(lost_writes, clock_us),
            Fault::StepClock { us } => self.step(self.owner_of(0), us),
            Fault::Refuse { error, lasts } => {
                self.may_say(&["loading", "busy", "out_of_memory", "misconfigured", "no_replicas"]);
                self.refuses = Some((error.text(), now + lasts));
            }
            Fault::Kill { process } => self.kill(processes[process]),
            Fault::MoveSlot { key, lasts } => self.move_slot(key, lasts),
            Fault::KillNode { key, lost_writes, lasts } => self.kill_node(key, lost_writes, lasts),
        }
    }

    /// A process dies: its connections end at both ends with everything on its way, it writes no more and opens no other.
    fn kill(&mut self, process: usize) {
        let now = Instant::now();
        self.dead.insert(process);
        self.ledger.die(process);
        for connection in self.connections.values_mut().filter(|connection| connection.process == process) {
            connection.pipes.iter_mut().for_each(|pipe| pipe.reset(now));
        }
    }

    fn step(&mut self, server: usize, us: i64) {
        self.servers[server].clock_us += us;
        if us != 0 {
            self.ledger.event(self.place(server), Event::Step(us));
        }
    }

    fn restart(&mut self, until: Instant, keeps_data: bool) {
        let at = self.owner_of(0);
        let server = &mut self.servers[at];
        server.down_until = Some(until);
        server.scripts.clear();
        server.before.clear();
        if !keeps_data {
            server.database = Database::default();
            self.ledger.event(self.place(at), Event::Loss);
        }
        self.reset_connections(at);
    }

    /// The connections of a server end, because it has.
    pub(crate) fn reset_connections(&mut self, server: usize) {
        let now = Instant::now();
        for connection in self.connections.values_mut().filter(|connection| connection.server == server) {
            connection.pipes[Side::Server as usize].end(now, Ending::Reset);
            let ending = if self.random.bool() { Ending::Reset } else { Ending::Closed };
            connection.pipes[Side::Client as usize].end(now, ending);
        }
    }

    fn fail_over(&mut self, lost_writes: usize, clock_us: i64) {
        self.may_say(&["read_only"]);
        self.finish_migration();
        let old = self.owner_of(0);
        self.servers[old].is_replica = true;
        let new = self.replace(old, lost_writes);
        self.step(new, clock_us);
    }

    /// A replica that lacks the last writes takes the place of a server. Returns its number.
    pub(crate) fn replace(&mut self, old: usize, lost_writes: usize) -> usize {
        let Server { database, before, clock_us, .. } = &self.servers[old];
        let mut new = Server { clock_us: *clock_us, database: database.clone(), ..Server::default() };
        if lost_writes > 0 {
            let kept = before.len().saturating_sub(lost_writes);
            new.database = before.get(kept).cloned().unwrap_or_default();
            self.ledger.event(self.place(old), Event::Loss);
        }
        self.servers.push(new);
        self.primary = self.servers.len() - 1;
        if let Some(cluster) = &mut self.cluster {
            cluster.replace(old, self.primary);
        }
        self.primary
    }

    /// Ends every fault that lasts.
    pub fn heal(&mut self) {
        for link in self.links.values_mut() {
            *link = Link::default();
        }
        self.finish_migration();
        self.promote(Instant::now() + FAULTS_LAST);
        self.servers.iter_mut().for_each(|server| server.down_until = None);
        (self.stopped_until, self.refuses) = (None, None);
        self.wake(|_| true);
    }

    fn wake(&mut self, which: impl Fn(&Connection) -> bool) {
        for connection in self.connections.values_mut().filter(|connection| which(connection)) {
            connection.pipes.iter_mut().for_each(Pipe::wake);
        }
    }
}
