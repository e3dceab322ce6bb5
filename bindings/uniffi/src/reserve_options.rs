//! The options of reservations, and their arguments.

use polylimit::raw::ReservationTerms;
use polylimit::reservation::ReservationId;

use crate::error::Result;
use crate::number::{Span, unsigned};

/// How a reservation is made, kept and ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, uniffi::Record)]
pub struct ReserveOptions {
    /// Names the reservation: 1 to 64 bytes; random by default. A caller that has received no answer repeats the operation
    /// with the same id.
    #[uniffi(default)]
    pub id: Option<Vec<u8>>,
    /// How long the reservation lasts after its last renewal: 1 ms to 48 h, 30 seconds by default. So long its units stay set
    /// aside after its holder died.
    #[uniffi(default)]
    pub ttl: Option<Span>,
    /// How long the caller waits in line until the reservation is admitted; not at all by default.
    #[uniffi(default)]
    pub timeout: Option<Span>,
    /// How long the reservation is renewed in the background, every third of its ttl: one hour by default; 0 never renews it.
    #[uniffi(default)]
    pub max_age: Option<Span>,
    /// Whether a reservation that is neither committed nor cancelled is committed with what was reserved, in place of
    /// cancelled.
    #[uniffi(default)]
    pub commit_at_end: bool,
    /// How long after its commit the id is remembered: 1 ms to 48 h; not at all by default. Meanwhile nothing more is charged for the id
    /// under this key and policy: a repeated commit is reported as `repeated`, and a reserve asks for a slot only.
    #[uniffi(default)]
    pub remember: Option<Span>,
}

impl ReserveOptions {
    pub(crate) fn to_core(&self) -> Result<polylimit::reservation::ReserveOptions> {
        let mut options = polylimit::reservation::ReserveOptions::default().commit_at_end(self.commit_at_end);
        if let Some(id) = &self.id {
            options = options.id(id_of(id)?);
        }
        if let Some(ttl) = self.ttl {
            options = options.ttl(ttl.duration("ttl")?);
        }
        if let Some(timeout) = self.timeout {
            options = options.timeout(timeout.duration("timeout")?);
        }
        if let Some(max_age) = self.max_age {
            options = options.max_age(max_age.duration("max_age")?);
        }
        if let Some(remember) = self.remember {
            options = options.remember(remember.duration("remember")?);
        }
        Ok(options)
    }
}

/// The terms of reservations that have no handle.
pub(crate) fn terms_of(
    id: Option<&Vec<u8>>,
    ttl: Option<Span>,
    remember: Option<Span>,
) -> Result<ReservationTerms> {
    let mut options = polylimit::reservation::ReserveOptions::default();
    if let Some(id) = id {
        options = options.id(id_of(id)?);
    }
    if let Some(ttl) = ttl {
        options = options.ttl(ttl.duration("ttl")?);
    }
    if let Some(remember) = remember {
        options = options.remember(remember.duration("remember")?);
    }
    Ok(options.terms()?)
}

pub(crate) fn id_of(id: &[u8]) -> Result<ReservationId> {
    Ok(ReservationId::new(id)?)
}

pub(crate) fn spent_of(spent: Option<i64>) -> Result<Option<u64>> {
    spent.map(|spent| unsigned("spent", spent)).transpose()
}
