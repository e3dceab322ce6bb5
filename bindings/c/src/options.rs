//! The settings of a limiter, as names and texts.

use std::ffi::c_char;

use polylimit::{LimiterBuilder, Policy};

use crate::failure::Failure;
use crate::text::text;

/// One setting of a limiter: a name and a text, both ended by a NUL.
///
/// - `policy.<name>`: the quotas of a policy, such as "10/second; 1000/hour". Policies stand in the order in which they are
///   given. Without any, requests give their quotas themselves.
/// - `outage.<name>`: what that policy answers while the store cannot be asked: "fallback", "allow" or "deny". Redis only.
/// - `lease.<name>`: that busy keys of that policy are leased: "auto", the most units, or units and a time ("100/500ms").
///   Redis only.
/// - any option of the store, such as `deadline` ("20ms"), `outage` ("deny") or `max_keys` ("100000").
#[repr(C)]
pub struct polylimit_option {
    /// What is set.
    pub name: *const c_char,
    /// The value, as text.
    pub value: *const c_char,
}

/// Hands every setting to the builder.
///
/// # Safety
/// Names and values are NULL or texts that end with a NUL.
pub(crate) unsafe fn apply(
    mut builder: LimiterBuilder,
    options: &[polylimit_option],
) -> Result<LimiterBuilder, Failure> {
    for option in options {
        // SAFETY: as promised by the caller.
        let (name, value) = unsafe { (text(option.name, "the name of an option")?, option.value) };
        // SAFETY: as promised by the caller.
        let value = unsafe { text(value, &format!("the value of option {}", name.escape_debug())) }?;
        builder = if let Some(policy) = name.strip_prefix("policy.") {
            builder.policy(Policy::parse(policy, value)?)
        } else {
            builder.option(name, value)
        };
    }
    Ok(builder)
}
