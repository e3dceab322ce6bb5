//! Signals: the end, and files that are read again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::ServeError;
use crate::log::LogRecord;
use crate::server::Server;

/// The signals of the process, from when this was made: one that comes before the server runs is not lost, and does not end the process.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Takes the signals. Only in a tokio runtime.
    ///
    /// # Errors
    /// When the system does not let the process handle signals.
    pub fn new() -> Result<Self, ServeError> {
        let handler = |kind| {
            signal(kind).map_err(|error| ServeError::new(format!("signals cannot be handled: {error}")))
        };
        Ok(Self {
            terminate: handler(SignalKind::terminate())?,
            interrupt: handler(SignalKind::interrupt())?,
            hang_up: handler(SignalKind::hangup())?,
        })
    }

    /// Runs a server until the process gets SIGTERM or SIGINT; SIGHUP reads tokens and certificates again. Returns whether every
    /// connection has ended by itself.
    pub async fn run(self, server: Server) -> bool {
        let Self { mut terminate, mut interrupt, mut hang_up } = self;
        let handle = server.handle();
        let signals = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    _ = hang_up.recv() => match handle.reload() {
                        Ok(()) => {
                            handle.log(&LogRecord::info("reloaded", "tokens and certificates were read again"));
                            handle.read_store_login();
                            if let Some(error) = handle.configuration_error() {
                                let message = format!("the previous document stays active: {error}");
                                handle.log(&LogRecord::warn("document_refused", message));
                            }
                        }
                        Err(error) => {
                            handle.log(&LogRecord::error("reload_refused", format!("nothing has changed: {error}")));
                        }
                    },
                }
            }
            handle.log(&LogRecord::info("stopping", "the server stops"));
            handle.stop();
        });
        let drained = server.run().await;
        signals.abort();
        drained
    }
}
