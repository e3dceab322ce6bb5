//! Requests over several policies: their charges are started in the store together, and admitted together or not at all.

use smallvec::smallvec;

use crate::limiter::configured::in_force::InForce;
use crate::limiter::configured::key_steps::{ConfiguredCall, Opening, StoreCall, may_use_pool, with_pool};
use crate::limiter::operations::check_times;
use crate::limiter::{CHECK, KeyCall, Limiter, PEEK, RESERVE, blocking};
use polylimit_document::model::Elastic;
use polylimit_rules::decision::Decision;
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::list::{Hold, ReservationTerms};
use polylimit_store::charge::{Charge, StoreAnswer, StoreAnswers, Wait, at_once, is_admitted};

/// A charge before the store decides.
#[derive(Clone)]
pub(crate) struct Planned<'a> {
    /// The call on a policy of the document; `None` for a policy of the program.
    pub(crate) configured: Option<ConfiguredCall<'a>>,
    pub(crate) opening: Opening<'a>,
}

/// The result of a charge.
pub(crate) struct Charged {
    pub(crate) answer: StoreAnswer,
    /// The units that its pool has to be charged for.
    pub(crate) owed: u64,
    /// Whether the store has spent or set aside units for it.
    pub(crate) spent: bool,
}

/// The charges of a request as the store receives them: those of the same policy and key are one.
struct Merged<'a> {
    charges: Vec<Charge<'a>>,
    /// For each, the first of the planned charges that it consists of.
    firsts: Vec<usize>,
    /// For each planned charge, its place; `None` where the document answers.
    places: Vec<Option<usize>>,
}

impl<'a> Merged<'a> {
    fn of(planned: &[Planned<'a>]) -> Result<Self, Error> {
        let mut merged = Self {
            charges: Vec::with_capacity(planned.len()),
            firsts: Vec::with_capacity(planned.len()),
            places: Vec::with_capacity(planned.len()),
        };
        for (first, Planned { opening, .. }) in planned.iter().enumerate() {
            let Opening::Asked(StoreCall { charge, .. }) = opening else {
                merged.places.push(None);
                continue;
            };
            let same = |other: &Charge<'_>| {
                (other.id, other.action, other.key) == (charge.id, charge.action, charge.key)
            };
            let place = merged.charges.iter().position(same);
            if let Some(place) = place {
                let sum = &mut merged.charges[place];
                sum.uses_caches &= charge.uses_caches;
                sum.cost += charge.cost;
                sum.headroom = sum.headroom.max(charge.headroom);
                Request { cost: sum.cost, ..Request::new(sum.key) }.checked()?;
            } else {
                merged.charges.push(*charge);
                merged.firsts.push(first);
            }
            merged.places.push(Some(place.unwrap_or(merged.charges.len() - 1)));
        }
        Ok(merged)
    }
}

impl Limiter {
    /// Starts the charges of a request together, after the document's own answers. Decisions are not counted.
    pub(crate) async fn start_planned(
        &self,
        in_force: Option<&InForce>,
        planned: &[Planned<'_>],
        wait: Wait,
    ) -> Result<Vec<Charged>, Error> {
        let merged = Merged::of(planned)?;
        let is_denied = |planned: &Planned<'_>| matches!(&planned.opening, Opening::Answered((decision, _)) if !decision.allowed);
        let is_peek = |charge: &Charge<'_>| charge.action == PEEK;
        let only_peeks = planned.iter().any(is_denied) || merged.charges.first().is_some_and(is_peek);
        if let Some(in_force) = in_force {
            for call in planned.iter().filter_map(|planned| planned.configured) {
                self.charge_own_pool(in_force, call, wait).await?;
            }
        }
        let mut answers = if only_peeks {
            self.peek_each(&merged.charges, wait).await?
        } else {
            self.ask_charges(&merged.charges, wait).await?
        };
        let mut admitted = !only_peeks && is_admitted(&merged.charges, &answers);
        if let Some(in_force) = in_force {
            if !only_peeks {
                self.compare(in_force, planned, &merged, &answers, wait).await?;
            }
            admitted = self
                .ask_pools(in_force, planned, &merged, &mut answers, (!only_peeks, admitted), wait)
                .await?;
        }
        let charged = planned.iter().zip(&merged.places).map(|(planned, place)| {
            let answer = match (&planned.opening, place) {
                (Opening::Answered(answer), _) => {
                    return Ok(Charged { answer: answer.clone(), owed: 0, spent: false });
                }
                (Opening::Asked(_), place) => &answers[place.ok_or_else(Error::no_answer)?],
            };
            let spent = admitted && answer.0.allowed && !answer.0.source.is_outage() && !answer.0.elastic;
            let Some((call, in_force)) = planned.configured.zip(in_force) else {
                return Ok(Charged { answer: answer.clone(), owed: 0, spent });
            };
            let counts_all = |elastic: &Elastic| elastic.counts_all;
            let is_counted = in_force.document(call.policy).elastic.as_ref().is_some_and(counts_all);
            let owed = if spent && is_counted && call.action == CHECK { call.cost } else { 0 };
            Ok(Charged { answer: in_force.shadow(call, answer.clone()), owed, spent })
        });
        charged.collect()
    }

    /// The store's answers to charges that are started together. One check alone may be answered by a cache.
    async fn ask_charges(&self, charges: &[Charge<'_>], wait: Wait) -> Result<StoreAnswers, Error> {
        let shared = self.shared();
        match charges {
            [] => Ok(StoreAnswers::new()),
            [charge] if let Some(cached) = shared.store.ask_caches(*charge) => {
                shared.answered(*charge, &cached);
                Ok(smallvec![cached])
            }
            _ => self.start_charges(charges, wait).await,
        }
    }

    /// Peeks the charges of a request that the document denies.
    async fn peek_each(&self, charges: &[Charge<'_>], wait: Wait) -> Result<StoreAnswers, Error> {
        let peeks: Vec<_> = charges.iter().map(|charge| charge.peek()).collect();
        let answers = self.start_each(&peeks, wait).await?;
        for (peek, answer) in peeks.iter().zip(&answers) {
            self.shared().answered(*peek, answer);
        }
        Ok(answers.into())
    }

    /// Calls the pools of elastic policies whose own quotas deny. Where nothing else denies and the request may start
    /// charges, the pools and the other charges are started together. Returns whether the request is admitted.
    async fn ask_pools(
        &self,
        in_force: &InForce,
        planned: &[Planned<'_>],
        merged: &Merged<'_>,
        answers: &mut [StoreAnswer],
        (may_start, mut admitted): (bool, bool),
        wait: Wait,
    ) -> Result<bool, Error> {
        let pool_of = |place: usize, action| {
            let call = planned[merged.firsts[place]].configured?;
            in_force.pool_call(ConfiguredCall { action, cost: merged.charges[place].cost, ..call })
        };
        let eligible = |place: &usize, answers: &[StoreAnswer]| {
            matches!(merged.charges[*place].action, CHECK | PEEK)
                && may_use_pool(&answers[*place].0)
                && pool_of(*place, CHECK).is_some()
        };
        let mut asking: Vec<usize> = (0..answers.len()).filter(|place| eligible(place, answers)).collect();
        if asking.is_empty() {
            return Ok(admitted);
        }
        let denies = |place: &usize| merged.charges[*place].decides && !answers[*place].0.allowed;
        let may_admit =
            may_start && !admitted && (0..answers.len()).filter(denies).all(|place| asking.contains(&place));
        if may_admit {
            let others: Vec<usize> = (0..answers.len()).filter(|place| !denies(place)).collect();
            let mut calls = Vec::new();
            for place in (0..answers.len()).filter(denies) {
                calls.extend(pool_of(place, CHECK).map(|call| (place, call)));
            }
            let mut pools = Vec::with_capacity(calls.len());
            for (place, call) in &calls {
                self.charge_own_pool(in_force, *call, wait).await?;
                pools.push((*place, *call, self.open(in_force, *call)?));
            }
            let is_refused = |(.., opening): &(_, _, Opening<'_>)| matches!(opening, Opening::Answered((decision, _)) if !decision.allowed);
            let is_refused = pools.iter().any(is_refused);
            let mut charges: Vec<_> = others.iter().map(|place| merged.charges[*place]).collect();
            for (.., opening) in &pools {
                if let Opening::Asked(asked) = opening {
                    charges.push(Charge { uses_caches: true, ..asked.charge });
                }
            }
            let started = if is_refused {
                self.peek_each(&charges, wait).await?
            } else {
                self.ask_charges(&charges, wait).await?
            };
            admitted = !is_refused && is_admitted(&charges, &started);
            let mut started = started.into_iter();
            for place in others {
                answers[place] = started.next().ok_or_else(Error::no_answer)?;
            }
            for (place, call, opening) in pools {
                let admission = match opening {
                    Opening::Answered(answer) => answer,
                    Opening::Asked(_) => in_force.shadow(call, started.next().ok_or_else(Error::no_answer)?),
                };
                self.count_configured(in_force, call, &admission);
                answers[place].0 = with_pool(answers[place].0.clone(), &admission.0);
                asking.retain(|asked| *asked != place);
            }
        }
        for place in asking {
            let action = if admitted { CHECK } else { PEEK };
            if let Some(call) = pool_of(place, action) {
                let (admission, _) = self.ask_pool(in_force, call, wait).await?;
                answers[place].0 = with_pool(answers[place].0.clone(), &admission);
            }
        }
        Ok(admitted)
    }

    /// Counts how the candidates of the policies compare.
    async fn compare(
        &self,
        in_force: &InForce,
        planned: &[Planned<'_>],
        merged: &Merged<'_>,
        answers: &[StoreAnswer],
        wait: Wait,
    ) -> Result<(), Error> {
        let mut compared = Vec::new();
        for (planned, place) in planned.iter().zip(&merged.places) {
            if let (Opening::Asked(asked), Some(place)) = (&planned.opening, place)
                && let Some(charge) = asked.comparison(in_force)
            {
                compared.push((asked.compared, charge, *place));
            }
        }
        let charges: Vec<_> = compared.iter().map(|(_, charge, _)| *charge).collect();
        let candidates = self.start_each(&charges, wait).await?;
        for ((policy, _, place), (candidate, _)) in compared.into_iter().zip(candidates) {
            if let Some(policy) = policy {
                in_force.count_comparison(policy, &answers[place].0, &candidate);
            }
        }
        Ok(())
    }

    /// Checks several requests that belong together, such as one client under several policies, all or nothing: the costs are spent when
    /// every policy admits its own, and otherwise nothing is. In a denied request, the decisions that admit are those of a peek.
    ///
    /// The store decides all of them in one step. In a cluster this holds for keys of one slot; a request that is
    /// denied gives back what it got in other slots within the call, and until then other callers may find these units
    /// missing. Requests for the same key under the same policy are one charge of their sum.
    ///
    /// # Errors
    /// The first error of any of them; then nothing is spent.
    pub async fn check_together(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, Error> {
        self.decide_together(requests, Together::Check, Wait::Await).await
    }

    /// The decisions that [`check_together`](Self::check_together) would give now, without any effect.
    ///
    /// # Errors
    /// The first error of any of them.
    pub async fn peek_together(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, Error> {
        self.decide_together(requests, Together::Peek, Wait::Await).await
    }

    /// As [`check_together`](Self::check_together), but policies with a quota of concurrency, and requests that are
    /// [reserved](Request::reserved), are reserved, all under the id of these terms; the others are charged. The caller
    /// ends each of the reservations with [`commit`](Self::commit) or [`cancel`](Self::cancel).
    ///
    /// # Errors
    /// The first error of any of them; then nothing is spent. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) also for times
    /// that are out of bounds, and for a timeout: such a request does not wait for units.
    pub async fn reserve_together(
        &self,
        requests: &[Request<'_>],
        terms: &ReservationTerms,
    ) -> Result<Vec<Decision>, Error> {
        self.decide_together(requests, Together::Reserve(*terms), Wait::Await).await
    }

    pub(crate) async fn decide_together(
        &self,
        requests: &[Request<'_>],
        together: Together,
        wait: Wait,
    ) -> Result<Vec<Decision>, Error> {
        let shared = self.shared();
        let in_force = if shared.registry.is_configured() {
            Some(self.wait_for_configuration(wait).await?)
        } else {
            None
        };
        let in_force = in_force.as_deref();
        let hold = together.hold()?;
        let now_us = shared.store.clock().now_us();
        let mut calls = Vec::with_capacity(requests.len());
        for request in requests {
            calls.push(self.call_of(in_force, *request, together, hold, now_us)?);
        }
        let mut planned = Vec::with_capacity(calls.len());
        for call in &calls {
            planned.push(self.plan(in_force, call, now_us)?);
        }
        let charged = self.start_planned(in_force, &planned, wait).await?;
        let mut decisions = Vec::with_capacity(charged.len());
        for (planned, Charged { answer, owed, .. }) in planned.iter().zip(charged) {
            self.count_planned(in_force, planned, &answer);
            if let Some((call, in_force)) = planned.configured.zip(in_force) {
                self.owe_to_pool(in_force, call, owed, wait).await?;
            }
            decisions.push(answer.0);
        }
        Ok(decisions)
    }

    pub(crate) fn decide_together_blocking(
        &self,
        requests: &[Request<'_>],
        together: Together,
    ) -> Result<Vec<Decision>, Error> {
        at_once(self.decide_together(requests, together, Wait::Block))
    }

    /// The steps before the store for a check whose policy may be configured or not.
    pub(crate) fn plan<'a>(
        &self,
        in_force: Option<&'a InForce>,
        call: &'a KeyCall<'a>,
        now_us: u64,
    ) -> Result<Planned<'a>, Error> {
        let (opening, configured) = match in_force {
            Some(in_force) => self.open_any(in_force, call, now_us)?,
            None => (Opening::of_program(self.shared().key_request(call)?), None),
        };
        Ok(Planned { configured, opening })
    }

    pub(crate) fn count_planned(
        &self,
        in_force: Option<&InForce>,
        planned: &Planned<'_>,
        answer: &StoreAnswer,
    ) {
        match (planned.configured.zip(in_force), &planned.opening) {
            (Some((call, in_force)), _) => self.count_configured(in_force, call, answer),
            (None, Opening::Asked(asked)) => self.shared().count_decision(&asked.charge, answer),
            (None, Opening::Answered(_)) => {}
        }
    }

    /// The operation of a request's policy in a [`reserve_together`](Self::reserve_together) that was admitted.
    pub(crate) fn reserving_call<'a>(&self, request: Request<'a>, hold: Hold) -> Result<KeyCall<'a>, Error> {
        let shared = self.shared();
        let (in_force, now_us) = (shared.configured.in_force(), shared.store.clock().now_us());
        self.call_of(in_force.as_deref(), request, Together::Check, Some(hold), now_us)
    }

    /// The operation of a policy in a request: a reserve only where it counts concurrency.
    fn call_of<'a>(
        &self,
        in_force: Option<&InForce>,
        request: Request<'a>,
        together: Together,
        hold: Option<Hold>,
        now_us: u64,
    ) -> Result<KeyCall<'a>, Error> {
        let check = KeyCall { action: CHECK, request, hold: None };
        if matches!(together, Together::Peek) {
            return Ok(KeyCall { action: PEEK, ..check });
        }
        let Some(hold) = hold else { return Ok(check) };
        let reserve = KeyCall { action: RESERVE, hold: Some(hold), ..check };
        if request.is_reserved {
            return Ok(reserve);
        }
        let shared = self.shared();
        let configured = match in_force {
            Some(in_force) => in_force.call(&check, now_us)?.map(|call| (in_force, call)),
            None => None,
        };
        let is_only_reserved = if let Some((in_force, call)) = configured {
            in_force.effective(call).is_only_reserved()
        } else {
            let id = shared.registry.id(request.checked()?.policy, &shared.store)?;
            shared.registry.with_policy(id, Policy::is_only_reserved)
        };
        Ok(if is_only_reserved { reserve } else { check })
    }
}

/// How the policies of a request are decided together.
#[derive(Clone, Copy)]
pub(crate) enum Together {
    Check,
    Peek,
    Reserve(ReservationTerms),
}

impl Together {
    /// The reservation that is made, if any.
    fn hold(self) -> Result<Option<Hold>, Error> {
        match self {
            Self::Check | Self::Peek => Ok(None),
            Self::Reserve(terms) => hold_without_waiting(&terms).map(Some),
        }
    }
}

/// The reservation of a request over several policies, which does not wait in line.
pub(crate) fn hold_without_waiting(terms: &ReservationTerms) -> Result<Hold, Error> {
    if !terms.timeout.is_zero() {
        return Err(Error::invalid_argument(format!(
            "timeout is {:?}: a request that several policies decide does not wait for units: set it to 0, and wait for the longest \
             retry_after",
            terms.timeout
        )));
    }
    let hold = terms.hold();
    check_times(&hold)?;
    Ok(hold)
}

impl blocking::Limiter {
    /// See [`Limiter::check_together`].
    ///
    /// # Errors
    /// The first error of any of them; then nothing is spent.
    pub fn check_together(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, Error> {
        self.asynchronous().decide_together_blocking(requests, Together::Check)
    }

    /// See [`Limiter::peek_together`].
    ///
    /// # Errors
    /// The first error of any of them.
    pub fn peek_together(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, Error> {
        self.asynchronous().decide_together_blocking(requests, Together::Peek)
    }

    /// See [`Limiter::reserve_together`].
    ///
    /// # Errors
    /// See [`Limiter::reserve_together`].
    pub fn reserve_together(
        &self,
        requests: &[Request<'_>],
        terms: &ReservationTerms,
    ) -> Result<Vec<Decision>, Error> {
        self.asynchronous().decide_together_blocking(requests, Together::Reserve(*terms))
    }
}
