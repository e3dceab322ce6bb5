//! Events of the sentinels: another server is the primary now.
//!
//! In a planned failover the old primary accepts writes for ten seconds and more, until a sentinel demotes it; these
//! writes are lost. So the store subscribes to all sentinels, each over its own connection and on one thread for all,
//! and the connections to the old primary end with the first event about a new one. Correctness does not depend on
//! events: the connection task also queries the sentinels periodically.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Msg, Value};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::runtime::backoff;
use crate::runtime::driver::Driver;
use crate::store::redis::config::target::Endpoint;
use crate::store::redis::transport::connect::{Address, Connector};
use crate::store::redis::transport::failure::Class;
use crate::store::redis::transport::session::Session;

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
pub(crate) struct Told(watch::Receiver<Option<Endpoint>>);

impl Switches {
    /// Subscribes to the sentinels, if there are any.
    pub(crate) fn listen(self: &Arc<Self>, connector: &Arc<Connector>, address: &Address) {
        let Address::Service { service, sentinels } = address else { return };
        if self.is_listening.swap(true, Ordering::Relaxed) {
            return;
        }
        // Without a thread the connection tasks rely on queries; the next connection tries again.
        let Some(driver) = self.thread() else {
            self.is_listening.store(false, Ordering::Relaxed);
            return;
        };
        let listening = sentinels.iter().map(|sentinel| Listening {
            connector: Arc::downgrade(connector),
            switches: Arc::downgrade(self),
            service: service.clone(),
            sentinels: sentinels.clone(),
            sentinel: sentinel.clone(),
        });
        let all = join_all(listening.map(Listening::run));
        driver.spawn(async { drop(all.await) });
    }

    fn thread(&self) -> Option<&Driver> {
        let driver = if let Some(driver) = self.driver.get() {
            driver
        } else {
            let driver = Driver::new().ok()?;
            self.driver.get_or_init(|| driver)
        };
        driver.run_for_good().ok().map(|()| driver)
    }

    /// Stops receiving events.
    pub(crate) fn close(&self) {
        self.is_listening.store(true, Ordering::Relaxed);
        if let Some(driver) = self.driver.get() {
            driver.close();
        }
    }

    /// The events from now on.
    pub(crate) fn told(&self) -> Told {
        Told(self.named.subscribe())
    }

    fn tell(&self, named: Endpoint) {
        self.named.send_replace(Some(named));
    }
}

impl Told {
    /// Discards the events until now.
    pub(crate) fn forget(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits for an event about another primary than this one.
    pub(crate) async fn other_than(&mut self, from: &Endpoint) -> Endpoint {
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
struct Listening {
    connector: Weak<Connector>,
    switches: Weak<Switches>,
    service: Box<str>,
    sentinels: Box<[Endpoint]>,
    sentinel: Endpoint,
}

impl Listening {
    /// Runs until the store is gone.
    async fn run(self) {
        while let Some(connector) = self.connector.upgrade() {
            let subscribed = connector.hear_switches(&self.sentinel).await;
            if subscribed.is_ok()
                && let Some(named) = connector.agreed_primary(&self.service, &self.sentinels).await
            {
                // The primary may have changed before the subscription.
                self.tell(named);
            }
            drop(connector);
            let pause = match subscribed {
                Ok(session) => {
                    self.hear(session).await;
                    PAUSE
                }
                Err(failure) if failure.class == Class::Permanent => PAUSE_WHEN_REFUSED,
                Err(_) => PAUSE,
            };
            sleep(pause / 2 + backoff::part_of(pause / 2)).await;
        }
    }

    /// Receives events until the connection ends.
    async fn hear(&self, mut session: Session) {
        while let Ok(message) = session.reply::<Value>().await {
            let Some(connector) = self.connector.upgrade() else { return };
            if !Msg::from_owned_value(message).is_some_and(|message| self.is_meant(&message)) {
                continue;
            }
            // The sentinel may know a newer primary than the event.
            if let Ok(named) = connector.named_by(&self.sentinel, &self.service).await {
                self.tell(named);
            }
        }
    }

    fn tell(&self, named: Endpoint) {
        if let Some(switches) = self.switches.upgrade() {
            switches.tell(named);
        }
    }

    /// Whether an event is about the service, whose name precedes the old and the new address.
    fn is_meant(&self, message: &Msg) -> bool {
        message.get_payload_bytes().split(|byte| *byte == b' ').next() == Some(self.service.as_bytes())
    }
}
