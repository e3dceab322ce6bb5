//! Counters of the connections, bytes and commands that the proxy has forwarded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::fault::Direction;

#[derive(Debug, Default)]
pub(super) struct Counters {
    listening: AtomicBool,
    bytes: [AtomicU64; 2],
    connections: Mutex<Connections>,
    commands: Mutex<HashMap<String, u64>>,
    /// The bytes of the requests of each connection, while they are recorded.
    requests: Mutex<Option<BTreeMap<u64, Vec<u8>>>>,
}

#[derive(Debug, Default)]
struct Connections {
    accepted: u64,
    open: BTreeSet<u64>,
}

impl Counters {
    pub(super) fn set_listening(&self, listening: bool) {
        self.listening.store(listening, SeqCst);
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(SeqCst)
    }

    /// The number of a connection that was accepted.
    pub(super) fn opened(&self) -> u64 {
        let mut connections = self.connections.lock().expect("no panic under the lock");
        connections.accepted += 1;
        let number = connections.accepted;
        connections.open.insert(number);
        number
    }

    pub(super) fn closed(&self, number: u64) {
        self.connections.lock().expect("no panic under the lock").open.remove(&number);
    }

    pub(super) fn connections(&self) -> u64 {
        self.connections.lock().expect("no panic under the lock").accepted
    }

    pub(super) fn open(&self) -> usize {
        self.connections.lock().expect("no panic under the lock").open.len()
    }

    /// Whether a connection up to this number is open.
    pub(super) fn is_open_to(&self, last: u64) -> bool {
        self.connections.lock().expect("no panic under the lock").open.range(..=last).next().is_some()
    }

    pub(super) fn add_bytes(&self, direction: Direction, count: usize) {
        self.bytes[direction.index()].fetch_add(count as u64, SeqCst);
    }

    pub(super) fn bytes(&self, direction: Direction) -> u64 {
        self.bytes[direction.index()].load(SeqCst)
    }

    pub(super) fn add_commands<'a>(&self, names: impl Iterator<Item = &'a [u8]>) {
        let mut commands = self.commands.lock().expect("no panic under the lock");
        for name in names {
            let name = String::from_utf8_lossy(name).to_ascii_uppercase();
            *commands.entry(name).or_default() += 1;
        }
    }

    pub(super) fn record_requests(&self) {
        *self.requests.lock().expect("no panic under the lock") = Some(BTreeMap::new());
    }

    pub(super) fn add_request_bytes(&self, connection: u64, bytes: &[u8]) {
        if let Some(requests) = &mut *self.requests.lock().expect("no panic under the lock") {
            requests.entry(connection).or_default().extend_from_slice(bytes);
        }
    }

    pub(super) fn take_requests(&self) -> BTreeMap<u64, Vec<u8>> {
        self.requests.lock().expect("no panic under the lock").take().unwrap_or_default()
    }

    pub(super) fn commands(&self, name: &str) -> u64 {
        let commands = self.commands.lock().expect("no panic under the lock");
        commands.get(&name.to_ascii_uppercase()).copied().unwrap_or_default()
    }

    pub(super) fn all_commands(&self) -> u64 {
        self.commands.lock().expect("no panic under the lock").values().sum()
    }
}
