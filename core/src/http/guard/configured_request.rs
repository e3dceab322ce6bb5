//! A configuration's decision on one request.

use std::sync::Arc;

use crate::http::guard::settlement::Settlement;
use crate::limiter::configured::request_decision::RequestDecision;
use crate::limiter::reservation::Reservation;
use polylimit_document::meter::Meters;
use polylimit_document::request::{AttributeSource, OwnedAttributes, RequestAttributes};
use polylimit_rules::error::Error;
use polylimit_rules::reservation::list::ReservationTerms;

/// What the configuration has to decide about a request, and its decision.
pub(super) struct ConfiguredRequest {
    attributes: OwnedAttributes,
    pub(super) terms: ReservationTerms,
    pub(super) plan: Option<Arc<str>>,
    pub(super) decided: Option<RequestDecision>,
    /// What a denial that the check has made of an admission gives back.
    pub(super) owed: Vec<Settlement>,
    /// Whether the spent units are already refunded: a check may be finished again after that, and refunds them once.
    pub(super) is_given_back: bool,
    /// The reservations with the positions of their decisions, until the response is done.
    pub(super) reservations: Vec<(usize, Reservation)>,
    /// What the response reports as spent, by the position of the decision.
    pub(super) meters: Option<Arc<Meters>>,
}

impl ConfiguredRequest {
    pub(super) fn new(attributes: &RequestAttributes<'_>, terms: ReservationTerms) -> Self {
        // No middleware knows all the ways in which its router reads paths.
        let router = attributes.router_paths().every_reading();
        let attributes = OwnedAttributes::of(&attributes.clone().router_paths(router));
        let plan =
            attributes.attribute("plan").and_then(|plan| std::str::from_utf8(plan).ok()).map(Arc::from);
        Self {
            attributes,
            terms,
            plan,
            decided: None,
            owed: Vec::new(),
            is_given_back: false,
            reservations: Vec::new(),
            meters: None,
        }
    }

    /// Whether the configuration has denied the request.
    pub(super) fn is_denied(&self) -> bool {
        self.decided.as_ref().is_some_and(|decided| !decided.allowed)
    }

    /// The attributes of a request that is not decided yet.
    pub(super) fn undecided(&self) -> Option<RequestAttributes<'_>> {
        self.decided.is_none().then(|| self.attributes.borrowed())
    }
}

/// The error of a guard that decides by the configuration but got no attributes.
pub(super) fn no_attributes() -> Error {
    Error::invalid_argument(
        "a guard that decides by the configuration got no attributes: give the request's method, path, peer and headers",
    )
}
