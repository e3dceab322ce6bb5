//! Signals: the end, and files that are read again.

use crate::error::ServeError;
use crate::log::LogRecord;
use crate::server::Server;

/// The signals of the process, from when this was made: one that comes before the server runs is not lost, and does not end the process.
pub struct Signals(system::Signals);

/// What a signal asks for.
enum Asked {
    Stop,
    #[cfg_attr(not(unix), expect(dead_code, reason = "other systems have no signal for it"))]
    Reload,
}

impl Signals {
    /// Takes the signals. Only in a tokio runtime.
    ///
    /// # Errors
    /// When the system does not let the process handle signals.
    pub fn new() -> Result<Self, ServeError> {
        let taken = system::Signals::new();
        taken.map(Self).map_err(|error| ServeError::new(format!("signals cannot be handled: {error}")))
    }

    /// Runs a server until the process gets SIGTERM or SIGINT, or on Windows is asked to end; SIGHUP reads tokens and certificates again.
    /// Returns whether every connection has ended by itself.
    pub async fn run(self, server: Server) -> bool {
        let Self(mut signals) = self;
        let handle = server.handle();
        let signals = tokio::spawn(async move {
            while let Asked::Reload = signals.next().await {
                match handle.reload() {
                    Ok(()) => {
                        handle.log(&LogRecord::info("reloaded", "tokens and certificates were read again"));
                        handle.read_store_login();
                        if let Some(error) = handle.configuration_error() {
                            let message = format!("the previous document stays active: {error}");
                            handle.log(&LogRecord::warn("document_refused", message));
                        }
                    }
                    Err(error) => {
                        handle.log(&LogRecord::error(
                            "reload_refused",
                            format!("nothing has changed: {error}"),
                        ));
                    }
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

#[cfg(unix)]
mod system {
    use std::io;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    use super::Asked;

    pub(super) struct Signals {
        terminate: Signal,
        interrupt: Signal,
        hang_up: Signal,
    }

    impl Signals {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hang_up: signal(SignalKind::hangup())?,
            })
        }

        pub(super) async fn next(&mut self) -> Asked {
            tokio::select! {
                _ = self.terminate.recv() => Asked::Stop,
                _ = self.interrupt.recv() => Asked::Stop,
                _ = self.hang_up.recv() => Asked::Reload,
            }
        }
    }
}

#[cfg(windows)]
mod system {
    use std::io;

    use tokio::signal::windows::{
        CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
    };

    use super::Asked;

    /// Windows has no signal that asks a program to read its files again.
    pub(super) struct Signals {
        interrupt: CtrlC,
        stop: CtrlBreak,
        close: CtrlClose,
        shutdown: CtrlShutdown,
    }

    impl Signals {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self {
                interrupt: ctrl_c()?,
                stop: ctrl_break()?,
                close: ctrl_close()?,
                shutdown: ctrl_shutdown()?,
            })
        }

        pub(super) async fn next(&mut self) -> Asked {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.stop.recv() => {}
                _ = self.close.recv() => {}
                _ = self.shutdown.recv() => {}
            }
            Asked::Stop
        }
    }
}
