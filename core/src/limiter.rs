//! The asynchronous limiter; `Shared` validates a request, finds its policy, and calls the store.

mod acquire;
pub mod blocking;
mod builder;
pub(crate) mod call;
mod cancellation;
pub(crate) mod completion;
pub(crate) mod configured;
mod counting;
pub(crate) mod deadline;
pub(crate) mod degradation_watch;
mod entrance;
pub(crate) mod event;
pub(crate) mod explanation;
pub(crate) mod fleet;
pub(crate) mod listing;
pub(crate) mod metrics;
pub(crate) mod near_limit;
pub(crate) mod observed;
pub(crate) mod operations;
pub(crate) mod owned_call;
mod registry;
pub(crate) mod renewal;
mod renewal_task;
pub(crate) mod reservation;
mod reserve;
#[cfg(feature = "tracing")]
mod spans;
mod spend_always;
pub(crate) mod tally;
#[cfg(feature = "testing")]
pub mod testing;
pub(crate) mod together;
pub(crate) mod top_keys;
pub(crate) mod wait_queue;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use builder::LimiterBuilder;

use crate::limiter::deadline::in_tokio;
use crate::limiter::event::{DegradedEvent, Hook};
pub(crate) use crate::limiter::operations::{CHARGE, CHECK, KeyCall, PEEK, RESERVE, Shared, usage};
use crate::limiter::registry::texts::HeldPolicy;
use crate::store::Store;
use polylimit_rules::decision::{Decision, Usage};
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::request::Request;
use polylimit_rules::transition::Operation;
use polylimit_store::charge::{Action, PolicyOptions, Wait};
use polylimit_store::finding::Finding;
use polylimit_store::stats::Stats;

/// Decides whether requests may proceed, for one or more policies. Clones share everything.
///
/// Every operation takes a [`Request`]: a key, and where needed a policy and a cost. A denial is a value, never an error.
/// This limiter is asynchronous; [`blocking::Limiter`](crate::limiter::blocking::Limiter) has the same operations for
/// blocking callers.
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
/// Every operation fails with [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the key is longer than 1 MiB,
/// the cost is above 10^12 units, the policy is unknown, or none is named and there are several.
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

impl Admin<'_> {
    /// Blocks the key under its policy for this time from now, unless it is already blocked for longer: 1 ms to 366
    /// days, in whole microseconds. Zero removes the block, and the denials and blocks that a penalty has counted. The
    /// cost is ignored.
    ///
    /// While a key is blocked, its checks, peeks and reserves are denied, with
    /// [`Cause::Blocked`](crate::decision::Cause::Blocked), and a take takes nothing; all other operations work as
    /// usual. A store that is full of states in use cannot block a key that has no state; [`Usage::degraded`] then has
    /// the reason.
    ///
    /// # Errors
    /// See [`Limiter`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) also when the time is out of bounds.
    pub async fn block<'a>(self, request: impl Into<Request<'a>>, time: Duration) -> Result<Usage, Error> {
        let call = KeyCall::block(request.into(), time);
        let shared = self.limiter.shared();
        Ok(usage(shared.start_one(shared.key_request(&call)?, Wait::Await).await?))
    }

    /// The number of keys with a state in the memory store or the local store, including expired states not yet
    /// removed; `None` for Redis, for a store that cannot be opened, and once the limiter is closed.
    pub fn keys(self) -> Option<usize> {
        let shared = self.limiter.shared();
        shared.registry.check_open().ok()?;
        shared.keys()
    }

    /// Examines the store for settings that make limits unreliable: the server's version, its memory policy, the user's
    /// rights, the latency and the clock, and whether the processes that [report](crate::LimiterBuilder::report) have the same version of
    /// the time zone database. Makes a decision on a key of its own and then resets that key. Nothing is examined in memory.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) outside of a tokio runtime, unless the store is in this process.
    /// [`Closed`](crate::ErrorKind::Closed) once the limiter is closed, including while this waits. An unreachable
    /// store is a finding, not an error.
    pub async fn doctor(self) -> Result<Vec<Finding>, Error> {
        let shared = self.limiter.shared();
        shared.registry.check_open()?;
        let mut findings = match &shared.store {
            // No other process has to agree.
            Store::Memory(_) => return Ok(Vec::new()),
            Store::Local(store) => shared.closing.unless_closed(store.ready()).await.map(|()| Vec::new())?,
            Store::Custom(store) => shared.closing.unless_closed(store.ready()).await.map(|()| Vec::new())?,
            Store::Redis(store) => {
                in_tokio("doctor")?;
                shared.closing.unless_closed(store.examine()).await?
            }
        };
        findings.push(shared.closing.unless_closed(async { Ok(self.examine_time_zones().await) }).await?);
        Ok(findings)
    }

    /// Changes the password, and the user name if one is given, for new connections; existing connections stay as they
    /// are. Other limiters of this process that share this limiter's connections keep their credentials: this limiter
    /// then opens connections of its own.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the store is in this process.
    pub fn set_credentials(self, username: Option<&str>, password: &str) -> Result<(), Error> {
        let shared = self.limiter.shared();
        shared.registry.check_open()?;
        match &shared.store {
            Store::Redis(store) => store.set_credentials(username, password),
            store => Err(Error::invalid_argument(format!(
                "the {} store has no credentials: only a Redis store has",
                name_of(store)
            ))),
        }
    }
}

impl Raw<'_> {
    /// The policy that decides a [`Request`] with this policy name, with these quotas, or with neither, as
    /// [`Limiter::policy_for`] returns it. Quotas do not become a permanent policy: like quotas named in
    /// requests, they are forgotten when unused for a while. For callers that describe the decision on a request.
    ///
    /// # Errors
    /// See [`Limiter::policy_for`].
    pub fn policy_in_request(self, policy: Option<&str>) -> Result<Policy, Error> {
        self.limiter.policy_in_scope(policy, None)
    }

    /// Fails once the limiter is closed, as every operation does; for callers that reject a call for reasons of their own.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn check_open(self) -> Result<(), Error> {
        self.limiter.shared().registry.check_open()
    }

    /// Whether every operation on one key answers within microseconds, as with the memory store, and with the local
    /// store unless another process holds a lock on a part of it.
    pub fn answers_at_once(self) -> bool {
        self.limiter.shared().store().is_here()
    }

    /// Whether no operation ever waits for another process, as with the memory store: then [`try_call`](Self::try_call) answers every
    /// call that does not wait in line.
    pub fn never_waits(self) -> bool {
        self.limiter.shared().store().never_waits()
    }

    /// Whether [`take_events`](Self::take_events) would return events: one load, cheap enough for every call.
    #[inline]
    pub fn has_events(self) -> bool {
        self.limiter.shared().watch.keeps_any()
    }

    /// Takes the events since the last call, the oldest first: for programs that cannot be called by
    /// [`on_degraded`](LimiterBuilder::on_degraded) on threads of the limiter. The last 64 are kept.
    pub fn take_events(self) -> Vec<DegradedEvent> {
        self.limiter.shared().watch.take()
    }
}

impl Limiter {
    /// Starts a limiter.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Decides whether the request may proceed, and spends its cost from every quota of the policy if all of them admit it.
    ///
    /// # Errors
    /// See [`Limiter`].
    #[inline]
    pub async fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, Error> {
        let (shared, request) = (self.shared(), request.into());
        match shared.check_known(request) {
            Some(decision) => Ok(decision),
            None => Ok(self.ask(CHECK, request).await?.0),
        }
    }

    /// Returns the decision that a check would return now, without any effect. Nothing is spent, so `remaining` is the
    /// value before the request.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn peek<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, Error> {
        Ok(self.ask(Action::Apply(Operation::Peek), request.into()).await?.0)
    }

    /// Checks several requests of one or more policies in one call. The store decides each of them separately, in order.
    ///
    /// # Errors
    /// Each request has its own result; see [`Limiter`].
    pub async fn check_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision, Error>> {
        self.ask_many(requests, Wait::Await).await
    }

    /// Spends as much of the cost as every quota admits, from 0 to the cost; [`Usage::taken`] is how much that is.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn take<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        Ok(usage(self.ask(Action::Apply(Operation::Take), request.into()).await?))
    }

    /// Spends the cost whether or not it fits, for a cost that is known only after the work is done. Usage saturates at
    /// 8 times each quota's capacity, in whole units.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn charge<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        Ok(usage(self.ask(Action::Apply(Operation::Charge), request.into()).await?))
    }

    /// Gives back the cost, at most what is used, newest units first. In a sliding window, a unit whose sub-window is
    /// sliding out gives back only the part that still counts.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn refund<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        Ok(usage(self.ask(Action::Apply(Operation::Refund), request.into()).await?))
    }

    /// Forgets the key's state under its policy; the cost is ignored.
    ///
    /// # Errors
    /// See [`Limiter`].
    pub async fn reset<'a>(&self, request: impl Into<Request<'a>>) -> Result<Usage, Error> {
        Ok(usage(self.ask(Action::Reset, request.into()).await?))
    }

    /// Registers a policy, or changes the quotas of the policy with the same name. Every quota whose algorithm, period,
    /// step and buckets stay the same keeps its use; any other quota starts unused.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there would be more than 65,536 policies;
    /// [`Closed`](crate::ErrorKind::Closed) after [`close`](Self::close).
    #[expect(clippy::needless_pass_by_value, reason = "callers have no use for it")]
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        self.shared().set_policy(&policy, PolicyOptions::default())
    }

    /// Returns the policy with this name and its current quotas, or the policy made of these quotas if a request has
    /// used them recently.
    pub fn policy(&self, name: &str) -> Option<Policy> {
        self.shared().registry.policy(name)
    }

    /// The policy that decides a [`Request`] with this policy name, with these quotas, or with neither. Quotas become a
    /// permanent policy of this limiter, whose name later requests may use. Middleware calls this when it is
    /// constructed, so that a program reports mistakes at startup.
    ///
    /// A `scope` gives quotas without a name a budget of their own: `100/minute` in the scope `/login` and in the scope
    /// `/search` are two policies, in every store and process. A scope does not change a policy with a name.
    ///
    /// ```
    /// # use polylimit::{Limiter, Policy};
    /// let limiter = Limiter::builder().policy(Policy::parse("api", "1000/hour")?).build()?;
    /// assert_eq!(limiter.policy_for(None, None)?.name(), "api");
    /// assert_eq!(limiter.policy_for(Some("api"), Some("/login"))?.name(), "api");
    /// assert_eq!(limiter.policy_for(Some("100/minute"), Some("login"))?.name(), "100|minute^login");
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when no policy has that name, the quotas cannot be read, none
    /// is named where there are several, or the scope is not 1 to 256 bytes; [`Closed`](crate::ErrorKind::Closed) after
    /// [`close`](Self::close).
    pub fn policy_for(&self, policy: Option<&str>, scope: Option<&str>) -> Result<Policy, Error> {
        let shared = self.shared();
        shared.registry.policy_for(policy, scope, &shared.store)
    }

    pub(crate) fn policy_in_scope(&self, policy: Option<&str>, scope: Option<&str>) -> Result<Policy, Error> {
        let shared = self.shared();
        shared.registry.policy_in_request(policy, scope, &shared.store)
    }

    /// Ensures that requests can still name a policy that this limiter has made of quotas.
    pub(crate) fn keep_policy(&self, policy: &Policy) -> Result<(), Error> {
        let shared = self.shared();
        shared.registry.keep(policy, &shared.store)
    }

    /// Keeps the policy of a request known for as long as the result lives.
    pub(crate) fn hold_policy(&self, policy: Option<&str>) -> Option<HeldPolicy> {
        let registry = &self.shared().registry;
        registry.find(policy).and_then(|id| registry.hold(id))
    }

    /// Fails if nothing can be reserved under this policy.
    pub(crate) fn refuse_unless_reservable(&self, policy: &Policy) -> Result<(), Error> {
        let shared = self.shared();
        let id = shared.registry.id(Some(policy.name()), &shared.store)?;
        shared.registry.refuse_reserved(id, &shared.store)
    }

    /// All policies in order of registration, including those made of quotas in requests, which are forgotten when unused for a while.
    pub fn policies(&self) -> Vec<Policy> {
        self.shared().registry.policies().into_iter().map(|(_, policy)| policy).collect()
    }

    /// Counters of the store's operations so far; each field documents what it counts in which store.
    /// [`metrics`](Self::metrics) includes them, and the decisions by policy.
    pub fn stats(&self) -> Stats {
        self.shared().stats()
    }

    /// Waits at most `timeout` until the store answers. No operation needs this; a service may call it at startup.
    ///
    /// # Errors
    /// [`StoreUnavailable`](crate::ErrorKind::StoreUnavailable) when it does not answer in time;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) outside of a tokio runtime, unless the store is in this process;
    /// [`Closed`](crate::ErrorKind::Closed) once the limiter is closed, including while this waits.
    pub async fn ready(&self, timeout: Duration) -> Result<(), Error> {
        let shared = self.shared();
        shared.registry.check_open()?;
        match &shared.store {
            Store::Memory(_) => Ok(()),
            Store::Local(store) => shared.closing.unless_closed(store.ready()).await,
            Store::Custom(store) => shared.closing.unless_closed(store.ready()).await,
            Store::Redis(store) => {
                in_tokio("ready")?;
                shared.closing.unless_closed(store.ready(timeout)).await
            }
        }
    }

    /// Replaces the hook that was given to [`LimiterBuilder::on_degraded`], under the same conditions. Once this
    /// returns, the previous hook is no longer called; the new one is not called after [`close`](Self::close) has
    /// returned.
    pub fn on_degraded(&self, hook: impl Fn(&DegradedEvent) + Send + Sync + 'static) {
        let watch = &self.shared().watch;
        if self.shared().registry.check_open().is_ok() {
            watch.set_hook(Some(Hook::new(hook)));
        }
    }

    /// The operations for operators.
    pub fn admin(&self) -> Admin<'_> {
        Admin { limiter: self }
    }

    /// The operations that only bindings need.
    #[inline]
    pub fn raw(&self) -> Raw<'_> {
        Raw { limiter: self }
    }

    /// Closes the limiter. Later operations fail with [`Closed`](crate::ErrorKind::Closed), and operations that are
    /// waiting for an answer fail with it at once; one that was already sent may have been applied. Connections,
    /// threads, event queues and states in this process are released before this returns, even while other clones
    /// exist. Leased units are returned to the store, for which this waits at most one
    /// [`deadline`](crate::redis::RedisOptions::deadline). Closing again does nothing.
    pub fn close(&self) {
        self.shared().close();
    }

    /// Whether both are clones of one limiter.
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The state that the clones share in this process.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        self.shared.here()
    }
}

/// The operations for operators, by [`Limiter::admin`]: keys of the store, explanations, the policy document, lists, processes.
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(crate) limiter: &'a Limiter,
}

/// The operations for bindings, by [`Limiter::raw`].
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    pub(crate) limiter: &'a Limiter,
}

impl Drop for Limiter {
    fn drop(&mut self) {
        if !self.shared.generation.is_here() {
            // The limiter belongs to the parent process. Dropping its event queue here would close the parent's
            // registrations of its sockets, so it is leaked.
            self.shared.leave();
        }
    }
}

/// `Debug` shows no keys: they may be secrets or people's names.
impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("store", &name_of(&self.shared().store))
            .field("policies", &self.policies())
            .finish_non_exhaustive()
    }
}

fn name_of(store: &Store) -> &'static str {
    match store {
        Store::Memory(_) => "memory",
        Store::Local(_) => "local",
        Store::Redis(_) => "redis",
        Store::Custom(_) => "custom",
    }
}
