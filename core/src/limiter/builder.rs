//! Builds a limiter.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, excerpt};
use crate::limiter::event::{DegradedEvent, Hook};
use crate::limiter::{Limiter, Shared};
use crate::rules::policy::Policy;
use crate::runtime::clock::Clock;
use crate::store::Store;
use crate::store::lease_size::Lease;
use crate::store::memory::MemoryStore;
use crate::store::option::{OptionKind, StoreOption};
use crate::store::outage::Outage;
use crate::store::redis::{RedisOptions, RedisStore};
use crate::store::request::PolicyOptions;
use crate::store::shared_file::{SharedFileOptions, SharedFileStore};
use crate::store::suggestion::Suggestion;

/// The settings of a [`Limiter`] before they are checked; made by [`Limiter::builder`]. `Debug` shows no value that was
/// given as text, since that may be a secret.
#[derive(Clone)]
#[must_use = "a builder makes a limiter only when `build` is called"]
pub struct LimiterBuilder {
    policies: Vec<Policy>,
    outages: Vec<(Box<str>, Outage)>,
    leases: Vec<(Box<str>, Lease)>,
    store: Result<Place, Error>,
    local_size: Option<u64>,
    clock: Clock,
    max_keys: usize,
    hook: Option<Hook>,
    /// By name, as text.
    options: Vec<(Box<str>, Box<str>)>,
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<&str> = self.options.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("LimiterBuilder")
            .field("policies", &self.policies)
            .field("store", &self.store)
            .field("options", &options)
            .finish_non_exhaustive()
    }
}

/// Where the states are kept.
#[derive(Clone, Debug)]
enum Place {
    Memory,
    Local(SharedFileOptions),
    Redis(Box<RedisOptions>),
}

impl Place {
    /// Sets an option of the store by its name.
    fn set(self, name: &str, text: &str) -> Result<Self, Error> {
        let (this, needed) = match self {
            Self::Redis(options) => return Ok(Self::Redis(Box::new(options.set(name, text)?))),
            Self::Local(options) if name == LOCAL_SIZE.name => {
                return Ok(Self::Local(options.sized_by(text)?));
            }
            Self::Local(_) => ("local", "a Redis"),
            Self::Memory if name == LOCAL_SIZE.name => ("memory", "a local"),
            Self::Memory => ("memory", "a Redis"),
        };
        let known = LimiterBuilder::options();
        Err(Error::invalid_argument(if known.iter().any(|option| option.name == name) {
            format!("option {name} is for {needed} store, and this is the {this} store: leave it out")
        } else if let Some(ours) = Suggestion::for_option(name) {
            format!("option {} is not known: {ours}", excerpt(name))
        } else {
            let known = known.iter().map(|option| option.name).collect::<Vec<_>>().join(", ");
            format!("option {} is not known: allowed are {known}", excerpt(name))
        }))
    }

    /// Refuses what is given for a policy and only a store in Redis heeds.
    fn has_use_for(&self, what: &str, policy: &str) -> Result<(), Error> {
        let store = match self {
            Self::Redis(_) => return Ok(()),
            Self::Local(_) => "local",
            Self::Memory => "memory",
        };
        Err(Error::invalid_argument(format!(
            "{what} is given for policy {}: it is for a Redis store, and this is the {store} store: leave it out",
            excerpt(policy)
        )))
    }
}

const MAX_KEYS: StoreOption = StoreOption {
    name: "max_keys",
    kind: OptionKind::Number,
    about: "The most keys that are held in this process, over all policies.",
    allowed: "1 or more",
    default: Some("1000000"),
    secret: false,
};

const LOCAL_SIZE: StoreOption = StoreOption {
    name: "local_size",
    kind: OptionKind::Text,
    about: "How many bytes a local store takes when it is made. One that is there has to have that size.",
    allowed: "1MiB to 64GiB",
    default: Some("64MiB"),
    secret: false,
};

/// The policy for which something is given.
fn named<'a>(
    policies: &'a [Policy],
    name: &str,
    what: &str,
    given: &dyn fmt::Display,
) -> Result<&'a Policy, Error> {
    policies.iter().find(|policy| policy.name() == name).ok_or_else(|| {
        Error::invalid_argument(format!(
            "{what} {given} is given for policy {}, which there is not: name one that was added",
            excerpt(name)
        ))
    })
}

fn last_of<T: Copy>(given: &[(Box<str>, T)], policy: &str) -> Option<T> {
    given.iter().rfind(|(name, _)| **name == *policy).map(|(_, value)| *value)
}

fn read_max_keys(text: &str) -> Result<usize, Error> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().ok_or_else(|| {
        Error::invalid_argument(format!("max_keys is {}: allowed is a whole number from 1 up", excerpt(text)))
    })
}

impl Default for LimiterBuilder {
    fn default() -> Self {
        Self {
            policies: Vec::new(),
            outages: Vec::new(),
            leases: Vec::new(),
            store: Ok(Place::Memory),
            local_size: None,
            clock: Clock::default(),
            max_keys: Self::DEFAULT_MAX_KEYS,
            hook: None,
            options: Vec::new(),
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
            _ if SharedFileOptions::is_local(url) => SharedFileOptions::parse(url).map(Place::Local),
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
    #[cfg(feature = "redis")]
    pub fn redis(mut self, options: RedisOptions) -> Self {
        self.store = Ok(Place::Redis(Box::new(options)));
        self
    }

    /// What the policy of that name answers while the store cannot be asked, in place of what the store's options say. Only
    /// a store in Redis has use for it: the others answer themselves.
    pub fn outage(mut self, policy: &str, outage: Outage) -> Self {
        self.outages.push((policy.into(), outage));
        self
    }

    /// Leases busy keys of the policy of that name: units are taken ahead from the store and spent in this process. Only a
    /// store in Redis has use for it: the others are asked without a network.
    pub fn lease(mut self, policy: &str, lease: Lease) -> Self {
        self.leases.push((policy.into(), lease));
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
    /// [`Outage::Fallback`].
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Is called when the limiter begins to decide without its store, when it decides with it again, and with what the doctor
    /// finds; see [`DegradedEvent`]. With the feature `tracing` these are told as events of that crate as well.
    ///
    /// It is called on the thread that notices, which may be one of the limiter's own, and holds up the decision that it was
    /// noticed by: it must not block. If it panics, that is of no consequence but for what the panic hook prints.
    ///
    /// ```
    /// use polylimit::Limiter;
    ///
    /// let limiter = Limiter::builder().on_degraded(|event| eprintln!("polylimit: {event}")).build()?;
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn on_degraded(mut self, hook: impl Fn(&DegradedEvent) + Send + Sync + 'static) -> Self {
        self.hook = Some(Hook::new(hook));
        self
    }

    /// Sets an option by its name and a text, for those who have it so: any of [`options`](Self::options), or
    /// `outage.<policy>` and `lease.<policy>`, which are [`outage`](Self::outage) and [`lease`](Self::lease). A mistake is
    /// reported by [`build`](Self::build).
    pub fn option(mut self, name: &str, text: &str) -> Self {
        self.options.push((name.into(), text.into()));
        self
    }

    /// Every option that [`option`](Self::option) knows: those of this builder, and those of a Redis store.
    pub fn options() -> Vec<StoreOption> {
        [MAX_KEYS, LOCAL_SIZE].into_iter().chain(RedisOptions::ALL.iter().copied()).collect()
    }

    /// Checks the settings and makes the limiter. Connects to nothing: a store that cannot be reached is no error
    /// here, since it may be found later.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when two policies have the same name, an outage
    /// policy or a lease is given for a policy that there is not or for a store that is not in Redis, a policy cannot be
    /// leased, `max_keys` is 0, `local_size` is given for another store, or the store's URL or options are not valid.
    pub fn build(self) -> Result<Limiter, Error> {
        let Self { policies, mut outages, mut leases, store, local_size, clock, mut max_keys, hook, options } =
            self;
        let mut place = store?;
        for (name, text) in &options {
            match name.split_once('.') {
                Some(("outage", policy)) => outages.push((policy.into(), text.parse()?)),
                Some(("lease", policy)) => leases.push((policy.into(), text.parse()?)),
                _ if **name == *MAX_KEYS.name => max_keys = read_max_keys(text)?,
                _ => place = place.set(name, text)?,
            }
        }
        if max_keys == 0 {
            return Err(Error::invalid_argument("max_keys is 0: allowed is 1 or more"));
        }
        for (name, outage) in &outages {
            named(&policies, name, "outage", outage)?;
            place.has_use_for("outage", name)?;
        }
        for (name, lease) in &leases {
            Lease::check(named(&policies, name, "lease", lease)?)?;
            place.has_use_for("lease", name)?;
        }
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
                Store::Local(Box::new(SharedFileStore::new(options, clock)))
            }
            Place::Redis(options) => Store::Redis(Box::new(RedisStore::new(&options, clock, max_keys)?)),
        };
        let shared = Shared::new(store, hook);
        for policy in policies {
            if shared.registry.policy(policy.name()).is_some() {
                return Err(Error::invalid_argument(format!(
                    "two policies are named {}: give one another name, or put their quotas into one policy",
                    policy.name()
                )));
            }
            let options = PolicyOptions {
                outage: last_of(&outages, policy.name()),
                lease: last_of(&leases, policy.name()),
            };
            shared.set_policy(policy, options)?;
        }
        Ok(Limiter { shared: Arc::new(shared) })
    }
}
