//! The steps that remain for a limiter when a request is denied or has its response.

use std::sync::Arc;

use crate::limiter::Limiter;
use crate::limiter::call::Call;
use crate::limiter::reservation::Reservation;
use polylimit_rules::policy::Policy;
use polylimit_rules::request::Request;

/// A step under one policy and key.
pub(super) struct Settlement {
    pub(super) limiter: Limiter,
    pub(super) policy: Policy,
    pub(super) key: Arc<[u8]>,
    /// The plan of the request, for a policy of a configuration.
    pub(super) plan: Option<Arc<str>>,
    pub(super) step: Step,
}

/// The step itself.
pub(super) enum Step {
    /// Units of a check are refunded.
    Refund(u64),
    /// Units are spent beyond those of a check.
    Charge(u64),
    /// A reservation is committed or cancelled, as it says.
    End(Box<Reservation>),
}

impl Settlement {
    /// The end of a reservation, which knows its policy and key.
    pub(super) fn end(limiter: &Limiter, reservation: Reservation) -> Option<Self> {
        let request = reservation.request();
        let policy = limiter.policy(request.policy_name()?)?;
        let key = Arc::from(request.key());
        let plan = request.plan_name().map(Arc::from);
        let step = Step::End(Box::new(reservation));
        Some(Self { limiter: limiter.clone(), policy, key, plan, step })
    }

    /// The call that does the step.
    pub(super) fn call(&self) -> Call<'_> {
        match &self.step {
            Step::Refund(units) => Call::Refund(self.request(*units)),
            Step::Charge(units) => Call::Charge(self.request(*units)),
            Step::End(reservation) => reservation.ending(),
        }
    }

    /// The limiter was called: the step is not repeated.
    pub(super) fn close(&mut self) {
        if let Step::End(reservation) = &mut self.step {
            reservation.close();
        }
    }

    /// Does the step without waiting for its answer.
    pub(super) fn make_in_background(self) {
        match self.step {
            // The handle ends its reservation when it is dropped.
            Step::End(reservation) => drop(reservation),
            _ => self.limiter.call_in_background(&self.call()),
        }
    }

    fn request(&self, units: u64) -> Request<'_> {
        let request = Request::new(&self.key).policy(self.policy.name()).cost(units);
        match &self.plan {
            Some(plan) => request.plan(plan),
            None => request,
        }
    }
}
