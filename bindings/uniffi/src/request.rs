//! What a caller asks about.

use std::fmt;

use crate::error::Result;
use crate::number::unsigned;

/// A key, the policy that is applied to it, and the units that the request spends. Its text does not show the key.
#[derive(Clone, PartialEq, Eq, uniffi::Record)]
#[uniffi::export(Debug, Display)]
pub struct Request {
    /// Whom or what the policy is applied to: up to 1 MiB.
    pub key: Vec<u8>,
    /// A policy's name, or quotas such as `100/minute`; it may be left out where the limiter has only one policy.
    #[uniffi(default)]
    pub policy: Option<String>,
    /// The units that the request spends, 0 to 10^12; 1 unless told otherwise.
    #[uniffi(default)]
    pub cost: Option<i64>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, cost) = (&self.policy, &self.cost);
        f.debug_struct("Request").field("policy", policy).field("cost", cost).finish_non_exhaustive()
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Request {
    pub(crate) fn asked(&self) -> Result<polylimit::Request<'_>> {
        let mut request = polylimit::Request::new(&self.key);
        if let Some(policy) = &self.policy {
            request = request.policy(policy);
        }
        if let Some(cost) = self.cost {
            request = request.cost(unsigned("cost", cost)?);
        }
        Ok(request)
    }
}
