//! How a question is prepared of the store, and what is made of its answer.

use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::rules::decision::{Degradation, Source};
use crate::rules::transition::Operation;
use crate::runtime::close_signal::closed;
use crate::store::outage::Outage;
use crate::store::redis::RedisStore;
use crate::store::redis::denial_cache::ReadVersion;
use crate::store::redis::pipeline::limits::Member;
use crate::store::redis::pipeline::pending::{Replied, Reply};
use crate::store::redis::pipeline::submission::{PendingReply, Until};
use crate::store::redis::policies::RedisPolicy;
use crate::store::redis::routing::topology::Topology;
use crate::store::redis::transport::failure::Failure;
use crate::store::{Action, Answer, Question};

/// A question, and what is needed to make something of its answer.
pub(crate) struct PreparedRequest<'a> {
    pub(crate) question: Question<'a>,
    pub(crate) policy: Arc<RedisPolicy>,
    pub(crate) read_version: Option<ReadVersion>,
}

/// One of several questions.
enum Started<'a> {
    Known(Answer),
    PreparedRequest(PreparedRequest<'a>, PendingReply),
}

impl RedisStore {
    /// The answer to a question that is known without asking anybody.
    #[inline]
    pub(crate) fn try_ask(&self, question: Question<'_>) -> Option<Answer> {
        if let Some(denial) = self.denial_cache.answer(question) {
            return Some((denial, 0));
        }
        self.leases.answer(question).map(|admitted| (admitted, question.cost))
    }

    /// Asks the store, and answers without it if need be. Says as well how many units were spent.
    pub(crate) async fn ask(&self, question: Question<'_>) -> Result<Answer, Error> {
        if let Some(answer) = self.try_ask(question) {
            return Ok(answer);
        }
        let here = self.access.hub()?.runtimes.here();
        match here {
            Ok(topology) => self.ask_at(&topology, question).await,
            Err(error) => self.answer_without(question, &error),
        }
    }

    /// Asks several questions at once, which travel together.
    pub(crate) async fn ask_many(&self, questions: &[Question<'_>]) -> Result<Vec<Answer>, Error> {
        let here = self.access.hub()?.runtimes.here();
        match here {
            Ok(topology) => self.ask_many_of(&topology, questions).await,
            Err(error) => self.answer_many_without(questions, &error),
        }
    }

    /// [`ask`](Self::ask) for a thread that waits.
    pub(crate) fn ask_blocking(&self, question: Question<'_>) -> Result<Answer, Error> {
        if let Some(answer) = self.try_ask(question) {
            return Ok(answer);
        }
        let hub = self.access.hub()?;
        let prepared =
            hub.runtimes.block_on(async |topology: Arc<Topology>| self.ask_at(&topology, question).await);
        prepared.unwrap_or_else(|error| self.answer_without(question, &error))
    }

    /// [`ask_many`](Self::ask_many) for a thread that waits.
    pub(crate) fn ask_many_blocking(&self, questions: &[Question<'_>]) -> Result<Vec<Answer>, Error> {
        let hub = self.access.hub()?;
        let prepared = hub
            .runtimes
            .block_on(async |topology: Arc<Topology>| self.ask_many_of(&topology, questions).await);
        prepared.unwrap_or_else(|error| self.answer_many_without(questions, &error))
    }

    /// Answers what could not even be given to the connections, if that is because the system does not give what they take.
    #[cold]
    fn answer_without(&self, question: Question<'_>, error: &Error) -> Result<Answer, Error> {
        if error.kind() != ErrorKind::StoreUnavailable {
            return Err(error.clone());
        }
        self.answered(&self.prepare(question)?, Err(Failure::not_applied(Degradation::NoResources)))
    }

    fn answer_many_without(&self, questions: &[Question<'_>], error: &Error) -> Result<Vec<Answer>, Error> {
        let answer = |question: &Question<'_>| match self.try_ask(*question) {
            Some(answer) => Ok(answer),
            None => self.answer_without(*question, error),
        };
        questions.iter().map(answer).collect()
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
                Started::PreparedRequest(prepared, submitted) => self.answered(&prepared, submitted.await)?,
            });
        }
        Ok(answers)
    }

    /// Asks one of several questions.
    async fn start<'a>(&self, topology: &Topology, question: Question<'a>) -> Result<Started<'a>, Error> {
        let prepared = self.prepare(question)?;
        if prepared.policy.lease.is_some() {
            return Ok(Started::Known(self.ask_beside_lease(topology, &prepared).await?));
        }
        let submitted = self.submit(topology, &prepared);
        Ok(Started::PreparedRequest(prepared, submitted))
    }

    async fn ask_at(&self, topology: &Topology, question: Question<'_>) -> Result<Answer, Error> {
        let prepared = self.prepare(question)?;
        if prepared.policy.lease.is_some() {
            return self.ask_beside_lease(topology, &prepared).await;
        }
        let submitted = self.submit(topology, &prepared);
        self.answered(&prepared, submitted.await)
    }

    /// Asks of a key that may be leased what no lease pays for. Nobody is told of units as used that are only held here.
    async fn ask_beside_lease(
        &self,
        topology: &Topology,
        prepared: &PreparedRequest<'_>,
    ) -> Result<Answer, Error> {
        let until = Instant::now() + self.access.deadline;
        let asked_us = self.leases.now_us();
        let question = prepared.question;
        let is_check = question.action == Action::Apply(Operation::Check);
        match question.action {
            Action::Reset => self.leases.forget(question),
            _ if !is_check && self.leases.holds(question) => self.leases.give_back(question, until).await,
            Action::Apply(_) => {}
        }
        let answer = self.answered(prepared, self.submit_until(topology, prepared, until).await)?;
        match question.action {
            Action::Reset => self.leases.forget(question),
            Action::Apply(Operation::Refund) => self.leases.spent_nothing(question),
            Action::Apply(_) => {}
        }
        if !is_check || answer.0.source != Source::Store {
            return Ok(answer);
        }
        if answer.0.allowed {
            self.leases.admitted(question, &prepared.policy, &answer.0, asked_us);
            return Ok(answer);
        }
        if !self.leases.holds(question) {
            return Ok(answer);
        }
        self.leases.give_back(question, until).await;
        let again = self.prepare(question)?;
        self.answered(&again, self.submit_until(topology, &again, until).await)
    }

    /// Makes ready to ask a question.
    fn prepare<'a>(&self, question: Question<'a>) -> Result<PreparedRequest<'a>, Error> {
        // Before the numbers: what is denied by numbers that change in between is not believed.
        let read_version = self.denial_cache.read_version(question);
        let policy = self.policies.known(question.id)?;
        Ok(PreparedRequest { question, policy, read_version })
    }

    /// Gives a question to the connections.
    pub(crate) fn submit(&self, topology: &Topology, prepared: &PreparedRequest<'_>) -> PendingReply {
        self.submit_until(topology, prepared, Instant::now() + self.access.deadline)
    }

    fn submit_until(
        &self,
        topology: &Topology,
        prepared: &PreparedRequest<'_>,
        deadline: Instant,
    ) -> PendingReply {
        let PreparedRequest { question, policy, .. } = prepared;
        let mut key = Vec::new();
        self.keys.write(&policy.key_prefix, question.key, &mut key);
        let what = (question.action, question.cost);
        let until = Until::DeadlineOrFirst(deadline);
        PendingReply::new(&self.access, topology, &policy.call, key, what, until)
    }

    /// Makes of the store's answer, or of why there is none, the caller's.
    fn answered(&self, prepared: &PreparedRequest<'_>, reply: Reply) -> Result<Answer, Error> {
        let PreparedRequest { policy, question, .. } = prepared;
        self.learn(prepared, &reply);
        let Member { counters, .. } = &*self.access.member;
        match reply {
            Ok(Replied { decision, spent, .. }) => {
                counters.applied.add(1);
                if policy.outage == Outage::Fallback {
                    self.outage.follow(*question, spent);
                }
                Ok((decision, spent))
            }
            Err(Failure { class, reason }) => {
                counters.failed(class);
                if self.access.member.is_closed() {
                    return Err(closed());
                }
                match policy.outage {
                    Outage::Fallback => counters.answered_fallback.add(1),
                    Outage::Allow => counters.answered_allow.add(1),
                    Outage::Deny => counters.answered_deny.add(1),
                }
                Ok(self.outage.answer(policy.outage, policy.policy.quotas(), *question, reason))
            }
        }
    }

    /// Keeps in mind what is denied, and no longer what may be admitted again.
    fn learn(&self, prepared: &PreparedRequest<'_>, reply: &Reply) {
        let PreparedRequest { read_version, policy, question } = prepared;
        let gives_back = matches!(question.action, Action::Apply(Operation::Refund) | Action::Reset);
        match reply {
            Ok(Replied { denied: Some(denied), .. }) => {
                if let Some(read_version) = read_version {
                    self.denial_cache.learn(*question, *read_version, &policy.call, Arc::clone(denied));
                    self.listener.listen();
                }
            }
            Ok(_) if gives_back => self.denial_cache.forget(*question, None),
            Ok(Replied { spent, .. })
                if *spent > 0 || question.action == Action::Apply(Operation::Charge) =>
            {
                self.denial_cache.outdated(*question);
            }
            // It may arrive until its deadline has passed at the server.
            Err(_) if gives_back => self.denial_cache.forget(*question, Some(self.access.may_arrive_for)),
            _ => {}
        }
    }
}
