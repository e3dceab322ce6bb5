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
/// request gives stands beside it, in brackets, so that no caller acts in the name of another; alone it stands only where the server
/// knows nothing.
pub(super) fn author(extensions: &Extensions, by: Option<String>, why: String) -> Result<Author, Refused> {
    if why.trim().is_empty() {
        return Err(invalid("why is empty: give the reason of the change, for the log"));
    }
    let known = extensions.get::<Caller>().and_then(known);
    let by = match (known, by.filter(|by| !by.is_empty())) {
        (Some(known), Some(by)) if known != by => format!("{known} ({by})"),
        (Some(known), _) => known,
        (None, by) => by.unwrap_or_default(),
    };
    Ok(Author { by, why })
}

fn known(caller: &Caller) -> Option<String> {
    let name = caller.identity.as_ref().map(|identity| identity.name.to_string());
    name.or_else(|| caller.uid.map(|uid| format!("uid:{uid}")))
}
