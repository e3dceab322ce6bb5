//! What a middleware knows about a request.

use std::borrow::Cow;
use std::ffi::c_char;
use std::ffi::c_void;

use polylimit::http::guard::Guard;
use polylimit::http::guard::GuardCheck;
use polylimit::http::guard::KeyPart;
use polylimit::http::guard::MissingKey;
use polylimit::http::guard::RequestFacts;
use polylimit::http::guard::RequestLimits;

use crate::arguments::Sized32;
use crate::arguments::array;
use crate::arguments::bytes;
use crate::arguments::optional_text;
use crate::arguments::text;
use crate::attributes::polylimit_attributes;
use crate::attributes::request_attributes;
use crate::client_address::polylimit_line;
use crate::error::Failure;
use crate::guard::polylimit_guard;

/// An element of `costs` in polylimit_request_facts: the policy has the cost that it has without that array.
pub const POLYLIMIT_GUARD_COST: u64 = u64::MAX;

/// What a middleware knows about a request. Texts end with a NUL. Nothing is used after the call.
#[repr(C)]
pub struct polylimit_request_facts {
    /// sizeof(polylimit_request_facts), set by the caller.
    pub size: u32,
    /// 1 when `cost` is what the request spends; 0 when that is the guard's cost.
    pub has_cost: u32,
    /// The units that the request spends: 0 to 10^12.
    pub cost: u64,
    /// The key: any bytes. NULL when the request has none, and when the guard has key parts. An empty key is none.
    pub key: *const c_void,
    /// The length of the key in bytes: 0 to 1 MiB.
    pub key_length: usize,
    /// The values of the guard's key parts, in their order. The `start` of a missing value is NULL, and an empty one is missing, too;
    /// that of an address is not read.
    pub key_values: *const polylimit_line,
    /// The number of key values.
    pub key_value_count: usize,
    /// The client's address, as polylimit_address_rules_key writes it: for the key part "address", and for a request
    /// without a key. It may be NULL where neither is needed.
    pub address: *const c_char,
    /// The framework's name of the route, the same in every process, such as "GET /users/{id}"; NULL for none.
    pub route: *const c_char,
    /// Policies of this request in place of the guard's: names, or quotas as text, which must come from the program and
    /// never from its users. NULL for the guard's; otherwise the request is not limited when `policy_count` is 0. A guard with an option
    /// about one of its policies, such as `cost.tokens`, takes no others.
    pub policies: *const *const c_char,
    /// The number of policies.
    pub policy_count: usize,
    /// The attributes of the request, for a guard that decides by the configuration; otherwise NULL.
    pub attributes: *const polylimit_attributes,
    /// The units that the request spends under each policy, in the order of the policies: 0 to 10^12, or POLYLIMIT_GUARD_COST, which a
    /// policy beyond the end has, too: the guard's `cost.<policy>`, otherwise `cost`. So tokens count under one policy and the request
    /// itself under another. NULL for none.
    pub costs: *const u64,
    /// The number of costs. Those beyond the policies have no effect.
    pub cost_count: usize,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_request_facts {
    const NAME: &'static str = "facts";
    const MIN_SIZE: u32 = 104;
}

impl polylimit_request_facts {
    /// Starts the decision of a guard on the request.
    ///
    /// # Safety
    /// The fields point at what their documentation says.
    pub(crate) unsafe fn start(
        &self,
        guard: &polylimit_guard,
        limits: &RequestLimits,
    ) -> Result<GuardCheck, Failure> {
        let guard = &guard.guard;
        // SAFETY: the caller guarantees it.
        let (address, route) =
            unsafe { (optional_text(self.address, "address")?, optional_text(self.route, "route")?) };
        if guard.is_by_configuration() {
            if self.attributes.is_null() {
                return Ok(guard.start(limits, &RequestFacts::new())?);
            }
            // SAFETY: the caller guarantees attributes.
            let attributes = unsafe { request_attributes(self.attributes) }?;
            return Ok(guard.start(limits, &RequestFacts::new().attributes(&attributes))?);
        }
        // SAFETY: the caller guarantees an array.
        let costs = unsafe { array(self.costs, self.cost_count, "costs") }?;
        let costs: Vec<_> =
            costs.iter().map(|&cost| (cost != POLYLIMIT_GUARD_COST).then_some(cost)).collect();
        let mut facts = RequestFacts::new().costs(&costs);
        // SAFETY: the caller guarantees it.
        let key = unsafe { self.find_key(guard, address) }?;
        if let Some(key) = &key {
            facts = facts.key(key);
        }
        if self.has_cost != 0 {
            facts = facts.cost(self.cost);
        }
        if let Some(route) = route {
            facts = facts.route(route);
        }
        if self.policies.is_null() {
            return Ok(guard.start(limits, &facts)?);
        }
        // SAFETY: the caller guarantees an array of texts.
        let policies = unsafe { array(self.policies, self.policy_count, "policies") }?;
        // SAFETY: as above.
        let policies = policies.iter().map(|&policy| unsafe { text(policy, "a policy") });
        let policies = policies.collect::<Result<Vec<_>, _>>()?;
        Ok(guard.start(limits, &facts.policies(&policies))?)
    }

    /// The key; `None` for a request that the guard refuses or counts with all others that have none.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    unsafe fn find_key<'a>(
        &'a self,
        guard: &Guard,
        address: Option<&'a str>,
    ) -> Result<Option<Cow<'a, [u8]>>, Failure> {
        let parts = guard.key_parts();
        let key = if parts.is_empty() {
            // SAFETY: the caller guarantees the bytes.
            let key = || unsafe { bytes(self.key.cast(), self.key_length, "key") };
            (!self.key.is_null()).then(key).transpose()?.filter(|key| !key.is_empty()).map(Into::into)
        } else {
            // SAFETY: the caller guarantees an array.
            let values = unsafe { array(self.key_values, self.key_value_count, "key_values") }?;
            let value_of = |(part, value): (&KeyPart, &polylimit_line)| match part {
                KeyPart::Address => Ok(address.map(str::as_bytes)),
                _ if value.start.is_null() => Ok(None),
                // SAFETY: the caller guarantees the bytes.
                _ => unsafe { bytes(value.start.cast(), value.length, "a key value") }.map(Some),
            };
            let values = parts.iter().zip(values).map(value_of).collect::<Result<Vec<_>, _>>()?;
            guard.join_key(&values).map(Into::into)
        };
        if key.is_some() || guard.missing_key() != MissingKey::Address {
            return Ok(key);
        }
        let missing =
            || Failure::invalid("the request has no key, and address is NULL: give the client's address");
        address.ok_or_else(missing).map(|address| Some(address.as_bytes().into()))
    }
}
