//! The interface of stores outside this crate.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Keeps the states of keys. Implement it for a store that this crate does not provide, and pass it to
/// [`LimiterBuilder::custom_store`](crate::LimiterBuilder::custom_store). The limiter makes all decisions; the store only reads and writes
/// bytes in transactions. [`contract`](crate::storage::contract) tests an implementation.
///
/// The limiter decides by its own clock, so processes that share a store need clocks that agree, such as that of one host.
///
/// While a transaction fails, the [outage policy](crate::LimiterBuilder::outage) of each policy answers; the default is
/// [`Outage::Fallback`](crate::storage::Outage::Fallback). Keys cannot be listed, and nothing is leased.
///
/// `examples/store-sqlite` keeps the states in SQLite.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The location of the states, for operators, without credentials, such as `sqlite:/var/lib/limits.db`.
    fn place(&self) -> String;

    /// Changes states in one transaction: reads the states with these names, in order, passes them to `decide` with `None` for a name that
    /// has no state, and applies the changes that it returns, one for each name.
    ///
    /// All names are different. A name has 1 to 2^20 + 66 bytes of any value, and a state at most a few MiB.
    ///
    /// - No other transaction changes one of these states between the read and the changes, and none sees only a part of the changes.
    /// - A transaction that conflicts with others may be repeated: `decide` gets the states of the newest attempt each time, and the
    ///   changes of the last one are applied.
    /// - It must end in time, with an error if necessary, since the limiter's caller waits for it: set a timeout for a busy database.
    /// - After an error nothing may have changed. If that is not known, as after a lost connection, return an error as well.
    /// - It may block the thread for as long as other calls of the program may, which is microseconds on an event loop. A longer
    ///   transaction runs on its own thread or connection, and the returned future waits for it.
    /// - A caller that stops waiting drops the future. The transaction is then applied as a whole or not at all.
    fn update<'a>(&'a self, names: &'a [Vec<u8>], decide: Decide<'a>) -> Update<'a>;

    /// The same store for a process forked from this one, which must not use this process's open files or connections. The limiter calls it
    /// in the child, before its first operation.
    fn after_fork(&self) -> Arc<dyn Store>;
}

/// Decides how states change.
pub type Decide<'a> = &'a mut (dyn FnMut(&[Option<Vec<u8>>]) -> Vec<Change> + Send);

/// A transaction, which runs when it is polled.
pub type Update<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Why a transaction failed.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// The change of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The state is unchanged.
    Keep,
    /// The state is added or replaced.
    Put {
        /// The new state.
        state: Vec<u8>,
        /// When the state expires, in microseconds since the Unix epoch by the system's clock. From then on the state means the same as
        /// none: the store may remove it, but need not. `u64::MAX` is never, as with a [`ManualClock`](crate::clock::ManualClock).
        until_us: u64,
    },
    /// The state is removed, if it exists.
    Remove,
}
