//! The limiter: validates a request, picks its policy, and asks the store.

mod acquire;
mod builder;
mod deadline;
mod line;
mod registry;

use std::sync::Arc;
use std::time::Duration;

pub use builder::LimiterBuilder;

use self::line::Lines;
use self::registry::Registry;
use crate::clock::Clock;
use crate::decision::{Decision, Usage};
use crate::error::Error;
use crate::policy::Policy;
use crate::request::Request;
use crate::store::PolicyId;
use crate::store::memory::MemoryStore;
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
#[derive(Clone, Debug)]
pub struct Limiter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    registry: Registry,
    store: MemoryStore,
    /// Who waits for which key.
    lines: Lines,
}

/// A request whose policy is found and whose bounds are checked.
#[derive(Clone, Copy)]
struct Resolved<'a> {
    id: PolicyId,
    key: &'a [u8],
    cost: u64,
}

#[expect(
    clippy::unused_async,
    reason = "the memory store answers at once, others will have to be waited for"
)]
impl Limiter {
    /// Starts a limiter; it needs at least one policy.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Decides, and spends the cost from every quota of the policy when all admit it.
    ///
    /// # Errors
    /// See [`Limiter`].
    #[inline]
    pub async fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, Error> {
        self.shared.decide(Operation::Check, request.into())
    }

    /// The decision that a check would give now; leaves no trace. Nothing is spent, so `remaining` is from before.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, Error> {
        self.shared.decide(Operation::Peek, request.into())
    }

    /// Checks several requests in one call, of one or more policies. Each is decided on its own, in order.
    ///
    /// # Errors
    /// Each request has its own result; see [`Limiter`].
    pub async fn check_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision, Error>> {
        self.shared.decide_many(requests)
    }

    /// Spends as much of the cost as every quota admits, from 0 to the cost, and says how much it took.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn take<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        self.shared.adjust(Operation::Take, request.into())
    }

    /// Spends the cost whether it fits or not, for a cost that is learnt afterwards. Use saturates at 8 times each
    /// quota's capacity, in whole units.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn charge<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        self.shared.adjust(Operation::Charge, request.into())
    }

    /// Gives back up to what is used, the newest first. In a sliding window a unit whose sub-window is sliding out
    /// gives back what of it still counts.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn refund<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        self.shared.refund(request.into())
    }

    /// Forgets the key under its policy; the cost does not matter.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        self.shared.reset(request.into())
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
        self.shared.acquire(request.into(), timeout).await
    }

    /// Registers a policy, or changes the numbers of the one of that name. What was used is kept by every quota whose
    /// algorithm, period, step and buckets stay; a quota that is new in this sense starts unused.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there would be more than 65,536 policies.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        self.shared.set_policy(policy)
    }

    /// The policy of that name, with its current numbers.
    pub fn policy(&self, name: &str) -> Option<Policy> {
        self.shared.registry.policy(name)
    }

    /// All policies, in the order in which they were registered.
    pub fn policies(&self) -> Vec<Policy> {
        self.shared.registry.policies()
    }

    /// How many keys the store holds a state for, spent ones that were not cleaned yet included.
    pub fn keys(&self) -> usize {
        self.shared.store.keys()
    }

    /// The synchronous face of the same limiter.
    pub fn blocking(&self) -> crate::blocking::Limiter {
        crate::blocking::Limiter::new(self.clone())
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Shared {
    fn clock(&self) -> &Clock {
        self.store.clock()
    }

    #[inline]
    fn resolve<'a>(&self, request: Request<'a>) -> Result<Resolved<'a>, Error> {
        let request = request.checked()?;
        let id = self.registry.id(request.policy)?;
        Ok(Resolved { id, key: request.key, cost: request.cost })
    }

    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than deciding"
    )]
    #[inline(always)]
    pub(crate) fn decide(&self, operation: Operation, request: Request<'_>) -> Result<Decision, Error> {
        let Resolved { id, key, cost } = self.resolve(request)?;
        Ok(self.store.decide(id, key, operation, cost))
    }

    pub(crate) fn decide_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision, Error>> {
        requests.into_iter().map(|request| self.decide(Operation::Check, request.into())).collect()
    }

    pub(crate) fn adjust(&self, operation: Operation, request: Request<'_>) -> Result<Usage, Error> {
        let Resolved { id, key, cost } = self.resolve(request)?;
        Ok(self.store.adjust(id, key, operation, cost))
    }

    pub(crate) fn refund(&self, request: Request<'_>) -> Result<Usage, Error> {
        let Resolved { id, key, cost } = self.resolve(request)?;
        let usage = self.store.adjust(id, key, Operation::Refund, cost);
        self.lines.wake(id, key);
        Ok(usage)
    }

    pub(crate) fn reset(&self, request: Request<'_>) -> Result<Usage, Error> {
        let Resolved { id, key, .. } = self.resolve(request)?;
        let usage = self.store.reset(id, key);
        self.lines.wake(id, key);
        Ok(usage)
    }

    fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        let id = self.registry.set(policy, |id, policy| self.store.set_policy(id, policy))?;
        self.lines.wake_all(id);
        Ok(())
    }
}
