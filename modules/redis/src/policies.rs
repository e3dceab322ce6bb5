//! The policies that commands name by their text, prepared for decisions.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use polylimit_rules::algorithm::{Rules, State};
use polylimit_rules::codec::{PolicyCodec, States};
use polylimit_rules::policy::Policy;
use polylimit_rules::transition::PolicyRules;
use polylimit_rules::wire::{MAX_LENGTH, WirePolicy};

use crate::refusal::Refusal;

/// The most policies that are kept; when there are more, all are prepared anew.
const MAX_POLICIES: usize = 1_024;

/// A policy, prepared.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) policy: Policy,
    pub(crate) rules: PolicyRules,
    pub(crate) codec: PolicyCodec,
}

impl Prepared {
    fn read(text: &[u8]) -> Result<Self, Refusal> {
        if text.len() > MAX_LENGTH {
            let length = text.len();
            return Err(Refusal::of(format!(
                "the policy has {length} bytes: allowed are up to {MAX_LENGTH}"
            )));
        }
        let text = std::str::from_utf8(text).map_err(|_| Refusal::of("the policy is not UTF-8"))?;
        let read = WirePolicy::read(text).map_err(Refusal::of)?;
        let codec = PolicyCodec::new(&read.policy, read.change());
        Ok(Self { rules: PolicyRules::new(&read.policy), codec, policy: read.policy })
    }

    /// The states of a key that was never seen.
    pub(crate) fn fresh(&self) -> States {
        self.policy.quotas().iter().map(State::fresh).collect()
    }

    /// The states of a key whose value is not one of ours: everything counts as used.
    pub(crate) fn used_up(&self, now_us: u64) -> States {
        let mut states = self.fresh();
        for (quota, state) in self.rules.quotas.iter().zip(&mut states) {
            quota.rules.spend(state, now_us, quota.capacity);
        }
        states
    }
}

/// The policies that commands have named.
#[derive(Debug, Default)]
pub struct Policies {
    known: HashMap<Box<[u8]>, Arc<Prepared>, RandomState>,
    /// The one that was named last, which most often is the next one, too.
    last: Option<(Box<[u8]>, Arc<Prepared>)>,
}

impl Policies {
    /// The policy of this text.
    ///
    /// # Errors
    /// When the text is not one of a policy that the module can decide.
    pub fn named(&mut self, text: &[u8]) -> Result<Arc<Prepared>, Refusal> {
        if let Some((last, prepared)) = &self.last
            && **last == *text
        {
            return Ok(Arc::clone(prepared));
        }
        let prepared = if let Some(known) = self.known.get(text) {
            Arc::clone(known)
        } else {
            let prepared = Arc::new(Prepared::read(text)?);
            if self.known.len() >= MAX_POLICIES {
                self.known.clear();
            }
            self.known.insert(text.into(), Arc::clone(&prepared));
            prepared
        };
        self.last = Some((text.into(), Arc::clone(&prepared)));
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_policies_is_bounded() {
        let mut policies = Policies::default();
        for limit in 1..3 * MAX_POLICIES {
            policies.named(format!("{limit}/s").as_bytes()).unwrap();
            assert!(policies.known.len() <= MAX_POLICIES);
        }
        for text in [&b"5/s sliding_log"[..], b"5/month", b"", b"\xFF", &vec![b'1'; MAX_LENGTH + 1]] {
            assert!(policies.named(text).is_err());
        }
        assert!(policies.named(b"5/s").is_ok());
    }
}
