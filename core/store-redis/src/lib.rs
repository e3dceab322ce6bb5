//! The Redis store: scripts decide with one round trip, over supervised connections.
//!
//! - `config`: the settings, by URL, setters or names. `keys`: the names of keys in Redis.
//! - `configuration`: the policy document and the entries that limits come from, if they are in Redis.
//! - `dispatch`: answers a request from the denial cache or a lease, or submits it; turns the reply into an answer.
//! - `routing`: the connections of a runtime, and the node that owns a key's slot.
//! - `pipeline`: a pending operation, its queue, batch and connection; retries, deadlines and the circuit breaker.
//! - `script`: the transition in Lua, its arguments and its reply.
//! - `transport`: sockets, TLS, the handshake, sentinels and the protocol.
//! - `listing`: lists keys by SCAN, and reads their states.

pub(crate) mod config;
pub(crate) mod configuration;
pub(crate) mod denial_cache;
pub(crate) mod dispatch;
#[doc(hidden)]
pub mod doctor;
#[doc(hidden)]
pub mod fleet;
pub(crate) mod keys;
pub(crate) mod lease;
#[doc(hidden)]
pub mod listing;
pub(crate) mod pipeline;
mod policies;
pub(crate) mod routing;
#[doc(hidden)]
pub mod script;
pub(crate) mod transport;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use self::policies::{Policies, RedisPolicy, RedisQuotas, fallback_quotas};
pub use crate::config::RedisOptions;
use crate::configuration::RedisConfiguration;
use crate::denial_cache::DenialCache;
use crate::keys::KeyEncoder;
use crate::lease::{LeaseDeps, LeaseStats, Leases};
use crate::routing::hub::Access;
use crate::routing::listener::Listener;
use crate::transport::failure::Failure;
use polylimit_document::source::origin::Origin;
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::policy::Policy;
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::driver::Driver;
use polylimit_runtime::monotonic;
use polylimit_store::charge::{Action, PolicyId, PolicyOptions, PreparedQuotas};
use polylimit_store::credentials::Credentials;
use polylimit_store::families::durations::DurationCounts;
use polylimit_store::finding::Severity;
use polylimit_store::policy_table::OfPolicy;
use polylimit_store::stats::Stats;
use polylimit_store_memory::fallback::Fallback;

/// The pause between two attempts to reach the store.
const PAUSE: Duration = Duration::from_millis(10);
/// Longer timeouts are reduced to this: 100 years.
const MAX_WAIT: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The store in Redis.
#[derive(Debug)]
pub struct RedisStore {
    access: Arc<Access>,
    keys: KeyEncoder,
    policies: Arc<Policies>,
    outage: Arc<Fallback>,
    denial_cache: Arc<DenialCache>,
    listener: Arc<Listener>,
    leases: Arc<Leases>,
}

impl RedisStore {
    /// Creates a store that connects at its first request. `max_keys` bounds the keys that the outage policy `fallback`
    /// follows for each policy.
    #[doc(hidden)]
    pub fn new(options: &RedisOptions, clock: Clock, max_keys: usize) -> Result<Self, Error> {
        let settings = options.settings()?;
        Ok(Self::of(LeaseDeps {
            policies: Arc::new(Policies::new(settings.outage)),
            keys: KeyEncoder::new(&settings.prefix, settings.key_secret.as_ref()),
            outage: Arc::new(Fallback::new(
                settings.fallback_share,
                clock.clone(),
                max_keys,
                fallback_quotas,
            )),
            denial_cache: Arc::new(DenialCache::new(settings.denial_cache_max, clock.clone())),
            access: Access::new(settings, clock)?,
        }))
    }

    /// The same store in a forked child: it connects again.
    #[must_use]
    pub fn after_fork(&self) -> Self {
        let policies = Arc::new(self.policies.after_fork());
        Self::of(LeaseDeps {
            access: self.access.after_fork(),
            keys: self.keys.clone(),
            outage: Arc::new(
                self.outage.after_fork(policies.all().iter().map(|policy| (policy.id(), &policy.policy))),
            ),
            denial_cache: Arc::new(self.denial_cache.after_fork()),
            policies,
        })
    }

    fn of(deps: LeaseDeps) -> Self {
        let LeaseDeps { access, policies, keys, outage, denial_cache } = deps.clone();
        let leases = Leases::new(deps);
        let (member, known) = (Arc::clone(&access.member), Arc::clone(&policies));
        let weak = Arc::downgrade(&leases);
        let listener = Listener::new(member, known, Arc::clone(&denial_cache), weak);
        Self { access, keys, policies, outage, denial_cache, listener, leases }
    }

    /// Answers pending callers, returns leased units, and releases everything that the store holds.
    pub fn close(&self) {
        self.access.end_waiting();
        if let Ok(hub) = self.access.hub() {
            hub.subscriber.remove(&self.listener);
        }
        self.leases.give_back_all();
        self.access.leave();
        self.denial_cache.forget_all();
        self.outage.clear();
    }

    /// The clock of this process, by which the store would decide without Redis.
    pub fn clock(&self) -> &Clock {
        &self.access.clock
    }

    /// The configuration in the same store, for limiters that take theirs from there.
    pub fn origin(&self) -> Arc<dyn Origin> {
        Arc::new(self.configuration())
    }

    /// The configuration in the same store.
    pub fn configuration(&self) -> RedisConfiguration {
        RedisConfiguration::new(&self.access)
    }

    /// The servers and the prefix of the keys.
    pub fn place(&self) -> Arc<str> {
        let settings = self.access.settings();
        format!("{}, prefix {}", settings.target, settings.prefix).into()
    }

    /// The longest time that an operation takes.
    pub fn deadline(&self) -> Duration {
        self.access.deadline
    }

    /// The outcomes of its operations.
    pub fn stats(&self) -> Stats {
        let LeaseStats { answered, held, returned, lost } = self.leases.stats();
        let mut stats = self.access.stats();
        stats.denial_cache = self.denial_cache.answered();
        stats.leased = answered;
        stats.lease_units_held = held;
        stats.lease_units_returned = returned;
        stats.lease_units_lost = lost;
        stats
    }

    /// How long the script calls of this limiter took.
    pub fn durations(&self) -> DurationCounts {
        self.access.member.durations.read()
    }

    /// Whether the store answered the last call, or has not failed yet.
    pub fn is_up(&self) -> bool {
        self.access.with_hub(|hub| Ok(!hub.context.is_failing())).unwrap_or(false)
    }

    /// Registers a policy, or changes its quotas.
    pub fn set_policy(&self, id: PolicyId, policy: &Policy, options: PolicyOptions) {
        let before = self.policies.get(id);
        self.policies.set(id, policy, options, &self.keys, &self.access.clock);
        self.outage.set_policy(id, policy);
        if let (Some(before), Some(after)) = (before, self.policies.get(id)) {
            self.denial_cache.forget_all();
            self.leases.renumbered(id, &before.policy, &after);
        }
    }

    /// Forgets a policy; its keys keep their states.
    pub fn forget_policy(&self, id: PolicyId) {
        self.policies.forget(id);
        self.outage.forget_policy(id);
    }

    /// Prepares the effective quotas of some keys of a policy. `others` are further quotas that these keys may have.
    pub fn prepare_quotas(
        &self,
        id: PolicyId,
        policy: &Policy,
        others: &[Policy],
        options: PolicyOptions,
    ) -> PreparedQuotas {
        let outage = options.outage.unwrap_or(self.policies.outage());
        PreparedQuotas::new(RedisQuotas {
            policy: Arc::new(RedisPolicy::of_keys(id, policy, others, outage, &self.keys)),
            fallback: self.outage.prepare_quotas(id, policy),
        })
    }

    /// Whether units of the policy are leased.
    pub fn is_leased(&self, id: PolicyId) -> bool {
        self.policies.get(id).is_some_and(|policy| policy.lease.is_some())
    }

    /// Uses other credentials for all new connections.
    #[doc(hidden)]
    pub fn set_credentials(&self, username: Option<&str>, password: &str) -> Result<(), Error> {
        let credentials = Credentials::new(username, password);
        let before = self.access.hub()?;
        self.access.set_credentials(credentials)?;
        if !Arc::ptr_eq(&before, &self.access.hub()?) {
            before.subscriber.remove(&self.listener);
            self.listener.moved();
            self.leases.moved();
        }
        Ok(())
    }

    /// Waits until the store answers, or the timeout passes.
    #[doc(hidden)]
    pub async fn ready(&self, timeout: Duration) -> Result<(), Error> {
        let until = monotonic::now() + timeout.min(MAX_WAIT);
        // Boxed, so that the futures of all callers stay small.
        let mut answers = Box::pin(self.first_answer(until));
        let mut examining = Box::pin(async {
            tokio::time::sleep(timeout.min(MAX_WAIT) / 2).await;
            self.problems().await
        });
        let mut problems = None;
        // The doctor looks for the cause while the attempts continue.
        let reason = loop {
            tokio::select! {
                biased;
                outcome = &mut answers => match outcome? {
                    None => return Ok(()),
                    Some(reason) => break reason,
                },
                found = &mut examining, if problems.is_none() => problems = Some(found),
            }
        };
        // Waiting does not make the server accept the credentials.
        if reason == Degradation::Auth {
            return Err(Box::pin(self.refused_by_server(until)).await);
        }
        let ms = timeout.as_millis();
        let is_refused = matches!(reason, Degradation::Refused | Degradation::ClusterDown);
        let answered = if is_refused { "decide" } else { "answer" };
        let problems = problems.filter(|problems| !problems.is_empty());
        let cause = self.cause(reason).filter(|_| is_refused).map(|cause| cause.to_string());
        let cause = cause.or(problems).unwrap_or_else(|| "run the doctor".to_owned());
        let message = format!("the store did not {answered} within {ms} ms ({}): {cause}", reason.name());
        Err(Error::new(ErrorKind::StoreUnavailable, message))
    }

    /// Calls the store until it answers, and then returns `None`. A server that refuses the credentials is tried only
    /// once.
    async fn first_answer(&self, until: Instant) -> Result<Option<Degradation>, Error> {
        loop {
            // The first attempt may wait longer than its deadline for a connection; the timeout bounds it.
            let longest = until.max(monotonic::now() + self.access.deadline);
            let answer =
                timeout_at(longest.into(), self.try_out(Some(PolicyId(0)), Action::Apply(Operation::Peek)))
                    .await;
            let reason = match answer {
                Ok(answer) => match answer? {
                    Ok(_) => return Ok(None),
                    Err(Failure { reason, .. }) => reason,
                },
                Err(_) => Degradation::Unreachable,
            };
            if reason == Degradation::Auth || monotonic::now() >= until {
                return Ok(Some(reason));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Why the store cannot be used, as the doctor explains it; empty if it finds nothing.
    async fn problems(&self) -> String {
        let findings = self.examine().await.unwrap_or_default();
        let problems = findings.into_iter().filter(|finding| finding.severity >= Severity::Problem);
        problems.map(|finding| finding.message).collect::<Vec<_>>().join("; ")
    }

    /// The error for a server that refuses the user, its password or a command, with the doctor's explanation.
    async fn refused_by_server(&self, until: Instant) -> Error {
        let message = timeout_at(until.into(), self.problems()).await.unwrap_or_default();
        let message = if message.is_empty() {
            "the server refuses the user, the password or a command".to_owned()
        } else {
            message
        };
        Error::new(ErrorKind::StoreUnavailable, format!("the store refuses decisions (auth): {message}"))
    }

    /// The time between the first decision and the examination of the servers.
    pub fn doctor_after(&self) -> Option<Duration> {
        Some(self.access.settings().doctor_after).filter(|after| !after.is_zero())
    }

    /// The runtime of the connections.
    #[doc(hidden)]
    pub fn driver(&self) -> Result<Arc<Driver>, Error> {
        self.access.hub()?.runtimes.driver().cloned()
    }

    /// The store's own runtime, for a thread that blocks on it.
    #[doc(hidden)]
    pub fn driver_to_wait_on(&self) -> Result<Arc<Driver>, Error> {
        let hub = self.access.hub()?;
        // Starts a thread that keeps trying to connect to an unreachable server.
        hub.runtimes.to_wait_on()?;
        hub.runtimes.driver().cloned()
    }

    /// Blocks this thread until a future that uses this store is ready.
    #[doc(hidden)]
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.driver()?.block_on(future)
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.close();
    }
}
