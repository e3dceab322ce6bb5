//! The check of the request that is decided now.

use std::cell::RefCell;
use std::rc::Rc;

use polylimit::guard::{GuardCheck, RequestLimits};
use polylimit::headers::Problem;

/// One guard's check of one request, and the problem if it was denied.
pub(crate) struct ActiveCheck {
    pub(crate) check: GuardCheck,
    pub(crate) problem: Option<Problem>,
}

pub(crate) type SharedCheck = Rc<RefCell<ActiveCheck>>;

/// What the next decision needs besides its key, cost and route.
#[derive(Default)]
pub(crate) struct PreparedFacts {
    pub(crate) limits: Option<RequestLimits>,
    pub(crate) policies: Option<Vec<String>>,
}
