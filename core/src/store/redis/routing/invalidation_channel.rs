//! The invalidation channel: receives refunds and resets of other processes, for all limiters that share connections.
//!
//! The scripts publish the main key of each refund and reset to the channel `prefix ":1:given_back"`. A separate
//! connection and thread receive the messages, so that decisions are not delayed. Messages may be lost with their
//! connection.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Msg, Value};
use tokio::time::{sleep, timeout_at};

use crate::runtime::driver::Driver;
use crate::runtime::monotonic;
use crate::store::redis::config::Settings;
use crate::store::redis::config::target::Endpoints;
use crate::store::redis::keys::{KeyEncoder, UserKey};
use crate::store::redis::pipeline::context::Context;
use crate::store::redis::transport::connect::Address;
use crate::store::redis::transport::failure::{Class, Failure, UNREACHABLE};
use crate::store::redis::transport::session::Session;

/// The pause after the server refused the subscription.
const PAUSE_WHEN_REFUSED: Duration = Duration::from_secs(60);

/// Receives the keys that other processes refunded or reset.
pub(crate) trait Subscriber: Debug + Send + Sync {
    /// Drops what is cached of a key, given with its policy's name; `None` for a message that cannot be parsed.
    fn invalidate(&self, key: Option<(&str, &UserKey)>);

    /// Drops everything that is cached: messages may have been missed.
    fn invalidate_all(&self);
}

/// The channel of all limiters that share connections.
#[derive(Debug)]
pub(crate) struct Channel {
    endpoints: Endpoints,
    context: Arc<Context>,
    keys: KeyEncoder,
    listeners: Mutex<Listeners>,
    /// The runtime and its thread, created for the first subscriber.
    driver: OnceLock<Driver>,
}

#[derive(Debug, Default)]
struct Listeners {
    all: Vec<Weak<dyn Subscriber>>,
    /// Whether messages are being received.
    is_subscribed: bool,
}

impl Channel {
    pub(crate) fn new(settings: &Settings, context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            endpoints: settings.target.endpoints.clone(),
            context,
            keys: KeyEncoder::new(&settings.prefix, settings.key_secret.as_ref()),
            listeners: Mutex::default(),
            driver: OnceLock::new(),
        })
    }

    /// Adds a subscriber. Returns whether there is a thread to receive messages: if the system provides none, cached
    /// denials end by their maximum age.
    pub(crate) fn add(self: &Arc<Self>, subscriber: &Weak<dyn Subscriber>) -> bool {
        {
            let mut listeners = self.listeners.lock();
            listeners.all.retain(|one| one.strong_count() > 0);
            listeners.all.push(Weak::clone(subscriber));
            if listeners.is_subscribed
                && let Some(subscriber) = subscriber.upgrade()
            {
                // The new subscriber has missed earlier messages.
                subscriber.invalidate_all();
            }
        }
        if let Some(driver) = self.driver.get() {
            return driver.run_for_good().is_ok();
        }
        let Ok(driver) = Driver::new() else { return false };
        let mut is_first = false;
        let driver = self.driver.get_or_init(|| {
            is_first = true;
            driver
        });
        if is_first {
            driver.spawn(listening(Arc::downgrade(self)));
        }
        driver.run_for_good().is_ok()
    }

    /// Removes a subscriber, and those that are gone.
    pub(crate) fn remove(&self, subscriber: &Weak<dyn Subscriber>) {
        self.listeners.lock().all.retain(|one| !Weak::ptr_eq(one, subscriber) && one.strong_count() > 0);
    }

    /// Stops receiving.
    pub(crate) fn close(&self) {
        if let Some(driver) = self.driver.get() {
            driver.close();
        }
    }

    /// The addresses to try: any node of a cluster forwards messages published at another node.
    fn addresses(&self) -> Vec<Address> {
        match Address::of(&self.endpoints) {
            Ok(address) => vec![address],
            Err(seeds) => seeds.iter().cloned().map(Address::Tcp).collect(),
        }
    }

    /// A session that is subscribed to the channel.
    async fn subscribed(&self, address: &Address) -> Result<Session, Failure> {
        let mut session = self.context.connector.session(address).await?;
        let channel = self.keys.channel();
        match session.ask::<Value>(redis::cmd("SUBSCRIBE").arg(channel)).await {
            Ok(_) => Ok(session),
            Err(error) if error.code().is_some() => Err(Failure { class: Class::Permanent, ..UNREACHABLE }),
            Err(_) => Err(UNREACHABLE),
        }
    }

    /// Records whether the channel is subscribed, and invalidates the caches of all subscribers.
    fn subscribe(&self, is_subscribed: bool) {
        let listening = {
            let mut listeners = self.listeners.lock();
            listeners.is_subscribed = is_subscribed;
            listeners.all.clone()
        };
        if is_subscribed {
            // Messages sent before this were not received.
            for subscriber in listening.iter().filter_map(Weak::upgrade) {
                subscriber.invalidate_all();
            }
        }
    }

    /// Passes a message, the main key of a refund or reset, to every subscriber.
    fn on_message(&self, main_key: &[u8]) {
        let read = self.keys.read(main_key);
        let subscribers = self.listeners.lock().all.clone();
        for subscriber in subscribers.iter().filter_map(Weak::upgrade) {
            subscriber.invalidate(read.as_ref().map(|(policy, key)| (*policy, key)));
        }
    }
}

/// Subscribes and receives, until the channel is no longer used.
async fn listening(channel: Weak<Channel>) {
    let mut failed: u32 = 0;
    loop {
        let Some(current) = channel.upgrade() else { return };
        let addresses = current.addresses();
        let address = &addresses[failed as usize % addresses.len()];
        let subscribed = current.subscribed(address).await;
        let pause = match subscribed {
            Ok(session) => {
                current.subscribe(true);
                let until = current.context.retires_at(monotonic::now());
                drop(current);
                serve(&channel, session, until).await;
                if let Some(current) = channel.upgrade() {
                    current.subscribe(false);
                }
                failed = 0;
                continue;
            }
            Err(Failure { class: Class::Permanent, .. }) => PAUSE_WHEN_REFUSED,
            Err(_) => {
                failed = failed.saturating_add(1);
                current.context.pause_after(failed)
            }
        };
        drop(current);
        sleep(pause).await;
    }
}

/// Receives messages until the connection ends or reaches its maximum age.
async fn serve(channel: &Weak<Channel>, mut session: Session, until: Option<Instant>) {
    let hearing = async {
        while let (Ok(message), Some(channel)) = (session.reply::<Value>().await, channel.upgrade()) {
            if let Some(message) = Msg::from_owned_value(message) {
                channel.on_message(message.get_payload_bytes());
            }
        }
    };
    match until {
        Some(until) => drop(timeout_at(until.into(), hearing).await),
        None => hearing.await,
    }
}
