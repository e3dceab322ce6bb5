//! The author of a change, and the reason, for the log of the configuration.

use http::Extensions;

use crate::caller::Caller;
use crate::web::refusal::{Refused, invalid};

/// The author of a change, and the reason.
pub(super) struct Author {
    pub(super) by: String,
    pub(super) why: String,
}

/// The name that the server knows the caller by: that of its token or certificate, or its user on a Unix socket. The name that the
/// request gives stands after it, in brackets, so that no caller acts in the name of another; alone it stands only where the server
/// knows nothing.
pub(super) fn author(extensions: &Extensions, by: Option<String>, why: String) -> Result<Author, Refused> {
    if why.trim().is_empty() {
        return Err(invalid("why is empty: give the reason of the change, for the log"));
    }
    Ok(Author { by: name(extensions.get::<Caller>(), by), why })
}

/// Refuses a reason or a name that is longer than the log of the configuration would take.
pub(super) fn check_note(by: Option<&str>, why: &str) -> Result<(), Refused> {
    for (name, text, most) in [("by", by.unwrap_or_default(), 256), ("why", why, 1_024)] {
        if text.len() > most {
            return Err(invalid(&format!("{name} has {} bytes: allowed are up to {most}", text.len())));
        }
    }
    Ok(())
}

/// The author's name.
pub(super) fn name(caller: Option<&Caller>, by: Option<String>) -> String {
    match (caller.and_then(Caller::known_as), by.filter(|by| !by.is_empty())) {
        (Some(known), Some(by)) if known != by => format!("{known} ({by})"),
        (Some(known), _) => known,
        (None, by) => by.unwrap_or_default(),
    }
}
