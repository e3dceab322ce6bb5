//! A store: holds the states, and applies the transition to them atomically.
//!
//! The limiter registers policies by their ids, and the store answers requests with a decision and the units that it spent,
//! as of its own clock. The memory store answers at once. The local store does so, too, unless another process keeps a part of the
//! file locked; then a task or a thread waits, as for Redis.

#[cfg(all(feature = "redis", feature = "testing"))]
pub mod configuration_testing;
pub(crate) mod custom;
pub(crate) mod listing;
#[cfg(not(all(feature = "local", target_os = "linux")))]
#[path = "store/without_local.rs"]
pub(crate) mod local;
#[cfg(not(feature = "redis"))]
#[path = "store/without_redis.rs"]
pub(crate) mod redis;
#[cfg(test)]
mod tests;

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use self::custom::CustomStore;
#[cfg(all(feature = "local", target_os = "linux"))]
pub(crate) use polylimit_store_local as local;
use polylimit_store_memory::MemoryStore;
#[cfg(feature = "redis")]
pub(crate) use polylimit_store_redis as redis;

use self::redis::RedisStore;
use self::redis::doctor::DoctorForAll;
use crate::store::local::SharedFileStore;
use polylimit_document::source::custom::CustomOrigin;
use polylimit_document::source::origin::Origin;
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::policy::Policy;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::driver::no_resources;
use polylimit_runtime::park;
use polylimit_store::charge::{
    Charge, PolicyId, PolicyOptions, PreparedQuotas, StoreAnswer, StoreAnswers, Wait,
};
use polylimit_store::families::durations::DurationCounts;
use polylimit_store::finding::Finding;

#[derive(Debug)]
pub(crate) enum Store {
    Memory(MemoryStore),
    Local(Box<SharedFileStore>),
    Redis(Box<RedisStore>),
    Custom(Box<CustomStore>),
}

impl Store {
    /// The clock of this process, by which the store decides or would decide.
    pub(crate) fn clock(&self) -> &Clock {
        match self {
            Self::Memory(store) => store.clock(),
            Self::Local(store) => store.clock(),
            Self::Redis(store) => store.clock(),
            Self::Custom(store) => store.clock(),
        }
    }

    /// The configuration in the same store, if it can keep one.
    pub(crate) fn origin(&self) -> Option<Arc<dyn Origin>> {
        match self {
            Self::Memory(_) | Self::Local(_) => None,
            Self::Redis(store) => Some(store.origin()),
            Self::Custom(store) => Some(Arc::new(CustomOrigin::new(store.configuration()))),
        }
    }

    /// Registers a policy, or changes its quotas; usage is kept for quotas whose identity stays the same.
    pub(crate) fn set_policy(&self, id: PolicyId, policy: &Policy, options: PolicyOptions) {
        match self {
            Self::Memory(store) => store.set_policy(id, policy),
            Self::Local(store) => store.set_policy(id, policy, options),
            Self::Redis(store) => store.set_policy(id, policy, options),
            Self::Custom(store) => store.set_policy(id, policy, options),
        }
    }

    /// Forgets a policy that no request names any more. In memory its keys are unused from then on; elsewhere they keep their states.
    pub(crate) fn forget_policy(&self, id: PolicyId) {
        match self {
            Self::Memory(store) => store.forget_policy(id),
            Self::Local(store) => store.forget_policy(id),
            Self::Redis(store) => store.forget_policy(id),
            Self::Custom(store) => store.forget_policy(id),
        }
    }

    /// Whether forgetting the policy would lose the states of its keys.
    pub(crate) fn has_only_states(&self, id: PolicyId) -> bool {
        match self {
            Self::Memory(store) => store.has_states(id),
            Self::Local(_) | Self::Redis(_) | Self::Custom(_) => false,
        }
    }

    /// Prepares the effective quotas of some keys of a registered policy. `others` are further quotas that these keys may have.
    pub(crate) fn prepare_quotas(
        &self,
        id: PolicyId,
        policy: &Policy,
        others: &[Policy],
        options: PolicyOptions,
    ) -> PreparedQuotas {
        match self {
            Self::Memory(_) => MemoryStore::prepare_quotas(id, policy),
            Self::Local(store) => store.prepare_quotas(id, policy, others, options),
            Self::Redis(store) => store.prepare_quotas(id, policy, others, options),
            Self::Custom(store) => store.prepare_quotas(id, policy, others, options),
        }
    }

    /// Answers charges, each for a different key or policy: all of them are applied if every deciding one is admitted; otherwise only what
    /// denials count, and those that would have been admitted answer as a peek. A single charge may be any operation, several are checks
    /// and reserves.
    pub(crate) async fn start(&self, charges: &[Charge<'_>], wait: Wait) -> Result<StoreAnswers, Error> {
        match self {
            Self::Memory(store) => store.start(charges),
            Self::Local(store) => store.start(charges, wait).await,
            Self::Redis(store) => store.start(charges, wait).await,
            Self::Custom(store) => match wait {
                Wait::Await => store.start(charges).await,
                Wait::Block => park::block_on(store.start(charges)),
            },
        }
    }

    /// Sends several charges together; each is decided by itself, in order.
    pub(crate) async fn start_each(
        &self,
        charges: &[Charge<'_>],
        wait: Wait,
    ) -> Result<Vec<StoreAnswer>, Error> {
        if let Self::Redis(store) = self {
            return store.start_each(charges, wait).await;
        }
        let mut answers = Vec::with_capacity(charges.len());
        for charge in charges {
            answers.extend(self.start(slice::from_ref(charge), wait).await?);
        }
        Ok(answers)
    }

    /// The answer of a store in this process or on this host. `None` for Redis, which has to be awaited, and, with nothing done, while
    /// another process keeps a part of the file locked.
    #[inline]
    pub(crate) fn try_start(&self, charge: Charge<'_>) -> Option<Result<StoreAnswer, Error>> {
        match self {
            Self::Memory(store) => Some(store.answer(charge)),
            Self::Local(store) => store.try_answer(charge),
            Self::Redis(_) | Self::Custom(_) => None,
        }
    }

    /// What is cached in front of the store of a check: a denial, or a lease that pays.
    #[inline]
    pub(crate) fn ask_caches(&self, charge: Charge<'_>) -> Option<StoreAnswer> {
        match self {
            Self::Redis(store) if charge.uses_caches => store.ask_caches(charge),
            _ => None,
        }
    }

    /// Its location, for operators, without credentials; `None` in memory.
    pub(crate) fn place(&self) -> Option<Arc<str>> {
        match self {
            Self::Memory(_) => None,
            Self::Local(store) => store.place(),
            Self::Redis(store) => Some(store.place()),
            Self::Custom(store) => Some(store.place()),
        }
    }

    /// Why it cannot decide, in the doctor's words, as far as it is known.
    pub(crate) fn cause(&self, reason: Degradation) -> Option<Arc<str>> {
        match self {
            Self::Memory(_) => None,
            Self::Local(store) => store.cause(),
            Self::Redis(store) => store.cause(reason),
            Self::Custom(store) => store.cause(),
        }
    }

    /// A warning about its options when it is created, for operators.
    pub(crate) fn warning(&self) -> Option<Finding> {
        match self {
            Self::Memory(_) | Self::Local(_) | Self::Custom(_) => None,
            Self::Redis(store) => store.warning(),
        }
    }

    /// The maximum number of keys that a store of this process or host has room for, if it is open.
    pub(crate) fn keys_capacity(&self) -> Option<usize> {
        match self {
            Self::Memory(store) => Some(store.keys_capacity()),
            Self::Local(store) => store.keys_capacity(),
            Self::Redis(_) | Self::Custom(_) => None,
        }
    }

    /// How long the store's calls took, if they take measurable time.
    pub(crate) fn durations(&self) -> Option<DurationCounts> {
        match self {
            Self::Memory(_) | Self::Local(_) | Self::Custom(_) => None,
            Self::Redis(store) => Some(store.durations()),
        }
    }

    /// How long an operation waits for the store; zero if it answers at once.
    pub(crate) fn deadline(&self) -> Duration {
        match self {
            Self::Memory(_) | Self::Local(_) | Self::Custom(_) => Duration::ZERO,
            Self::Redis(store) => store.deadline(),
        }
    }

    /// Whether it is in this process or on this host, and so answers in microseconds, unless another process keeps a part of the file
    /// locked.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Local(_))
    }

    /// Whether it never waits for another process.
    pub(crate) fn never_waits(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Whether this process keeps units of the policy in leases.
    pub(crate) fn is_leased(&self, id: PolicyId) -> bool {
        match self {
            Self::Memory(_) | Self::Local(_) | Self::Custom(_) => false,
            Self::Redis(store) => store.is_leased(id),
        }
    }

    /// Whether other processes use the same states.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// The same store for a process forked from the one that uses this, with these policies.
    #[cfg_attr(
        not(all(feature = "redis", feature = "local", target_os = "linux")),
        expect(unreachable_code, reason = "a store that is left out has no values")
    )]
    pub(crate) fn after_fork(&self, policies: &[(PolicyId, Policy)]) -> Self {
        match self {
            Self::Memory(store) => {
                let store = store.after_fork();
                for (id, policy) in policies {
                    store.set_policy(*id, policy);
                }
                Self::Memory(store)
            }
            Self::Local(store) => Self::Local(Box::new(store.after_fork(policies))),
            Self::Redis(store) => Self::Redis(Box::new(store.after_fork())),
            Self::Custom(store) => Self::Custom(Box::new(store.after_fork(policies))),
        }
    }

    /// How long after the first decision the doctor examines the store, if it does.
    pub(crate) fn doctor_after(&self) -> Option<Duration> {
        match self {
            Self::Memory(_) | Self::Local(_) | Self::Custom(_) => None,
            Self::Redis(store) => store.doctor_after(),
        }
    }

    /// The doctor that examines the store on its own; `None` without one, and where another limiter has started it.
    pub(crate) fn doctor_for_all(&self) -> Option<DoctorForAll> {
        match self {
            Self::Memory(_) | Self::Local(_) | Self::Custom(_) => None,
            Self::Redis(store) => store.doctor_for_all(),
        }
    }

    /// Releases all resources and ends the pending operations. The limiter does not call the store from then on.
    pub(crate) fn close(&self) {
        match self {
            Self::Memory(store) => store.clear(),
            Self::Local(store) => store.close(),
            Self::Redis(store) => store.close(),
            Self::Custom(store) => store.close(),
        }
    }

    /// Waits on this thread, which must not belong to a runtime, for a future that calls this store.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        match self {
            Self::Memory(_) | Self::Local(_) | Self::Custom(_) => {
                // The future may need a timer and nothing else.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                let runtime = runtime.map_err(|error| no_resources("timer", &error))?;
                Ok(runtime.block_on(future))
            }
            Self::Redis(store) => store.block_on(future),
        }
    }

    /// [`block_on`](Self::block_on) for a future that needs a runtime only to keep the time. Where the system has no
    /// resources for one, this thread keeps it, and the store decides by the outage policy.
    pub(crate) fn block_on_wait<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        match self {
            Self::Redis(store) => match store.driver() {
                Ok(driver) => driver.block_on(future),
                Err(error) if error.kind() == ErrorKind::StoreUnavailable => Ok(park::block_on(future)),
                Err(error) => Err(error),
            },
            _ => self.block_on(future),
        }
    }
}
