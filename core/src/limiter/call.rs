//! An operation as a value, so that a caller such as a binding passes all operations in the same way.

use std::pin::pin;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::limiter::configured::manage::PublishOptions;
use crate::limiter::configured::request_decision::RequestDecision;
use crate::limiter::configured::status::ConfigurationStatus;
use crate::limiter::deadline::Deadline;
use crate::limiter::explanation::report::{KeyExplanation, RequestExplanation};
use crate::limiter::listing::page::{KeyFilter, KeyPage, ListBudget, ResetPage};
use crate::limiter::together::Together;
use crate::limiter::{KeyCall, Limiter, Raw, blocking, usage};
use crate::store::Store;
use polylimit_document::request::RequestAttributes;
use polylimit_rules::decision::{Decision, Usage};
use polylimit_rules::error::Error;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::{Hold, ReservationTerms, commit_cost};
use polylimit_rules::transition::Operation;
use polylimit_runtime::park;
use polylimit_runtime::sleep::at_most;
use polylimit_store::charge::{Action, StoreAnswer, Wait, at_once};
use polylimit_store::finding::Finding;

/// An operation of a [`Limiter`] with its arguments.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Call<'a> {
    /// See [`Limiter::check`].
    Check(Request<'a>),
    /// See [`Limiter::peek`].
    Peek(Request<'a>),
    /// See [`Limiter::take`].
    Take(Request<'a>),
    /// See [`Limiter::charge`].
    Charge(Request<'a>),
    /// See [`Limiter::refund`].
    Refund(Request<'a>),
    /// See [`Limiter::reset`].
    Reset(Request<'a>),
    /// Reserves as [`Limiter::reserve`] does, without a handle that ends the reservation.
    Reserve(Request<'a>, ReservationTerms),
    /// See [`Limiter::commit`]; `None` commits what was reserved.
    Commit(Request<'a>, ReservationId, Option<u64>),
    /// See [`Limiter::cancel`].
    Cancel(Request<'a>, ReservationId),
    /// See [`Limiter::renew`].
    Renew(Request<'a>, ReservationId, Duration),
    /// See [`Admin::block`](crate::admin::Admin::block).
    Block(Request<'a>, Duration),
    /// See [`Limiter::decide`].
    Decide(&'a RequestAttributes<'a>, ReservationTerms),
    /// See [`Admin::set_entry`](crate::admin::Admin::set_entry).
    SetEntry(&'a str, &'a str),
    /// See [`Admin::delete_entry`](crate::admin::Admin::delete_entry).
    DeleteEntry(&'a str),
    /// See [`Admin::publish`](crate::admin::Admin::publish).
    Publish(&'a str, PublishOptions<'a>),
    /// See [`Admin::wait_for_version`](crate::admin::Admin::wait_for_version).
    WaitForVersion(u64, Duration),
    /// See [`Limiter::check_many`].
    CheckMany(&'a [Request<'a>]),
    /// See [`Limiter::check_together`].
    CheckTogether(&'a [Request<'a>]),
    /// See [`Limiter::peek_together`].
    PeekTogether(&'a [Request<'a>]),
    /// See [`Limiter::reserve_together`].
    ReserveTogether(&'a [Request<'a>], ReservationTerms),
    /// See [`Limiter::acquire`].
    Acquire(Request<'a>, Duration),
    /// See [`Admin::list`](crate::admin::Admin::list).
    List(KeyFilter<'a>, ListBudget, Option<&'a str>),
    /// See [`Admin::scan_top`](crate::admin::Admin::scan_top).
    ScanTop(KeyFilter<'a>, usize, ListBudget),
    /// See [`Admin::reset_listed`](crate::admin::Admin::reset_listed).
    ResetListed(KeyFilter<'a>, ListBudget, Option<&'a str>),
    /// See [`Admin::explain`](crate::admin::Admin::explain).
    Explain(Request<'a>),
    /// See [`Admin::explain_request`](crate::admin::Admin::explain_request).
    ExplainRequest(&'a RequestAttributes<'a>),
    /// See [`Limiter::ready`].
    Ready(Duration),
    /// See [`Admin::doctor`](crate::admin::Admin::doctor).
    Doctor,
    /// Waits for this time by the limiter's clock, or until the limiter is closed, and does nothing else: a guard
    /// [holds](crate::http::guard::GuardBuilder::wait) a request.
    Sleep(Duration),
}

/// The answer to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The answer to a check, a peek, a reserve or an acquire.
    Decision(Decision),
    /// The answer to a take, a charge, a refund, a reset, a commit, a cancel, a renew or a block.
    Usage(Usage),
    /// The answers to several requests, in their order. Requests that are decided together have no errors among them.
    Decisions(Vec<Result<Decision, Error>>),
    /// The store answers, or a time has passed.
    Ready,
    /// The doctor's findings.
    Findings(Vec<Finding>),
    /// The decision on a request by its attributes.
    Request(RequestDecision),
    /// The configuration after a change, or after waiting for one.
    Configuration(ConfigurationStatus),
    /// A page of a list of keys, or the most used keys.
    Keys(KeyPage),
    /// The result of resetting listed keys.
    KeysReset(ResetPage),
    /// Why a request would be admitted or denied.
    Explanation(Box<KeyExplanation>),
    /// Why a request, by its attributes, would be admitted or denied.
    RequestExplanation(Box<RequestExplanation>),
}

impl Answer {
    /// The answer to an action on one key.
    pub(super) fn of(action: Action, answer: StoreAnswer) -> Self {
        match action {
            Action::Apply(Operation::Check | Operation::Peek | Operation::Reserve) => {
                Self::Decision(answer.0)
            }
            Action::Apply(_) | Action::Reset => Self::Usage(usage(answer)),
        }
    }

    fn of_each(decisions: Vec<Decision>) -> Self {
        Self::Decisions(decisions.into_iter().map(Ok).collect())
    }
}

impl<'a> Call<'a> {
    /// The call, if it is one operation on one key that does not wait in line.
    pub(super) fn on_key(&self) -> Option<KeyCall<'a>> {
        let plain = |operation, request| (Action::Apply(operation), request, None);
        let hold = |operation, request, hold| (Action::Apply(operation), request, Some(hold));
        let (action, request, hold) = match *self {
            Self::Check(request) => plain(Operation::Check, request),
            Self::Peek(request) => plain(Operation::Peek, request),
            Self::Take(request) => plain(Operation::Take, request),
            Self::Charge(request) => plain(Operation::Charge, request),
            Self::Refund(request) => plain(Operation::Refund, request),
            Self::Reset(request) => (Action::Reset, request, None),
            Self::Reserve(request, terms) if terms.timeout.is_zero() => {
                hold(Operation::Reserve, request, terms.hold())
            }
            Self::Commit(request, id, spent) => {
                let request = Request { cost: commit_cost(spent), ..request };
                hold(Operation::Commit, request, Hold::of_end(id))
            }
            Self::Cancel(request, id) => hold(Operation::Cancel, request, Hold::of_end(id)),
            Self::Renew(request, id, ttl) => hold(Operation::Renew, request, Hold::of_renewal(id, ttl)),
            Self::Block(request, time) => return Some(KeyCall::block(request, time)),
            _ => return None,
        };
        Some(KeyCall { action, request, hold })
    }

    /// The requests that are decided together, and how.
    pub(super) fn together(&self) -> Option<(&'a [Request<'a>], Together)> {
        match *self {
            Self::CheckTogether(requests) => Some((requests, Together::Check)),
            Self::PeekTogether(requests) => Some((requests, Together::Peek)),
            Self::ReserveTogether(requests, terms) => Some((requests, Together::Reserve(terms))),
            _ => None,
        }
    }
}

impl Call<'_> {
    /// Whether it decides, spends or gives back, and does not wait in line: then no more than one answer of the store, or one for each
    /// part, is waited for.
    fn is_decided_at_once(&self) -> bool {
        let is_several = matches!(self, Self::CheckMany(_) | Self::Decide(..)) || self.together().is_some();
        is_several || self.on_key().is_some()
    }

    /// Whether it may wait for more than the answers of a store: for units, for a version, for a reply in time.
    fn waits_beyond_stores(&self) -> bool {
        let is_report = matches!(
            self,
            Self::List(..)
                | Self::ScanTop(..)
                | Self::ResetListed(..)
                | Self::Explain(_)
                | Self::ExplainRequest(_)
        );
        !is_report && !self.is_decided_at_once()
    }
}

impl Raw<'_> {
    /// The decision on a check that the memory store answers on the shortest path; `None`, before any effect, for every
    /// other check and for every other store: [`try_call`](Self::try_call) consults their caches, and its result is
    /// passed through memory.
    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than deciding"
    )]
    #[inline(always)]
    pub fn try_check(self, request: Request<'_>) -> Option<Decision> {
        let shared = self.limiter.shared();
        if matches!(shared.store(), Store::Memory(_)) { shared.check_known(request) } else { None }
    }

    /// Answers a call that need not wait: from memory, from the store of this host if the call uses it once, from the
    /// denial cache or from a lease. `None`, before any effect, when the call has to wait for a store, or may have to
    /// between two of its parts. The caller continues with [`call_store`](Self::call_store) or with
    /// [`Completions`](crate::raw::Completions), which do not consult the caches again.
    pub fn try_call(self, call: &Call<'_>) -> Option<Result<Answer, Error>> {
        let shared = self.limiter.shared();
        if let Call::Check(request) = call
            && let Some(decision) = shared.check_known(*request)
        {
            return Some(Ok(Answer::Decision(decision)));
        }
        if let Some(call) = call.on_key() {
            let answer = self.limiter.try_ask(&call).transpose()?;
            return Some(answer.map(|answer| Answer::of(call.action, answer)));
        }
        if let Some(closed) = self.limiter.answer_closed(call) {
            return Some(closed);
        }
        let is_answered = shared.store().never_waits() && !call.waits_beyond_stores();
        is_answered.then(|| at_once(self.limiter.perform(call, Wait::Block)))
    }

    /// Performs the call.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn call(self, call: &Call<'_>) -> Result<Answer, Error> {
        match self.try_call(call) {
            Some(answer) => answer,
            None => self.call_store(call).await,
        }
    }

    /// Performs the call after [`try_call`](Self::try_call) returned `None`.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn call_store(self, call: &Call<'_>) -> Result<Answer, Error> {
        self.limiter.perform(call, Wait::Await).await
    }
}

impl Limiter {
    /// The answer of a closed limiter to a call other than an operation on one key, whatever else is wrong with that call.
    fn answer_closed(&self, call: &Call<'_>) -> Option<Result<Answer, Error>> {
        let closed = self.shared().registry.check_open().err()?;
        Some(match call {
            // Each request has its own result.
            Call::CheckMany(requests) => {
                Ok(Answer::Decisions(requests.iter().map(|_| Err(closed.clone())).collect()))
            }
            _ => Err(closed),
        })
    }

    /// Performs the call. With [`Wait::Block`] only a call that waits in line, for a version, or for a report of another host is ever
    /// pending.
    pub(crate) async fn perform(&self, call: &Call<'_>, wait: Wait) -> Result<Answer, Error> {
        if let Some(call) = call.on_key() {
            return self.act(&call, wait).await;
        }
        if let Some(closed) = self.answer_closed(call) {
            return closed;
        }
        if let Some((requests, together)) = call.together() {
            return self.decide_together(requests, together, wait).await.map(Answer::of_each);
        }
        Ok(match call {
            Call::CheckMany(requests) => {
                Answer::Decisions(self.ask_many(requests.iter().copied(), wait).await)
            }
            Call::Acquire(request, timeout) => Answer::Decision(self.acquire(*request, *timeout).await?),
            Call::Reserve(request, terms) => Answer::Decision(self.reserve_in_line(*request, terms).await?),
            Call::Decide(request, terms) => {
                Answer::Request(self.decide_request(*request, terms, wait).await?)
            }
            Call::SetEntry(entry, value) => {
                Answer::Configuration(self.admin().set_entry(entry, value).await?)
            }
            Call::DeleteEntry(entry) => Answer::Configuration(self.admin().delete_entry(entry).await?),
            Call::Publish(document, options) => {
                Answer::Configuration(self.admin().publish(document, *options).await?)
            }
            Call::WaitForVersion(version, timeout) => {
                Answer::Configuration(self.admin().wait_for_version(*version, *timeout).await?)
            }
            Call::List(filter, budget, cursor) => {
                Answer::Keys(self.admin().list(filter, budget, *cursor).await?)
            }
            Call::ScanTop(filter, most, budget) => {
                Answer::Keys(self.admin().scan_top(filter, *most, budget).await?)
            }
            Call::ResetListed(filter, budget, cursor) => {
                Answer::KeysReset(self.admin().reset_listed(filter, budget, *cursor).await?)
            }
            Call::Explain(request) => Answer::Explanation(Box::new(self.explain_key(*request, wait).await?)),
            Call::ExplainRequest(request) => {
                Answer::RequestExplanation(Box::new(self.explain_attributes(*request, wait).await?))
            }
            Call::Ready(timeout) => self.ready(*timeout).await.map(|()| Answer::Ready)?,
            Call::Doctor => Answer::Findings(self.admin().doctor().await?),
            Call::Sleep(time) => self.sleep(*time).await.map(|()| Answer::Ready)?,
            _ => return Err(Error::no_answer()),
        })
    }

    async fn sleep(&self, time: Duration) -> Result<(), Error> {
        let shared = self.shared();
        let until = Deadline::after(time, shared.store.clock());
        until.can_wait()?;
        let passed = async {
            until.reached().await;
            Ok(())
        };
        shared.closing.unless_closed(passed).await
    }

    pub(crate) async fn act(&self, call: &KeyCall<'_>, wait: Wait) -> Result<Answer, Error> {
        Ok(Answer::of(call.action, self.ask_key(call, wait).await?))
    }
}

impl blocking::Raw<'_> {
    /// Performs the call and blocks this thread until it is answered.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn call(self, call: &Call<'_>) -> Result<Answer, Error> {
        self.limiter
            .asynchronous()
            .raw()
            .try_call(call)
            .unwrap_or_else(|| self.limiter.raw().call_store(call))
    }

    /// Performs the call and blocks this thread, after [`try_call`](crate::raw::Raw::try_call) returned `None`.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn call_store(self, call: &Call<'_>) -> Result<Answer, Error> {
        let limiter = self.limiter.asynchronous();
        match call {
            _ if call.is_decided_at_once() => at_once(limiter.perform(call, Wait::Block)),
            Call::Acquire(..) | Call::Reserve(..) | Call::Sleep(_) => {
                self.limiter.block_on_wait(limiter.perform(call, Wait::Await))?
            }
            _ => self.limiter.block_on(limiter.perform(call, Wait::Await))?,
        }
    }

    /// Performs the call and blocks this thread, as [`call_store`](Self::call_store) does, until it is answered or `stop`
    /// returns `true`; then the answer is `None`. This thread calls `stop` each time `every` has passed without an
    /// answer, and `stop` may use the limiter.
    ///
    /// When an [`acquire`](blocking::Limiter::acquire) is stopped, the caller leaves the queue, and units that the store has
    /// spent for it are refunded, as described [there](crate::Limiter::acquire). Any other operation may have been applied.
    ///
    /// On a thread of a tokio runtime `stop` is never called, and the call waits to the end; so does a call that waits for nothing but
    /// the answer of a store in this process or on this host.
    pub fn call_until(
        self,
        call: &Call<'_>,
        every: Duration,
        mut stop: impl FnMut() -> bool,
    ) -> Option<Result<Answer, Error>> {
        self.limiter.call_until(call, every, &mut stop)
    }
}

impl blocking::Limiter {
    /// [`call_until`](blocking::Raw::call_until), compiled in this crate alone, and not once more in each binding.
    fn call_until(
        &self,
        call: &Call<'_>,
        every: Duration,
        stop: &mut dyn FnMut() -> bool,
    ) -> Option<Result<Answer, Error>> {
        let limiter = self.asynchronous();
        // A store of this host answers within milliseconds.
        let is_short = limiter.shared().store().is_here() && !call.waits_beyond_stores();
        if is_short || Handle::try_current().is_ok() {
            return Some(self.raw().call_store(call));
        }
        // On a closed limiter the call fails without one, too.
        let Ok(driver) = limiter.shared().driver_to_wait_on() else {
            return self.call_without_driver(call, every, stop);
        };
        let mut answer = pin!(limiter.raw().call_store(call));
        loop {
            // The thread leaves the runtime before it calls `stop`, so that other threads and `stop` itself can drive it
            // meanwhile.
            match driver.block_on(at_most(every, answer.as_mut())) {
                Ok(Some(answer)) => return Some(answer),
                Err(error) => return Some(Err(error)),
                Ok(None) if stop() => return None,
                Ok(None) => {}
            }
        }
    }

    /// [`call_until`](blocking::Raw::call_until) while the system has no resources for a runtime. Only a wait in line takes time
    /// then: otherwise the outage policy decides, or the call fails.
    fn call_without_driver(
        &self,
        call: &Call<'_>,
        every: Duration,
        stop: &mut dyn FnMut() -> bool,
    ) -> Option<Result<Answer, Error>> {
        if !matches!(call, Call::Acquire(..) | Call::Reserve(..) | Call::Sleep(_)) {
            return Some(self.raw().call_store(call));
        }
        let mut answer = pin!(self.asynchronous().raw().call_store(call));
        loop {
            match park::block_on_for(every, answer.as_mut()) {
                Some(answer) => return Some(answer),
                None if stop() => return None,
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::document::RequestAttributes;
    use crate::raw::{Answer, Call};
    use crate::reservation::ReserveOptions;
    use crate::{Decision, Error, ErrorKind, Limiter, Policy, Request};
    use std::time::Duration;

    use polylimit_runtime::park;

    type Way = fn(&Limiter, &[Request<'_>]) -> Result<Vec<Decision>, Error>;
    type Calling = fn(&Limiter, &Call<'_>) -> Result<Answer, Error>;

    #[test]
    fn a_call_decides_by_attributes_that_live_no_longer_than_it() {
        let document = r#"{"polylimit": 1, "policies": {"p": {"quotas": "5/day"}},
            "rules": [{"apply": [{"policy": "p", "key": "{user}"}]}]}"#;
        let limiter = Limiter::builder().document(document).build().unwrap();
        let user = String::from("alice");
        let attributes = RequestAttributes::new().attribute("user", &user);
        let call = Call::Decide(&attributes, ReserveOptions::default().terms().unwrap());
        let Answer::Request(made) = limiter.blocking().raw().call(&call).unwrap() else {
            panic!("another answer")
        };
        assert_eq!((made.decisions.len(), &*made.decisions[0].key), (1, &b"alice"[..]));
    }

    /// The asynchronous limiter, the blocking limiter and the operation as a call.
    const WAYS: [Way; 3] = [
        |limiter, requests| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(limiter.check_together(requests))
        },
        |limiter, requests| limiter.blocking().check_together(requests),
        |limiter, requests| match limiter.raw().try_call(&Call::CheckTogether(requests)) {
            Some(Ok(Answer::Decisions(decisions))) => decisions.into_iter().collect(),
            Some(Err(error)) => Err(error),
            other => panic!("{other:?}"),
        },
    ];

    fn limiter() -> Limiter {
        let policy = |name, quotas| Policy::parse(name, quotas).unwrap();
        let builder = Limiter::builder().policy(policy("wide", "9/hour")).policy(policy("narrow", "1/hour"));
        builder.build().unwrap()
    }

    /// Each way decides as the method does.
    #[test]
    fn calls_decide_together() {
        let policy = |name, quotas| Policy::parse(name, quotas).unwrap();
        let terms = ReserveOptions::default().terms().unwrap();
        let both = ["wide", "slots"].map(|policy| Request::new("key").policy(policy));
        let reserve = Call::ReserveTogether(&both, terms);
        let ways: [Calling; 5] = [
            |limiter, call| limiter.raw().try_call(call).unwrap(),
            |limiter, call| limiter.blocking().raw().call(call),
            |limiter, call| limiter.blocking().raw().call_store(call),
            |limiter, call| park::block_on(limiter.raw().call_store(call)),
            |limiter, call| park::block_on(limiter.start(call)),
        ];
        for way in ways {
            let builder = Limiter::builder().policy(policy("wide", "9/hour"));
            let limiter = builder.policy(policy("slots", "1 concurrent")).build().unwrap();
            let shown = |call| match way(&limiter, &call).unwrap() {
                Answer::Decisions(decisions) => {
                    let decisions = decisions.into_iter().map(Result::unwrap);
                    decisions.map(|decision| (decision.allowed(), decision.remaining())).collect()
                }
                other => panic!("{other:?}"),
            };
            let shown: [Vec<_>; 4] =
                [Call::PeekTogether(&both), reserve, reserve, Call::PeekTogether(&both)].map(shown);
            // Reserving again with the same id yields the same reservation.
            let expected = [
                [(true, 9), (true, 1)],
                [(true, 8), (true, 0)],
                [(true, 7), (true, 0)],
                [(true, 7), (false, 0)],
            ];
            assert_eq!(shown, expected.map(Vec::from));
            let in_line = ReserveOptions::default().timeout(Duration::from_secs(1)).terms().unwrap();
            let error = way(&limiter, &Call::ReserveTogether(&both, in_line)).unwrap_err();
            assert!(error.message().starts_with("timeout is 1s"), "{error}");
        }
    }

    #[test]
    fn denial_of_one_request_spends_nothing_for_any() {
        let both = ["wide", "narrow"].map(|policy| Request::new("key").policy(policy));
        for check_together in WAYS {
            let limiter = limiter();
            let shown = || -> Vec<_> {
                let decisions = check_together(&limiter, &both).unwrap();
                decisions.iter().map(|decision| (decision.allowed(), decision.remaining())).collect()
            };
            assert_eq!(shown(), [(true, 8), (true, 0)]);
            for _ in 0..3 {
                assert_eq!(shown(), [(true, 8), (false, 0)]);
            }
            assert_eq!(limiter.blocking().peek(both[0]).unwrap().remaining(), 8);
        }
    }

    #[test]
    fn error_of_one_request_spends_nothing_for_any() {
        let both = ["wide", "unknown"].map(|policy| Request::new("key").policy(policy));
        for check_together in WAYS {
            let limiter = limiter();
            assert_eq!(check_together(&limiter, &both).unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert_eq!(limiter.blocking().peek(both[0]).unwrap().remaining(), 9);
        }
    }
}
