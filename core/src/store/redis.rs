//! The store in Redis: one hop a decision, decided by scripts, over connections that are supervised.
//!
//! - [`options`], [`url`]: what the user configures. [`key`]: what a key is called there.
//! - [`script`], [`call`]: the transition in Lua, what it is told and what it replies.
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
mod reply;
mod resp;
mod runtimes;
mod script;
mod secret;
mod server_time;
mod slot;
mod stream;
mod submitted;
mod target;
mod ticket;
mod tls;
mod topology;
mod url;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::call::PolicyCall;
use self::channel::Channel;
use self::context::Context;
pub use self::counters::Stats;
pub use self::doctor::{Finding, Severity};
use self::failure::Failure;
use self::key::KeyEncoder;
use self::leases::{LeaseStats, Leases, Means};
pub(crate) use self::options::duration;
pub use self::options::{OptionKind, RedisOptions, StoreOption};
use self::outage_answer::OutageAnswer;
use self::policies::{Policies, RedisPolicy};
use self::runtimes::Runtimes;
use self::secret::Secret;
use self::submitted::Submitted;
use self::target::{Credentials, Endpoints};
use self::ticket::{Replied, Reply};
use self::topology::Topology;
use super::{Action, Answer, PolicyId, PolicyOptions, Question};
use crate::clock::Clock;
use crate::decision::Source;
use crate::driver::Driver;
use crate::error::{Error, ErrorKind};
use crate::known_denied::{KnownDenied, Look};
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
        self.policies.set(id, policy, options, &self.keys, &self.context.clock);
        self.outage.set_policy(id, policy);
        self.known_denied.forget_all();
    }

    /// The answer to a question that is known without asking anybody.
    #[inline]
    pub(crate) fn try_ask(&self, question: Question<'_>) -> Option<Answer> {
        if let Some(denial) = self.known_denied.answer(question) {
            return Some((denial, 0));
        }
        self.leases.answer(question).map(|admitted| (admitted, question.cost))
    }

    /// Asks the store, and answers without it if need be. Says as well how many units were spent.
    pub(crate) async fn ask(&self, question: Question<'_>) -> Result<Answer, Error> {
        if let Some(answer) = self.try_ask(question) {
            return Ok(answer);
        }
        let topology = self.runtimes.here()?;
        self.ask_at(&topology, question).await
    }

    /// Asks several questions at once, which travel together.
    pub(crate) async fn ask_many(&self, questions: &[Question<'_>]) -> Result<Vec<Answer>, Error> {
        let topology = self.runtimes.here()?;
        self.ask_many_of(&topology, questions).await
    }

    /// [`ask`](Self::ask) for a thread that waits.
    pub(crate) fn ask_blocking(&self, question: Question<'_>) -> Result<Answer, Error> {
        if let Some(answer) = self.try_ask(question) {
            return Ok(answer);
        }
        self.runtimes.block_on(async |topology: Arc<Topology>| self.ask_at(&topology, question).await)?
    }

    /// [`ask_many`](Self::ask_many) for a thread that waits.
    pub(crate) fn ask_many_blocking(&self, questions: &[Question<'_>]) -> Result<Vec<Answer>, Error> {
        self.runtimes
            .block_on(async |topology: Arc<Topology>| self.ask_many_of(&topology, questions).await)?
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
            let Err(Failure { reason, .. }) = self.try_out(Action::Apply(Operation::Peek)).await? else {
                return Ok(());
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

    /// Asks something of a key that no user has.
    async fn try_out(&self, action: Action) -> Result<Reply, Error> {
        let topology = self.runtimes.here()?;
        let question = Question { id: PolicyId(0), key: b"\0polylimit doctor", action, cost: 1 };
        let policy = if let Some(policy) = self.policies.get(question.id) {
            policy
        } else {
            let policy = Policy::one_off("1/second")?;
            Arc::new(RedisPolicy::new(&policy, Vec::new(), Outage::Deny, None, &self.keys))
        };
        Ok(self.submit(&topology, &Asked { question, policy, look: None }).await)
    }

    /// The runtime of its own.
    pub(crate) fn driver(&self) -> Result<&Driver, Error> {
        self.runtimes.driver()
    }

    /// The runtime of its own, for a thread that waits on it.
    pub(crate) fn driver_to_wait_on(&self) -> Result<&Driver, Error> {
        self.runtimes.to_wait_on().map(|(driver, _)| driver)
    }

    /// Waits on this thread for a future that asks this store.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.runtimes.driver()?.block_on(future)
    }

    async fn ask_many_of(
        &self,
        topology: &Topology,
        questions: &[Question<'_>],
    ) -> Result<Vec<Answer>, Error> {
        let mut started = Vec::with_capacity(questions.len());
        for question in questions {
            let one = match self.try_ask(*question) {
                Some(answer) => Started::Known(answer),
                None => self.start(topology, *question).await?,
            };
            started.push(one);
        }
        let mut answers = Vec::with_capacity(questions.len());
        for started in started {
            answers.push(match started {
                Started::Known(answer) => answer,
                Started::Asked(asked, submitted) => self.answered(&asked, submitted.await),
            });
        }
        Ok(answers)
    }

    /// Asks one of several questions.
    async fn start<'a>(&self, topology: &Topology, question: Question<'a>) -> Result<Started<'a>, Error> {
        let asked = self.asked(question)?;
        if asked.policy.lease.is_some() {
            return Ok(Started::Known(self.ask_beside_lease(topology, &asked).await?));
        }
        let submitted = self.submit(topology, &asked);
        Ok(Started::Asked(asked, submitted))
    }

    async fn ask_at(&self, topology: &Topology, question: Question<'_>) -> Result<Answer, Error> {
        let asked = self.asked(question)?;
        if asked.policy.lease.is_some() {
            return self.ask_beside_lease(topology, &asked).await;
        }
        let submitted = self.submit(topology, &asked);
        Ok(self.answered(&asked, submitted.await))
    }

    /// Asks of a key that may be leased what no lease pays for. Nobody is told of units as used that are only held here.
    async fn ask_beside_lease(&self, topology: &Topology, asked: &Asked<'_>) -> Result<Answer, Error> {
        let until = Instant::now() + self.context.deadline;
        let question = asked.question;
        let is_check = question.action == Action::Apply(Operation::Check);
        match question.action {
            Action::Reset => self.leases.forget(question),
            _ if !is_check && self.leases.holds(question) => self.leases.give_back(question, until).await,
            Action::Apply(_) => {}
        }
        let answer = self.answered(asked, self.submit_until(topology, asked, until).await);
        if question.action == Action::Reset {
            self.leases.forget(question);
        }
        if !is_check || answer.0.source != Source::Store {
            return Ok(answer);
        }
        if answer.0.allowed {
            self.leases.admitted(question, &asked.policy, &answer.0);
            return Ok(answer);
        }
        if !self.leases.holds(question) {
            return Ok(answer);
        }
        self.leases.give_back(question, until).await;
        let again = self.asked(question)?;
        Ok(self.answered(&again, self.submit_until(topology, &again, until).await))
    }

    /// Makes ready to ask a question.
    fn asked<'a>(&self, question: Question<'a>) -> Result<Asked<'a>, Error> {
        let policy = self.policies.known(question.id)?;
        Ok(Asked { look: self.known_denied.look(question), policy, question })
    }

    /// Gives a question to the connections.
    fn submit(&self, topology: &Topology, asked: &Asked<'_>) -> Submitted {
        self.submit_until(topology, asked, Instant::now() + self.context.deadline)
    }

    fn submit_until(&self, topology: &Topology, asked: &Asked<'_>, deadline: Instant) -> Submitted {
        let Asked { question, policy, .. } = asked;
        let mut key = Vec::new();
        self.keys.write(&policy.key_prefix, question.key, &mut key);
        let what = (question.action, question.cost);
        Submitted::new(&self.context, topology, &policy.call, key, what, deadline)
    }

    /// Makes of the store's answer, or of why there is none, the caller's.
    fn answered(&self, asked: &Asked<'_>, reply: Reply) -> Answer {
        let Asked { policy, question, .. } = asked;
        self.learn(asked, &reply);
        let counters = &self.context.counters;
        match reply {
            Ok(Replied { decision, spent, .. }) => {
                counters.applied.add(1);
                if policy.outage == Outage::Local {
                    self.outage.follow(*question, spent);
                }
                (decision, spent)
            }
            Err(Failure { class, reason }) => {
                counters.failed(class);
                match policy.outage {
                    Outage::Local => counters.answered_local.add(1),
                    Outage::Allow => counters.answered_allow.add(1),
                    Outage::Deny => counters.answered_deny.add(1),
                }
                self.outage.answer(policy.outage, policy.policy.quotas(), *question, reason)
            }
        }
    }

    /// Keeps in mind what is denied, and no longer what may be admitted again.
    fn learn(&self, asked: &Asked<'_>, reply: &Reply) {
        let Asked { look, policy, question } = asked;
        let gives_back = matches!(question.action, Action::Apply(Operation::Refund) | Action::Reset);
        match reply {
            Ok(Replied { denied: Some(denied), .. }) => {
                if let Some(look) = look {
                    self.known_denied.learn(*question, *look, &policy.call, Arc::clone(denied));
                    self.channel.listen();
                }
            }
            Ok(_) if gives_back => self.known_denied.forget(*question, None),
            Ok(Replied { spent, .. })
                if *spent > 0 || question.action == Action::Apply(Operation::Charge) =>
            {
                self.known_denied.outdated(*question);
            }
            // It may arrive until its deadline has passed at the server.
            Err(_) if gives_back => self.known_denied.forget(*question, Some(2 * self.context.deadline)),
            _ => {}
        }
    }
}

/// A question, and what is needed to make something of its answer.
struct Asked<'a> {
    question: Question<'a>,
    policy: Arc<RedisPolicy>,
    look: Option<Look>,
}

/// One of several questions.
enum Started<'a> {
    Known(Answer),
    Asked(Asked<'a>, Submitted),
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.channel.close();
        self.leases.give_back_all();
    }
}
