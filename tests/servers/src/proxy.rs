//! A TCP proxy between a client and a server that injects the faults of a bad network.
//!
//! Every method takes effect before it returns, for open and future connections unless it says otherwise. The proxy buffers
//! delayed bytes, up to 4 MiB a direction of a connection; then it stops reading, and the sender blocks.

mod connection;
mod counters;
mod fault;
mod listener;
mod message;
mod plan;
mod pump;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;

use crate::port::Port;
use crate::wait::until;
use counters::Counters;
use fault::Armed;
use plan::{Plan, Run};

pub use fault::{Direction, Fault};

const BOUND: Duration = Duration::from_secs(5);

/// A proxy to one server, on a port of its own. Dropping it closes all its connections.
#[derive(Debug)]
pub struct FaultProxy {
    port: Port,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the test's thread and the proxy's share.
#[derive(Debug)]
struct Shared {
    plan: watch::Sender<Plan>,
    armed: Armed,
    counters: Counters,
    seed: u64,
}

impl FaultProxy {
    /// Starts a proxy that forwards to `upstream`. If nothing listens there, it resets new connections.
    pub fn start(upstream: SocketAddr) -> Self {
        Self::start_seeded(upstream, 1)
    }

    /// As [`start`](Self::start); the jitter of the latency follows from `seed`.
    pub fn start_seeded(upstream: SocketAddr, seed: u64) -> Self {
        let port = Port::reserve();
        let shared = Arc::new(Shared {
            plan: watch::Sender::new(Plan::passing(upstream)),
            armed: Armed::default(),
            counters: Counters::default(),
            seed,
        });
        let (inner, address) = (Arc::clone(&shared), port.address());
        let thread = thread::Builder::new().name("fault-proxy".into());
        let thread = thread.spawn(move || listener::run(&inner, address)).expect("a thread");
        until("the proxy listens", BOUND, || shared.counters.is_listening().then_some(()));
        Self { port, shared, thread: Some(thread) }
    }

    /// The port to connect to, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// 127.0.0.1 and the port.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Forwards without faults again: ends latency, limits, stalls and refusal, and disarms faults. Half-open connections
    /// stay half-open.
    pub fn pass(&self) {
        self.shared.armed.clear();
        self.change(Plan::pass);
        self.await_listening(true);
    }

    /// Connects new connections to another server. Open ones stay.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.change(|plan| plan.upstream = upstream);
    }

    /// Delays bytes from now on by `latency` and up to `jitter` more, in each direction and in order, with a resolution of a
    /// millisecond.
    pub fn set_latency(&self, latency: Duration, jitter: Duration) {
        self.change(|plan| (plan.latency, plan.jitter) = (latency, jitter));
    }

    /// Forwards this many bytes a second in each direction of each connection.
    pub fn set_bandwidth(&self, bytes_per_second: Option<u32>) {
        self.change(|plan| plan.bandwidth = bytes_per_second);
    }

    /// While stalled, the proxy accepts and reads, and delivers nothing in either direction. Then it delivers everything.
    pub fn set_stalled(&self, stalled: bool) {
        self.change(|plan| plan.stalled = [stalled; 2]);
    }

    /// As [`set_stalled`](Self::set_stalled), for one direction.
    pub fn set_stalled_direction(&self, direction: Direction, stalled: bool) {
        self.change(|plan| plan.stalled[direction.index()] = stalled);
    }

    /// While refusing, the proxy does not listen. Open connections stay.
    pub fn set_refusing(&self, refusing: bool) {
        self.change(|plan| plan.refusing = refusing);
        self.await_listening(!refusing);
    }

    /// Makes the open connections half-open for good: bytes are lost, and neither side learns that the other one has ended. New
    /// connections are forwarded.
    pub fn half_open(&self) {
        let last = self.shared.counters.connections();
        self.change(|plan| plan.half_open_to = last);
    }

    /// Closes the open connections (FIN).
    pub fn cut(&self) {
        let last = self.shared.counters.connections();
        self.change(|plan| plan.cut_to = last);
        self.await_end(last);
    }

    /// Resets the open connections (RST).
    pub fn reset(&self) {
        let last = self.shared.counters.connections();
        self.change(|plan| plan.reset_to = last);
        self.await_end(last);
    }

    /// Arms a fault that is triggered once, on the first connection that forwards `n` more bytes in this direction from now
    /// on. It replaces an armed fault of this direction.
    pub fn after(&self, direction: Direction, n: u64, fault: Fault) {
        self.shared.armed.set(direction, n, fault);
    }

    /// Sends the next complete reply (RESP) of any connection twice.
    pub fn duplicate_reply(&self) {
        self.shared.armed.set_duplicate();
    }

    /// How many armed faults have been triggered.
    pub fn triggered_faults(&self) -> u64 {
        self.shared.armed.triggered()
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> u64 {
        self.shared.counters.connections()
    }

    /// How many of them are still open.
    pub fn open_connections(&self) -> usize {
        self.shared.counters.open()
    }

    /// How many bytes were read from the sender of this direction.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.shared.counters.bytes(direction)
    }

    /// How many commands of this name passed, such as `EVALSHA`, in any case. Nothing is counted inside TLS.
    pub fn commands(&self, name: &str) -> u64 {
        self.shared.counters.commands(name)
    }

    /// How many commands passed.
    pub fn all_commands(&self) -> u64 {
        self.shared.counters.all_commands()
    }

    /// Records the bytes that clients send from now on. They stay in memory.
    pub fn record_requests(&self) {
        self.shared.counters.record_requests();
    }

    /// Ends the recording. Returns the bytes that each connection has sent, by the number of the connection.
    pub fn take_requests(&self) -> BTreeMap<u64, Vec<u8>> {
        self.shared.counters.take_requests()
    }

    fn change(&self, change: impl FnOnce(&mut Plan)) {
        self.shared.plan.send_modify(change);
    }

    fn await_listening(&self, listening: bool) {
        until("the proxy's listener follows", BOUND, || {
            (self.shared.counters.is_listening() == listening).then_some(())
        });
    }

    fn await_end(&self, last: u64) {
        until("the connections end", BOUND, || (!self.shared.counters.is_open_to(last)).then_some(()));
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.change(|plan| plan.run = Run::Ending);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
