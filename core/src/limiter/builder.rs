//! Builds a limiter.

use std::sync::Arc;

use super::{Limiter, Shared};
use crate::clock::Clock;
use crate::error::Error;
use crate::policy::Policy;
use crate::store::memory::MemoryStore;

/// The settings of a [`Limiter`] before they are checked; made by [`Limiter::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes a limiter only when `build` is called"]
pub struct LimiterBuilder {
    policies: Vec<Policy>,
    clock: Clock,
    max_keys: usize,
}

impl Default for LimiterBuilder {
    fn default() -> Self {
        Self { policies: Vec::new(), clock: Clock::default(), max_keys: Self::DEFAULT_MAX_KEYS }
    }
}

impl LimiterBuilder {
    /// How many keys the memory store holds unless told otherwise: 1,000,000.
    pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

    /// Adds a policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// By which clock to decide: the system's unless told otherwise.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// The most keys that the memory store holds a state for, over all policies; at least 1. States of which nothing
    /// counts as used any more make room for new keys, those in use do not: when it is full of them, new keys share
    /// one state a policy, and their decisions are [degraded](crate::Degradation::StoreFull).
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Checks the settings and makes the limiter.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there is no policy, two have the same name, or
    /// `max_keys` is 0.
    pub fn build(self) -> Result<Limiter, Error> {
        if self.policies.is_empty() {
            return Err(Error::invalid_argument(
                "a limiter needs at least one policy, such as \"100/minute\"",
            ));
        }
        if self.max_keys == 0 {
            return Err(Error::invalid_argument("max_keys is 0: allowed is 1 or more"));
        }
        let shared = Shared {
            registry: super::Registry::default(),
            store: MemoryStore::new(self.max_keys, self.clock),
            lines: super::Lines::default(),
        };
        for policy in self.policies {
            if shared.registry.policy(policy.name()).is_some() {
                return Err(Error::invalid_argument(format!(
                    "two policies are named {}: give one another name, or put their quotas into one policy",
                    policy.name()
                )));
            }
            shared.set_policy(policy)?;
        }
        Ok(Limiter { shared: Arc::new(shared) })
    }
}
