//! The settings of a limiter and of address rules, as pairs of texts.

use std::ffi::c_char;

use polylimit::raw::Suggestion;
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
/// - `document`: the limits as a document in TOML or JSON, which the program may replace with polylimit_admin_set_document.
/// - `configuration`: where a document is followed: "file:PATH", "store" or "store+file:PATH"; and `copy`: a file to which it is
///   written after each change, and from which a process starts while Redis is away.
/// - `observe_keys`: how many keys are counted for polylimit_admin_top_keys: 0 (none, the default) to 65536.
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
        refuse_unknown(name)?;
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

/// Refuses a name that is no setting, unless the core says more about it: the setting of another limiter, or a slip in an option of the
/// store. The message fits into a buffer of 256 bytes, as in the examples.
fn refuse_unknown(name: &str) -> Result<(), Failure> {
    const FAMILIES: [&str; 3] = ["policy", "outage", "lease"];
    const DOCUMENT: &str = "document";

    let options = LimiterBuilder::options();
    let (family, of) = name.split_once('.').unwrap_or((name, "<name>"));
    let is_family = name.contains('.') && FAMILIES.contains(&family);
    if is_family || name == DOCUMENT || options.iter().any(|option| option.name == name) {
        return Ok(());
    }
    let known = FAMILIES.into_iter().chain([DOCUMENT]).chain(options.iter().map(|option| option.name));
    let advice = match Suggestion::nearest(family, known) {
        Some(family) if FAMILIES.contains(&family) => format!("did you mean {family}.{}?", excerpt(of)),
        Some(DOCUMENT) => format!("did you mean {DOCUMENT}?"),
        Some(_) => return Ok(()),
        None if Suggestion::for_option(name).is_some() => return Ok(()),
        None => "allowed are policy.<name>, outage.<name>, lease.<name>, document, and options of the store such as deadline".to_owned(),
    };
    Err(Failure::invalid(format!("option {} is not known: {advice}", excerpt(name))))
}

/// As much of a name as a short message has room for.
fn excerpt(name: &str) -> String {
    const LENGTH: usize = 40;
    let name = name.escape_debug().to_string();
    let end = name.floor_char_boundary(LENGTH);
    format!("{}{}", &name[..end], if end < name.len() { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_setting_is_answered_with_the_nearest_in_a_short_message() {
        let refused = |name: &str| refuse_unknown(name).unwrap_err().message;
        assert_eq!(&*refused("polcy.a"), "option polcy.a is not known: did you mean policy.a?");
        assert_eq!(&*refused("policy"), "option policy is not known: did you mean policy.<name>?");
        assert_eq!(&*refused("documnet"), "option documnet is not known: did you mean document?");
        for name in ["colour".to_owned(), "x".repeat(1000), "\u{1}".repeat(1000)] {
            assert!(refused(&name).len() < 256, "{}", refused(&name));
        }
        for known in ["policy.a", "outage.a", "lease.a", "document", "deadline", "dedline"] {
            assert!(refuse_unknown(known).is_ok(), "{known}");
        }
    }
}
