//! Builds a limiter.

use std::sync::Arc;

use super::{Limiter, Shared};
use crate::clock::Clock;
use crate::error::{Error, excerpt};
use crate::outage::Outage;
use crate::policy::Policy;
use crate::store::Store;
use crate::store::local::{LocalOptions, LocalStore};
use crate::store::memory::MemoryStore;
use crate::store::redis::{RedisOptions, RedisStore};

/// The settings of a [`Limiter`] before they are checked; made by [`Limiter::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes a limiter only when `build` is called"]
pub struct LimiterBuilder {
    policies: Vec<Policy>,
    outages: Vec<(Box<str>, Outage)>,
    store: Result<Place, Error>,
    local_size: Option<u64>,
    clock: Clock,
    max_keys: usize,
}

/// Where the states are kept.
#[derive(Clone, Debug)]
enum Place {
    Memory,
    Local(LocalOptions),
    Redis(Box<RedisOptions>),
}

impl Default for LimiterBuilder {
    fn default() -> Self {
        Self {
            policies: Vec::new(),
            outages: Vec::new(),
            store: Ok(Place::Memory),
            local_size: None,
            clock: Clock::default(),
            max_keys: Self::DEFAULT_MAX_KEYS,
        }
    }
}

impl LimiterBuilder {
    /// How many keys are held in this process unless told otherwise: 1,000,000.
    pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

    /// Adds a policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Where the states are kept, as a URL: `memory:`, which is the default; `local:<name>` or `file:///path`, which all
    /// processes of a host share; or one that [`RedisOptions`] describes, such as `redis://localhost?deadline=20ms`.
    ///
    /// A local store (on Linux) is a file in shared memory, or the one that is named. It takes 64 MiB unless its URL says
    /// `?size=16MiB`, or [`local_size`](Self::local_size) does, when it is made. Only its owner can use it, and nothing of
    /// it outlasts a reboot. When it is full of keys in use, new ones share one state a policy, as in the memory store.
    ///
    /// A URL that cannot be used is reported by [`build`](Self::build).
    pub fn store(mut self, url: &str) -> Self {
        self.store = match url {
            "memory:" => Ok(Place::Memory),
            _ if LocalOptions::is_local(url) => LocalOptions::parse(url).map(Place::Local),
            _ => RedisOptions::parse(url).map(|options| Place::Redis(Box::new(options))),
        };
        self
    }

    /// How many bytes a local store takes when it is made: 1 MiB to 64 GiB. One that is there has to have that size.
    pub fn local_size(mut self, bytes: u64) -> Self {
        self.local_size = Some(bytes);
        self
    }

    /// Keeps the states in Redis.
    pub fn redis(mut self, options: RedisOptions) -> Self {
        self.store = Ok(Place::Redis(Box::new(options)));
        self
    }

    /// What the policy of that name answers while the store cannot be asked, in place of what the store's options say.
    pub fn outage(mut self, policy: &str, outage: Outage) -> Self {
        self.outages.push((policy.into(), outage));
        self
    }

    /// By which clock to decide: the server's for Redis and the system's otherwise, unless told otherwise. A
    /// [`ManualClock`](crate::ManualClock) decides wherever the states are.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// The most keys that are held in this process, over all policies; at least 1. The memory store holds all states
    /// there: those of which nothing counts as used any more make room for new keys, those in use do not. When it is
    /// full of them, new keys share one state a policy, and their decisions are
    /// [degraded](crate::Degradation::StoreFull). With Redis, it bounds what is followed for
    /// [`Outage::Local`].
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Checks the settings and makes the limiter. Connects to nothing: a store that cannot be reached is no error
    /// here, since it may be found later.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there is no policy, two have the same name, an outage
    /// policy is given for a policy that there is not, `max_keys` is 0, `local_size` is given for another store, or the store's URL or options are not valid.
    pub fn build(self) -> Result<Limiter, Error> {
        let Self { policies, outages, store, local_size, clock, max_keys } = self;
        if policies.is_empty() {
            return Err(Error::invalid_argument(
                "a limiter needs at least one policy, such as \"100/minute\"",
            ));
        }
        if max_keys == 0 {
            return Err(Error::invalid_argument("max_keys is 0: allowed is 1 or more"));
        }
        for (name, outage) in &outages {
            if !policies.iter().any(|policy| policy.name() == &**name) {
                return Err(Error::invalid_argument(format!(
                    "outage {outage} is given for policy {}, which there is not: name one that was added",
                    excerpt(name)
                )));
            }
        }
        let place = store?;
        if local_size.is_some() && !matches!(place, Place::Local(_)) {
            return Err(Error::invalid_argument(
                "local_size is given and the store is not local: leave it out, or name a store such as local:web",
            ));
        }
        let store = match place {
            Place::Memory => Store::Memory(MemoryStore::new(max_keys, clock)),
            Place::Local(options) => {
                let options = match local_size {
                    Some(bytes) => options.sized(bytes)?,
                    None => options,
                };
                Store::Local(Box::new(LocalStore::new(options, clock)))
            }
            Place::Redis(options) => Store::Redis(Box::new(RedisStore::new(&options, clock, max_keys)?)),
        };
        let shared = Shared { registry: super::Registry::default(), store, lines: super::Lines::default() };
        for policy in policies {
            if shared.registry.policy(policy.name()).is_some() {
                return Err(Error::invalid_argument(format!(
                    "two policies are named {}: give one another name, or put their quotas into one policy",
                    policy.name()
                )));
            }
            let outage =
                outages.iter().rfind(|(name, _)| **name == *policy.name()).map(|(_, outage)| *outage);
            shared.set_policy(policy, outage)?;
        }
        Ok(Limiter { shared: Arc::new(shared) })
    }
}
