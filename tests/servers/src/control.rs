//! The harness's own connection to a server: over its Unix socket and as a user of its own.
//!
//! So it works whatever a test does to the port, the passwords, the certificates and the limit on connections.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Connection, ErrorKind, IntoConnectionInfo, RedisError, RedisResult, Value};

const TIMEOUT: Duration = Duration::from_secs(5);

/// The line of a server's configuration that lets the harness in. Channels of newer servers may follow.
pub(crate) const USER: &str = "user harness on >harness ~* +@all";

pub(crate) struct Control {
    socket: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl Control {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket, connection: Mutex::new(None) }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    /// Sends a command and reads its reply. A connection that turns out to be closed is made anew, once.
    pub(crate) fn send(&self, arguments: &[impl AsRef<[u8]>]) -> RedisResult<Value> {
        let mut command = redis::Cmd::new();
        for argument in arguments {
            command.arg(argument.as_ref());
        }
        let mut connection = self.lock();
        if let Some(open) = connection.as_mut() {
            let reply = command.query::<Value>(open);
            if !reply.as_ref().is_err_and(unusable) {
                return reply;
            }
            *connection = None;
            if !reply.as_ref().is_err_and(RedisError::is_connection_dropped) {
                return reply;
            }
        }
        let mut fresh = self.connect()?;
        let reply = command.query(&mut fresh);
        if !reply.as_ref().is_err_and(unusable) {
            *connection = Some(fresh);
        }
        reply
    }

    fn connect(&self) -> RedisResult<Connection> {
        let url = format!("redis+unix://{}?user=harness&pass=harness", self.socket.display());
        let info = url.into_connection_info()?;
        let connection = redis::Client::open(info)?.get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        Ok(connection)
    }

    // The clean-up must not panic after a test panicked with the lock held.
    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Whether the connection that had this error may still owe us a reply, or is gone.
fn unusable(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.kind() == ErrorKind::Parse
}
