//! A store of polylimit in SQLite: limits that survive restarts, shared by the processes of one host, without a server.
//!
//! ```
//! use polylimit::{Limiter, Policy};
//! use polylimit_example_store_sqlite::SqliteStore;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("limits.db");
//! let limiter = Limiter::builder()
//!     .custom_store(SqliteStore::open(path)?)
//!     .policy(Policy::parse("api", "100/minute")?)
//!     .build()?
//!     .blocking();
//! assert_eq!(limiter.check("user:42")?.remaining(), 99);
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylimit::storage::{Change, Decide, Store, StoreError, Update};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// How long a transaction waits for others; then the outage policy answers.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
/// How many expired states a transaction removes at most, so that none takes long and none are left.
const REMOVED_AT_A_TIME: u32 = 4;

/// States in a file of SQLite.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    /// `None` until the first transaction, and after a failure to open the file.
    connection: Mutex<Option<Connection>>,
}

impl SqliteStore {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// Those of SQLite, such as for a directory that does not exist.
    pub fn open(path: impl Into<PathBuf>) -> rusqlite::Result<Self> {
        let path = path.into();
        let connection = Mutex::new(Some(connect(&path)?));
        Ok(Self { path, connection })
    }

    fn transact(&self, names: &[Vec<u8>], decide: Decide<'_>) -> rusqlite::Result<()> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match connection.take() {
            Some(open) => open,
            None => connect(&self.path)?,
        };
        let open = connection.insert(open);
        // The lock is acquired before the states are read, so that no transaction has to be repeated.
        let transaction = open.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let states = names.iter().map(|name| read(&transaction, name)).collect::<Result<Vec<_>, _>>()?;
        for (name, change) in names.iter().zip(decide(&states)) {
            write(&transaction, name, change)?;
        }
        remove_expired(&transaction)?;
        transaction.commit()
    }
}

impl Store for SqliteStore {
    fn place(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    /// Blocks this thread for some microseconds, or for the busy timeout while another process writes for as long.
    fn update<'a>(&'a self, names: &'a [Vec<u8>], decide: Decide<'a>) -> Update<'a> {
        Box::pin(async move { self.transact(names, decide).map_err(StoreError::from) })
    }

    /// A connection must not be carried into another process: the child opens its own with its first transaction.
    fn after_fork(&self) -> Arc<dyn Store> {
        Arc::new(Self { path: self.path.clone(), connection: Mutex::new(None) })
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // A crash of the process loses nothing; one of the system may lose the newest decisions.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS states (
             name BLOB PRIMARY KEY, state BLOB NOT NULL, until_us INTEGER NOT NULL
         ) STRICT, WITHOUT ROWID;
         CREATE INDEX IF NOT EXISTS states_until ON states (until_us);",
    )?;
    Ok(connection)
}

fn read(transaction: &Transaction<'_>, name: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut select = transaction.prepare_cached("SELECT state FROM states WHERE name = ?1")?;
    select.query_row([name], |row| row.get(0)).optional()
}

fn write(transaction: &Transaction<'_>, name: &[u8], change: Change) -> rusqlite::Result<()> {
    match change {
        Change::Keep => {}
        Change::Put { state, until_us } => {
            let mut replace = transaction
                .prepare_cached("REPLACE INTO states (name, state, until_us) VALUES (?1, ?2, ?3)")?;
            replace.execute((name, state, i64::try_from(until_us).unwrap_or(i64::MAX)))?;
        }
        Change::Remove => {
            transaction.prepare_cached("DELETE FROM states WHERE name = ?1")?.execute([name])?;
        }
    }
    Ok(())
}

fn remove_expired(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    let mut remove = transaction.prepare_cached(
        "DELETE FROM states WHERE name IN (SELECT name FROM states WHERE until_us <= ?1 LIMIT ?2)",
    )?;
    remove.execute((now_us, REMOVED_AT_A_TIME))?;
    Ok(())
}
