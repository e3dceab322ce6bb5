//! The invalidation channel: refunds and resets of any process end cached denials, and blocks end leases, for all limiters that
//! share connections.
//!
//! The scripts publish the main key of each refund, reset and block to the channel `prefix ":1:invalidations"`; after the key that a
//! block blocks stands `!`, which a version that knows no blocks ignores. A separate
//! connection and thread receive the messages, so that decisions are not delayed. Correctness does not depend on a
//! message: it may be lost with its connection, and an operator may delete a key by hand. So a denial is cached for
//! `denial_cache_max` at most, and a lease lasts for its `max_age`, whether the channel is subscribed or not.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Msg, Value};
use tokio::time::{sleep, timeout_at};

use crate::runtime::driver::Driver;
use crate::runtime::monotonic;
use crate::store::redis::config::Settings;
use crate::store::redis::config::target::Endpoints;
use crate::store::redis::denial_cache::DenialCache;
use crate::store::redis::keys::{KeyEncoder, UserKey, is_hashed};
use crate::store::redis::pipeline::pending::Member;
use crate::store::redis::pipeline::server::Context;
use crate::store::redis::policies::Policies;
use crate::store::redis::transport::background_thread;
use crate::store::redis::transport::connect::Address;
use crate::store::redis::transport::failure::{Class, Failure, UNREACHABLE};
use crate::store::redis::transport::session::Session;
use crate::store::request::{Action, PolicyId, StoreRequest};

/// The pause after the server refused the subscription.
const PAUSE_WHEN_REFUSED: Duration = Duration::from_secs(60);

/// Applies invalidation messages to a limiter.
#[derive(Debug)]
pub(crate) struct Listener {
    member: Arc<Member>,
    policies: Arc<Policies>,
    denial_cache: Arc<DenialCache>,
    leases: Weak<dyn LeasedKeys>,
    is_listening: AtomicBool,
}

/// The keys of which units are leased.
pub(crate) trait LeasedKeys: Debug + Send + Sync {
    /// Ends the leases of the policy's keys for which `is_one` is true, because one of them is blocked.
    fn block_where(self: Arc<Self>, id: PolicyId, is_one: &dyn Fn(&[u8]) -> bool);
}

/// Stands behind the main key of a key that is blocked.
const BLOCKED: &[u8] = b"!";

impl Listener {
    pub(crate) fn new(
        member: Arc<Member>,
        policies: Arc<Policies>,
        denial_cache: Arc<DenialCache>,
        leases: Weak<dyn LeasedKeys>,
    ) -> Arc<Self> {
        Arc::new(Self { member, policies, denial_cache, leases, is_listening: AtomicBool::new(false) })
    }

    /// Subscribes to the channel if that has not been done.
    #[inline]
    pub(crate) fn listen(self: &Arc<Self>, channel: impl FnOnce() -> Option<Arc<Channel>>) {
        if !self.is_listening.load(Ordering::Relaxed) && !self.is_listening.swap(true, Ordering::Relaxed) {
            let is_heard = channel().is_some_and(|channel| channel.add(self));
            self.is_listening.store(is_heard, Ordering::Relaxed);
        }
    }

    /// The limiter has moved to other connections and has to subscribe there.
    pub(crate) fn moved(&self) {
        self.is_listening.store(false, Ordering::Relaxed);
    }

    /// Drops what is cached of a key, given with its policy's name; `None` for a message that cannot be parsed.
    fn invalidate(&self, key: Option<(&str, &UserKey)>, is_blocked: bool) {
        self.member.counters.invalidations.add(1);
        let Some((policy, key)) = key else { return };
        let Some(id) = self.policies.named(policy) else { return };
        if is_blocked && let Some(leases) = self.leases.upgrade() {
            leases.block_where(id, &|leased| match key {
                UserKey::Readable(key) => **key == *leased,
                UserKey::Hashed => is_hashed(leased),
            });
        }
        match key {
            UserKey::Readable(key) => {
                self.denial_cache.forget(
                    StoreRequest {
                        id,
                        key,
                        action: Action::Reset,
                        cost: 1,
                        headroom: 0,
                        hold: None,
                        numbers: None,
                    },
                    None,
                );
            }
            UserKey::Hashed => self.denial_cache.forget_where(is_hashed),
        }
    }
}

/// The channel of all limiters that share connections.
#[derive(Debug)]
pub(crate) struct Channel {
    endpoints: Endpoints,
    context: Arc<Context>,
    keys: KeyEncoder,
    listeners: Mutex<Listeners>,
    driver: OnceLock<Driver>,
}

#[derive(Debug, Default)]
struct Listeners {
    all: Vec<Weak<Listener>>,
    /// Whether the task that receives messages was started.
    is_started: bool,
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

    /// Adds a listener. Returns whether there is a thread to receive messages: if the system provides none, cached
    /// denials end by their maximum age.
    fn add(self: &Arc<Self>, listener: &Arc<Listener>) -> bool {
        let mut listeners = self.listeners.lock();
        listeners.all.retain(|one| one.strong_count() > 0);
        listeners.all.push(Arc::downgrade(listener));
        if listeners.is_subscribed {
            // The new listener has missed earlier messages.
            listener.denial_cache.forget_all();
        }
        let Some(driver) = background_thread(&self.driver) else { return false };
        if !std::mem::replace(&mut listeners.is_started, true) {
            driver.spawn(receive(Arc::downgrade(self)));
        }
        true
    }

    /// Removes a listener, and those that are gone.
    pub(crate) fn remove(&self, listener: &Arc<Listener>) {
        let is_other = |one: &Weak<Listener>| one.strong_count() > 0 && one.as_ptr() != Arc::as_ptr(listener);
        self.listeners.lock().all.retain(is_other);
    }

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
            for listener in listening.iter().filter_map(Weak::upgrade) {
                listener.denial_cache.forget_all();
            }
        }
    }

    /// Passes a message, the main key of a refund, a reset or a block, to every listener.
    fn on_message(&self, message: &[u8]) {
        let blocked = message.strip_suffix(BLOCKED);
        let main_key = blocked.unwrap_or(message);
        let read = self.keys.read(main_key);
        let listeners = self.listeners.lock().all.clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.invalidate(read.as_ref().map(|(policy, key)| (*policy, key)), blocked.is_some());
        }
    }
}

/// Subscribes and receives, until the channel is no longer used.
async fn receive(channel: Weak<Channel>) {
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
    let receiving = async {
        while let (Ok(message), Some(channel)) = (session.reply::<Value>().await, channel.upgrade()) {
            if let Some(message) = Msg::from_owned_value(message) {
                channel.on_message(message.get_payload_bytes());
            }
        }
    };
    match until {
        Some(until) => drop(timeout_at(until.into(), receiving).await),
        None => receiving.await,
    }
}
