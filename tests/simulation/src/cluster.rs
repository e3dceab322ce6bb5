//! A cluster: the owners of slots, a slot that moves while it is used, and a node that dies until its replica is promoted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::database::Reply;
use crate::ledger::Event;
use crate::policies::KEYS;
use crate::world::World;

const SLOTS: u16 = 16_384;
/// The port of the first node; the others follow.
pub(crate) const FIRST_PORT: u16 = 7_000;
/// One call in this number of moves a key of the slot that is moving.
const CALLS_A_KEY: u32 = 4;

/// What the nodes of a cluster know; all of them know it at once.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The first slot of each range, with the server that owns the range.
    ranges: BTreeMap<u16, usize>,
    migration: Option<Migration>,
    killed: Option<Killed>,
}

/// A slot on its way from one server to another.
#[derive(Clone, Copy, Debug)]
struct Migration {
    slot: u16,
    from: usize,
    to: usize,
    until: Instant,
}

/// A server that has died. The others refuse everything until its replica is promoted.
#[derive(Clone, Copy, Debug)]
struct Killed {
    server: usize,
    lost_writes: usize,
    promoted_at: Instant,
}

impl Cluster {
    /// A cluster of this number of servers, which share the slots evenly.
    pub(crate) fn new(nodes: usize) -> Self {
        let first = |node: usize| u16::try_from(node * usize::from(SLOTS) / nodes).unwrap_or(0);
        Self { ranges: (0..nodes).map(|node| (first(node), node)).collect(), migration: None, killed: None }
    }

    fn owner(&self, slot: u16) -> usize {
        self.ranges.range(..=slot).next_back().map_or(0, |(_, owner)| *owner)
    }

    fn give(&mut self, slot: u16, to: usize) {
        let was = self.owner(slot);
        if slot + 1 < SLOTS {
            self.ranges.entry(slot + 1).or_insert(was);
        }
        self.ranges.insert(slot, to);
    }

    /// Another server takes all slots of one.
    pub(crate) fn replace(&mut self, old: usize, new: usize) {
        self.ranges.values_mut().filter(|owner| **owner == old).for_each(|owner| *owner = new);
    }

    /// The reply to `CLUSTER SLOTS`. A node leaves out its host, which is that of the node that was asked.
    pub(crate) fn slots(&self) -> Reply {
        let ends = self.ranges.keys().skip(1).map(|first| first - 1).chain([SLOTS - 1]);
        let range = |((first, owner), last): ((&u16, &usize), u16)| {
            let node = Reply::Array(vec![Reply::Bulk(Vec::new()), Reply::Int(port(*owner).into())]);
            Reply::Array(vec![Reply::Int((*first).into()), Reply::Int(last.into()), node])
        };
        Reply::Array(self.ranges.iter().zip(ends).map(range).collect())
    }
}

/// The port of a server.
pub(crate) fn port(server: usize) -> u16 {
    FIRST_PORT + u16::try_from(server).unwrap_or(0)
}

/// The slot of a key: the CRC16 (XMODEM) of its hash tag, which every key of the limiter has.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.split(|byte| *byte == b'{').nth(1).and_then(|rest| rest.split(|byte| *byte == b'}').next());
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| crc << 1 ^ if crc >> 15 == 1 { 0x1021 } else { 0 })
    });
    crc % SLOTS
}

impl World {
    /// The server of a call's keys, by which faults choose one.
    pub(crate) fn owner_of(&self, key: usize) -> usize {
        self.cluster.as_ref().map_or(self.primary, |cluster| cluster.owner(slot(KEYS[key].as_bytes())))
    }

    /// Why a server does not run a call with these keys; nothing if it does, as always without a cluster.
    pub(crate) fn redirection(&mut self, at: usize, keys: &[Vec<u8>], is_asking: bool) -> Option<Reply> {
        let cluster = self.cluster.as_ref()?;
        let slots: BTreeSet<u16> = keys.iter().map(|key| slot(key)).collect();
        let error = |text: String| Some(Reply::Error(text));
        let (Some(slot), 1) = (slots.first().copied(), slots.len()) else {
            self.ledger.violations.push("a call has keys of several slots".into());
            return error("CROSSSLOT Keys in request don't hash to the same slot".into());
        };
        if cluster.killed.is_some() {
            return error("CLUSTERDOWN The cluster is down".into());
        }
        let owner = cluster.owner(slot);
        let migration = cluster.migration.filter(|migration| migration.slot == slot);
        let here = keys.iter().filter(|key| self.servers[at].database.has(key)).count();
        let try_again = || error("TRYAGAIN Multiple keys request during rehashing of slot".into());
        match migration {
            Some(Migration { to, .. }) if to == at && is_asking => {
                if keys.len() > 1 && here < keys.len() {
                    try_again()
                } else {
                    None
                }
            }
            Some(Migration { from, to, .. }) if from == at => {
                if here == keys.len() && self.random.u32(0..CALLS_A_KEY) > 0 {
                    return None;
                }
                if here == keys.len() {
                    self.move_key(&keys[0], from, to);
                }
                if here > 0 && keys.len() > 1 {
                    try_again()
                } else {
                    error(format!("ASK {slot} :{}", port(to)))
                }
            }
            _ if owner == at => None,
            _ => error(format!("MOVED {slot} :{}", port(owner))),
        }
    }

    fn move_key(&mut self, key: &[u8], from: usize, to: usize) {
        if let Some(value) = self.servers[from].database.take(key) {
            self.servers[to].database.put(key, value);
            let step = self.servers[to].clock_us - self.servers[from].clock_us;
            if step != 0 {
                self.ledger.event(to, Event::Step(step));
            }
        }
    }

    /// Begins to move the slot of a key to the next server that owns slots.
    pub(crate) fn move_slot(&mut self, key: usize, lasts: Duration) {
        self.finish_migration();
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| cluster.killed.is_none()) else { return };
        let slot = slot(KEYS[key].as_bytes());
        let from = cluster.owner(slot);
        let owners: BTreeSet<usize> = cluster.ranges.values().copied().collect();
        let next = owners.range(from + 1..).next().or_else(|| owners.first()).copied();
        if let Some(to) = next.filter(|to| *to != from) {
            cluster.migration = Some(Migration { slot, from, to, until: Instant::now() + lasts });
        }
    }

    /// A server dies. A replica without the last writes is promoted after half of the time, and the server comes back after it.
    pub(crate) fn kill_node(&mut self, key: usize, lost_writes: usize, lasts: Duration) {
        self.finish_migration();
        let now = Instant::now();
        self.promote(now + lasts);
        let server = self.owner_of(key);
        let Some(cluster) = &mut self.cluster else { return };
        cluster.killed = Some(Killed { server, lost_writes, promoted_at: now + lasts / 2 });
        self.servers[server].down_until = Some(now + lasts);
        self.reset_connections(server);
    }

    /// Does what is due by now.
    pub(crate) fn advance(&mut self) {
        let now = Instant::now();
        let migration = self.cluster.as_ref().and_then(|cluster| cluster.migration);
        if migration.is_some_and(|migration| migration.until <= now) {
            self.finish_migration();
        }
        self.promote(now);
    }

    /// The slot that is moving moves with all of its keys.
    pub(crate) fn finish_migration(&mut self) {
        let migration = self.cluster.as_mut().and_then(|cluster| cluster.migration.take());
        let Some(Migration { slot: moving, from, to, .. }) = migration else { return };
        for key in self.servers[from].database.keys() {
            if slot(&key) == moving {
                self.move_key(&key, from, to);
            }
        }
        // An earlier state of either server would have the keys twice or not at all.
        self.servers[from].before.clear();
        self.servers[to].before.clear();
        if let Some(cluster) = &mut self.cluster {
            cluster.give(moving, to);
        }
    }

    /// Promotes the replica of a dead server if that is due by then.
    pub(crate) fn promote(&mut self, by: Instant) {
        let Some(cluster) = &mut self.cluster else { return };
        if let Some(killed) = cluster.killed.take_if(|killed| killed.promoted_at <= by) {
            self.replace(killed.server, killed.lost_writes);
            self.servers[killed.server].forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot(b"polylimit:1:api:{user:42}"), 15_880);
        assert_eq!(slot(b"{user1000}.following"), 3_443);
        assert_eq!(slot(b"foo"), 12_182);
    }

    #[test]
    fn slot_with_a_new_owner_splits_its_range() {
        let mut cluster = Cluster::new(2);
        cluster.give(3_300, 1);
        cluster.give(16_383, 0);
        let owners = [0, 3_299, 3_300, 3_301, 8_191, 8_192, 16_382, 16_383].map(|slot| cluster.owner(slot));
        assert_eq!(owners, [0, 0, 1, 0, 0, 1, 1, 0]);
        cluster.replace(0, 2);
        assert_eq!([0, 3_300, 16_383].map(|slot| cluster.owner(slot)), [2, 1, 2]);
    }
}
