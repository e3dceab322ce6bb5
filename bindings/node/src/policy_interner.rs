//! Numbers for the names of policies, so that a name need not be read again with each request.

use polylimit::Limiter;

use crate::error::{Result, internal};

/// Names beyond this number are not interned, and are read with each request.
const MAX_NAMES: usize = 256;

/// The texts by which requests have named existing policies. `policy_for` has them stay, so that they remain valid.
#[derive(Default)]
pub(crate) struct PolicyInterner {
    names: Vec<Box<str>>,
}

impl PolicyInterner {
    /// The text of this number.
    #[inline]
    pub(crate) fn name(&self, number: usize) -> Result<&str> {
        self.names
            .get(number)
            .map(|name| &**name)
            .ok_or_else(|| internal(format!("no policy is interned as {number}")))
    }

    /// The number of a text; `None` for a policy that the limiter does not know, and when there are too many.
    pub(crate) fn intern(&mut self, name: &str, limiter: &Limiter) -> Option<usize> {
        if let Some(number) = self.names.iter().position(|known| **known == *name) {
            return Some(number);
        }
        if self.names.len() == MAX_NAMES || limiter.policy_for(Some(name), None).is_err() {
            return None;
        }
        self.names.push(name.into());
        Some(self.names.len() - 1)
    }
}
