//! Invalidation messages: refunds and resets of any process are published over a channel of the server, and end cached
//! denials.
//!
//! Correctness does not depend on a message: it may be lost with its connection, and an operator may delete a key by
//! hand. So a denial is cached for `denial_cache_max` at most, whether the channel is subscribed or not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use redis::{RedisResult, Value};

use crate::store::redis::denial_cache::DenialCache;
use crate::store::redis::keys::{UserKey, is_hashed};
use crate::store::redis::policies::Policies;
use crate::store::redis::routing::access::Access;
use crate::store::redis::routing::invalidation_channel::Subscriber;
use crate::store::redis::transport::session::Session;
use crate::store::request::{Action, StoreRequest};

/// Applies invalidation messages to a limiter.
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

    /// Subscribes if that has not been done.
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
        let is_heard = self.access.hub().is_ok_and(|hub| hub.channel.add(&self.subscriber()));
        self.is_listening.store(is_heard, Ordering::Relaxed);
    }

    pub(crate) fn subscriber(self: &Arc<Self>) -> Weak<dyn Subscriber> {
        let subscriber: Weak<Self> = Arc::downgrade(self);
        subscriber
    }

    /// The limiter has moved to other connections and has to subscribe there.
    pub(crate) fn moved(&self) {
        self.is_listening.store(false, Ordering::Relaxed);
    }
}

impl Subscriber for Listener {
    fn invalidate(&self, key: Option<(&str, &UserKey)>) {
        self.access.member.counters.given_back_heard.add(1);
        let Some((policy, key)) = key else { return };
        let Some(id) = self.policies.named(policy) else { return };
        match key {
            UserKey::Readable(key) => {
                self.denial_cache.forget(StoreRequest { id, key, action: Action::Reset, cost: 1 }, None);
            }
            UserKey::Hashed => self.denial_cache.forget_where(is_hashed),
        }
    }

    fn invalidate_all(&self) {
        self.denial_cache.forget_all();
    }
}

/// Tests whether the user may publish to the channel and subscribe to it.
pub(crate) async fn try_out(session: &mut Session, channel: &str) -> RedisResult<()> {
    session.ask::<Value>(redis::cmd("PUBLISH").arg(channel).arg("")).await?;
    session.ask::<Value>(redis::cmd("SUBSCRIBE").arg(channel)).await.map(drop)
}
