//! The task that renews the reservations of a limiter.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::limiter::renewal::{Next, Renewal, Renewals};
use crate::limiter::{Limiter, Shared};
use polylimit_rules::decision::Decision;
use polylimit_rules::error::Error;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::list::ReservationTerms;
use polylimit_store::charge::{Charge, Wait};

impl Limiter {
    /// Renews a reservation that was just made by this decision, every third of its ttl, until the returned value is dropped or
    /// `max_age` has passed.
    ///
    /// # Errors
    /// See [`Limiter`]; [`StoreUnavailable`](crate::ErrorKind::StoreUnavailable) when the system refuses a thread.
    pub(super) fn keep_renewed(
        &self,
        request: Request<'_>,
        terms: &ReservationTerms,
        max_age: Duration,
        decision: &Decision,
    ) -> Result<Renewal, Error> {
        let shared = self.shared();
        let policy = shared.registry.id(request.policy, &shared.store)?;
        let (renewal, starts) = shared.renewals.add(
            (policy, request.key, request.plan),
            terms,
            max_age,
            decision,
            shared.store.clock(),
        );
        if starts {
            match shared.driver() {
                Ok(driver) => {
                    driver.spawn(renew_all(Arc::downgrade(&self.shared), Arc::clone(&shared.renewals)));
                }
                Err(error) => {
                    shared.renewals.not_started();
                    return Err(error);
                }
            }
        }
        Ok(renewal)
    }
}

/// Renews what is due, until no handle is left or the limiter is closed or dropped.
async fn renew_all(limiter: Weak<Shared>, renewals: Arc<Renewals>) {
    while let Some(next) = renewals.next() {
        if next.left_us() > 0 {
            // Nothing of the limiter is held while this waits, so that its last user can drop it.
            tokio::select! {
                () = next.reached() => {}
                () = renewals.changed.notified() => {}
            }
        }
        let Some(limiter) = limiter.upgrade().map(|shared| Limiter { shared }) else { return };
        let shared = limiter.shared();
        if shared.closing.is_closed() {
            return;
        }
        renew_due(shared).await;
    }
}

/// Renews the reservations that are due now.
async fn renew_due(shared: &Shared) {
    let due = shared.renewals.due();
    if due.is_empty() {
        return;
    }
    let in_force = shared.configured.in_force();
    let charges: Vec<Charge<'_>> =
        due.iter().map(|renewed| renewed.charge(in_force.as_deref(), &shared.store)).collect();
    // The time before the store is called, so that no reservation lasts longer here than in the store.
    let clock = shared.store.clock();
    let next: Vec<Next> = due.iter().map(|renewed| renewed.next(clock)).collect();
    let answers = shared.store.start_each(&charges, Wait::Await).await;
    for (charge, answer) in charges.iter().zip(answers.iter().flatten()) {
        shared.count_operation(charge.id, charge.action, charge.cost, answer);
    }
    for (at, (renewed, next)) in due.iter().zip(next).enumerate() {
        renewed.answered(answers.as_ref().ok().and_then(|answers| answers.get(at)), next);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::limiter::reservation::ReserveOptions;
    use polylimit_rules::policy::Policy;

    #[test]
    fn limiter_that_is_dropped_ends_although_a_renewal_is_due_much_later() {
        let policy = Policy::parse("api", "10/minute token_bucket").unwrap();
        let limiter = Limiter::builder().policy(policy).build().unwrap();
        let options = ReserveOptions::default().ttl(Duration::from_secs(3_600));
        let reservation = limiter.blocking().reserve("key", options).unwrap();
        drop(reservation);
        let shared = Arc::downgrade(&limiter.shared);
        drop(limiter);
        let start = Instant::now();
        while shared.upgrade().is_some() {
            assert!(start.elapsed() < Duration::from_secs(30), "the task holds the limiter");
            std::thread::yield_now();
        }
    }
}
