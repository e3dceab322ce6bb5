//! The address of the primary, from queries to the sentinels and from their events.
//!
//! In a planned failover the old primary accepts writes for ten seconds and more, until a sentinel demotes it; these
//! writes are lost. So the store subscribes to all sentinels, each over its own connection and on one thread for all,
//! and the connections to the old primary end with the first event about a new one. Correctness does not depend on
//! events: the connection task also queries the sentinels periodically.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Msg, RedisError, Value};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::config::target::{Credentials, Endpoint};
use crate::transport::cause::{ConnectError, advice};
use crate::transport::connect::{Address, Connector, auth, happy_eyeballs};
use crate::transport::failure::{Class, Failure, UNREACHABLE};
use crate::transport::session::Session;
use crate::transport::{CONNECT_TIMEOUT, SENTINEL_TIMEOUT, background_thread};
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::excerpt;
use polylimit_runtime::backoff;
use polylimit_runtime::driver::Driver;

impl Connector {
    /// The address of the service's primary, from the first sentinel that knows it. Every new connection queries it
    /// again, so a failover is followed as soon as the old primary refuses operations or is gone.
    ///
    /// The sentinels are queried in order, and the next one is queried while one is slow, so that hanging sentinels,
    /// however many, do not use up the time to connect.
    pub(crate) async fn primary(
        &self,
        service: &str,
        sentinels: &[Endpoint],
    ) -> Result<Endpoint, ConnectError> {
        happy_eyeballs(sentinels.iter().map(|sentinel| self.named_by(sentinel, service)).collect()).await
    }

    /// Waits until the primary has an address other than this one, and returns the new address. Sentinels report it by
    /// an event, or when they are queried, which happens at this interval; without sentinels it never returns. This
    /// matters because an old primary may keep its role and its connections for a long time, or for good if the
    /// sentinels cannot reach it.
    pub(crate) async fn moved(
        &self,
        address: &Address,
        from: Option<Endpoint>,
        events: &mut PrimaryEvents,
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
            named = events.wait_for_other_than(&from) => named,
            named = asking => named,
        }
    }

    /// The primary that more than half of the sentinels name.
    async fn agreed_primary(&self, service: &str, sentinels: &[Endpoint]) -> Option<Endpoint> {
        let named = join_all(sentinels.iter().map(|sentinel| self.named_by(sentinel, service))).await;
        let named: Vec<Endpoint> = named.into_iter().filter_map(Result::ok).collect();
        let votes = |one: &Endpoint| named.iter().filter(|other| *other == one).count();
        named.iter().find(|one| 2 * votes(one) > sentinels.len()).cloned()
    }

    /// A session that is subscribed to a sentinel's events about a new primary.
    async fn subscribe(&self, sentinel: &Endpoint) -> Result<Session, Failure> {
        let subscribing = async {
            let mut session = self.sentinel(sentinel).await?;
            let command = redis::cmd("SUBSCRIBE").arg("+switch-master").take();
            session.ask::<Value>(&command).await.map_err(|error| refused(&error))?;
            Ok::<_, ConnectError>(session)
        };
        timeout(CONNECT_TIMEOUT, subscribing).await.unwrap_or(Err(UNREACHABLE.into())).map_err(Failure::from)
    }

    /// The service's primary, from one of its sentinels.
    async fn named_by(&self, sentinel: &Endpoint, service: &str) -> Result<Endpoint, ConnectError> {
        let asked = timeout(SENTINEL_TIMEOUT, self.ask_sentinel(sentinel, service)).await;
        asked.unwrap_or(Err(UNREACHABLE.into())).map_err(|ConnectError { failure, cause }| {
            let cause = cause.unwrap_or_else(|| match failure.reason {
                Degradation::Auth => {
                    "it refuses the user or the password: correct sentinel_username and sentinel_password"
                        .to_owned()
                }
                reason => advice(reason).to_owned(),
            });
            let cause = Some(format!("its sentinel at {sentinel} cannot be used: {cause}"));
            ConnectError { failure, cause }
        })
    }

    async fn sentinel(&self, sentinel: &Endpoint) -> Result<Session, ConnectError> {
        let Some(login) = self.sentinel_logins.get(sentinel) else {
            return self.sentinel_as(sentinel, self.sentinel_credentials.as_ref()).await;
        };
        let part = SENTINEL_TIMEOUT / 4 * 3;
        let credentials = login.credentials(part).await?;
        let mut opened = self.sentinel_as(sentinel, Some(&credentials)).await;
        if opened.as_ref().is_err_and(|error| error.failure.reason == Degradation::Auth) {
            let others = login.others_than(&credentials, part).await?;
            opened = self.sentinel_as(sentinel, Some(&others)).await;
        }
        opened.inspect(|_| login.accepted())
    }

    async fn sentinel_as(
        &self,
        sentinel: &Endpoint,
        credentials: Option<&Credentials>,
    ) -> Result<Session, ConnectError> {
        let mut session = Session::new(self.tcp(sentinel, SENTINEL_TIMEOUT).await?);
        if let Some(credentials) = credentials {
            session.ask::<Value>(&auth(credentials)).await.map_err(|error| refused(&error))?;
        }
        Ok(session)
    }

    async fn ask_sentinel(&self, sentinel: &Endpoint, service: &str) -> Result<Endpoint, ConnectError> {
        let mut session = self.sentinel(sentinel).await?;
        let command = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service).take();
        // A sentinel that does not know the service replies with null.
        let named: Option<(String, u16)> =
            session.ask(&command).await.map_err(|error| match error.code() {
                Some("NOAUTH" | "NOPERM") => Failure::permanent(Degradation::Auth),
                _ => UNREACHABLE,
            })?;
        let Some((host, port)) = named else {
            let cause = Some(format!("it does not know the service {}", excerpt(service)));
            return Err(ConnectError { failure: UNREACHABLE, cause });
        };
        Ok(Endpoint { host: host.into(), port })
    }
}

/// The reason why a sentinel refuses a session or a subscription.
fn refused(error: &RedisError) -> Failure {
    if error.code().is_some() { Failure::permanent(Degradation::Auth) } else { UNREACHABLE }
}

/// The pause before a failed or refused subscription to a sentinel is retried.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_WHEN_REFUSED: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Switches {
    /// The address in the latest event; repeated events are forwarded even if they are equal.
    named: watch::Sender<Option<Endpoint>>,
    is_listening: AtomicBool,
    driver: OnceLock<Driver>,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            named: watch::Sender::new(None),
            is_listening: AtomicBool::new(false),
            driver: OnceLock::new(),
        }
    }
}

/// The events from some time on.
#[derive(Debug)]
pub(crate) struct PrimaryEvents(watch::Receiver<Option<Endpoint>>);

impl Switches {
    /// Subscribes to the sentinels, if there are any.
    pub(crate) fn listen(self: &Arc<Self>, connector: &Arc<Connector>, address: &Address) {
        let Address::Service { service, sentinels } = address else { return };
        if self.is_listening.swap(true, Ordering::Relaxed) {
            return;
        }
        // Without a thread the connection tasks rely on queries; the next connection tries again.
        let Some(driver) = background_thread(&self.driver) else {
            self.is_listening.store(false, Ordering::Relaxed);
            return;
        };
        let subscriptions = sentinels.iter().map(|sentinel| Subscription {
            connector: Arc::downgrade(connector),
            switches: Arc::downgrade(self),
            service: service.clone(),
            sentinels: sentinels.clone(),
            sentinel: sentinel.clone(),
        });
        let all = join_all(subscriptions.map(Subscription::run));
        driver.spawn(async { drop(all.await) });
    }

    pub(crate) fn close(&self) {
        self.is_listening.store(true, Ordering::Relaxed);
        if let Some(driver) = self.driver.get() {
            driver.close();
        }
    }

    pub(crate) fn events(&self) -> PrimaryEvents {
        PrimaryEvents(self.named.subscribe())
    }
}

impl PrimaryEvents {
    pub(crate) fn discard(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits for an event that names a primary other than this one.
    async fn wait_for_other_than(&mut self, from: &Endpoint) -> Endpoint {
        loop {
            if self.0.changed().await.is_err() {
                return std::future::pending().await;
            }
            if let Some(named) = &*self.0.borrow_and_update()
                && named != from
            {
                return named.clone();
            }
        }
    }
}

/// The subscription to one of the sentinels.
struct Subscription {
    connector: Weak<Connector>,
    switches: Weak<Switches>,
    service: Box<str>,
    sentinels: Box<[Endpoint]>,
    sentinel: Endpoint,
}

impl Subscription {
    async fn run(self) {
        while let Some(connector) = self.connector.upgrade() {
            let subscribed = connector.subscribe(&self.sentinel).await;
            if subscribed.is_ok()
                && let Some(named) = connector.agreed_primary(&self.service, &self.sentinels).await
            {
                // The primary may have changed before the subscription.
                self.publish(named);
            }
            drop(connector);
            let pause = match subscribed {
                Ok(session) => {
                    self.receive(session).await;
                    PAUSE
                }
                Err(failure) if failure.class == Class::Permanent => PAUSE_WHEN_REFUSED,
                Err(_) => PAUSE,
            };
            sleep(pause / 2 + backoff::part_of(pause / 2)).await;
        }
    }

    async fn receive(&self, mut session: Session) {
        while let Ok(message) = session.reply::<Value>().await {
            let Some(connector) = self.connector.upgrade() else { return };
            if !Msg::from_owned_value(message).is_some_and(|message| self.is_meant(&message)) {
                continue;
            }
            // The sentinel may know a newer primary than the event.
            if let Ok(named) = connector.named_by(&self.sentinel, &self.service).await {
                self.publish(named);
            }
        }
    }

    fn publish(&self, named: Endpoint) {
        if let Some(switches) = self.switches.upgrade() {
            switches.named.send_replace(Some(named));
        }
    }

    /// Whether an event is about the service, whose name precedes the old and the new address.
    fn is_meant(&self, message: &Msg) -> bool {
        message.get_payload_bytes().split(|byte| *byte == b' ').next() == Some(self.service.as_bytes())
    }
}
