//! Queries the sentinels for the address of the primary.

use std::time::Duration;

use futures_util::future::join_all;
use redis::{RedisError, Value};
use tokio::time::{sleep, timeout};

use crate::rules::decision::Degradation;
use crate::runtime::backoff;
use crate::store::redis::config::target::Endpoint;
use crate::store::redis::transport::CONNECT_TIMEOUT;
use crate::store::redis::transport::SENTINEL_TIMEOUT;
use crate::store::redis::transport::connect::{Address, Connector};
use crate::store::redis::transport::failure::Failure;
use crate::store::redis::transport::failure::UNREACHABLE;
use crate::store::redis::transport::handshake::auth;
use crate::store::redis::transport::happy_eyeballs::happy_eyeballs;
use crate::store::redis::transport::sentinel_events::Told;
use crate::store::redis::transport::session::Session;

impl Connector {
    /// The address of the service's primary, from the first sentinel that knows it. Every new connection queries it
    /// again, so a failover is followed as soon as the old primary refuses operations or is gone.
    ///
    /// The sentinels are queried in order, and the next one is queried while one is slow, so that hanging sentinels,
    /// however many, do not use up the time to connect.
    pub(crate) async fn primary(&self, service: &str, sentinels: &[Endpoint]) -> Result<Endpoint, Failure> {
        happy_eyeballs(sentinels.iter().map(|sentinel| self.named_by(sentinel, service)).collect()).await
    }

    /// Waits until the primary has another address than this one, and returns the new address. Sentinels report it by
    /// an event, or when they are queried, which happens at this interval; without sentinels it never returns. This
    /// matters because an old primary may keep its role and its connections for a long time, or for good if the
    /// sentinels cannot reach it.
    pub(crate) async fn moved(
        &self,
        address: &Address,
        from: Option<Endpoint>,
        told: &mut Told,
        every: Duration,
    ) -> Endpoint {
        let (Address::Service { service, sentinels }, Some(from)) = (address, from) else {
            return std::future::pending().await;
        };
        let asking = async {
            loop {
                sleep(every / 4 * 3 + backoff::part_of(every / 4)).await;
                match self.primary(service, sentinels).await {
                    Ok(named) if named != from => return named,
                    _ => {}
                }
            }
        };
        tokio::select! {
            named = told.other_than(&from) => named,
            named = asking => named,
        }
    }

    /// The primary that more than half of the sentinels name.
    pub(crate) async fn agreed_primary(&self, service: &str, sentinels: &[Endpoint]) -> Option<Endpoint> {
        let named = join_all(sentinels.iter().map(|sentinel| self.named_by(sentinel, service))).await;
        let named: Vec<Endpoint> = named.into_iter().filter_map(Result::ok).collect();
        let votes = |one: &Endpoint| named.iter().filter(|other| *other == one).count();
        named.iter().find(|one| 2 * votes(one) > sentinels.len()).cloned()
    }

    /// A session that is subscribed to a sentinel's events about a new primary.
    pub(crate) async fn hear_switches(&self, sentinel: &Endpoint) -> Result<Session, Failure> {
        let subscribing = async {
            let mut session = self.sentinel(sentinel).await?;
            let command = redis::cmd("SUBSCRIBE").arg("+switch-master").take();
            session.ask::<Value>(&command).await.map_err(|error| refused(&error))?;
            Ok(session)
        };
        timeout(CONNECT_TIMEOUT, subscribing).await.unwrap_or(Err(UNREACHABLE))
    }

    /// The service's primary, from one of its sentinels.
    pub(crate) async fn named_by(&self, sentinel: &Endpoint, service: &str) -> Result<Endpoint, Failure> {
        timeout(SENTINEL_TIMEOUT, self.ask_sentinel(sentinel, service)).await.unwrap_or(Err(UNREACHABLE))
    }

    async fn sentinel(&self, sentinel: &Endpoint) -> Result<Session, Failure> {
        let mut session = Session::new(self.tcp(sentinel).await?);
        if let Some(credentials) = &self.sentinel_credentials {
            session.ask::<Value>(&auth(credentials)).await.map_err(|error| refused(&error))?;
        }
        Ok(session)
    }

    async fn ask_sentinel(&self, sentinel: &Endpoint, service: &str) -> Result<Endpoint, Failure> {
        let mut session = self.sentinel(sentinel).await?;
        let command = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service).take();
        // A sentinel that does not know the service replies with null.
        let (host, port): (String, u16) =
            session.ask(&command).await.map_err(|error| match error.code() {
                Some("NOAUTH" | "NOPERM") => Failure::permanent(Degradation::Auth),
                _ => UNREACHABLE,
            })?;
        Ok(Endpoint { host: host.into(), port })
    }
}

/// The reason why a sentinel refuses a session or a subscription.
fn refused(error: &RedisError) -> Failure {
    if error.code().is_some() { Failure::permanent(Degradation::Auth) } else { UNREACHABLE }
}
