//! The limiter: validates a request, picks its policy, and asks the store.

mod acquire;
mod builder;
mod deadline;
mod line;
mod registry;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use builder::LimiterBuilder;

use self::line::Lines;
use self::registry::Registry;
use crate::birth::Birth;
use crate::clock::Clock;
use crate::decision::{Decision, Usage};
use crate::driver::Driver;
use crate::error::{Error, ErrorKind};
use crate::policy::Policy;
use crate::request::Request;
use crate::store::redis::{Finding, Stats};
use crate::store::{Action, Answer, PolicyOptions, Question, Store};
use crate::transition::Operation;

/// Decides whether requests may proceed, for one or more policies. Clones share everything.
///
/// Every operation takes a [`Request`]: a key, and where it matters a policy and a cost. A denial is a value, never an
/// error. This is the asynchronous face; [`blocking::Limiter`](crate::blocking::Limiter) is the other one.
///
/// ```
/// # async fn example() -> Result<(), polylimit::Error> {
/// use polylimit::{Limiter, Policy, Request};
///
/// let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute; 1000/hour")?).build()?;
/// let decision = limiter.check("user:42").await?;
/// assert!(decision.allowed() && decision.remaining() == 99);
/// let decision = limiter.check(Request::new("user:42").cost(100)).await?;
/// assert!(!decision.allowed() && decision.retry_after().is_some());
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
///
/// # Errors
///
/// Every operation fails with [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the key is longer than
/// 1 MiB, the cost is above 10^12 units, the policy is not known, or none is named and there are several.
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    registry: Registry,
    store: Store,
    /// Who waits for which key.
    lines: Lines,
    /// Drives the timers of those who wait for a store that needs no runtime itself.
    timers: OnceLock<Driver>,
    birth: Birth,
    /// What takes its place in a process that was forked from this one.
    successor: OnceLock<Box<Shared>>,
}

impl Limiter {
    /// Starts a limiter.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Decides, and spends the cost from every quota of the policy when all admit it.
    ///
    /// # Errors
    /// See [`Limiter`].
    #[inline]
    pub async fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, Error> {
        Ok(self.shared().ask(CHECK, request.into()).await?.0)
    }

    /// The decision that a check would give now; leaves no trace. Nothing is spent, so `remaining` is from before.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, Error> {
        Ok(self.shared().ask(Action::Apply(Operation::Peek), request.into()).await?.0)
    }

    /// Checks several requests in one call, of one or more policies. Each is decided on its own, in order.
    ///
    /// # Errors
    /// Each request has its own result; see [`Limiter`].
    pub async fn check_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision, Error>> {
        self.shared().check_many(requests).await
    }

    /// Spends as much of the cost as every quota admits, from 0 to the cost, and says how much it took.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn take<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        Ok(usage(self.shared().ask(Action::Apply(Operation::Take), request.into()).await?))
    }

    /// Spends the cost whether it fits or not, for a cost that is learnt afterwards. Use saturates at 8 times each
    /// quota's capacity, in whole units.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn charge<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        Ok(usage(self.shared().ask(Action::Apply(Operation::Charge), request.into()).await?))
    }

    /// Gives back up to what is used, the newest first. In a sliding window a unit whose sub-window is sliding out
    /// gives back what of it still counts.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn refund<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        Ok(usage(self.shared().ask(Action::Apply(Operation::Refund), request.into()).await?))
    }

    /// Forgets the key under its policy; the cost does not matter.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        Ok(usage(self.shared().ask(Action::Reset, request.into()).await?))
    }

    /// Waits until the request is admitted and, in a leaky bucket, until its turn has come. Says at once that the
    /// timeout cannot be met: then the decision is a denial, and nothing was spent.
    ///
    /// Those who wait for one key under one policy are served in the order in which they came; a `check` does not
    /// queue. Nobody polls: a waiter sleeps until the time at which its request can be admitted, or until somebody in
    /// this process refunds, resets or changes the policy. Dropping the future gives up its place.
    ///
    /// # Errors
    /// See [`Limiter`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) also when it has to wait by the system
    /// clock outside of a tokio runtime.
    ///
    /// # Panics
    /// When it has to wait in a tokio runtime whose time driver is not enabled.
    pub async fn acquire<'a>(
        &self,
        request: impl Into<Request<'a>>,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        self.shared().acquire(request.into(), timeout).await
    }

    /// Registers a policy, or changes the numbers of the one of that name. What was used is kept by every quota whose
    /// algorithm, period, step and buckets stay; a quota that is new in this sense starts unused.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there would be more than 65,536 policies;
    /// [`Closed`](ErrorKind::Closed) after [`close`](Self::close).
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        self.shared().set_policy(policy, PolicyOptions::default())
    }

    /// The policy of that name, with its current numbers; or the one of these quotas, if somebody asked for it.
    pub fn policy(&self, name: &str) -> Option<Policy> {
        self.shared().registry.policy(name)
    }

    /// The policy by which a [`Request`] that names this policy, or none, is decided; quotas as text count once somebody has
    /// asked for them.
    ///
    /// # Errors
    /// Those of an operation whose policy is not known, or that names none where there are several.
    pub fn policy_for(&self, name: Option<&str>) -> Result<Policy, Error> {
        self.shared().registry.policy_for(name)
    }

    /// All policies, in the order in which they were registered, those made of quotas in requests included.
    pub fn policies(&self) -> Vec<Policy> {
        self.shared().registry.policies()
    }

    /// Whether every operation on one key answers without waiting, as the memory store and the local one do; see
    /// [`try_call`](Self::try_call).
    pub fn answers_at_once(&self) -> bool {
        self.shared().store().is_here()
    }

    /// How many keys the memory store or the local one holds a state for, spent ones that were not cleaned yet included;
    /// `None` for a store elsewhere, and for one that cannot be opened.
    pub fn keys(&self) -> Option<usize> {
        match &self.shared().store {
            Store::Memory(store) => Some(store.keys()),
            Store::Local(store) => store.keys(),
            Store::Redis(_) => None,
        }
    }

    /// What became of the operations so far. The memory store and the local one answer every one of them at once and count
    /// none: theirs are all 0.
    pub fn stats(&self) -> Stats {
        match &self.shared().store {
            Store::Memory(_) | Store::Local(_) => Stats::default(),
            Store::Redis(store) => store.stats(),
        }
    }

    /// Waits until the store answers, at most for `timeout`. Nothing needs it; a service that starts may want it.
    ///
    /// # Errors
    /// [`StoreUnavailable`](ErrorKind::StoreUnavailable) when it does not answer in time;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) outside of a tokio runtime, unless the store is in this process.
    pub async fn ready(&self, timeout: Duration) -> Result<(), Error> {
        match &self.shared().store {
            Store::Memory(_) => Ok(()),
            Store::Local(store) => store.ready(),
            Store::Redis(store) => {
                in_tokio("ready")?;
                store.ready(timeout).await
            }
        }
    }

    /// Looks at the store with the eyes of an operator: the server's version, its memory policy, the user's rights, the
    /// latency and the clock. Makes a decision on a key of its own and forgets it.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) outside of a tokio runtime, unless the store is in this process.
    /// A store that cannot be reached is a finding.
    pub async fn doctor(&self) -> Result<Vec<Finding>, Error> {
        match &self.shared().store {
            Store::Memory(_) => Ok(Vec::new()),
            Store::Local(store) => store.ready().map(|()| Vec::new()),
            Store::Redis(store) => {
                in_tokio("doctor")?;
                store.examine().await
            }
        }
    }

    /// Authenticates new connections with another password, and user name if there is one, from now on. Connections
    /// that stand stay as they are.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when the store is in this process.
    pub fn set_credentials(&self, username: Option<&str>, password: &str) -> Result<(), Error> {
        match &self.shared().store {
            Store::Memory(_) => {
                Err(Error::invalid_argument("the memory store has no credentials: only one elsewhere has"))
            }
            Store::Local(_) => {
                Err(Error::invalid_argument("the local store has no credentials: only one elsewhere has"))
            }
            Store::Redis(store) => {
                store.set_credentials(username, password);
                Ok(())
            }
        }
    }

    /// The synchronous face of the same limiter.
    pub fn blocking(&self) -> crate::blocking::Limiter {
        crate::blocking::Limiter::new(self.clone())
    }

    /// Ends its use: what comes after it fails with [`Closed`](ErrorKind::Closed), connections are closed, and who waits
    /// is answered as if the store could not be asked. Closing it again does nothing.
    pub fn close(&self) {
        let shared = self.shared();
        if shared.registry.close() {
            shared.store.close();
            shared.lines.wake_everybody();
        }
    }

    /// What its clones share in this process.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        self.shared.here()
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        if !self.shared.birth.is_here() {
            // It belongs to the process that this one was forked from: its event queue is there as well, and ending it would
            // take its sockets out of there. So it is never dropped here.
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}

/// No keys are shown: they may be secrets or people's names.
impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = match &self.shared().store {
            Store::Memory(_) => "memory",
            Store::Local(_) => "local",
            Store::Redis(_) => "redis",
        };
        f.debug_struct("Limiter")
            .field("store", &store)
            .field("policies", &self.policies())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn new(store: Store) -> Self {
        Self {
            registry: Registry::default(),
            store,
            lines: Lines::default(),
            timers: OnceLock::new(),
            birth: Birth::here(),
            successor: OnceLock::new(),
        }
    }

    /// This, or what takes its place in this process.
    #[inline]
    fn here(&self) -> &Self {
        if self.birth.is_here() { self } else { self.successor() }
    }

    /// What takes its place in a process that was forked from the one that it was made in. Nothing that the parent has
    /// open or locked is used.
    #[cold]
    fn successor(&self) -> &Self {
        let successor = self.successor.get().unwrap_or_else(|| {
            let store = self.store.successor(&self.registry.policies());
            let registry = self.registry.successor();
            let made = Box::new(Self { registry, ..Self::new(store) });
            self.successor.get_or_init(|| made)
        });
        // That one may be a parent's, too.
        successor.here()
    }

    /// A runtime of our own, driven by a thread, for futures that are polled elsewhere.
    pub(crate) fn driver(&self) -> Result<&Driver, Error> {
        let driver = match &self.store {
            Store::Redis(store) => store.driver()?,
            Store::Memory(_) | Store::Local(_) => self.timers()?,
        };
        driver.run_for_good()?;
        Ok(driver)
    }

    /// A runtime of our own, for a thread that waits on it.
    pub(crate) fn driver_to_wait_on(&self) -> Result<&Driver, Error> {
        match &self.store {
            Store::Redis(store) => store.driver_to_wait_on(),
            Store::Memory(_) | Store::Local(_) => self.timers(),
        }
    }

    fn timers(&self) -> Result<&Driver, Error> {
        if let Some(driver) = self.timers.get() {
            return Ok(driver);
        }
        let driver = Driver::new()?;
        Ok(self.timers.get_or_init(|| driver))
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    fn clock(&self) -> &Clock {
        self.store.clock()
    }

    /// Checks a request's bounds and finds its policy.
    #[inline]
    fn question<'a>(&self, action: Action, request: Request<'a>) -> Result<Question<'a>, Error> {
        let request = request.checked()?;
        let tell = |id, policy: &Policy| self.store.set_policy(id, policy, PolicyOptions::default());
        let id = self.registry.id(request.policy, tell)?;
        Ok(Question { id, key: request.key, action, cost: request.cost })
    }

    /// Answers what needs no waiting.
    #[inline]
    pub(crate) fn try_ask(&self, action: Action, request: Request<'_>) -> Result<Option<Answer>, Error> {
        let question = self.question(action, request)?;
        let answer = self.store.try_ask(question).transpose()?;
        if answer.is_some() {
            self.answered(question);
        }
        Ok(answer)
    }

    #[inline]
    pub(crate) async fn ask(&self, action: Action, request: Request<'_>) -> Result<Answer, Error> {
        let question = self.question(action, request)?;
        let answer = self.store.ask(question).await?;
        self.answered(question);
        Ok(answer)
    }

    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than deciding"
    )]
    #[inline(always)]
    pub(crate) fn ask_blocking(&self, action: Action, request: Request<'_>) -> Result<Answer, Error> {
        let question = self.question(action, request)?;
        let answer = self.store.ask_blocking(question)?;
        self.answered(question);
        Ok(answer)
    }

    pub(crate) async fn check_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision, Error>> {
        let checks = self.checks(requests);
        let answers = self.store.ask_many(&valid(&checks)).await;
        decisions(checks, answers)
    }

    pub(crate) fn check_many_blocking<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision, Error>> {
        let checks = self.checks(requests);
        let answers = self.store.ask_many_blocking(&valid(&checks));
        decisions(checks, answers)
    }

    fn checks<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Question<'a>, Error>> {
        requests.into_iter().map(|request| self.question(CHECK, request.into())).collect()
    }

    /// Whoever waits for a key may be admitted sooner after some operations.
    #[inline]
    fn answered(&self, question: Question<'_>) {
        if let Action::Apply(Operation::Refund) | Action::Reset = question.action {
            self.lines.wake(question.id, question.key);
        }
    }

    fn set_policy(&self, policy: Policy, options: PolicyOptions) -> Result<(), Error> {
        self.registry.check_open()?;
        let id = self.registry.set(policy, |id, policy| self.store.set_policy(id, policy, options))?;
        self.lines.wake_all(id);
        Ok(())
    }
}

/// Says which operation needs tokio's timer.
fn in_tokio(operation: &str) -> Result<(), Error> {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::invalid_argument(format!(
            "{operation} has to wait and there is no tokio runtime here: call it from one, or use \
             polylimit::blocking::Limiter"
        ))),
    }
}

pub(crate) const CHECK: Action = Action::Apply(Operation::Check);

fn valid<'a>(checks: &[Result<Question<'a>, Error>]) -> Vec<Question<'a>> {
    checks.iter().filter_map(|check| check.as_ref().ok().copied()).collect()
}

/// Puts the answers to the valid ones in their places.
fn decisions(
    checks: Vec<Result<Question<'_>, Error>>,
    answers: Result<Vec<Answer>, Error>,
) -> Vec<Result<Decision, Error>> {
    let mut answers = answers.map(Vec::into_iter);
    let missing = || Error::new(ErrorKind::Internal, "a check in a batch got no answer");
    let decided = checks.into_iter().map(|check| {
        check?;
        let answer = answers.as_mut().map_err(|error| error.clone())?.next();
        answer.map(|(decision, _)| decision).ok_or_else(missing)
    });
    decided.collect()
}

pub(crate) fn usage((decision, spent): Answer) -> Usage {
    decision.into_usage(spent)
}
