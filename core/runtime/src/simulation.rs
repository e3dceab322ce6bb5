//! Takes the place of sockets, randomness and threads, for the limiters of one thread; only for tests of this repository.
//!
//! While a thread has [entered](enter) a simulation inside a tokio runtime whose time is paused, its limiters open connections
//! through the [`Machine`], draw random numbers from it, run background tasks on that runtime instead of threads of their own, and
//! the processor's counter follows the runtime's time. With the same machine a limiter then does the same in every run.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::hash::BuildHasher;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use foldhash::fast::{self, FixedState, FoldHasher};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::monotonic;

/// The future connection to a server.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Socket>>> + Send>>;

/// What limiters use of the machine.
pub trait Machine {
    /// Opens a connection to a port of a host.
    fn connect(&self, host: &str, port: u16) -> Connecting;

    /// 64 random bits.
    fn random(&self) -> u64;
}

/// An open connection.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send + Sync + fmt::Debug {
    /// Whether there is input, or the server has closed its side.
    fn has_input_or_end(&self) -> bool;

    /// Reads input that has arrived.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when there is none; others when the connection is broken.
    fn read_arrived(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Makes the connection send a reset when it is dropped.
    fn reset_when_closed(&self);
}

thread_local! {
    static MACHINE: RefCell<Option<Rc<dyn Machine>>> = const { RefCell::new(None) };
}

/// Ends the simulation of this thread when it is dropped.
#[derive(Debug)]
#[must_use = "the simulation ends when this is dropped"]
pub struct Entered(());

/// Starts the simulation of this thread, which runs a runtime with paused time.
pub fn enter(machine: Rc<dyn Machine>) -> Entered {
    MACHINE.set(Some(machine));
    monotonic::follow_paused_time(true);
    Entered(())
}

impl Drop for Entered {
    fn drop(&mut self) {
        MACHINE.set(None);
        monotonic::follow_paused_time(false);
    }
}

fn machine() -> Option<Rc<dyn Machine>> {
    MACHINE.with_borrow(Clone::clone)
}

/// Whether this thread simulates.
pub(crate) fn is_active() -> bool {
    MACHINE.with_borrow(Option::is_some)
}

/// Opens a connection; `None` on a thread that does not simulate.
pub fn connect(host: &str, port: u16) -> Option<Connecting> {
    machine().map(|machine| machine.connect(host, port))
}

/// 64 random bits; `None` on a thread that does not simulate.
pub(crate) fn random() -> Option<u64> {
    machine().map(|machine| machine.random())
}

/// The state of hash tables whose collisions can be seen from outside, in place of foldhash's: random, or by the machine's numbers.
#[derive(Clone, Debug)]
pub enum RandomState {
    Random(fast::RandomState),
    Simulated(FixedState),
}

impl Default for RandomState {
    fn default() -> Self {
        random().map_or_else(
            || Self::Random(fast::RandomState::default()),
            |seed| Self::Simulated(FixedState::with_seed(seed)),
        )
    }
}

impl BuildHasher for RandomState {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        match self {
            Self::Random(state) => state.build_hasher(),
            Self::Simulated(state) => state.build_hasher(),
        }
    }
}
