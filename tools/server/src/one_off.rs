//! Quotas as text that callers use in place of policies' names. A limiter keeps each of them, so the server bounds how many there are.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::RwLock;
use polylimit::{Limiter, Policy};

use crate::error::ServeError;

/// The quotas that callers have used so far.
pub(crate) struct OneOffPolicies {
    most: usize,
    by_text: RwLock<HashMap<Box<str>, Arc<str>>>,
    by_throttle: RwLock<HashMap<Throttle, Arc<str>>>,
}

/// The numbers of a `CL.THROTTLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Throttle {
    pub(crate) max_burst: u64,
    pub(crate) count: u64,
    pub(crate) period_seconds: u64,
}

impl OneOffPolicies {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, by_text: RwLock::default(), by_throttle: RwLock::default() }
    }

    /// The name of the policy that a text means: itself, unless it is quotas.
    pub(crate) fn resolve(&self, limiter: &Limiter, text: &str) -> Result<Option<Arc<str>>, ServeError> {
        if !Policy::is_quotas(text) {
            return Ok(None);
        }
        self.find(&self.by_text, text, || Box::from(text), || text.to_owned(), limiter).map(Some)
    }

    /// The name of the policy of a `CL.THROTTLE`.
    pub(crate) fn throttle(&self, limiter: &Limiter, throttle: Throttle) -> Result<Arc<str>, ServeError> {
        let Throttle { max_burst, count, period_seconds } = throttle;
        let text = || format!("{count}/{period_seconds}s token_bucket burst={}", max_burst.saturating_add(1));
        self.find(&self.by_throttle, &throttle, || throttle, text, limiter)
    }

    fn find<K, Q>(
        &self,
        known: &RwLock<HashMap<K, Arc<str>>>,
        key: &Q,
        owned: impl FnOnce() -> K,
        text: impl FnOnce() -> String,
        limiter: &Limiter,
    ) -> Result<Arc<str>, ServeError>
    where
        K: Hash + Eq + std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some(name) = known.read().get(key) {
            return Ok(Arc::clone(name));
        }
        let mut known = known.write();
        if let Some(name) = known.get(key) {
            return Ok(Arc::clone(name));
        }
        if known.len() >= self.most {
            return Err(ServeError::new(format!(
                "callers have used {} different quotas as text, which is the most: use those again, or name policies of the document",
                self.most
            )));
        }
        let policy = limiter.policy_for(Some(&text()), None)?;
        let name: Arc<str> = policy.name().into();
        known.insert(owned(), Arc::clone(&name));
        Ok(name)
    }
}
