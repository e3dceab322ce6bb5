//! The store in Redis: one hop a decision, decided by scripts, over connections that are supervised.
//!
//! - [`options`], [`url`]: what the user configures. [`key`]: what a key is called there.
//! - [`script`], [`call`]: the transition in Lua, what it is told and what it replies.
//! - [`question`]: how a question is asked, and what is made of its answer.
//! - [`ticket`]: an operation that waits for its answer. [`topology`]: where it goes: to one server or, by slot, to a node
//!   of a [`cluster`]. [`link`]: the connection to a server, and the task that drives it on one of the [`runtimes`].
//! - [`failure`], [`health`]: what to make of an error, and when to stop asking.

mod call;
mod channel;
mod cluster;
mod connect;
mod context;
mod counters;
mod doctor;
mod failure;
mod health;
mod key;
mod leases;
mod link;
mod numbers;
mod options;
mod outage_answer;
mod outstanding;
mod policies;
mod question;
mod reply;
mod resp;
mod runtimes;
mod script;
mod secret;
mod server_time;
mod slot;
mod stream;
mod submitted;
mod switches;
mod target;
mod ticket;
mod tls;
mod topology;
mod url;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

pub(crate) use self::call::PolicyCall;
use self::channel::Channel;
use self::context::Context;
pub use self::counters::Stats;
pub(crate) use self::doctor::{Doctor, Look};
pub use self::doctor::{Finding, Severity};
use self::failure::Failure;
use self::key::KeyEncoder;
use self::leases::{LeaseStats, Leases, Means};
pub(crate) use self::options::duration;
pub use self::options::{OptionKind, RedisOptions, StoreOption};
use self::outage_answer::OutageAnswer;
use self::policies::{Policies, RedisPolicy};
use self::question::Asked;
use self::runtimes::Runtimes;
use self::secret::Secret;
use self::target::{Credentials, Endpoints};
use self::ticket::Reply;
use super::history::History;
use super::{Action, PolicyId, PolicyOptions, Question};
use crate::clock::Clock;
use crate::decision::Degradation;
use crate::driver::{Driver, InUse};
use crate::error::{Error, ErrorKind};
use crate::known_denied::KnownDenied;
use crate::outage::Outage;
use crate::policy::Policy;
use crate::transition::Operation;

/// Between two attempts to find the store ready.
const PAUSE: Duration = Duration::from_millis(10);
/// Longer waits are as good as endless ones: 100 years.
const LONGEST_WAIT: Duration = Duration::from_secs(100 * 366 * 86_400);

#[derive(Debug)]
pub(crate) struct RedisStore {
    context: Arc<Context>,
    runtimes: Arc<Runtimes>,
    endpoints: Endpoints,
    prefix: Box<str>,
    keys: KeyEncoder,
    policies: Arc<Policies>,
    outage: Arc<OutageAnswer>,
    known_denied: Arc<KnownDenied>,
    channel: Arc<Channel>,
    leases: Arc<Leases>,
}

impl RedisStore {
    /// A store that connects when it is first asked. Of each policy with the outage policy `local` at most `max_keys`
    /// keys are followed here.
    pub(crate) fn new(options: &RedisOptions, clock: Clock, max_keys: usize) -> Result<Self, Error> {
        let settings = options.settings()?;
        let context = Arc::new(Context::new(&settings, clock.clone())?);
        let means = Means {
            runtimes: Arc::new(Runtimes::new(settings.target.endpoints.clone(), Arc::clone(&context))),
            context,
            policies: Arc::new(Policies::new(settings.outage)),
            keys: KeyEncoder::new(&settings.prefix, settings.key_secret.as_ref()),
            outage: Arc::new(OutageAnswer::new(settings.local_share_ppm, clock.clone(), max_keys)),
            known_denied: Arc::new(KnownDenied::new(settings.known_denied_max, clock)),
        };
        Ok(Self::of(means, settings.target.endpoints, settings.prefix))
    }

    /// The same store for a process that was forked from the one that uses this: with connections of its own.
    pub(crate) fn successor(&self) -> Self {
        let context = Arc::new(self.context.successor());
        let policies = Arc::new(self.policies.successor());
        let means = Means {
            runtimes: Arc::new(self.runtimes.successor(Arc::clone(&context))),
            context,
            keys: self.keys.clone(),
            outage: Arc::new(self.outage.successor(&policies.all())),
            known_denied: Arc::new(self.known_denied.successor()),
            policies,
        };
        Self::of(means, self.endpoints.clone(), self.prefix.clone())
    }

    fn of(means: Means, endpoints: Endpoints, prefix: Box<str>) -> Self {
        let Means { context, policies, keys, known_denied, .. } = &means;
        let channel = Channel::new(
            endpoints.clone(),
            Arc::clone(context),
            keys.clone(),
            Arc::clone(policies),
            Arc::clone(known_denied),
        );
        Self {
            channel,
            context: Arc::clone(&means.context),
            runtimes: Arc::clone(&means.runtimes),
            endpoints,
            prefix,
            keys: means.keys.clone(),
            policies: Arc::clone(&means.policies),
            outage: Arc::clone(&means.outage),
            known_denied: Arc::clone(&means.known_denied),
            leases: Leases::new(means),
        }
    }

    /// Lets go of all connections.
    pub(crate) fn close(&self) {
        self.channel.close();
        self.context.switches.close();
        self.leases.give_back_all();
        self.runtimes.close();
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.context.clock
    }

    pub(crate) fn stats(&self) -> Stats {
        let LeaseStats { answered, held, returned, lost } = self.leases.stats();
        Stats {
            known_denied: self.known_denied.answered(),
            leased: answered,
            lease_units_held: held,
            lease_units_returned: returned,
            lease_units_lost: lost,
            ..self.context.counters.read()
        }
    }

    /// Registers a policy, or changes its numbers.
    pub(crate) fn set_policy(&self, id: PolicyId, policy: &Policy, options: PolicyOptions) {
        let before = self.policies.get(id);
        self.policies.set(id, policy, options, &self.keys, &self.context.clock);
        self.outage.set_policy(id, policy);
        self.known_denied.forget_all();
        if let (Some(before), Some(after)) = (before, self.policies.get(id)) {
            self.leases.renumbered(id, &before.policy, &after);
        }
    }

    /// Authenticates new connections with other credentials from now on.
    pub(crate) fn set_credentials(&self, username: Option<&str>, password: &str) {
        let secret = |text: &str| Secret::from(Box::from(text));
        let credentials = Credentials { username: username.map(secret), password: secret(password) };
        self.context.connector.set_credentials(credentials);
    }

    /// Waits until the store answers.
    pub(crate) async fn ready(&self, timeout: Duration) -> Result<(), Error> {
        let until = Instant::now() + timeout.min(LONGEST_WAIT);
        loop {
            // The first attempt may have longer than its deadline, but not longer than there is.
            let longest = until.max(Instant::now() + self.context.deadline);
            let answer = timeout_at(longest.into(), self.try_out(Action::Apply(Operation::Peek))).await;
            let reason = match answer {
                Ok(answer) => match answer? {
                    Ok(_) => return Ok(()),
                    Err(Failure { reason, .. }) => reason,
                },
                Err(_) => Degradation::Unreachable,
            };
            if Instant::now() >= until {
                return Err(Error::new(
                    ErrorKind::StoreUnavailable,
                    format!(
                        "the store did not answer within {} ms ({}): doctor says more",
                        timeout.as_millis(),
                        reason.name()
                    ),
                ));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// How long after the first decision it is looked at.
    pub(crate) fn doctor_after(&self) -> Option<Duration> {
        self.context.doctor_after
    }

    /// Asks something of a key that no user has.
    async fn try_out(&self, action: Action) -> Result<Reply, Error> {
        let topology = self.runtimes.here()?;
        let question = Question { id: PolicyId(0), key: b"\0polylimit doctor", action, cost: 1 };
        let policy = if let Some(policy) = self.policies.get(question.id) {
            policy
        } else {
            let policy = Policy::one_off("1/second", None)?;
            Arc::new(RedisPolicy::new(&policy, History::default(), Outage::Deny, None, &self.keys))
        };
        Ok(self.submit(&topology, &Asked { question, policy, look: None }).await)
    }

    /// The runtime of its own.
    pub(crate) fn driver(&self) -> Result<&Driver, Error> {
        self.runtimes.driver()
    }

    /// The runtime of its own, for a thread that waits on it.
    pub(crate) fn driver_to_wait_on(&self) -> Result<InUse<'_>, Error> {
        self.runtimes.to_wait_on().map(|(running, _)| running)
    }

    /// Waits on this thread for a future that asks this store.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.runtimes.driver()?.block_on(future)
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.close();
    }
}
