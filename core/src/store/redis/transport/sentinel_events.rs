//! What the sentinels tell of their own accord: that another server is the primary now.
//!
//! The old primary of a planned failover goes on taking writes, for ten seconds and more, until a sentinel demotes it; what it
//! is charged then is lost. So all sentinels are listened to, each over a connection of its own and on one thread for all, and
//! the links leave the old primary when the first of them tells of another. Nothing rests on it: a link asks from time to
//! time, too.

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

/// Before a sentinel is listened to again that could not be, or that refuses it.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_WHEN_REFUSED: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Switches {
    /// What a sentinel has named; every time that one does is told, also if it is the same.
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

/// What sentinels tell from some time on.
#[derive(Debug)]
pub(crate) struct Told(watch::Receiver<Option<Endpoint>>);

impl Switches {
    /// Listens to the sentinels from now on, if there are any.
    pub(crate) fn listen(self: &Arc<Self>, connector: &Arc<Connector>, address: &Address) {
        let Address::Service { service, sentinels } = address else { return };
        if self.is_listening.swap(true, Ordering::Relaxed) {
            return;
        }
        // Where the system gives no thread, the links ask; the next connection tries again.
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

    /// Listens no longer.
    pub(crate) fn close(&self) {
        self.is_listening.store(true, Ordering::Relaxed);
        if let Some(driver) = self.driver.get() {
            driver.close();
        }
    }

    /// What is told from now on.
    pub(crate) fn told(&self) -> Told {
        Told(self.named.subscribe())
    }

    fn tell(&self, named: Endpoint) {
        self.named.send_replace(Some(named));
    }
}

impl Told {
    /// Forgets what was told until now.
    pub(crate) fn forget(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits until another primary than this one is told of.
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

/// Listening to one of the sentinels.
struct Listening {
    connector: Weak<Connector>,
    switches: Weak<Switches>,
    service: Box<str>,
    sentinels: Box<[Endpoint]>,
    sentinel: Endpoint,
}

impl Listening {
    /// Until the store is gone.
    async fn run(self) {
        while let Some(connector) = self.connector.upgrade() {
            let subscribed = connector.hear_switches(&self.sentinel).await;
            if subscribed.is_ok()
                && let Some(named) = connector.agreed_primary(&self.service, &self.sentinels).await
            {
                // The primary may have changed before this sentinel was listened to.
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

    /// Hears one message after the other, until the connection ends.
    async fn hear(&self, mut session: Session) {
        while let Ok(message) = session.reply::<Value>().await {
            let Some(connector) = self.connector.upgrade() else { return };
            if !Msg::from_owned_value(message).is_some_and(|message| self.is_meant(&message)) {
                continue;
            }
            // The sentinel may know more by now than the message said.
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

    /// Whether a message is of the service, whose name stands before the old and the new address.
    fn is_meant(&self, message: &Msg) -> bool {
        message.get_payload_bytes().split(|byte| *byte == b' ').next() == Some(self.service.as_bytes())
    }
}
