//! A request that outlives the arguments from which it was read.

use napi::Env;
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;
use polylimit::Request;

use crate::error::Result;
use crate::number::{cost, headroom};
use crate::text::owned_bytes;

/// The options of a request as JavaScript passes them.
#[derive(Default)]
pub(crate) struct RequestOptions {
    pub(crate) policy: Option<String>,
    pub(crate) cost: Option<f64>,
    pub(crate) headroom: Option<f64>,
    pub(crate) plan: Option<String>,
}

/// A key, with the options of its request.
pub(crate) struct OwnedRequest {
    key: Vec<u8>,
    policy: Option<String>,
    cost: Option<u64>,
    headroom: Option<u8>,
    plan: Option<String>,
}

impl OwnedRequest {
    /// Reads a key, which is an argument of the current call, and numbers.
    pub(crate) fn read(env: Env, key: Unknown<'_>, options: RequestOptions) -> Result<Self> {
        let RequestOptions { policy, plan, .. } = options;
        let key = owned_bytes("key", env, key)?;
        let cost = options.cost.map(cost).transpose()?;
        Ok(Self { key, policy, cost, headroom: options.headroom.map(headroom).transpose()?, plan })
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let mut request = Request::new(&self.key);
        if let Some(policy) = &self.policy {
            request = request.policy(policy);
        }
        if let Some(units) = self.cost {
            request = request.cost(units);
        }
        if let Some(percent) = self.headroom {
            request = request.headroom(percent);
        }
        if let Some(plan) = &self.plan {
            request = request.plan(plan);
        }
        request
    }
}

/// The options of an operation that spends nothing by itself.
#[napi(object, object_to_js = false)]
pub struct KeyChoice {
    pub policy: Option<String>,
    pub plan: Option<String>,
}

impl KeyChoice {
    /// The request of a key with these options.
    pub(crate) fn of(self, env: Env, key: Unknown<'_>) -> Result<OwnedRequest> {
        let Self { policy, plan } = self;
        OwnedRequest::read(env, key, RequestOptions { policy, plan, ..RequestOptions::default() })
    }
}
