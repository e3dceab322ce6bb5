//! What any process gives back or resets, heard over a channel of the server: a denial that is known here ends at once.
//!
//! The scripts publish the main key of what was given back or reset to the channel `prefix ":1:given_back"`. Whoever knows
//! denials listens, from the first of them on, on a connection and a thread of their own, so that decisions meet neither.
//! Nothing rests on it: messages may be lost with their connection, and a key may be deleted by hand. So a denial is believed
//! for `denial_cache_max` at most, whether somebody listens or not.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::{sleep, timeout_at};

use crate::runtime::driver::Driver;
use crate::store::redis::config::Settings;
use crate::store::redis::config::target::Endpoints;
use crate::store::redis::denial_cache::DenialCache;
use crate::store::redis::keys::{KeyEncoder, UserKey, is_hashed};
use crate::store::redis::pipeline::context::Context;
use crate::store::redis::policies::Policies;
use crate::store::redis::routing::access::Access;
use crate::store::redis::transport::connect::{Address, Session};
use crate::store::redis::transport::failure::{Class, Failure};
use crate::store::redis::transport::resp::Value;
use crate::store::{Action, Question};

/// Before somebody who has no right to listen tries again.
const PAUSE_WHEN_REFUSED: Duration = Duration::from_secs(60);

/// What a limiter does about what it hears.
#[derive(Debug)]
pub(crate) struct Listener {
    access: Arc<Access>,
    policies: Arc<Policies>,
    denial_cache: Arc<DenialCache>,
    is_listening: AtomicBool,
}

impl Listener {
    pub(crate) fn new(
        access: Arc<Access>,
        policies: Arc<Policies>,
        denial_cache: Arc<DenialCache>,
    ) -> Arc<Self> {
        Arc::new(Self { access, policies, denial_cache, is_listening: AtomicBool::new(false) })
    }

    /// Listens from now on.
    #[inline]
    pub(crate) fn listen(self: &Arc<Self>) {
        if !self.is_listening.load(Ordering::Relaxed) {
            self.start();
        }
    }

    #[cold]
    fn start(self: &Arc<Self>) {
        if self.is_listening.swap(true, Ordering::Relaxed) {
            return;
        }
        let is_heard = self.access.hub().is_ok_and(|hub| hub.channel.add(self));
        self.is_listening.store(is_heard, Ordering::Relaxed);
    }

    /// The connections are others now, to which it has not listened yet.
    pub(crate) fn moved(&self) {
        self.is_listening.store(false, Ordering::Relaxed);
    }

    /// Forgets what is denied by the states of a key.
    fn heard(&self, policy: &str, key: &UserKey) {
        let Some(id) = self.policies.named(policy) else { return };
        match key {
            UserKey::Readable(key) => {
                self.denial_cache.forget(Question { id, key, action: Action::Reset, cost: 1 }, None);
            }
            UserKey::Hashed => self.denial_cache.forget_where(is_hashed),
        }
    }
}

/// Listens for all limiters that share connections.
#[derive(Debug)]
pub(crate) struct Channel {
    endpoints: Endpoints,
    context: Arc<Context>,
    keys: KeyEncoder,
    listeners: Mutex<Listeners>,
    /// Its runtime and its thread, made when somebody listens.
    driver: OnceLock<Driver>,
}

#[derive(Debug, Default)]
struct Listeners {
    all: Vec<Weak<Listener>>,
    /// Whether what is given back is heard.
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

    /// Has one more listen from now on. Says whether there is a thread to listen: where the system gives none, denials end
    /// when their time is over.
    fn add(self: &Arc<Self>, listener: &Arc<Listener>) -> bool {
        {
            let mut listeners = self.listeners.lock();
            listeners.all.retain(|one| one.strong_count() > 0);
            listeners.all.push(Arc::downgrade(listener));
            if listeners.is_subscribed {
                // What was given back before was heard by others.
                listener.denial_cache.forget_all();
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

    /// One listens no longer.
    pub(crate) fn remove(&self, listener: &Arc<Listener>) {
        let listener = Arc::downgrade(listener);
        self.listeners.lock().all.retain(|one| !one.ptr_eq(&listener) && one.strong_count() > 0);
    }

    /// Listens no longer.
    pub(crate) fn close(&self) {
        if let Some(driver) = self.driver.get() {
            driver.close();
        }
    }

    /// Where to listen: any node of a cluster hears what is published at another one.
    fn addresses(&self) -> Vec<Address> {
        match Address::of(&self.endpoints) {
            Ok(address) => vec![address],
            Err(seeds) => seeds.iter().cloned().map(Address::Tcp).collect(),
        }
    }

    /// A connection that hears everything from now on.
    async fn subscribed(&self, address: &Address) -> Result<Session, Failure> {
        let mut session = self.context.connector.session(address).await?;
        let channel = self.keys.channel();
        let words: [&[u8]; 2] = [b"SUBSCRIBE", channel.as_bytes()];
        match session.ask(&words).await.map_err(|_| UNREACHABLE)? {
            Value::Error(_) => Err(Failure { class: Class::Permanent, ..UNREACHABLE }),
            _ => Ok(session),
        }
    }

    /// Everything that is given back is heard from now on, or no longer.
    fn subscribe(&self, is_subscribed: bool) {
        let listening = {
            let mut listeners = self.listeners.lock();
            listeners.is_subscribed = is_subscribed;
            listeners.all.clone()
        };
        if is_subscribed {
            // What was given back before was not heard.
            for listener in listening.iter().filter_map(Weak::upgrade) {
                listener.denial_cache.forget_all();
            }
        }
    }

    /// The states of that main key have changed.
    fn heard(&self, main_key: &[u8]) {
        let read = self.keys.read(main_key);
        let listening = self.listeners.lock().all.clone();
        for listener in listening.iter().filter_map(Weak::upgrade) {
            listener.access.member.counters.given_back_heard.add(1);
            if let Some((policy, key)) = &read {
                listener.heard(policy, key);
            }
        }
    }
}

const UNREACHABLE: Failure = Failure::not_applied(crate::rules::decision::Degradation::Unreachable);

/// Listens wherever it can, until nobody needs the channel any more.
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
                let until = current.context.retires_at(Instant::now());
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

/// Hears one message after the other, until the connection ends or is old.
async fn serve(channel: &Weak<Channel>, mut session: Session, until: Option<Instant>) {
    let hearing = async {
        while let (Ok(message), Some(channel)) = (session.reply().await, channel.upgrade()) {
            // `message`, the channel, and what was said.
            if let Value::Array(parts) = message
                && let [_, _, Value::Bulk(main_key)] = parts.as_slice()
            {
                channel.heard(main_key);
            }
        }
    };
    match until {
        Some(until) => drop(timeout_at(until.into(), hearing).await),
        None => hearing.await,
    }
}

/// Whether the user may publish to the channel and listen; what the server says when not.
pub(crate) async fn try_out(session: &mut Session, channel: &str) -> io::Result<Result<(), String>> {
    for words in [&[&b"PUBLISH"[..], channel.as_bytes(), b""][..], &[b"SUBSCRIBE", channel.as_bytes()]] {
        if let Value::Error(line) = session.ask(words).await? {
            return Ok(Err(line.to_owned()));
        }
    }
    Ok(Ok(()))
}
