//! The settings of a limiter and of address rules, as pairs of texts.

use std::ffi::c_char;

use polylimit::{LimiterBuilder, Policy};

use crate::arguments::text;
use crate::error::Failure;

/// One setting: a name and a value, both texts that end with a NUL. The settings of a limiter are:
///
/// - `policy.<name>`: the quotas of a policy, such as "10/second; 1000/hour". Policies keep the order of the options. A limiter
///   without policies takes requests that name quotas.
/// - `outage.<name>`: how that policy decides while the store is unavailable: "fallback", "allow" or "deny". Redis only.
/// - `lease.<name>`: leases the busy keys of that policy: "auto", the largest number of units, or units and a time
///   ("100/500ms"). Redis only.
/// - `document`: the limits as a document in TOML or JSON, which the program may replace with polylimit_limiter_set_document.
/// - `configuration`: where a document is followed: "file:PATH", "store" or "store+file:PATH"; and `copy`: a file to which it is
///   written after each change, and from which a process starts while Redis is away.
/// - `observe_keys`: how many keys are counted for polylimit_limiter_top_keys: 0 (none, the default) to 65536.
/// - any option of the store, such as `deadline` ("20ms"), `outage` ("deny") or `max_keys` ("100000").
#[repr(C)]
pub struct polylimit_option {
    /// The name of the setting.
    pub name: *const c_char,
    /// Its value.
    pub value: *const c_char,
}

/// Passes every setting to the builder.
///
/// # Safety
/// Names and values are NULL or texts that end with a NUL.
pub(crate) unsafe fn apply(
    mut builder: LimiterBuilder,
    options: &[polylimit_option],
) -> Result<LimiterBuilder, Failure> {
    for option in options {
        // SAFETY: the caller guarantees it.
        let (name, value) = unsafe { (text(option.name, "the name of an option")?, option.value) };
        // SAFETY: the caller guarantees it.
        let value = unsafe { text(value, &format!("the value of option {}", name.escape_debug())) }?;
        builder = if let Some(policy) = name.strip_prefix("policy.") {
            builder.policy(Policy::parse(policy, value)?)
        } else if name == "document" {
            builder.document(value)
        } else {
            builder.option(name, value)
        };
    }
    Ok(builder)
}
