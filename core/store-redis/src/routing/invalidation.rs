//! The invalidation channels: refunds and resets of any process end cached denials, and blocks end leases, for all limiters that
//! share connections.
//!
//! The scripts publish the main key of each refund, reset and block to the channel of the main key
//! ([`Channel`](crate::keys::channel::Channel)); a `!` follows the main key of a block. A channel is subscribed while a key
//! of it is denied or leased here, and some time longer. A separate connection and thread receive the messages, so that decisions are not
//! delayed; while no channel is subscribed, there is no connection. Correctness does not depend on a message: it may be lost with its
//! connection, and an operator may delete a key by hand. So a denial is cached for `denial_cache_max` at most, and a lease lasts for its
//! `max_age`, whether their channel is subscribed or not.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Msg, Value};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};

use crate::config::Settings;
use crate::config::target::Endpoints;
use crate::keys::KeyEncoder;
use crate::keys::channel::{Channel, ChannelSet, SharedChannelSet};
use crate::pipeline::server::Context;
use crate::routing::listener::{BLOCKED, Listener};
use crate::transport::background_thread;
use crate::transport::connect::Address;
use crate::transport::failure::{Class, Failure};
use crate::transport::session::Session;
use polylimit_runtime::driver::Driver;
use polylimit_runtime::monotonic;

/// The pause after the server refused the subscription.
const PAUSE_WHEN_REFUSED: Duration = Duration::from_secs(60);

/// How often unused channels, of which no key is denied or leased any more, are looked for. Such a channel is left after one to two
/// intervals, so that a key that is denied now and then does not subscribe again each time.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Subscribes to the channels, for all limiters that share connections.
#[derive(Debug)]
pub(crate) struct Subscriber {
    endpoints: Endpoints,
    context: Arc<Context>,
    keys: KeyEncoder,
    /// The channels of which a key was denied or leased since the last look at the channels in use.
    wanted: SharedChannelSet,
    /// Signals that `wanted` has grown.
    grown: Arc<Notify>,
    state: Mutex<State>,
    driver: OnceLock<Driver>,
}

#[derive(Debug, Default)]
struct State {
    listeners: Vec<Weak<Listener>>,
    /// Whether the task that receives messages was started.
    is_started: bool,
    /// The channels for which SUBSCRIBE was sent and not answered yet.
    asked: ChannelSet,
    /// The channels requested together with these that have been answered.
    answered: ChannelSet,
    subscribed: ChannelSet,
}

impl Subscriber {
    pub(crate) fn new(settings: &Settings, context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            endpoints: settings.target.endpoints.clone(),
            context,
            keys: KeyEncoder::new(&settings.prefix, settings.key_secret.as_ref()),
            wanted: SharedChannelSet::default(),
            grown: Arc::new(Notify::new()),
            state: Mutex::default(),
            driver: OnceLock::new(),
        })
    }

    /// Subscribes to a channel for a listener. The denial or lease that needs it is already stored: so a look at the channels in use either
    /// finds it, or has taken the channel out of `wanted` before.
    #[inline]
    pub(crate) fn listen(self: &Arc<Self>, listener: &Arc<Listener>, channel: Channel) {
        listener.join(|| self.add(listener));
        if self.wanted.insert(channel) {
            self.grown.notify_one();
        }
    }

    /// Adds a listener. Returns whether there is a thread to receive messages: if the system provides none, cached
    /// denials end by their maximum age.
    fn add(self: &Arc<Self>, listener: &Arc<Listener>) -> bool {
        let mut state = self.state.lock();
        state.listeners.retain(|one| one.strong_count() > 0);
        state.listeners.push(Arc::downgrade(listener));
        // The new listener has missed earlier messages.
        listener.forget_channels(state.subscribed);
        let Some(driver) = background_thread(&self.driver) else { return false };
        if !std::mem::replace(&mut state.is_started, true) {
            driver.spawn(receive(Arc::downgrade(self), Arc::clone(&self.grown)));
        }
        true
    }

    /// Removes a listener, and those that are gone.
    pub(crate) fn remove(&self, listener: &Arc<Listener>) {
        let is_other = |one: &Weak<Listener>| one.strong_count() > 0 && one.as_ptr() != Arc::as_ptr(listener);
        self.state.lock().listeners.retain(is_other);
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

    fn listeners(&self) -> Vec<Arc<Listener>> {
        self.state.lock().listeners.iter().filter_map(Weak::upgrade).collect()
    }

    /// The channels that are in use now, or were wanted since the last call.
    fn channels_in_use(&self) -> ChannelSet {
        let wanted = self.wanted.take();
        self.listeners().iter().fold(wanted, |channels, listener| channels.with(listener.channels()))
    }

    /// A command with the names of channels.
    fn command(&self, name: &str, channels: ChannelSet) -> Vec<u8> {
        let mut command = Cmd::new();
        command.arg(name);
        for channel in channels.iter() {
            command.arg(self.keys.channel_name(channel));
        }
        command.get_packed_command()
    }

    /// The server has confirmed that it sends the messages of a channel from now on. Once all channels that were requested together are
    /// confirmed, drops what is cached of them: messages that were sent before this were not received.
    fn subscribed(&self, channel: Channel) {
        let (channels, listeners) = {
            let mut state = self.state.lock();
            state.asked.remove(channel);
            state.answered.insert(channel);
            if !state.asked.is_empty() {
                return;
            }
            let channels = std::mem::take(&mut state.answered);
            state.subscribed = state.subscribed.with(channels);
            (channels, state.listeners.clone())
        };
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.forget_channels(channels);
        }
    }

    /// The connection has ended, and with it all subscriptions. What is cached stays: until the channels are subscribed again, or for
    /// `denial_cache_max`.
    fn lost(&self) {
        let mut state = self.state.lock();
        (state.asked, state.answered, state.subscribed) = Default::default();
    }

    /// Passes a message, the main key of a refund, a reset or a block, to every listener.
    fn on_message(&self, message: &Msg) {
        let message = message.get_payload_bytes();
        let blocked = message.strip_suffix(BLOCKED);
        let main_key = blocked.unwrap_or(message);
        let read = self.keys.read(main_key);
        for listener in self.listeners() {
            let key = read.as_ref().map(|(policy, key)| (*policy, key));
            listener.invalidate(key, blocked.is_some());
        }
    }
}

/// Why a session has ended.
enum Ended {
    /// No channel is in use.
    Unused,
    /// The connection was lost or replaced.
    Lost,
    /// The server refused a subscription.
    Refused,
}

/// Receives messages whenever channels are in use, until the subscriber is no longer used.
async fn receive(subscriber: Weak<Subscriber>, grown: Arc<Notify>) {
    let (mut failed, mut heard): (u32, _) = (0, ChannelSet::default());
    let mut successor = None;
    loop {
        let Some(current) = subscriber.upgrade() else { return };
        heard = heard.with(current.wanted.get());
        if heard.is_empty() {
            drop(current);
            grown.notified().await;
            continue;
        }
        let addresses = current.addresses();
        let address = &addresses[failed as usize % addresses.len()];
        let connected = match successor.take() {
            Some(session) => Ok(session),
            None => current.context.connector.session(address).await,
        };
        let ended = match connected {
            Ok(session) => {
                let context = Arc::clone(&current.context);
                drop(current);
                let replaced = replaced(&context, address);
                let mut has_subscribed = false;
                let ended = tokio::select! {
                    ended = serve(&subscriber, &grown, session, &mut has_subscribed, &mut heard) => ended,
                    session = replaced => {
                        successor = Some(session);
                        Ended::Lost
                    }
                };
                (ended, has_subscribed || successor.is_some())
            }
            Err(Failure { class: Class::Permanent, .. }) => (Ended::Refused, false),
            Err(_) => (Ended::Lost, false),
        };
        let Some(current) = subscriber.upgrade() else { return };
        current.lost();
        let pause = match ended {
            (Ended::Unused, _) | (Ended::Lost, true) => {
                failed = 0;
                continue;
            }
            (Ended::Refused, _) => PAUSE_WHEN_REFUSED,
            (Ended::Lost, false) => {
                failed = failed.saturating_add(1);
                current.context.pause_after(failed)
            }
        };
        drop(current);
        sleep(pause).await;
    }
}

/// Waits until a connection opened now is old, and connects again, however often that fails.
async fn replaced(context: &Context, address: &Address) -> Session {
    let Some(at) = context.retires_at(monotonic::now()) else { return std::future::pending().await };
    sleep_until(at.into()).await;
    loop {
        if let Ok(session) = context.connector.session(address).await {
            return session;
        }
        sleep(Context::pause_before_replacing()).await;
    }
}

/// Subscribes to the channels that are in use and receives messages, until the connection ends or is not used.
async fn serve(
    subscriber: &Weak<Subscriber>,
    grown: &Notify,
    session: Session,
    has_subscribed: &mut bool,
    heard: &mut ChannelSet,
) -> Ended {
    let (reading, writing) = split(session.into_stream());
    tokio::select! {
        ended = read(subscriber, Session::new(reading), has_subscribed) => ended,
        ended = follow(subscriber, grown, writing, heard) => ended,
    }
}

/// Reads the server's answers and messages.
async fn read(
    subscriber: &Weak<Subscriber>,
    mut session: Session<impl AsyncRead + Send + Unpin>,
    has_subscribed: &mut bool,
) -> Ended {
    loop {
        let message = match session.reply::<Value>().await {
            Ok(message) => message,
            Err(error) if error.code().is_some() => return Ended::Refused,
            Err(_) => return Ended::Lost,
        };
        let Some(current) = subscriber.upgrade() else { return Ended::Unused };
        if let Value::Array(words) = &message
            && let [Value::BulkString(kind), Value::BulkString(name), _] = words.as_slice()
            && kind == b"subscribe"
        {
            if let Some(channel) = current.keys.read_channel(name) {
                *has_subscribed = true;
                current.subscribed(channel);
            }
        } else if let Some(message) = Msg::from_owned_value(message) {
            current.on_message(&message);
        }
    }
}

/// Subscribes to channels once they are wanted, and leaves those that are not in use.
async fn follow(
    subscriber: &Weak<Subscriber>,
    grown: &Notify,
    mut writing: impl AsyncWrite + Unpin,
    heard: &mut ChannelSet,
) -> Ended {
    let mut asked = ChannelSet::default();
    let mut look_at = monotonic::now() + LOOK_EVERY;
    loop {
        let commands = {
            let Some(current) = subscriber.upgrade() else { return Ended::Unused };
            let mut commands = Vec::new();
            if monotonic::now() < look_at {
                *heard = heard.with(current.wanted.get());
            } else {
                *heard = current.channels_in_use();
                if heard.is_empty() {
                    return Ended::Unused;
                }
                let mut state = current.state.lock();
                let left = state.subscribed.without(*heard);
                state.subscribed = state.subscribed.without(left);
                asked = asked.without(left);
                if !left.is_empty() {
                    commands = current.command("UNSUBSCRIBE", left);
                }
                look_at = monotonic::now() + LOOK_EVERY;
            }
            let new = heard.without(asked);
            if !new.is_empty() {
                asked = asked.with(new);
                let mut state = current.state.lock();
                state.asked = state.asked.with(new);
                commands.extend(current.command("SUBSCRIBE", new));
            }
            commands
        };
        if !commands.is_empty()
            && (writing.write_all(&commands).await.is_err() || writing.flush().await.is_err())
        {
            return Ended::Lost;
        }
        tokio::select! {
            () = grown.notified() => {}
            () = sleep_until(look_at.into()) => {}
        }
    }
}
