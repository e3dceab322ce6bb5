//! The limiter and its two faces.

use std::collections::HashMap;
use std::sync::Arc;

use polylimit::blocking;
use polylimit::raw::Call;

use crate::credentials::CredentialsCalls;
use crate::decision::{
    AnswerFuture, AnswerResult, CheckResult, Decision, Usage, all_decisions, answer, core_decision, decision,
    decisions, ready, usage,
};
use crate::error::{PolylimitError, Result, guarded};
use crate::event;
use crate::guard::{Guard, GuardOptions};
use crate::number::{Span, address, signed};
use crate::request::Policy;
use crate::request::Request;
use crate::reservation::{AsyncReservation, RequestReservation, Reservation};
use crate::reserve_options::{ReserveOptions, id_of, spent_of, terms_of};
use crate::settings::Settings;

/// Decides whether requests may proceed, and waits on the caller's own thread. A denial is a value, never an error.
#[derive(Debug, uniffi::Object)]
pub struct Limiter {
    limiter: blocking::Limiter,
    /// The calls that end when the limiter is closed.
    credentials: Option<Arc<CredentialsCalls>>,
}

impl Limiter {
    pub(crate) fn core(&self) -> &blocking::Limiter {
        &self.limiter
    }

    pub(crate) fn call<'a, T>(
        &self,
        request: &'a Request,
        call: impl FnOnce(polylimit::Request<'a>) -> Call<'a>,
        read: impl FnOnce(AnswerResult) -> Result<T>,
    ) -> Result<T> {
        guarded(|| read(self.limiter.raw().call(&call(request.to_core()?))))
    }
}

#[uniffi::export]
impl Limiter {
    /// Makes a limiter. Connects to nothing: a store that cannot be reached is no error here.
    #[uniffi::constructor]
    pub fn new(settings: Settings) -> Result<Arc<Self>> {
        guarded(|| Ok(Arc::new(Self { limiter: settings.build()?.blocking(), credentials: None })))
    }

    /// As the other constructor, with credentials for each new connection to Redis in place of those in the URL and the options: for
    /// passwords that expire, such as the tokens of a cloud. A thread of the program waits for the calls and answers them; it may take
    /// its time, since decisions have their deadline meanwhile. They are called again when the server refuses what they gave; after a
    /// refusal or a failure not for 0.25 to 10 seconds, growing with each time in a row. A failure is the cause in the errors of
    /// `ready`, in events and in the doctor. `Admin.set_credentials` replaces them.
    #[uniffi::constructor]
    pub fn with_credentials(settings: Settings, credentials: Arc<CredentialsCalls>) -> Result<Arc<Self>> {
        guarded(|| {
            // Settings that are refused end the calls, too.
            let function = credentials.function();
            let limiter = settings.builder()?.credentials(function).build()?.blocking();
            Ok(Arc::new(Self { limiter, credentials: Some(credentials) }))
        })
    }

    /// Where the limiter is for direct calls, as long as this object exists.
    pub fn address(&self) -> i64 {
        address(self)
    }

    /// The asynchronous face of the same limiter.
    pub fn asynchronous(&self) -> Arc<AsyncLimiter> {
        Arc::new(AsyncLimiter { limiter: self.limiter.asynchronous().clone() })
    }

    /// Makes a guard, which limits the requests of a web framework.
    pub fn guard(&self, options: GuardOptions) -> Result<Arc<Guard>> {
        guarded(|| Guard::new(self.limiter.asynchronous(), options))
    }

    /// Decides, and spends the cost from every quota of the policy when all admit it.
    pub fn check(&self, request: Request) -> Result<Decision> {
        self.call(&request, Call::Check, decision)
    }

    /// The decision that a check would give now; changes no state.
    pub fn peek(&self, request: Request) -> Result<Decision> {
        self.call(&request, Call::Peek, decision)
    }

    /// Spends as much of the cost as every quota admits, from 0 to the cost, and returns how much it took.
    pub fn take(&self, request: Request) -> Result<Usage> {
        self.call(&request, Call::Take, usage)
    }

    /// Spends the cost even if it exceeds what remains, for a cost that is known only afterwards.
    pub fn charge(&self, request: Request) -> Result<Usage> {
        self.call(&request, Call::Charge, usage)
    }

    /// Returns units, at most those that are used, the newest first.
    pub fn refund(&self, request: Request) -> Result<Usage> {
        self.call(&request, Call::Refund, usage)
    }

    /// Removes the state of the key under its policy; the cost does not matter.
    pub fn reset(&self, request: Request) -> Result<Usage> {
        self.call(&request, Call::Reset, usage)
    }

    /// Waits until the request is admitted. If the timeout is too short, returns a denial at once and spends nothing.
    pub fn acquire(&self, request: Request, timeout: Span) -> Result<Decision> {
        let timeout = timeout.duration("timeout")?;
        self.call(&request, |request| Call::Acquire(request, timeout), decision)
    }

    /// Decides as a check does and, when every quota admits the request, sets its cost aside until the reservation is
    /// committed, cancelled or freed, or until its time has passed. Nothing is spent before the commit. A denied request has
    /// a reservation as well, which is not `allowed`.
    #[uniffi::method(default(options = None))]
    pub fn reserve(&self, request: Request, options: Option<ReserveOptions>) -> Result<Arc<Reservation>> {
        guarded(|| {
            let options = options.unwrap_or_default().to_core()?;
            Ok(Reservation::new(&self.limiter, self.limiter.reserve(request.to_core()?, options)?))
        })
    }

    /// Ends the reservation of this id and charges what was spent, by default what was reserved; the cost of the request does
    /// not matter. A reservation that is gone changes nothing, and the usage's `found` is false;
    /// its `repeated` says whether the id was committed before and is remembered.
    #[uniffi::method(default(spent = None))]
    pub fn commit(&self, request: Request, id: Vec<u8>, spent: Option<i64>) -> Result<Usage> {
        let (id, spent) = (id_of(&id)?, spent_of(spent)?);
        self.call(&request, |request| Call::Commit(request, id, spent), usage)
    }

    /// Ends the reservation of this id and spends nothing.
    pub fn cancel(&self, request: Request, id: Vec<u8>) -> Result<Usage> {
        let id = id_of(&id)?;
        self.call(&request, |request| Call::Cancel(request, id), usage)
    }

    /// Makes the reservation of this id end `ttl` from now: 1 ms to 48 h.
    pub fn renew(&self, request: Request, id: Vec<u8>, ttl: Span) -> Result<Usage> {
        let (id, ttl) = (id_of(&id)?, ttl.duration("ttl")?);
        self.call(&request, |request| Call::Renew(request, id, ttl), usage)
    }

    /// Checks several requests in one call, of one or more policies. Each is decided on its own, in order.
    pub fn check_many(&self, requests: Vec<Request>) -> Result<Vec<CheckResult>> {
        guarded(|| {
            let (valid, refused) = to_core_each(&requests);
            Ok(merge(decisions(self.limiter.raw().call(&Call::CheckMany(&valid)))?, refused))
        })
    }

    /// Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is
    /// spent. When one is denied, the decisions that admit are those of a peek. Requests for the same key under the same policy are one
    /// of their sum.
    pub fn check_together(&self, requests: Vec<Request>) -> Result<Vec<Decision>> {
        guarded(|| {
            let decisions = self.limiter.check_together(&to_core(&requests)?)?;
            Ok(decisions.iter().map(Into::into).collect())
        })
    }

    /// The decisions that `check_together` would give now; changes no state.
    pub fn peek_together(&self, requests: Vec<Request>) -> Result<Vec<Decision>> {
        guarded(|| {
            let decisions = self.limiter.peek_together(&to_core(&requests)?)?;
            Ok(decisions.iter().map(Into::into).collect())
        })
    }

    /// As `check_together`, but requests under a policy with a quota such as `20 concurrent` are reserved: under this id (random by
    /// default) and for this ttl (30 seconds); the others spend. The caller ends each reservation by `commit` or `cancel` with its
    /// request and the id; they are not renewed in the background. With `remember`, 1 ms to 48 h, the id is remembered for so long after
    /// their commits: see `ReserveOptions`.
    #[uniffi::method(default(id = None, ttl = None, remember = None))]
    pub fn reserve_together(
        &self,
        requests: Vec<Request>,
        id: Option<Vec<u8>>,
        ttl: Option<Span>,
        remember: Option<Span>,
    ) -> Result<RequestReservation> {
        guarded(|| {
            let terms = terms_of(id.as_ref(), ttl, remember)?;
            let decisions = self.limiter.reserve_together(&to_core(&requests)?, &terms)?;
            Ok(RequestReservation::new(&terms, decisions.iter().map(Into::into).collect()))
        })
    }

    /// Waits until the store answers, at most for `timeout`. A service may call it when it starts.
    pub fn ready(&self, timeout: Span) -> Result<()> {
        guarded(|| ready(self.limiter.raw().call(&Call::Ready(timeout.duration("timeout")?))))
    }

    /// Registers a policy, or changes the quotas of the policy of that name. The usage is kept.
    pub fn set_policy(&self, name: String, quotas: String) -> Result<()> {
        guarded(|| {
            let policy = polylimit::Policy::parse(&name, &quotas)?;
            Ok(self.limiter.asynchronous().set_policy(policy)?)
        })
    }

    /// The policy of that name, with its current quotas; or the policy of these quotas, if a request has used them.
    pub fn policy(&self, name: String) -> Option<Policy> {
        self.limiter.asynchronous().policy(&name).as_ref().map(Policy::of)
    }

    /// The policy by which a request that names this policy, quotas or none is decided. Quotas without a name are registered
    /// by it; with a scope (1 to 256 bytes), they are a policy of their own there. A policy that has a name is shared by all
    /// scopes.
    #[uniffi::method(default(policy = None, scope = None))]
    pub fn policy_for(&self, policy: Option<String>, scope: Option<String>) -> Result<Policy> {
        let (policy, scope) = (policy.as_deref(), scope.as_deref());
        guarded(|| Ok(Policy::of(&self.limiter.asynchronous().policy_for(policy, scope)?)))
    }

    /// All policies, in the order in which they were registered, those made of quotas in requests included.
    pub fn policies(&self) -> Vec<Policy> {
        self.limiter.asynchronous().policies().iter().map(Policy::of).collect()
    }

    /// Counters of the operations so far, by name.
    pub fn stats(&self) -> HashMap<String, i64> {
        let stats = self.limiter.asynchronous().stats();
        stats.iter().map(|(name, count)| (name.to_owned(), signed(count))).collect()
    }

    /// Queues the events of the limiter for `take_events`, from now on until it is closed, under the number that this returns.
    pub fn keep_events(&self) -> i64 {
        event::subscribe(self.limiter.asynchronous())
    }

    /// Returns leases and closes connections; later operations fail. May be called again.
    pub fn shut_down(&self) -> Result<()> {
        guarded(|| {
            self.limiter.asynchronous().close();
            if let Some(credentials) = &self.credentials {
                credentials.end();
            }
            Ok(())
        })
    }
}

/// Decides whether requests may proceed, without holding a thread; made by a limiter, and shares everything with it.
/// A call of `acquire` that is cancelled leaves the queue.
#[derive(Debug, uniffi::Object)]
pub struct AsyncLimiter {
    limiter: polylimit::Limiter,
}

impl AsyncLimiter {
    pub(crate) fn start<'a>(
        &self,
        request: &'a Request,
        call: impl FnOnce(polylimit::Request<'a>) -> Call<'a>,
    ) -> Result<AnswerFuture> {
        self.start_call(|| Ok(call(request.to_core()?)))
    }

    pub(crate) fn core(&self) -> &polylimit::Limiter {
        &self.limiter
    }

    /// Starts a call about requests that belong together.
    fn start_together(
        &self,
        requests: &[Request],
        call: impl for<'a> FnOnce(&'a [polylimit::Request<'a>]) -> Call<'a>,
    ) -> Result<AnswerFuture> {
        let requests = guarded(|| to_core(requests))?;
        self.start_call(|| Ok(call(&requests)))
    }

    pub(crate) fn start_call<'a>(&self, call: impl FnOnce() -> Result<Call<'a>>) -> Result<AnswerFuture> {
        guarded(|| Ok(Box::pin(self.limiter.start(&call()?)) as AnswerFuture))
    }
}

#[uniffi::export]
impl AsyncLimiter {
    /// Decides, and spends the cost from every quota of the policy when all admit it.
    pub async fn check(&self, request: Request) -> Result<Decision> {
        answer(self.start(&request, Call::Check)?, decision).await
    }

    /// The decision that a check would give now; changes no state.
    pub async fn peek(&self, request: Request) -> Result<Decision> {
        answer(self.start(&request, Call::Peek)?, decision).await
    }

    /// Spends as much of the cost as every quota admits, from 0 to the cost, and returns how much it took.
    pub async fn take(&self, request: Request) -> Result<Usage> {
        answer(self.start(&request, Call::Take)?, usage).await
    }

    /// Spends the cost even if it exceeds what remains, for a cost that is known only afterwards.
    pub async fn charge(&self, request: Request) -> Result<Usage> {
        answer(self.start(&request, Call::Charge)?, usage).await
    }

    /// Returns units, at most those that are used, the newest first.
    pub async fn refund(&self, request: Request) -> Result<Usage> {
        answer(self.start(&request, Call::Refund)?, usage).await
    }

    /// Removes the state of the key under its policy; the cost does not matter.
    pub async fn reset(&self, request: Request) -> Result<Usage> {
        answer(self.start(&request, Call::Reset)?, usage).await
    }

    /// Waits until the request is admitted. If the timeout is too short, returns a denial at once and spends nothing.
    pub async fn acquire(&self, request: Request, timeout: Span) -> Result<Decision> {
        let timeout = timeout.duration("timeout")?;
        answer(self.start(&request, |request| Call::Acquire(request, timeout))?, decision).await
    }

    /// Decides as a check does and, when every quota admits the request, sets its cost aside until the reservation is
    /// committed, cancelled or freed, or until its time has passed. A denied request has a reservation as well, which is not
    /// `allowed`.
    #[uniffi::method(default(options = None))]
    pub async fn reserve(
        &self,
        request: Request,
        options: Option<ReserveOptions>,
    ) -> Result<Arc<AsyncReservation>> {
        let options = guarded(|| options.unwrap_or_default().to_core())?;
        let terms = options.terms()?;
        let answered = self.start(&request, |request| Call::Reserve(request, terms))?;
        let decision = answer(answered, core_decision).await?;
        let reservation =
            guarded(|| Ok(self.limiter.adopt(request.to_core()?, &terms, options, decision)?))?;
        Ok(AsyncReservation::new(&self.limiter, reservation))
    }

    /// Ends the reservation of this id and charges what was spent, by default what was reserved; the cost of the request does
    /// not matter. A reservation that is gone changes nothing, and the usage's `found` is false;
    /// its `repeated` says whether the id was committed before and is remembered.
    #[uniffi::method(default(spent = None))]
    pub async fn commit(&self, request: Request, id: Vec<u8>, spent: Option<i64>) -> Result<Usage> {
        let (id, spent) = (id_of(&id)?, spent_of(spent)?);
        answer(self.start(&request, |request| Call::Commit(request, id, spent))?, usage).await
    }

    /// Ends the reservation of this id and spends nothing.
    pub async fn cancel(&self, request: Request, id: Vec<u8>) -> Result<Usage> {
        let id = id_of(&id)?;
        answer(self.start(&request, |request| Call::Cancel(request, id))?, usage).await
    }

    /// Makes the reservation of this id end `ttl` from now: 1 ms to 48 h.
    pub async fn renew(&self, request: Request, id: Vec<u8>, ttl: Span) -> Result<Usage> {
        let (id, ttl) = (id_of(&id)?, ttl.duration("ttl")?);
        answer(self.start(&request, |request| Call::Renew(request, id, ttl))?, usage).await
    }

    /// Checks several requests in one call, of one or more policies. Each is decided on its own, in order.
    pub async fn check_many(&self, requests: Vec<Request>) -> Result<Vec<CheckResult>> {
        let (future, refused) = {
            let (valid, refused) = to_core_each(&requests);
            (self.start_call(|| Ok(Call::CheckMany(&valid)))?, refused)
        };
        Ok(merge(answer(future, decisions).await?, refused))
    }

    /// See `Limiter.check_together`.
    pub async fn check_together(&self, requests: Vec<Request>) -> Result<Vec<Decision>> {
        let started = self.start_together(&requests, |requests| Call::CheckTogether(requests))?;
        answer(started, all_decisions).await
    }

    /// See `Limiter.peek_together`.
    pub async fn peek_together(&self, requests: Vec<Request>) -> Result<Vec<Decision>> {
        let started = self.start_together(&requests, |requests| Call::PeekTogether(requests))?;
        answer(started, all_decisions).await
    }

    /// See `Limiter.reserve_together`. A task that is cancelled while it waits leaves neither reservations nor charges behind.
    #[uniffi::method(default(id = None, ttl = None, remember = None))]
    pub async fn reserve_together(
        &self,
        requests: Vec<Request>,
        id: Option<Vec<u8>>,
        ttl: Option<Span>,
        remember: Option<Span>,
    ) -> Result<RequestReservation> {
        let terms = terms_of(id.as_ref(), ttl, remember)?;
        let started = self.start_together(&requests, |requests| Call::ReserveTogether(requests, terms))?;
        Ok(RequestReservation::new(&terms, answer(started, all_decisions).await?))
    }

    /// Waits until the store answers, at most for `timeout`. A service may call it when it starts.
    pub async fn ready(&self, timeout: Span) -> Result<()> {
        let timeout = timeout.duration("timeout")?;
        answer(self.start_call(|| Ok(Call::Ready(timeout)))?, ready).await
    }
}

fn to_core(requests: &[Request]) -> Result<Vec<polylimit::Request<'_>>> {
    requests.iter().map(Request::to_core).collect::<std::result::Result<_, PolylimitError>>()
}

/// The valid requests, and for each request the error if it is invalid.
fn to_core_each(requests: &[Request]) -> (Vec<polylimit::Request<'_>>, Vec<Option<CheckResult>>) {
    let mut valid = Vec::with_capacity(requests.len());
    let refused = requests.iter().map(|request| request.to_core().map(|request| valid.push(request)).err());
    let refused = refused.map(|error| error.map(Into::into)).collect();
    (valid, refused)
}

/// Merges decisions and refusals in the order of the requests.
fn merge(decided: Vec<CheckResult>, refused: Vec<Option<CheckResult>>) -> Vec<CheckResult> {
    let mut decided = decided.into_iter();
    refused.into_iter().filter_map(|refused| refused.or_else(|| decided.next())).collect()
}
