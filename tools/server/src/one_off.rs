//! Quotas as text that callers use in place of policies' names. The server keeps each of them for its life, so it bounds how many
//! there are, and how many of them one caller brings: what one uses up would be missing to all others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use polylimit::{Limiter, Policy};

use crate::access::Identity;
use crate::error::ServeError;

/// An identified caller may bring 1/n of all quotas.
const SHARE: usize = 4;

/// The quotas that callers have used so far.
pub(crate) struct OneOffPolicies {
    most: usize,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    by_text: HashMap<Box<str>, Arc<str>>,
    by_throttle: HashMap<Throttle, Arc<str>>,
    /// How many each caller has brought that says who it is.
    brought_by: HashMap<Arc<str>, usize>,
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
        Self { most, known: RwLock::default() }
    }

    /// The name of the policy that a text means: itself, unless it is quotas.
    pub(crate) fn resolve(
        &self,
        limiter: &Limiter,
        text: &str,
        caller: Option<&Identity>,
    ) -> Result<Option<Arc<str>>, ServeError> {
        if !Policy::is_quotas(text) {
            return Ok(None);
        }
        if let Some(name) = self.known.read().by_text.get(text) {
            return Ok(Some(Arc::clone(name)));
        }
        let mut known = self.known.write();
        if let Some(name) = known.by_text.get(text) {
            return Ok(Some(Arc::clone(name)));
        }
        let name = self.add(&mut known, limiter, text, caller)?;
        known.by_text.insert(text.into(), Arc::clone(&name));
        Ok(Some(name))
    }

    /// The name of the policy of a `CL.THROTTLE`.
    pub(crate) fn throttle(
        &self,
        limiter: &Limiter,
        throttle: Throttle,
        caller: Option<&Identity>,
    ) -> Result<Arc<str>, ServeError> {
        if let Some(name) = self.known.read().by_throttle.get(&throttle) {
            return Ok(Arc::clone(name));
        }
        let mut known = self.known.write();
        if let Some(name) = known.by_throttle.get(&throttle) {
            return Ok(Arc::clone(name));
        }
        let Throttle { max_burst, count, period_seconds } = throttle;
        let text = format!("{count}/{period_seconds}s token_bucket burst={}", max_burst.saturating_add(1));
        let name = self.add(&mut known, limiter, &text, caller)?;
        known.by_throttle.insert(throttle, Arc::clone(&name));
        Ok(name)
    }

    /// Makes a policy of quotas, if there is room for them.
    fn add(
        &self,
        known: &mut Known,
        limiter: &Limiter,
        text: &str,
        caller: Option<&Identity>,
    ) -> Result<Arc<str>, ServeError> {
        if known.by_text.len() + known.by_throttle.len() >= self.most {
            return Err(ServeError::new(format!(
                "callers have used {} different quotas as text, which is the most: use those again, or name policies of the document",
                self.most
            )));
        }
        let share = (self.most / SHARE).max(1);
        let brought = caller.map_or(0, |caller| known.brought_by.get(&caller.name).copied().unwrap_or(0));
        if brought >= share {
            return Err(ServeError::new(format!(
                "this caller has used {share} different quotas as text first, which is the most of one caller: use those again, or \
                 name policies of the document"
            )));
        }
        let name = limiter.policy_for(Some(text), None)?.name().into();
        if let Some(caller) = caller {
            known.brought_by.insert(Arc::clone(&caller.name), brought + 1);
        }
        Ok(name)
    }
}
