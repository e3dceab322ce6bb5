//! The path of a request through the store: it is prepared and submitted, and its reply becomes the caller's answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::rules::decision::{Decision, Degradation, Source};
use crate::rules::history::History;
use crate::rules::policy::Policy;
use crate::rules::transition::Operation;
use crate::runtime::close_signal::closed;
use crate::runtime::monotonic;
use crate::store::outage::Outage;
use crate::store::redis::RedisStore;
use crate::store::redis::denial_cache::ReadVersion;
use crate::store::redis::keys::channel::Channel;
use crate::store::redis::pipeline::pending::{Charge, Member, PendingReply, Reply};
use crate::store::redis::policies::{RedisPolicy, RedisQuotas};
use crate::store::redis::routing::hub::Until;
use crate::store::redis::routing::listener::LeasedKeys;
use crate::store::redis::routing::runtimes::Topology;
use crate::store::redis::script::reply::ScriptDecision;
use crate::store::redis::transport::cluster_slots::slot;
use crate::store::redis::transport::failure::Failure;
use crate::store::request::{
    Action, Answer, PolicyId, PreparedQuotas, RequestCharge, StoreRequest, is_admitted,
};

/// A request with everything that is needed to interpret its reply.
pub(crate) struct PreparedRequest<'a> {
    pub(crate) request: StoreRequest<'a>,
    pub(crate) policy: Arc<RedisPolicy>,
    pub(crate) read_version: Option<ReadVersion>,
}

/// The charges of a request whose keys have one slot.
#[derive(Default)]
struct Part<'a> {
    /// Their indexes in the request.
    places: Vec<usize>,
    /// Each with whether it decides.
    prepared: Vec<(PreparedRequest<'a>, bool)>,
    charges: Vec<Charge>,
}

/// One of several concurrent requests.
enum RequestProgress<'a> {
    Answered(Answer),
    Submitted(PreparedRequest<'a>, PendingReply),
}

impl RedisStore {
    /// The answer of the denial cache or of a lease, if any. A check tries this once, in the limiter; everything after it goes to the
    /// server.
    #[inline]
    pub(crate) fn ask_caches(&self, request: StoreRequest<'_>) -> Option<Answer> {
        if let Some(denial) = self.denial_cache.answer(request) {
            return Some((denial, 0));
        }
        self.leases.answer(request).map(|admitted| (admitted, request.cost))
    }

    /// Sends the request to the server; if the server does not decide, the outage policy does. Also returns the number
    /// of units spent.
    pub(crate) async fn ask(&self, request: StoreRequest<'_>) -> Result<Answer, Error> {
        match self.access.with_hub(|hub| hub.runtimes.here()) {
            Ok(topology) => self.ask_at(&topology, request).await,
            Err(error) => self.answer_without(request, &error),
        }
    }

    /// Sends several requests at once; they can share a batch.
    pub(crate) async fn ask_many(&self, requests: &[StoreRequest<'_>]) -> Result<Vec<Answer>, Error> {
        match self.access.with_hub(|hub| hub.runtimes.here()) {
            Ok(topology) => self.ask_many_of(&topology, requests).await,
            Err(error) => requests.iter().map(|request| self.answer_without(*request, &error)).collect(),
        }
    }

    /// [`ask`](Self::ask) for a blocking caller.
    pub(crate) fn ask_blocking(&self, request: StoreRequest<'_>) -> Result<Answer, Error> {
        let hub = self.access.hub()?;
        let answer =
            hub.runtimes.block_on(async |topology: Arc<Topology>| self.ask_at(&topology, request).await);
        answer.unwrap_or_else(|error| self.answer_without(request, &error))
    }

    /// [`ask_many`](Self::ask_many) for a blocking caller.
    pub(crate) fn ask_many_blocking(&self, requests: &[StoreRequest<'_>]) -> Result<Vec<Answer>, Error> {
        let hub = self.access.hub()?;
        let answers = hub
            .runtimes
            .block_on(async |topology: Arc<Topology>| self.ask_many_of(&topology, requests).await);
        answers.unwrap_or_else(|error| {
            requests.iter().map(|request| self.answer_without(*request, &error)).collect()
        })
    }

    /// Answers the charges of a request, each for a different key or policy: all are applied, or none. Across slots of a cluster, a denied
    /// request gives back what it got in other slots.
    pub(crate) async fn ask_together(&self, charges: &[RequestCharge<'_>]) -> Result<Vec<Answer>, Error> {
        match self.access.with_hub(|hub| hub.runtimes.here()) {
            Ok(topology) => self.ask_together_at(&topology, charges).await,
            Err(error) => self.answer_together_without(charges, &error),
        }
    }

    /// [`ask_together`](Self::ask_together) for a blocking caller.
    pub(crate) fn ask_together_blocking(&self, charges: &[RequestCharge<'_>]) -> Result<Vec<Answer>, Error> {
        let hub = self.access.hub()?;
        let answers = hub
            .runtimes
            .block_on(async |topology: Arc<Topology>| self.ask_together_at(&topology, charges).await);
        answers.unwrap_or_else(|error| self.answer_together_without(charges, &error))
    }

    #[cold]
    fn answer_together_without(
        &self,
        charges: &[RequestCharge<'_>],
        error: &Error,
    ) -> Result<Vec<Answer>, Error> {
        if error.kind() != ErrorKind::StoreUnavailable {
            return Err(error.clone());
        }
        let failure = Failure::not_applied(Degradation::NoResources);
        self.answered_together(&self.prepare_all(charges)?, Err(failure))
    }

    async fn ask_together_at(
        &self,
        topology: &Topology,
        charges: &[RequestCharge<'_>],
    ) -> Result<Vec<Answer>, Error> {
        if let Some(reason) = self.outage.made_for(charges) {
            return self.answered_by_outage(&self.prepare_all(charges)?, reason);
        }
        let denial = |charge: &RequestCharge<'_>| {
            if charge.uses_caches { self.denial_cache.answer(charge.request) } else { None }
        };
        let known: Vec<_> = charges.iter().map(denial).collect();
        if charges.iter().zip(&known).any(|(charge, denial)| charge.decides && denial.is_some()) {
            return self.answer_with_known(topology, charges, known).await;
        }
        let until = monotonic::now() + self.access.deadline;
        for charge in charges {
            // Units that are only held in-process would show up as spent.
            if self.leases.holds(charge.request) {
                self.leases.give_back(charge.request, until).await;
            }
        }
        let mut parts: BTreeMap<u16, Part<'_>> = BTreeMap::new();
        for (place, prepared) in self.prepare_all(charges)?.into_iter().enumerate() {
            let charge = self.charge(&prepared.0, prepared.1);
            let slot = if topology.is_cluster() { slot(&charge.key) } else { 0 };
            let part = parts.entry(slot).or_default();
            part.places.push(place);
            part.prepared.push(prepared);
            part.charges.push(charge);
        }
        let mut submitted = Vec::with_capacity(parts.len());
        for Part { places, prepared, charges } in parts.into_values() {
            let hold = prepared.iter().find_map(|(prepared, _)| prepared.request.hold);
            let mut charges = charges.into_iter();
            let Some(first) = charges.next() else { continue };
            let until = Until::DeadlineOrFirst(until);
            let reply = self.access.submit_charges(topology, first, charges.collect(), hold, until);
            submitted.push((places, prepared, reply));
        }
        let mut answers: Vec<Option<Answer>> = charges.iter().map(|_| None).collect();
        let (mut admitted, mut is_denied) = (Vec::new(), false);
        for (places, prepared, reply) in submitted {
            let answered = self.answered_together(&prepared, reply.await)?;
            let of_part: Vec<_> = places.iter().map(|place| charges[*place]).collect();
            if is_admitted(&of_part, &answered) {
                admitted.extend_from_slice(&places);
            } else {
                is_denied = true;
            }
            for (place, answer) in places.into_iter().zip(answered) {
                answers[place] = Some(answer);
            }
        }
        if is_denied {
            for place in admitted {
                if let Some(answer) = &mut answers[place] {
                    self.give_back(topology, charges[place].request, answer).await?;
                }
            }
        }
        answers.into_iter().map(|answer| answer.ok_or_else(Error::no_answer)).collect()
    }

    /// Answers the charges of a request of which some are known to be denied: the others are peeked at.
    async fn answer_with_known(
        &self,
        topology: &Topology,
        charges: &[RequestCharge<'_>],
        known: Vec<Option<Decision>>,
    ) -> Result<Vec<Answer>, Error> {
        let action = Action::Apply(Operation::Peek);
        let unknown = charges.iter().zip(&known).filter(|(_, denial)| denial.is_none());
        let peeks: Vec<_> =
            unknown.map(|(charge, _)| StoreRequest { action, hold: None, ..charge.request }).collect();
        let mut peeked = self.ask_many_of(topology, &peeks).await?.into_iter();
        let answer = |denial: Option<Decision>| match denial {
            Some(denial) => Ok((denial, 0)),
            None => peeked.next().ok_or_else(Error::no_answer),
        };
        known.into_iter().map(answer).collect()
    }

    /// Gives back what a part of a request got in a slot other than that of the denied part; its decision becomes that of a peek.
    async fn give_back(
        &self,
        topology: &Topology,
        request: StoreRequest<'_>,
        answer: &mut Answer,
    ) -> Result<(), Error> {
        if answer.0.source != Source::Store || !answer.0.allowed {
            answer.1 = 0;
            return Ok(());
        }
        let ending = if request.hold.is_some() { Operation::Cancel } else { Operation::Refund };
        let action = Action::Apply(ending);
        let _ = self.ask_at(topology, StoreRequest { action, headroom: 0, ..request }).await?;
        let action = Action::Apply(Operation::Peek);
        *answer = self.ask_at(topology, StoreRequest { action, hold: None, ..request }).await?;
        Ok(())
    }

    fn prepare_all<'a>(
        &self,
        charges: &[RequestCharge<'a>],
    ) -> Result<Vec<(PreparedRequest<'a>, bool)>, Error> {
        charges.iter().map(|charge| Ok((self.prepare(charge.request)?, charge.decides))).collect()
    }

    /// Turns the server's reply to a request, or the reason for its absence, into the answers to its charges.
    fn answered_together(
        &self,
        prepared: &[(PreparedRequest<'_>, bool)],
        reply: Reply,
    ) -> Result<Vec<Answer>, Error> {
        let Member { counters, .. } = &*self.access.member;
        let decided = match reply {
            Ok(ScriptDecision { others, decision, spent, now_us, seen }) => {
                let first = ScriptDecision { others: Box::default(), decision, spent, now_us, seen };
                [first].into_iter().chain(others).collect::<Vec<_>>()
            }
            Err(failure) => {
                for (prepared, _) in prepared {
                    self.learn(prepared, &Err(failure));
                }
                counters.failed(failure.class);
                return self.answered_by_outage(prepared, failure.reason);
            }
        };
        let denies =
            |((_, decides), decided): (&(_, bool), &ScriptDecision)| *decides && !decided.decision.allowed;
        let is_admitted = !prepared.iter().zip(&decided).any(denies);
        let mut answers = Vec::with_capacity(decided.len());
        for ((prepared, _), decided) in prepared.iter().zip(decided) {
            counters.applied.add(1);
            let (decision, spent) = (decided.decision.clone(), decided.spent);
            self.learn(prepared, &Ok(decided));
            if is_admitted && prepared.policy.outage == Outage::Fallback {
                self.outage.follow(prepared.request, &decision, spent);
            }
            answers.push((decision, spent));
        }
        Ok(answers)
    }

    /// The answers of the outage policies to the charges of a request.
    fn answered_by_outage(
        &self,
        prepared: &[(PreparedRequest<'_>, bool)],
        reason: Degradation,
    ) -> Result<Vec<Answer>, Error> {
        if self.access.member.is_closed() {
            return Err(closed());
        }
        let charges: Vec<_> = prepared
            .iter()
            .map(|(PreparedRequest { policy, request, .. }, decides)| {
                self.count_outage(policy.outage);
                let charge = RequestCharge { request: *request, decides: *decides, uses_caches: false };
                (policy.outage, policy.policy.quotas(), charge)
            })
            .collect();
        self.outage.answer_together(&charges, reason)
    }

    fn count_outage(&self, outage: Outage) {
        let counters = &self.access.member.counters;
        match outage {
            Outage::Fallback => counters.answered_fallback.add(1),
            Outage::Allow => counters.answered_allow.add(1),
            Outage::Deny => counters.answered_deny.add(1),
        }
    }

    /// Answers a request that could not be submitted because the system has no resources for connections.
    #[cold]
    fn answer_without(&self, request: StoreRequest<'_>, error: &Error) -> Result<Answer, Error> {
        if error.kind() != ErrorKind::StoreUnavailable {
            return Err(error.clone());
        }
        self.answered(&self.prepare(request)?, Err(Failure::not_applied(Degradation::NoResources)))
    }

    async fn ask_many_of(
        &self,
        topology: &Topology,
        requests: &[StoreRequest<'_>],
    ) -> Result<Vec<Answer>, Error> {
        let mut started = Vec::with_capacity(requests.len());
        for request in requests {
            if let Some(answer) = self.outage.answer_made(*request) {
                started.push(RequestProgress::Answered(answer));
                continue;
            }
            let prepared = self.prepare(*request)?;
            started.push(if prepared.policy.lease.is_some() {
                RequestProgress::Answered(self.ask_beside_lease(topology, &prepared).await?)
            } else {
                let reply = self.submit(topology, &prepared);
                RequestProgress::Submitted(prepared, reply)
            });
        }
        let mut answers = Vec::with_capacity(requests.len());
        for started in started {
            answers.push(match started {
                RequestProgress::Answered(answer) => answer,
                RequestProgress::Submitted(prepared, reply) => self.answered(&prepared, reply.await)?,
            });
        }
        Ok(answers)
    }

    async fn ask_at(&self, topology: &Topology, request: StoreRequest<'_>) -> Result<Answer, Error> {
        if let Some(answer) = self.outage.answer_made(request) {
            return Ok(answer);
        }
        let prepared = self.prepare(request)?;
        if prepared.policy.lease.is_some() {
            return self.ask_beside_lease(topology, &prepared).await;
        }
        let submitted = self.submit(topology, &prepared);
        self.answered(&prepared, submitted.await)
    }

    /// Sends a request on a key that may be leased to the server, when no lease pays for it. Units that are only held in-process are given
    /// back first if they would show up as spent.
    async fn ask_beside_lease(
        &self,
        topology: &Topology,
        prepared: &PreparedRequest<'_>,
    ) -> Result<Answer, Error> {
        let until = monotonic::now() + self.access.deadline;
        let asked_us = self.leases.now_us();
        let request = prepared.request;
        let is_check = request.action == Action::Apply(Operation::Check);
        match request.action {
            Action::Reset => self.leases.forget(request),
            _ if !is_check && self.leases.holds(request) => self.leases.give_back(request, until).await,
            Action::Apply(_) => {}
        }
        let answer = self.answered(prepared, self.submit_until(topology, prepared, until).await)?;
        match request.action {
            Action::Reset => self.leases.forget(request),
            Action::Apply(Operation::Refund) => self.leases.spent_nothing(request),
            // A take that was in flight may have preceded the block.
            Action::Apply(Operation::Block) => {
                Arc::clone(&self.leases).block_where(request.id, &|key| *key == *request.key);
            }
            Action::Apply(_) => {}
        }
        if !is_check || answer.0.source != Source::Store {
            return Ok(answer);
        }
        if answer.0.allowed {
            if let Some(channel) = self.leases.admitted(request, &prepared.policy, &answer.0, asked_us) {
                self.listen(channel);
            }
            return Ok(answer);
        }
        if !self.leases.holds(request) {
            return Ok(answer);
        }
        self.leases.give_back(request, until).await;
        let again = self.prepare(request)?;
        self.answered(&again, self.submit_until(topology, &again, until).await)
    }

    fn prepare<'a>(&self, request: StoreRequest<'a>) -> Result<PreparedRequest<'a>, Error> {
        // Read before the policy's quotas: a denial by quotas that change in between must not be cached.
        let read_version = self.denial_cache.read_version(request);
        let effective = request.effective.and_then(PreparedQuotas::of::<RedisQuotas>);
        let policy = match effective {
            Some(effective) => Arc::clone(&effective.policy),
            None => self.policies.known(request.id)?,
        };
        Ok(PreparedRequest { request, policy, read_version })
    }

    /// Applies an action to a key that is reserved for the doctor, under this policy or one of the doctor's own.
    pub(crate) async fn try_out(&self, id: Option<PolicyId>, action: Action) -> Result<Reply, Error> {
        let topology = self.access.hub()?.runtimes.here()?;
        let request = StoreRequest {
            id: id.unwrap_or(PolicyId(0)),
            key: b"\0polylimit doctor",
            action,
            cost: 1,
            headroom: 0,
            hold: None,
            effective: None,
        };
        let policy = if let Some(policy) = id.and_then(|id| self.policies.get(id)) {
            policy
        } else {
            let policy = Policy::one_off("1/second", None)?;
            Arc::new(RedisPolicy::new(
                request.id,
                &policy,
                History::default(),
                Outage::Deny,
                None,
                &self.keys,
            ))
        };
        Ok(self.submit(&topology, &PreparedRequest { request, policy, read_version: None }).await)
    }

    pub(crate) fn submit(&self, topology: &Topology, prepared: &PreparedRequest<'_>) -> PendingReply {
        self.submit_until(topology, prepared, monotonic::now() + self.access.deadline)
    }

    fn submit_until(
        &self,
        topology: &Topology,
        prepared: &PreparedRequest<'_>,
        deadline: Instant,
    ) -> PendingReply {
        let (first, hold) = (self.charge(prepared, true), prepared.request.hold);
        let until = Until::DeadlineOrFirst(deadline);
        self.access.submit_charges(topology, first, Box::default(), hold, until)
    }

    fn charge(&self, PreparedRequest { request, policy, .. }: &PreparedRequest<'_>, decides: bool) -> Charge {
        let StoreRequest { action, cost, headroom, .. } = *request;
        let mut key = Vec::new();
        self.keys.write(&policy.key_prefix, request.key, &mut key);
        Charge { call: Arc::clone(&policy.call), key, action, cost, headroom, decides }
    }

    /// Turns the server's reply, or the reason for its absence, into the caller's answer.
    fn answered(&self, prepared: &PreparedRequest<'_>, reply: Reply) -> Result<Answer, Error> {
        let PreparedRequest { policy, request, .. } = prepared;
        self.learn(prepared, &reply);
        let Member { counters, .. } = &*self.access.member;
        match reply {
            Ok(ScriptDecision { decision, spent, .. }) => {
                counters.applied.add(1);
                if policy.outage == Outage::Fallback {
                    self.outage.follow(*request, &decision, spent);
                }
                Ok((decision, spent))
            }
            Err(Failure { class, reason }) => {
                counters.failed(class);
                if self.access.member.is_closed() {
                    return Err(closed());
                }
                self.count_outage(policy.outage);
                self.outage.answer(policy.outage, policy.policy.quotas(), *request, reason)
            }
        }
    }

    /// Subscribes to refunds, resets and blocks by other processes.
    fn listen(&self, channel: Channel) {
        // A closed limiter receives no more messages.
        let _ = self.access.with_hub(|hub| {
            hub.subscriber.listen(&self.listener, channel);
            Ok(())
        });
    }

    /// Updates the denial cache: caches a denial, and removes keys that may be admitted again.
    fn learn(&self, prepared: &PreparedRequest<'_>, reply: &Reply) {
        let PreparedRequest { read_version, policy, request } = prepared;
        let gives_back =
            matches!(request.action, Action::Apply(Operation::Refund | Operation::Block) | Action::Reset);
        match reply {
            Ok(ScriptDecision { seen: Some(denied), .. }) => {
                if let Some(read_version) = read_version {
                    let channel = self.keys.channel(&policy.key_prefix, request.key);
                    let denied = Arc::clone(denied);
                    if self.denial_cache.learn(*request, *read_version, channel, &policy.call, denied) {
                        self.listen(channel);
                    }
                }
            }
            Ok(_) if gives_back => self.denial_cache.forget(*request, None),
            Ok(ScriptDecision { spent, .. })
                if *spent > 0
                    || matches!(request.action, Action::Apply(Operation::Charge | Operation::Commit)) =>
            {
                self.denial_cache.outdated(*request);
            }
            // The operation may still arrive at the server until its deadline has passed there.
            Err(_) if gives_back => self.denial_cache.forget(*request, Some(self.access.may_arrive_for)),
            _ => {}
        }
    }
}
