//! Asking the sentinels where the primary is.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::greeting::auth;
use super::staggered::staggered;
use super::{Address, Connector, LONGEST_SENTINEL, Session, UNREACHABLE};
use crate::backoff;
use crate::decision::Degradation;
use crate::store::redis::failure::Failure;
use crate::store::redis::resp::Value;
use crate::store::redis::target::Endpoint;

impl Connector {
    /// Where the service's primary is, by the first sentinel that knows. Asked anew for every connection, so a failover
    /// is followed as soon as the old primary refuses or is gone.
    ///
    /// They are asked in order; beside one that takes its time the next is asked, so that some that hang, however many, do
    /// not use up the time that there is to connect.
    pub(super) async fn primary(&self, service: &str, sentinels: &[Endpoint]) -> Result<Endpoint, Failure> {
        staggered(sentinels.iter().map(|sentinel| self.named_by(sentinel, service)).collect()).await
    }

    /// Asks the sentinels about so often, until they name another primary than this one; for ever where there are none.
    /// An old primary that they cannot reach keeps its role and its sockets.
    pub(crate) async fn moved(&self, address: &Address, from: Option<Endpoint>, every: Duration) {
        let (Address::Service { service, sentinels }, Some(from)) = (address, from) else {
            return std::future::pending().await;
        };
        loop {
            sleep(every / 4 * 3 + backoff::part_of(every / 4)).await;
            if self.primary(service, sentinels).await.is_ok_and(|named| named != from) {
                return;
            }
        }
    }

    async fn named_by(&self, sentinel: &Endpoint, service: &str) -> Result<Endpoint, Failure> {
        timeout(LONGEST_SENTINEL, self.ask_sentinel(sentinel, service)).await.unwrap_or(Err(UNREACHABLE))
    }

    async fn ask_sentinel(&self, sentinel: &Endpoint, service: &str) -> Result<Endpoint, Failure> {
        let mut session = Session::new(self.tcp(sentinel).await?);
        if let Some(credentials) = &self.sentinel_credentials {
            let reply = session.ask(&auth(credentials)).await.map_err(|_| UNREACHABLE)?;
            if let Value::Error(_) = reply {
                return Err(Failure::permanent(Degradation::Auth));
            }
        }
        let question: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service.as_bytes()];
        match session.ask(&question).await.map_err(|_| UNREACHABLE)? {
            Value::Array(words) => primary(&words).ok_or(UNREACHABLE),
            Value::Error(line) if line.starts_with("NOAUTH") || line.starts_with("NOPERM") => {
                Err(Failure::permanent(Degradation::Auth))
            }
            // It does not know the service.
            _ => Err(UNREACHABLE),
        }
    }
}

fn primary(words: &[Value<'_>]) -> Option<Endpoint> {
    let [Value::Bulk(host), Value::Bulk(port)] = words else { return None };
    let host = std::str::from_utf8(host).ok()?.into();
    Some(Endpoint { host, port: std::str::from_utf8(port).ok()?.parse().ok()? })
}
