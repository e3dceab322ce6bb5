//! The interface of stores outside this crate.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Keeps the states of keys. Implement it for a store that this crate does not provide, and pass it to
/// `LimiterBuilder::custom_store`. The limiter makes all decisions; the store only reads and writes
/// bytes in transactions. `contract` tests an implementation.
///
/// The limiter decides by its own clock, so processes that share a store need clocks that agree, such as that of one host.
///
/// While a transaction fails, the outage policy of each policy answers; the default is
/// `Outage::Fallback`. Keys cannot be listed, and nothing is leased.
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
        /// none: the store may remove it, but need not. `u64::MAX` is never, as with a `ManualClock`.
        until_us: u64,
    },
    /// The state is removed, if it exists.
    Remove,
}

/// Keeps a configuration: a policy document, its entries and their history. Implement it for a place that this crate does not provide, such
/// as a database or a key-value store, and pass it to
/// `LimiterBuilder::configuration_store`. The limiter reads and writes the content; the store
/// keeps it as bytes with a version. `configuration_contract` tests an implementation.
///
/// A limiter with a `custom_store` needs none: with `configuration("store")` it keeps its
/// configuration next to the states.
///
/// While the store fails, the last configuration stays active, and `configuration` has the error.
pub trait ConfigurationStore: fmt::Debug + Send + Sync + 'static {
    /// The location of the configuration, for operators, without credentials.
    fn place(&self) -> String;

    /// Returns the newest configuration, or `None` if its version is `known`. Where there is none yet, that is version 0 without content.
    ///
    /// Each process calls it twice a second, so it should be cheap for the version that is known. It may block the thread, which is one of
    /// the limiter's own.
    fn load(&self, known: u64) -> Load<'_>;

    /// Stores the next configuration if the version there is the expected one, and returns whether it was. The check and the change are
    /// one step: of several callers that expect the same version, one succeeds.
    ///
    /// After an error the configuration may have been replaced or not.
    fn replace<'a>(&'a self, expected: u64, next: &'a StoredConfiguration) -> Replace<'a>;

    /// The same store for a process forked from this one, as [`Store::after_fork`].
    fn after_fork(&self) -> Arc<dyn ConfigurationStore>;
}

/// A configuration as a [`ConfigurationStore`] keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredConfiguration {
    /// The number of changes so far; 0 before the first.
    pub version: u64,
    /// Any bytes, usually some KiB, at most about 300 MiB: a document has up to 1 MiB, and 100,000 entries up to 256 MiB together.
    pub content: Vec<u8>,
}

/// A configuration that is being loaded.
pub type Load<'a> =
    Pin<Box<dyn Future<Output = Result<Option<StoredConfiguration>, StoreError>> + Send + 'a>>;

/// A configuration that is being replaced.
pub type Replace<'a> = Pin<Box<dyn Future<Output = Result<bool, StoreError>> + Send + 'a>>;
