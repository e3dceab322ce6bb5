//! Applies the messages of the [invalidation channels](super::invalidation) to the denial cache and the leases of a limiter.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::denial_cache::DenialCache;
use crate::keys::channel::ChannelSet;
use crate::keys::{UserKey, is_hashed};
use crate::pipeline::pending::Member;
use crate::policies::Policies;
use polylimit_store::charge::{Action, Charge, PolicyId};

/// Applies invalidation messages to a limiter.
#[derive(Debug)]
pub(crate) struct Listener {
    member: Arc<Member>,
    policies: Arc<Policies>,
    denial_cache: Arc<DenialCache>,
    leases: Weak<dyn LeasedKeys>,
    is_added: AtomicBool,
}

/// The keys of which units are leased.
pub(crate) trait LeasedKeys: Debug + Send + Sync {
    /// The channels of these keys.
    fn channels(&self) -> ChannelSet;

    /// Ends the leases of the policy's keys for which `is_one` is true, because one of them is blocked.
    fn block_where(self: Arc<Self>, id: PolicyId, is_one: &dyn Fn(&[u8]) -> bool);
}

/// Follows the main key of a blocked key.
pub(crate) const BLOCKED: &[u8] = b"!";

impl Listener {
    pub(crate) fn new(
        member: Arc<Member>,
        policies: Arc<Policies>,
        denial_cache: Arc<DenialCache>,
        leases: Weak<dyn LeasedKeys>,
    ) -> Arc<Self> {
        Arc::new(Self { member, policies, denial_cache, leases, is_added: AtomicBool::new(false) })
    }

    /// Adds this listener to a subscriber, if that has not been done; `add` returns whether it receives messages there.
    #[inline]
    pub(crate) fn join(&self, add: impl FnOnce() -> bool) {
        if !self.is_added.load(Ordering::Relaxed) && !self.is_added.swap(true, Ordering::Relaxed) {
            self.is_added.store(add(), Ordering::Relaxed);
        }
    }

    /// Drops the cached denials of these channels' keys, because messages may have been missed.
    pub(crate) fn forget_channels(&self, channels: ChannelSet) {
        self.denial_cache.forget_channels(channels);
    }

    /// The limiter has moved to other connections and has to subscribe there. Changes to anything cached before are not announced there.
    pub(crate) fn moved(&self) {
        self.is_added.store(false, Ordering::Relaxed);
        self.denial_cache.forget_all();
    }

    /// The channels of which keys are denied or leased.
    pub(crate) fn channels(&self) -> ChannelSet {
        let leased = self.leases.upgrade().map_or_else(ChannelSet::default, |leases| leases.channels());
        self.denial_cache.channels().with(leased)
    }

    /// Drops what is cached of a key, given with its policy's name; `None` for a message that cannot be parsed.
    pub(crate) fn invalidate(&self, key: Option<(&str, &UserKey)>, is_blocked: bool) {
        if let Some((policy, key)) = key
            && let Some(id) = self.policies.named(policy)
        {
            self.forget(id, key, is_blocked);
        }
        // Last: a message that has been counted has taken effect.
        self.member.counters.invalidations.add(1);
    }

    fn forget(&self, id: PolicyId, key: &UserKey, is_blocked: bool) {
        if is_blocked && let Some(leases) = self.leases.upgrade() {
            leases.block_where(id, &|leased| match key {
                UserKey::Readable(key) => **key == *leased,
                UserKey::Hashed => is_hashed(leased),
            });
        }
        match key {
            UserKey::Readable(key) => {
                self.denial_cache.forget(Charge::new(id, key, Action::Reset, 1), None);
            }
            UserKey::Hashed => self.denial_cache.forget_where(is_hashed),
        }
    }
}
