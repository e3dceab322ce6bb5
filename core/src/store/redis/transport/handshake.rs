//! The first commands on a connection: authentication, connection name, database and server time, in one round trip.

use redis::{Cmd, RedisError, Value};

use crate::rules::decision::Degradation;
use crate::runtime::monotonic;
use crate::store::redis::config::secret::Secret;
use crate::store::redis::config::target::Credentials;
use crate::store::redis::transport::connect::Connector;
use crate::store::redis::transport::failure::UNREACHABLE;
use crate::store::redis::transport::failure::{Failure, Refusal};
use crate::store::redis::transport::server_time::ServerTime;
use crate::store::redis::transport::session::Session;
use crate::store::redis::transport::stream::Stream;

/// The command that a reply belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HandshakeStep {
    Needed,
    /// The connection name is for operators; a user without the permission to set it connects without one.
    Name,
}

impl Connector {
    pub(crate) async fn greet(&self, stream: Stream, time: &ServerTime) -> Result<Stream, Failure> {
        let credentials = self.credentials.load_full();
        let mut commands = redis::pipe();
        let mut steps = Vec::new();
        if let Some(credentials) = &credentials {
            commands.add_command(auth(credentials));
            steps.push(HandshakeStep::Needed);
        }
        if self.database != 0 {
            commands.cmd("SELECT").arg(self.database);
            steps.push(HandshakeStep::Needed);
        }
        if !self.client_name.is_empty() {
            commands.cmd("CLIENT").arg("SETNAME").arg(&*self.client_name);
            steps.push(HandshakeStep::Name);
        }
        commands.cmd("TIME");
        let sent = monotonic::now();
        let mut session = Session::new(stream);
        session.send(&commands.get_packed_pipeline()).await.map_err(|_| UNREACHABLE)?;
        for step in steps {
            if let Err(error) = session.reply::<Value>().await {
                let failure = refused(&error);
                let is_optional = step == HandshakeStep::Name && error.code().is_some();
                if !is_optional || failure.reason == Degradation::MaxClients {
                    return Err(failure);
                }
            }
        }
        let server_us = session.reply().await.map_err(|error| refused(&error)).map(server_us)?;
        time.learn(server_us.ok_or(PROTOCOL)?, sent, monotonic::now());
        Ok(session.into_stream())
    }
}

/// The `AUTH` command. It must not be logged: the redis crate's `Debug` output of a command contains the password.
pub(crate) fn auth(credentials: &Credentials) -> Cmd {
    let mut command = redis::cmd("AUTH");
    command.arg(credentials.username.as_ref().map(Secret::reveal)).arg(credentials.password.reveal());
    command
}

const PROTOCOL: Failure = Failure::not_applied(Degradation::Protocol);

/// Redirections do not apply to the commands of a handshake.
fn refused(error: &RedisError) -> Failure {
    if error.code().is_none() {
        return if error.is_io_error() { UNREACHABLE } else { PROTOCOL };
    }
    match Refusal::read(error) {
        Refusal::Failed(failure) => failure,
        Refusal::ReadOnly => Failure::not_applied(Degradation::ReadOnly),
        Refusal::NoScript | Refusal::Moved { .. } | Refusal::Ask { .. } | Refusal::TryAgain => PROTOCOL,
    }
}

/// Parses the reply to `TIME`: seconds and microseconds.
pub(crate) fn server_us((seconds, micros): (u64, u64)) -> Option<u64> {
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}
