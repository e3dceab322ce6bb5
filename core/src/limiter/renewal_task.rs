//! The task that renews the reservations of a limiter.

use std::time::Duration;

use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::renewal::{Next, Renewal};
use crate::rules::request::Request;
use crate::rules::reservation::list::ReservationTerms;
use crate::store::request::StoreRequest;

impl Limiter {
    /// Renews a reservation that was just made, every third of its ttl, until the returned value is dropped or `max_age` has
    /// passed.
    ///
    /// # Errors
    /// See [`Limiter`]; [`StoreUnavailable`](crate::ErrorKind::StoreUnavailable) when the system refuses a thread.
    pub(super) fn keep_renewed(
        &self,
        request: Request<'_>,
        terms: &ReservationTerms,
        max_age: Duration,
        is_local: bool,
    ) -> Result<Renewal, Error> {
        let shared = self.shared();
        let policy = shared.registry.id(request.policy, &shared.store)?;
        let (renewal, starts) = shared.renewals.add(
            (policy, request.key, request.plan),
            terms,
            max_age,
            is_local,
            shared.store.clock(),
        );
        if starts {
            let limiter = self.clone();
            match shared.driver() {
                Ok(driver) => driver.spawn(async move { limiter.renew_all().await }),
                Err(error) => {
                    shared.renewals.not_started();
                    return Err(error);
                }
            }
        }
        Ok(renewal)
    }

    /// Renews what is due, until no handle is left or the limiter is closed.
    async fn renew_all(&self) {
        loop {
            let shared = self.shared();
            let Some(next) = shared.renewals.next() else { return };
            if next.left_us() > 0 {
                tokio::select! {
                    () = next.reached() => {}
                    () = shared.renewals.added.notified() => {}
                    () = shared.closing.closed() => return,
                }
                continue;
            }
            let due = shared.renewals.due();
            let in_force = shared.configured.in_force();
            let requests: Vec<StoreRequest<'_>> =
                due.iter().map(|renewed| renewed.request(in_force.as_deref(), &shared.store)).collect();
            // The time before the store is asked: no reservation lasts longer here than there.
            let clock = shared.store.clock();
            let next: Vec<Next> = due.iter().map(|renewed| renewed.next(clock)).collect();
            let answers = shared.store.ask_many(&requests).await;
            for (request, answer) in requests.iter().zip(answers.iter().flatten()) {
                shared.count_operation(request.id, request.action, request.cost, answer);
            }
            for (at, (renewed, next)) in due.iter().zip(next).enumerate() {
                renewed.answered(answers.as_ref().ok().and_then(|answers| answers.get(at)), next);
            }
        }
    }
}
