//! What is said first on a connection: who we are, which database, and what time it is there. One round trip.

use std::time::Instant;

use crate::rules::decision::Degradation;
use crate::store::redis::config::target::Credentials;
use crate::store::redis::transport::connect::Connector;
use crate::store::redis::transport::failure::UNREACHABLE;
use crate::store::redis::transport::failure::{Failure, Refusal};
use crate::store::redis::transport::resp::Value;
use crate::store::redis::transport::server_time::ServerTime;
use crate::store::redis::transport::session::Session;
use crate::store::redis::transport::stream::Stream;

/// What a reply is to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HandshakeStep {
    Needed,
    /// A name for operators to see; a user without the right to give one does without.
    Name,
    Time,
}

impl Connector {
    pub(crate) async fn greet(&self, stream: Stream, time: &ServerTime) -> Result<Stream, Failure> {
        let credentials = self.credentials.load_full();
        let database = self.database.to_string();
        let mut commands: Vec<Vec<&[u8]>> = Vec::new();
        let mut said = Vec::new();
        if let Some(credentials) = &credentials {
            commands.push(auth(credentials));
            said.push(HandshakeStep::Needed);
        }
        if self.database != 0 {
            commands.push(vec![b"SELECT", database.as_bytes()]);
            said.push(HandshakeStep::Needed);
        }
        if !self.client_name.is_empty() {
            commands.push(vec![b"CLIENT", b"SETNAME", self.client_name.as_bytes()]);
            said.push(HandshakeStep::Name);
        }
        commands.push(vec![b"TIME"]);
        said.push(HandshakeStep::Time);
        let commands: Vec<&[&[u8]]> = commands.iter().map(Vec::as_slice).collect();
        let sent = Instant::now();
        let mut session = Session::new(stream);
        session.send(&commands).await.map_err(|_| UNREACHABLE)?;
        for said in said {
            match session.reply().await.map_err(|_| UNREACHABLE)? {
                Value::Error(line) => {
                    let failure = refused(&Refusal::read(line));
                    if said != HandshakeStep::Name || failure.reason == Degradation::MaxClients {
                        return Err(failure);
                    }
                }
                reply if said == HandshakeStep::Time => {
                    let server_us = server_us(&reply).ok_or(Failure::not_applied(Degradation::Protocol))?;
                    time.learn(server_us, sent, Instant::now());
                }
                _ => {}
            }
        }
        Ok(session.into_stream())
    }
}

/// The words of an `AUTH` command.
pub(crate) fn auth(credentials: &Credentials) -> Vec<&[u8]> {
    let mut words: Vec<&[u8]> = vec![b"AUTH"];
    words.extend(credentials.username.as_ref().map(|username| username.reveal().as_bytes()));
    words.push(credentials.password.reveal().as_bytes());
    words
}

/// Nothing that is said first can be sent elsewhere.
fn refused(refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::Failed(failure) => *failure,
        Refusal::ReadOnly => Failure::not_applied(Degradation::ReadOnly),
        Refusal::NoScript | Refusal::Moved { .. } | Refusal::Ask { .. } | Refusal::TryAgain => {
            Failure::not_applied(Degradation::Protocol)
        }
    }
}

/// The time in a reply to `TIME`.
pub(crate) fn server_us(reply: &Value<'_>) -> Option<u64> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Bulk(seconds), Value::Bulk(micros)] = parts.as_slice() else { return None };
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}
