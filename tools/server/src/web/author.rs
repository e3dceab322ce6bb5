//! Who changes something, and why, for the log of the configuration.

use http::Extensions;

use crate::caller::Caller;

/// Who changes something, and why.
pub(super) struct Author {
    pub(super) by: String,
    pub(super) why: String,
}

/// The name that the request gives, or else that of its token or certificate.
pub(super) fn author(extensions: &Extensions, by: Option<String>, why: Option<String>) -> Author {
    let caller = extensions.get::<Caller>().and_then(|caller| caller.identity.as_ref());
    let by = by.or_else(|| caller.map(|identity| identity.name.to_string()));
    Author { by: by.unwrap_or_default(), why: why.unwrap_or_default() }
}
