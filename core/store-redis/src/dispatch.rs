//! The path of a request through the store: it is prepared and submitted, and its reply becomes the caller's answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use std::{iter, slice};

use smallvec::smallvec;

use crate::RedisStore;
use crate::denial_cache::ReadVersion;
use crate::keys::channel::Channel;
use crate::pipeline::pending::{Member, OperationResult, PendingReply, QueuedCharge};
use crate::policies::{RedisPolicy, RedisQuotas};
use crate::routing::hub::Until;
use crate::routing::listener::LeasedKeys;
use crate::routing::runtimes::Topology;
use crate::script::reply::ScriptDecision;
use crate::transport::cluster_slots::slot;
use crate::transport::failure::Failure;
use polylimit_rules::decision::{Decision, Degradation, Source};
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::history::History;
use polylimit_rules::policy::Policy;
use polylimit_rules::transition::Operation;
use polylimit_runtime::close_signal::closed;
use polylimit_runtime::monotonic;
use polylimit_store::charge::{
    Action, Charge, PolicyId, PreparedQuotas, StoreAnswer, StoreAnswers, Wait, is_admitted, only,
};
use polylimit_store::outage::Outage;

/// A charge with everything that is needed to interpret its reply.
pub(crate) struct PreparedCharge<'a> {
    pub(crate) charge: Charge<'a>,
    pub(crate) policy: Arc<RedisPolicy>,
    pub(crate) read_version: Option<ReadVersion>,
}

/// The charges of a request whose keys have one slot.
#[derive(Default)]
struct Part<'a> {
    /// Their indexes in the request.
    places: Vec<usize>,
    prepared: Vec<PreparedCharge<'a>>,
    queued: Vec<QueuedCharge>,
}

/// One of several concurrent charges.
enum Progress<'a> {
    Answered(StoreAnswer),
    Submitted(PreparedCharge<'a>, PendingReply),
}

impl RedisStore {
    /// The answer of the denial cache or of a lease, if any. A check tries this once, in the limiter; everything after it goes to the
    /// server.
    #[inline]
    pub fn ask_caches(&self, charge: Charge<'_>) -> Option<StoreAnswer> {
        if let Some(denial) = self.denial_cache.answer(charge) {
            return Some((denial, 0));
        }
        self.leases.answer(charge).map(|admitted| (admitted, charge.cost))
    }

    /// Sends charges to the server, each for a different key or policy: all are applied, or none. If the server does not decide, the
    /// outage policy does. Across slots of a cluster, a denied request gives back what it got in other slots.
    #[doc(hidden)]
    pub async fn start(&self, charges: &[Charge<'_>], wait: Wait) -> Result<StoreAnswers, Error> {
        let started = self.at_topology(wait, async |topology| self.start_at(&topology, charges).await).await;
        started.unwrap_or_else(|error| self.answer_without(charges, &error))
    }

    /// Sends several charges at once; they can share a batch, and each is decided by itself.
    #[doc(hidden)]
    pub async fn start_each(&self, charges: &[Charge<'_>], wait: Wait) -> Result<Vec<StoreAnswer>, Error> {
        let started =
            self.at_topology(wait, async |topology| self.start_each_at(&topology, charges).await).await;
        started.unwrap_or_else(|error| {
            let alone = |charge| only(self.answer_without(slice::from_ref(charge), &error)?);
            charges.iter().map(alone).collect()
        })
    }

    /// Works with the connections of this runtime, or drives those of this store's own runtime on this thread.
    async fn at_topology<T>(
        &self,
        wait: Wait,
        work: impl AsyncFnOnce(Arc<Topology>) -> T,
    ) -> Result<T, Error> {
        match wait {
            Wait::Await => Ok(work(self.access.with_hub(|hub| hub.runtimes.here())?).await),
            Wait::Block => self.access.hub()?.runtimes.block_on(|topology| work(topology)),
        }
    }

    /// Answers charges that could not be submitted because the system has no resources for connections.
    #[cold]
    fn answer_without(&self, charges: &[Charge<'_>], error: &Error) -> Result<StoreAnswers, Error> {
        if error.kind() != ErrorKind::StoreUnavailable {
            return Err(error.clone());
        }
        let failure = Failure::not_applied(Degradation::NoResources);
        self.answered(&self.prepare_all(charges)?, Err(failure))
    }

    async fn start_at(&self, topology: &Topology, charges: &[Charge<'_>]) -> Result<StoreAnswers, Error> {
        match charges {
            [charge] => Ok(smallvec![self.start_one(topology, *charge).await?]),
            _ => self.start_together(topology, charges).await,
        }
    }

    async fn start_together(
        &self,
        topology: &Topology,
        charges: &[Charge<'_>],
    ) -> Result<StoreAnswers, Error> {
        if let Some(reason) = self.outage.made_for(charges) {
            return self.answered_by_outage(&self.prepare_all(charges)?, reason);
        }
        let denial = |charge: &Charge<'_>| {
            if charge.uses_caches { self.denial_cache.answer(*charge) } else { None }
        };
        if charges.iter().any(|charge| charge.decides && denial(charge).is_some()) {
            let known: Vec<_> = charges.iter().map(denial).collect();
            if !self.needs_store(charges, &known)? {
                return self.answer_with_known(topology, charges, known).await;
            }
        }
        let until = monotonic::now() + self.access.deadline;
        for charge in charges {
            // Units that are only held in-process would show up as spent.
            if self.leases.holds(*charge) {
                self.leases.give_back(*charge, until).await;
            }
        }
        let prepared = self.prepare_all(charges)?;
        let queued = prepared.iter().map(|prepared| self.queued(prepared));
        if topology.is_cluster() {
            let queued = queued.collect();
            return self.start_in_parts(topology, charges, prepared, queued, until).await;
        }
        match self.submit_together(topology, &prepared, queued, until) {
            Some(reply) => self.answered(&prepared, reply.await),
            None => Ok(StoreAnswers::new()),
        }
    }

    /// Sends the charges of a request to the owners of their slots: those of one slot are decided together.
    async fn start_in_parts(
        &self,
        topology: &Topology,
        charges: &[Charge<'_>],
        prepared: Vec<PreparedCharge<'_>>,
        queued: Vec<QueuedCharge>,
        until: Instant,
    ) -> Result<StoreAnswers, Error> {
        let mut parts: BTreeMap<u16, Part<'_>> = BTreeMap::new();
        for ((place, prepared), queued) in prepared.into_iter().enumerate().zip(queued) {
            let part = parts.entry(slot(&queued.key)).or_default();
            part.places.push(place);
            part.prepared.push(prepared);
            part.queued.push(queued);
        }
        let mut submitted = Vec::with_capacity(parts.len());
        for Part { places, prepared, queued } in parts.into_values() {
            if let Some(reply) = self.submit_together(topology, &prepared, queued.into_iter(), until) {
                submitted.push((places, prepared, reply));
            }
        }
        let mut answers: Vec<Option<StoreAnswer>> = charges.iter().map(|_| None).collect();
        let (mut admitted, mut is_denied) = (Vec::new(), false);
        for (places, prepared, reply) in submitted {
            let answered = self.answered(&prepared, reply.await)?;
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
                    self.give_back(topology, charges[place], answer).await?;
                }
            }
        }
        answers.into_iter().map(|answer| answer.ok_or_else(Error::no_answer)).collect()
    }

    /// Submits charges of one slot as one operation; `None` without any.
    fn submit_together(
        &self,
        topology: &Topology,
        prepared: &[PreparedCharge<'_>],
        mut queued: impl Iterator<Item = QueuedCharge>,
        until: Instant,
    ) -> Option<PendingReply> {
        let hold = prepared.iter().find_map(|prepared| prepared.charge.hold);
        let (first, others) = (queued.next()?, queued.collect());
        Some(self.access.submit_charges(topology, first, others, hold, Until::DeadlineOrFirst(until)))
    }

    /// Whether a peek is not enough for one of the other charges of a request of which some are known to be denied: it would not count a
    /// denial, and a reserve that repeats an id needs neither units nor a slot.
    fn needs_store(&self, charges: &[Charge<'_>], known: &[Option<Decision>]) -> Result<bool, Error> {
        for (charge, _) in charges.iter().zip(known).filter(|(_, denial)| denial.is_none()) {
            if charge.hold.is_some() || self.prepare(*charge)?.policy.call.counts_denied {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Answers the charges of a request of which some are known to be denied: the others are peeked at.
    async fn answer_with_known(
        &self,
        topology: &Topology,
        charges: &[Charge<'_>],
        known: Vec<Option<Decision>>,
    ) -> Result<StoreAnswers, Error> {
        let unknown = charges.iter().zip(&known).filter(|(_, denial)| denial.is_none());
        let peeks: Vec<_> = unknown.map(|(charge, _)| charge.peek()).collect();
        let mut peeked = self.start_each_at(topology, &peeks).await?.into_iter();
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
        charge: Charge<'_>,
        answer: &mut StoreAnswer,
    ) -> Result<(), Error> {
        if answer.0.source != Source::Store || !answer.0.allowed {
            answer.1 = 0;
            return Ok(());
        }
        let ending = if charge.hold.is_some() { Operation::Cancel } else { Operation::Refund };
        let action = Action::Apply(ending);
        let _ = self.start_one(topology, Charge { action, headroom: 0, ..charge }).await?;
        *answer = self.start_one(topology, charge.peek()).await?;
        Ok(())
    }

    fn prepare_all<'a>(&self, charges: &[Charge<'a>]) -> Result<Vec<PreparedCharge<'a>>, Error> {
        charges.iter().map(|charge| self.prepare(*charge)).collect()
    }

    /// Turns the server's reply, or the reason for its absence, into the answers to the charges that it decides.
    fn answered(
        &self,
        prepared: &[PreparedCharge<'_>],
        reply: OperationResult,
    ) -> Result<StoreAnswers, Error> {
        let Member { counters, .. } = &*self.access.member;
        let mut decided = match reply {
            Ok(decided) => decided,
            Err(failure) => {
                for prepared in prepared {
                    self.learn(prepared, Err(failure));
                }
                failure.class.count(counters);
                return self.answered_by_outage(prepared, failure.reason);
            }
        };
        let others = std::mem::take(&mut decided.others);
        let denies = |(prepared, decided): (&PreparedCharge<'_>, &ScriptDecision)| {
            prepared.charge.decides && !decided.decision.allowed
        };
        let is_applied =
            others.is_empty() || !prepared.iter().zip(iter::once(&decided).chain(&others)).any(denies);
        let mut answers = StoreAnswers::with_capacity(prepared.len());
        for (prepared, decided) in prepared.iter().zip(iter::once(decided).chain(others)) {
            counters.applied.add(1);
            self.learn(prepared, Ok(&decided));
            let ScriptDecision { decision, spent, .. } = decided;
            if is_applied && prepared.policy.outage == Outage::Fallback {
                self.outage.follow(prepared.charge, &decision, spent);
            }
            answers.push((decision, spent));
        }
        Ok(answers)
    }

    fn answered_alone(
        &self,
        prepared: &PreparedCharge<'_>,
        reply: OperationResult,
    ) -> Result<StoreAnswer, Error> {
        only(self.answered(slice::from_ref(prepared), reply)?)
    }

    /// The answers of the outage policies to the charges of a request.
    fn answered_by_outage(
        &self,
        prepared: &[PreparedCharge<'_>],
        reason: Degradation,
    ) -> Result<StoreAnswers, Error> {
        if self.access.member.is_closed() {
            return Err(closed());
        }
        let charges: Vec<_> = prepared
            .iter()
            .map(|PreparedCharge { policy, charge, .. }| {
                self.access.member.counters.answered_by(policy.outage);
                (policy.outage, policy.policy.quotas(), *charge)
            })
            .collect();
        self.outage.start(&charges, reason)
    }

    async fn start_each_at(
        &self,
        topology: &Topology,
        charges: &[Charge<'_>],
    ) -> Result<Vec<StoreAnswer>, Error> {
        let mut started = Vec::with_capacity(charges.len());
        for charge in charges {
            if let Some(answer) = self.outage.answer_made(*charge) {
                started.push(Progress::Answered(answer));
                continue;
            }
            let prepared = self.prepare(*charge)?;
            started.push(if prepared.policy.lease.is_some() {
                Progress::Answered(self.start_leased(topology, &prepared).await?)
            } else {
                let reply = self.submit(topology, &prepared);
                Progress::Submitted(prepared, reply)
            });
        }
        let mut answers = Vec::with_capacity(charges.len());
        for started in started {
            answers.push(match started {
                Progress::Answered(answer) => answer,
                Progress::Submitted(prepared, reply) => self.answered_alone(&prepared, reply.await)?,
            });
        }
        Ok(answers)
    }

    async fn start_one(&self, topology: &Topology, charge: Charge<'_>) -> Result<StoreAnswer, Error> {
        if let Some(answer) = self.outage.answer_made(charge) {
            return Ok(answer);
        }
        let prepared = self.prepare(charge)?;
        if prepared.policy.lease.is_some() {
            return self.start_leased(topology, &prepared).await;
        }
        let submitted = self.submit(topology, &prepared);
        self.answered_alone(&prepared, submitted.await)
    }

    /// Sends a charge of a key that may be leased to the server, when no lease pays for it. Units that are only held in-process are given
    /// back first if they would show up as spent.
    async fn start_leased(
        &self,
        topology: &Topology,
        prepared: &PreparedCharge<'_>,
    ) -> Result<StoreAnswer, Error> {
        let until = monotonic::now() + self.access.deadline;
        let asked_us = self.leases.now_us();
        let charge = prepared.charge;
        let is_check = charge.action == Action::Apply(Operation::Check);
        match charge.action {
            Action::Reset => self.leases.forget(charge),
            _ if !is_check && self.leases.holds(charge) => self.leases.give_back(charge, until).await,
            Action::Apply(_) => {}
        }
        let answer = self.answered_alone(prepared, self.submit_until(topology, prepared, until).await)?;
        match charge.action {
            Action::Reset => self.leases.forget(charge),
            Action::Apply(Operation::Refund) => self.leases.spent_nothing(charge),
            // A take that was in flight may have preceded the block.
            Action::Apply(Operation::Block) => {
                Arc::clone(&self.leases).block_where(charge.id, &|key| *key == *charge.key);
            }
            Action::Apply(_) => {}
        }
        if !is_check || answer.0.source != Source::Store {
            return Ok(answer);
        }
        if answer.0.allowed {
            if let Some(channel) = self.leases.admitted(charge, &prepared.policy, &answer.0, asked_us) {
                self.listen(channel);
            }
            return Ok(answer);
        }
        if !self.leases.holds(charge) {
            return Ok(answer);
        }
        self.leases.give_back(charge, until).await;
        let again = self.prepare(charge)?;
        self.answered_alone(&again, self.submit_until(topology, &again, until).await)
    }

    fn prepare<'a>(&self, charge: Charge<'a>) -> Result<PreparedCharge<'a>, Error> {
        // Read before the policy's quotas: a denial by quotas that change in between must not be cached.
        let read_version = self.denial_cache.read_version(charge);
        let effective = charge.effective.and_then(PreparedQuotas::of::<RedisQuotas>);
        let policy = match effective {
            Some(effective) => Arc::clone(&effective.policy),
            None => self.policies.known(charge.id)?,
        };
        Ok(PreparedCharge { charge, policy, read_version })
    }

    /// Applies an action to a key that is reserved for the doctor, under this policy or one of the doctor's own.
    pub(crate) async fn try_out(
        &self,
        id: Option<PolicyId>,
        action: Action,
    ) -> Result<OperationResult, Error> {
        let topology = self.access.hub()?.runtimes.here()?;
        let charge = Charge::new(id.unwrap_or(PolicyId(0)), b"\0polylimit doctor", action, 1);
        let policy = if let Some(policy) = id.and_then(|id| self.policies.get(id)) {
            policy
        } else {
            let policy = Policy::one_off("1/second", None)?;
            Arc::new(RedisPolicy::new(charge.id, &policy, History::default(), Outage::Deny, None, &self.keys))
        };
        Ok(self.submit(&topology, &PreparedCharge { charge, policy, read_version: None }).await)
    }

    pub(crate) fn submit(&self, topology: &Topology, prepared: &PreparedCharge<'_>) -> PendingReply {
        self.submit_until(topology, prepared, monotonic::now() + self.access.deadline)
    }

    fn submit_until(
        &self,
        topology: &Topology,
        prepared: &PreparedCharge<'_>,
        deadline: Instant,
    ) -> PendingReply {
        let (first, hold) = (self.queued(prepared), prepared.charge.hold);
        let until = Until::DeadlineOrFirst(deadline);
        self.access.submit_charges(topology, first, Box::default(), hold, until)
    }

    fn queued(&self, PreparedCharge { charge, policy, .. }: &PreparedCharge<'_>) -> QueuedCharge {
        let Charge { action, cost, headroom, decides, .. } = *charge;
        let mut key = Vec::new();
        self.keys.write(&policy.key_prefix, charge.key, &mut key);
        QueuedCharge { call: Arc::clone(&policy.call), key, action, cost, headroom, decides }
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
    fn learn(&self, prepared: &PreparedCharge<'_>, reply: Result<&ScriptDecision, Failure>) {
        let PreparedCharge { read_version, policy, charge } = prepared;
        let gives_back =
            matches!(charge.action, Action::Apply(Operation::Refund | Operation::Block) | Action::Reset);
        match reply {
            Ok(ScriptDecision { seen: Some(denied), .. }) => {
                if let Some(read_version) = read_version {
                    let channel = self.keys.channel(&policy.key_prefix, charge.key);
                    let denied = Arc::clone(denied);
                    if self.denial_cache.learn(*charge, *read_version, channel, &policy.call, denied) {
                        self.listen(channel);
                    }
                }
            }
            Ok(_) if gives_back => self.denial_cache.forget(*charge, None),
            Ok(ScriptDecision { spent, .. })
                if *spent > 0
                    || matches!(charge.action, Action::Apply(Operation::Charge | Operation::Commit)) =>
            {
                self.denial_cache.outdated(*charge);
            }
            // The operation may still arrive at the server until its deadline has passed there.
            Err(_) if gives_back => self.denial_cache.forget(*charge, Some(self.access.may_arrive_for)),
            _ => {}
        }
    }
}
