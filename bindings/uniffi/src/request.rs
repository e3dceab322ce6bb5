//! What a caller asks about.

use crate::error::Result;
use crate::number::unsigned;

/// A key, the policy that is applied to it, and the units that the request spends.
#[derive(Clone, PartialEq, Eq, uniffi::Record)]
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
