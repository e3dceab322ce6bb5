//! The check of the request that is decided now.

use std::cell::RefCell;
use std::rc::Rc;

use polylimit::Error;
use polylimit::http::guard::{GuardCheck, Spent};
use polylimit::http::headers::Problem;

use crate::request_attributes::ReadAttributes;

/// One guard's check of one request, and the problem if it was denied.
pub(crate) struct ActiveCheck {
    pub(crate) check: GuardCheck,
    pub(crate) problem: Option<Problem>,
    /// The check of the guard before.
    earlier: Option<SharedCheck>,
    is_finished: bool,
}

/// Which checks of a request hold reservations until the response is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    None,
    /// Only checks of earlier guards.
    Earlier,
    This,
}

impl ActiveCheck {
    pub(crate) fn new(check: GuardCheck, earlier: Option<SharedCheck>) -> SharedCheck {
        Rc::new(RefCell::new(Self { check, problem: None, earlier, is_finished: false }))
    }

    pub(crate) fn holding(&self) -> Holding {
        if self.check.holds() {
            return Holding::This;
        }
        let earlier = self.earlier.as_ref().map_or(Holding::None, |earlier| earlier.borrow().holding());
        if earlier == Holding::None { earlier } else { Holding::Earlier }
    }

    /// Ends the check when there is a response.
    pub(crate) fn finish(&mut self, counts: bool) {
        self.is_finished = true;
        self.check.finish(counts);
    }

    /// Ends what the check holds. Earlier checks of the request that rely on the same units are finished too, if they were not
    /// before; a response counts where no `count` decides.
    pub(crate) fn end<'a>(&mut self, spent: impl Into<Spent<'a>>) -> Result<(), Error> {
        if !self.is_finished {
            self.finish(true);
        }
        let ended = self.check.end_in_background(spent);
        if let Some(earlier) = &self.earlier {
            earlier.borrow_mut().finish_unless_held();
        }
        ended
    }

    fn finish_unless_held(&mut self) {
        if !self.check.holds() && !self.is_finished {
            self.finish(true);
            // A check that holds nothing has no units to refuse.
            let _ = self.check.end_in_background(None);
        }
        if let Some(earlier) = &self.earlier {
            earlier.borrow_mut().finish_unless_held();
        }
    }
}

pub(crate) type SharedCheck = Rc<RefCell<ActiveCheck>>;

/// What the next decision needs besides its key, cost and route.
#[derive(Default)]
pub(crate) struct PreparedFacts {
    /// The check of the guard before, with which it shares the limits of the request.
    pub(crate) earlier: Option<SharedCheck>,
    pub(crate) policies: Option<Vec<String>>,
    /// The costs of policies by position, where a function of the program has found them.
    pub(crate) costs: Vec<Option<u64>>,
    /// For a guard by the configuration.
    pub(crate) attributes: Option<ReadAttributes>,
}
