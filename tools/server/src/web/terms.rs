//! The terms of reservations, as fields of a body.

use std::time::Duration;

use polylimit::Error;
use polylimit::raw::ReservationTerms;
use polylimit::reservation::{ReservationId, ReserveOptions};

/// The terms of a request with these fields; those that are absent have the core's defaults.
pub(super) fn terms(
    id: Option<&str>,
    ttl_us: Option<u64>,
    remember_us: Option<u64>,
) -> Result<ReservationTerms, Error> {
    let mut options = ReserveOptions::default();
    if let Some(id) = id {
        options = options.id(ReservationId::new(id)?);
    }
    if let Some(ttl_us) = ttl_us {
        options = options.ttl(Duration::from_micros(ttl_us));
    }
    if let Some(remember_us) = remember_us {
        options = options.remember(Duration::from_micros(remember_us));
    }
    options.terms()
}
