//! The operations on reservations, asynchronous and blocking.

use std::time::Duration;

use crate::limiter::call::{Answer, Call};
use crate::limiter::reservation::{Reservation, ReserveOptions};
use crate::limiter::{KeyCall, Limiter, RESERVE, blocking, usage};
use polylimit_rules::decision::{Decision, Usage};
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::request::Request;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::{Hold, ReservationTerms, commit_cost};
use polylimit_rules::transition::Operation;
use polylimit_store::charge::{Action, Wait};

impl Limiter {
    /// Decides as a check does and, when every quota admits the request, sets its cost aside until the returned handle
    /// is committed, cancelled or dropped, or until the reservation expires. Nothing is spent before the commit.
    ///
    /// A denied request has a handle as well: its [`allowed`](Reservation::allowed) is false, and ending it does nothing.
    ///
    /// ```
    /// # async fn example() -> Result<(), polylimit::Error> {
    /// use polylimit::reservation::ReserveOptions;
    /// use polylimit::{Limiter, Policy, Request};
    ///
    /// let policy = Policy::parse("model", "20 concurrent; 100000/minute token_bucket")?;
    /// let limiter = Limiter::builder().policy(policy).build()?;
    /// let reservation =
    ///     limiter.reserve(Request::new("tenant:7").cost(4_000), ReserveOptions::default()).await?;
    /// if reservation.allowed() {
    ///     let tokens = 1_200; // what the work has taken
    ///     let left = reservation.commit(tokens).await?;
    ///     assert_eq!(left.remaining(), 98_800);
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`Limiter`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) also when the ttl is out of bounds, when a quota
    /// of the policy is a leaky bucket, and when the policy is leased.
    pub async fn reserve<'a>(
        &self,
        request: impl Into<Request<'a>>,
        options: ReserveOptions,
    ) -> Result<Reservation, Error> {
        let (request, terms) = (request.into(), options.terms()?);
        let decision = self.reserve_on(request, &terms).await?;
        self.adopt(request, &terms, options, decision)
    }

    /// The handle of a reservation that was made with [`Call::Reserve`] and got this decision.
    ///
    /// # Errors
    /// [`StoreUnavailable`](ErrorKind::StoreUnavailable) when the system refuses the thread that renews it.
    pub fn adopt(
        &self,
        request: Request<'_>,
        terms: &ReservationTerms,
        options: ReserveOptions,
        decision: Decision,
    ) -> Result<Reservation, Error> {
        Reservation::new(self, request, terms, options, decision)
    }

    /// Reserves without a handle: the caller ends the reservation itself.
    async fn reserve_on(&self, request: Request<'_>, terms: &ReservationTerms) -> Result<Decision, Error> {
        if !terms.timeout.is_zero() {
            return self.reserve_in_line(request, terms).await;
        }
        self.on_reservation(Operation::Reserve, request, terms.hold()).await.map(|(decision, _)| decision)
    }

    pub(crate) async fn reserve_in_line(
        &self,
        request: Request<'_>,
        terms: &ReservationTerms,
    ) -> Result<Decision, Error> {
        let shared = self.shared();
        let call = KeyCall { action: RESERVE, request, hold: Some(terms.hold()) };
        shared.closing.unless_closed(self.wait_in_line(&call, terms.timeout)).await
    }

    /// Ends the reservation with this id and charges `spent`, or what was reserved, as [`charge`](Self::charge) does.
    /// For a reservation that is gone nothing changes, and [`Usage::found`] is false: a repeated commit never charges
    /// twice. Where the reservation was made to [remember](ReserveOptions::remember) its commit, [`Usage::repeated`] is
    /// whether this is a repetition.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn commit<'a>(
        &self,
        request: impl Into<Request<'a>>,
        id: ReservationId,
        spent: Option<u64>,
    ) -> Result<Usage, Error> {
        let request = Request { cost: commit_cost(spent), ..request.into() };
        self.on_reservation(Operation::Commit, request, Hold::of_end(id)).await.map(usage)
    }

    /// Ends the reservation with this id and spends nothing.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn cancel<'a>(
        &self,
        request: impl Into<Request<'a>>,
        id: ReservationId,
    ) -> Result<Usage, Error> {
        self.on_reservation(Operation::Cancel, request.into(), Hold::of_end(id)).await.map(usage)
    }

    /// Makes the reservation with this id end `ttl` from now, which is 1 ms to 48 h.
    ///
    /// # Errors
    /// See [`Limiter`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) also when the ttl is out of bounds.
    pub async fn renew<'a>(
        &self,
        request: impl Into<Request<'a>>,
        id: ReservationId,
        ttl: Duration,
    ) -> Result<Usage, Error> {
        self.on_reservation(Operation::Renew, request.into(), Hold::of_renewal(id, ttl)).await.map(usage)
    }

    async fn on_reservation(
        &self,
        operation: Operation,
        request: Request<'_>,
        hold: Hold,
    ) -> Result<(Decision, u64), Error> {
        let call = KeyCall { action: Action::Apply(operation), request, hold: Some(hold) };
        self.ask_key(&call, Wait::Await).await
    }
}

impl blocking::Limiter {
    /// See [`Limiter::reserve`].
    ///
    /// # Errors
    /// See [`Limiter::reserve`].
    pub fn reserve<'a>(
        &self,
        request: impl Into<Request<'a>>,
        options: ReserveOptions,
    ) -> Result<Reservation, Error> {
        let (request, terms, limiter) = (request.into(), options.terms()?, self.asynchronous());
        let Answer::Decision(decision) = self.raw().call(&Call::Reserve(request, terms))? else {
            return Err(Error::new(ErrorKind::Internal, "a reserve got no decision"));
        };
        limiter.adopt(request, &terms, options, decision)
    }

    /// See [`Limiter::commit`].
    ///
    /// # Errors
    /// See [`Limiter`].
    pub fn commit<'a>(
        &self,
        request: impl Into<Request<'a>>,
        id: ReservationId,
        spent: Option<u64>,
    ) -> Result<Usage, Error> {
        let request = Request { cost: commit_cost(spent), ..request.into() };
        self.on_reservation(Operation::Commit, request, Hold::of_end(id))
    }

    /// See [`Limiter::cancel`].
    ///
    /// # Errors
    /// See [`Limiter`].
    pub fn cancel<'a>(&self, request: impl Into<Request<'a>>, id: ReservationId) -> Result<Usage, Error> {
        self.on_reservation(Operation::Cancel, request.into(), Hold::of_end(id))
    }

    /// See [`Limiter::renew`].
    ///
    /// # Errors
    /// See [`Limiter::renew`].
    pub fn renew<'a>(
        &self,
        request: impl Into<Request<'a>>,
        id: ReservationId,
        ttl: Duration,
    ) -> Result<Usage, Error> {
        self.on_reservation(Operation::Renew, request.into(), Hold::of_renewal(id, ttl))
    }

    fn on_reservation(&self, operation: Operation, request: Request<'_>, hold: Hold) -> Result<Usage, Error> {
        let call = KeyCall { action: Action::Apply(operation), request, hold: Some(hold) };
        self.asynchronous().ask_key_blocking(&call).map(usage)
    }
}
