//! The options of a reservation, and the handle that ends it.

use std::fmt;
use std::time::Duration;

use crate::limiter::call::Call;
use crate::limiter::operations::check_times;
use crate::limiter::registry::texts::HeldPolicy;
use crate::limiter::renewal::Renewal;
use crate::limiter::{KeyCall, Limiter};
use polylimit_rules::decision::{Decision, Usage};
use polylimit_rules::error::Error;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::{Hold, ReservationTerms, commit_cost};
use polylimit_rules::transition::Operation;
use polylimit_runtime::fork::ProcessGeneration;
use polylimit_store::charge::Action;

/// Options for making, keeping and ending a [`Reservation`].
///
/// ```
/// use std::time::Duration;
/// use polylimit::reservation::ReserveOptions;
///
/// let options = ReserveOptions::default().ttl(Duration::from_secs(10)).timeout(Duration::from_secs(2));
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until they are passed to `reserve`"]
pub struct ReserveOptions {
    id: Option<ReservationId>,
    ttl: Duration,
    timeout: Duration,
    max_age: Duration,
    commits_at_end: bool,
    remember: Duration,
}

impl Default for ReserveOptions {
    /// A random id, a ttl of [`DEFAULT_TTL`](Self::DEFAULT_TTL), no waiting, renewed for at most
    /// [`DEFAULT_MAX_AGE`](Self::DEFAULT_MAX_AGE), and cancelled when the handle is dropped.
    fn default() -> Self {
        Self {
            id: None,
            ttl: Self::DEFAULT_TTL,
            timeout: Duration::ZERO,
            max_age: Self::DEFAULT_MAX_AGE,
            commits_at_end: false,
            remember: Duration::ZERO,
        }
    }
}

impl ReserveOptions {
    /// How long a reservation lasts after its last renewal: 30 seconds. Its units stay set aside for that long after
    /// its holder has died.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
    /// How long a handle renews its reservation: one hour.
    pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(3_600);

    /// The id; random by default. A caller that received no answer repeats the operation with the same id.
    pub fn id(mut self, id: ReservationId) -> Self {
        self.id = Some(id);
        self
    }

    /// How long the reservation lasts after its last renewal: 1 ms to 48 h, in whole microseconds.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long the caller waits in line, as in [`acquire`](Limiter::acquire), until the store admits the reservation.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long the handle renews the reservation in the background, every third of its ttl; zero never renews it.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }

    /// Commits what was reserved when the handle is dropped, instead of cancelling.
    pub fn commit_at_end(mut self, commits: bool) -> Self {
        self.commits_at_end = commits;
        self
    }

    /// How long after its commit the id is remembered: 1 ms to 48 h, in whole microseconds; zero, the default, does not remember it.
    ///
    /// Meanwhile nothing more is charged for the id under this key and policy: a commit that is repeated, because its
    /// answer was lost, is reported as [`repeated`](Usage::repeated); and a reserve by a job that runs again takes a
    /// slot only, and its commit charges nothing. A key remembers its 1,000 latest commits; a reset forgets them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use polylimit::reservation::{ReservationId, ReserveOptions};
    /// use polylimit::{Limiter, Policy, Request};
    ///
    /// let limiter = Limiter::builder().policy(Policy::parse("jobs", "100/day")?).build()?.blocking();
    /// let options = ReserveOptions::default().id(ReservationId::new("job-7")?).remember(Duration::from_secs(3_600));
    /// for _run in 0..2 {
    ///     let left = limiter.reserve(Request::new("tenant").cost(10), options)?.commit_blocking(10)?;
    ///     assert_eq!(left.remaining(), 90);
    /// }
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn remember(mut self, time: Duration) -> Self {
        self.remember = time;
        self
    }

    /// Rejects times that are out of bounds for a reservation.
    pub(crate) fn checked(&self) -> Result<(), Error> {
        let Self { ttl, timeout, remember, .. } = *self;
        check_times(&ReservationTerms { id: ReservationId::NONE, ttl, timeout, remember }.hold())
    }

    /// The terms of one reservation with these options: with a new random id, unless the options name one.
    ///
    /// # Errors
    /// [`Internal`](crate::ErrorKind::Internal) when the system has no random numbers.
    pub fn terms(&self) -> Result<ReservationTerms, Error> {
        let id = self.id.map_or_else(ReservationId::random, Ok)?;
        Ok(ReservationTerms { id, ttl: self.ttl, timeout: self.timeout, remember: self.remember })
    }
}

/// How a handle ends its reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    Cancel,
    /// Commits these units, or those that were reserved.
    Commit(Option<u64>),
}

/// Units that are set aside for its holder, created by [`Limiter::reserve`].
///
/// While it lives, the limiter renews the reservation in the background, up to the options' `max_age`. A handle that is
/// dropped without a commit cancels the reservation, even when its holder fails, unless the options specify a commit.
#[must_use = "a dropped reservation gives back what was set aside"]
pub struct Reservation {
    limiter: Limiter,
    key: Box<[u8]>,
    policy: Option<Box<str>>,
    id: ReservationId,
    decision: Decision,
    renewal: Option<Renewal>,
    /// Keeps the policy known until the reservation is ended.
    held: Option<HeldPolicy>,
    at_end: AtEnd,
    /// Whether the reservation still has to be ended.
    is_open: bool,
    generation: ProcessGeneration,
}

impl Reservation {
    pub(super) fn new(
        limiter: &Limiter,
        request: Request<'_>,
        terms: &ReservationTerms,
        options: ReserveOptions,
        decision: Decision,
    ) -> Result<Self, Error> {
        let is_open = decision.allowed();
        let mut reservation = Self {
            limiter: limiter.clone(),
            key: request.key.into(),
            policy: request.policy.map(Into::into),
            id: terms.id,
            decision,
            renewal: None,
            held: limiter.hold_policy(request.policy).filter(|_| is_open),
            at_end: if options.commits_at_end { AtEnd::Commit(None) } else { AtEnd::Cancel },
            is_open,
            generation: ProcessGeneration::here(),
        };
        if is_open && !options.max_age.is_zero() {
            let renewal = limiter.keep_renewed(request, terms, options.max_age, &reservation.decision)?;
            reservation.renewal = Some(renewal);
        }
        Ok(reservation)
    }

    /// Whether every quota has admitted the request, so that its units are set aside.
    pub fn allowed(&self) -> bool {
        self.decision.allowed()
    }

    /// The decision on the request.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The id, by which another process can end the reservation.
    pub fn id(&self) -> ReservationId {
        self.id
    }

    /// Whether the reservation is known to have ended without its holder: a renewal did not find it, or its time has passed
    /// without a renewal. Its units may be admitted to others meanwhile.
    pub fn is_lost(&self) -> bool {
        self.renewal.as_ref().is_some_and(Renewal::is_lost)
    }

    /// Ends the reservation and charges the units that were spent: less than was reserved, more, or nothing. The
    /// usage's [`found`](Usage::found) is false, and nothing is charged, when the reservation had ended before.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn commit(mut self, spent: u64) -> Result<Usage, Error> {
        self.close();
        let limiter = self.limiter.clone();
        limiter.commit(self.request(), self.id, Some(spent)).await
    }

    /// As [`commit`](Self::commit), and blocks this thread.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub fn commit_blocking(mut self, spent: u64) -> Result<Usage, Error> {
        self.close();
        self.limiter.blocking().commit(self.request(), self.id, Some(spent))
    }

    /// Ends the reservation and spends nothing.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn cancel(mut self) -> Result<Usage, Error> {
        self.close();
        let limiter = self.limiter.clone();
        limiter.cancel(self.request(), self.id).await
    }

    /// As [`cancel`](Self::cancel), and blocks this thread.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub fn cancel_blocking(mut self) -> Result<Usage, Error> {
        self.close();
        self.limiter.blocking().cancel(self.request(), self.id)
    }

    /// The call that commits the reservation, for a caller that performs calls itself; `None` commits what was
    /// reserved. The handle no longer ends the reservation.
    pub fn commit_call(&mut self, spent: Option<u64>) -> Call<'_> {
        self.close();
        Call::Commit(self.request(), self.id, spent)
    }

    /// The call that cancels the reservation; as [`commit_call`](Self::commit_call).
    pub fn cancel_call(&mut self) -> Call<'_> {
        self.close();
        Call::Cancel(self.request(), self.id)
    }

    /// The call that ends the reservation in the way that dropping the handle would: it cancels, or commits what was reserved
    /// if the options say to.
    pub fn end_call(&mut self) -> Call<'_> {
        self.close();
        self.ending()
    }

    /// Changes how the reservation ends.
    pub(crate) fn set_end(&mut self, at_end: AtEnd) {
        self.at_end = at_end;
    }

    /// The call that ends the reservation in the way that [`set_end`](Self::set_end) has set. Until
    /// [`close`](Self::close), dropping the handle still ends the reservation, in case the caller goes away.
    pub(crate) fn ending(&self) -> Call<'_> {
        match self.at_end {
            AtEnd::Cancel => Call::Cancel(self.request(), self.id),
            AtEnd::Commit(spent) => Call::Commit(self.request(), self.id, spent),
        }
    }

    /// Whether the handle still has to end the reservation: it was admitted, and neither committed, cancelled nor
    /// detached. In a forked child the handle is a copy, and the reservation belongs to the parent.
    pub fn is_open(&self) -> bool {
        self.is_open && self.generation.is_here()
    }

    /// Leaves the reservation to a caller that ends it by this id; it is no longer renewed.
    pub fn detach(mut self) -> ReservationId {
        self.close();
        self.id
    }

    /// Releases the handle from ending the reservation.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
        self.renewal = None;
        self.held = None;
    }

    pub(crate) fn request(&self) -> Request<'_> {
        Request { cost: 0, policy: self.policy.as_deref(), ..Request::new(&*self.key) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // In a forked child this is a copy, and the reservation belongs to the parent.
        if !std::mem::take(&mut self.is_open) || !self.generation.is_here() {
            return;
        }
        self.renewal = None;
        let (operation, cost) = match self.at_end {
            AtEnd::Cancel => (Operation::Cancel, 0),
            AtEnd::Commit(spent) => (Operation::Commit, commit_cost(spent)),
        };
        let request = Request { cost, ..self.request() };
        let hold = Some(Hold::of_end(self.id));
        self.limiter.end_in_background(&KeyCall { action: Action::Apply(operation), request, hold });
    }
}

/// `Debug` does not show the key: it may be a secret or a person's name.
impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("id", &self.id)
            .field("decision", &self.decision)
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
