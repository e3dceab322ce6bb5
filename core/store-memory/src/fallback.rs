//! The answers of the outage policy, while the store cannot decide.
//!
//! With the outage policy `fallback`, a memory store decides, under a share of each limit. It follows every decision of Redis, so that its
//! states are current when it has to decide. A local store's outages are rare, and following would make each of its decisions slower: there
//! the fallback begins empty. `allow` and `deny` keep no states.

use std::time::Duration;

use crate::MemoryStore;
use crate::made_reservations::MadeReservations;
use polylimit_rules::decision::{Decision, Degradation, QuotaUsage, Several, Source};
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::{
    Action, Charge, PolicyId, PreparedQuotas, StoreAnswer, StoreAnswers, is_admitted,
};
use polylimit_store::outage::Outage;
use polylimit_store::share::{Ppm, WHOLE};

/// The retry time of a denial by the outage policy `deny`, in microseconds. It is short, because the end of the outage is unknown.
const COME_BACK_US: u64 = 1_000_000;

#[derive(Debug)]
pub struct Fallback {
    store: MemoryStore,
    share: Ppm,
    /// The reservations that were made in-process, not by the store, and so end in-process.
    made: MadeReservations,
    /// Selects the fallback's quotas from those that the store has prepared.
    quotas_of: FallbackQuotas,
}

type FallbackQuotas = fn(&PreparedQuotas) -> Option<&PreparedQuotas>;

impl Fallback {
    pub fn new(share: Ppm, clock: Clock, max_keys: usize, quotas_of: FallbackQuotas) -> Self {
        let store = MemoryStore::new(max_keys, clock);
        Self { store, share, made: MadeReservations::default(), quotas_of }
    }

    /// The same fallback for a forked child, without states.
    #[must_use]
    pub fn after_fork<'a>(&self, policies: impl Iterator<Item = (PolicyId, &'a Policy)>) -> Self {
        let made = MadeReservations::default();
        let after_fork = Self { store: self.store.after_fork(), made, ..*self };
        for (id, policy) in policies {
            after_fork.set_policy(id, policy);
        }
        after_fork
    }

    pub fn set_policy(&self, id: PolicyId, policy: &Policy) {
        self.store.set_policy(id, &share_of(policy, self.share));
    }

    pub fn forget_policy(&self, id: PolicyId) {
        self.store.forget_policy(id);
    }

    /// Prepares the effective quotas of some keys of a policy.
    pub fn prepare_quotas(&self, id: PolicyId, policy: &Policy) -> PreparedQuotas {
        MemoryStore::prepare_quotas(id, &share_of(policy, self.share))
    }

    fn ask(&self, charge: Charge<'_>) -> Result<StoreAnswer, Error> {
        self.store.answer(Charge { effective: charge.effective.and_then(self.quotas_of), ..charge })
    }

    pub fn clear(&self) {
        self.store.clear();
    }

    /// Applies a decision of the store, with the number of units that it spent.
    pub fn follow(&self, charge: Charge<'_>, decided: &Decision, spent: u64) {
        let followed = match charge.action {
            Action::Apply(Operation::Check | Operation::Take) if spent > 0 => {
                Charge { action: Action::Apply(Operation::Charge), cost: spent, ..charge }
            }
            Action::Apply(Operation::Check | Operation::Take | Operation::Peek) => return,
            Action::Apply(_) if !decided.allowed => return,
            Action::Apply(Operation::Commit) => return self.follow_commit(charge),
            Action::Apply(_) | Action::Reset => charge,
        };
        let _ = self.ask(followed);
    }

    /// Follows a commit in the store: units that are not reserved in-process are charged.
    fn follow_commit(&self, charge: Charge<'_>) {
        let is_committed = self.ask(charge).is_ok_and(|(committed, _)| committed.allowed);
        if !is_committed && charge.cost != polylimit_rules::reservation::list::AS_RESERVED {
            let action = Action::Apply(Operation::Charge);
            let _ = self.ask(Charge { action, hold: None, ..charge });
        }
    }

    /// Answers an operation on a reservation that was made in-process, even if the store can decide again.
    #[inline]
    pub fn answer_made(&self, charge: Charge<'_>) -> Option<StoreAnswer> {
        let reason = self.made.find(charge)?;
        let (decision, spent) = self.ask(charge).ok()?;
        let ends = matches!(charge.action, Action::Apply(Operation::Commit | Operation::Cancel));
        if ends || !decision.allowed {
            self.made.remove(charge);
        }
        Some((Decision { source: Source::Fallback, degraded: Some(reason), ..decision }, spent))
    }

    /// The reason for which a reservation of the request was made in-process; `None` where the store decides.
    pub fn made_for(&self, charges: &[Charge<'_>]) -> Option<Degradation> {
        charges.iter().find_map(|charge| self.made.find(*charge))
    }

    /// Answers charges without the store: all are applied, or none. Units are spent in the fallback store. Each charge comes with its
    /// policy's outage policy and quotas.
    pub fn start(
        &self,
        charges: &[(Outage, &[Quota], Charge<'_>)],
        reason: Degradation,
    ) -> Result<StoreAnswers, Error> {
        let is_denied = |(outage, _, charge): &(Outage, &[Quota], Charge<'_>)| {
            *outage == Outage::Deny && charge.decides && !admits_when_denying(*charge)
        };
        let by_states = charges.iter().filter(|(outage, ..)| *outage == Outage::Fallback);
        let asked: Vec<_> = by_states
            .map(|(.., charge)| Charge { effective: charge.effective.and_then(self.quotas_of), ..*charge })
            .collect();
        let answers = if charges.iter().any(is_denied) {
            asked
                .iter()
                .map(|charge| self.store.answer(charge.peek()))
                .collect::<Result<StoreAnswers, _>>()?
        } else {
            self.store.start(&asked)?
        };
        let mut answers = answers.into_iter();
        let mut answered = StoreAnswers::with_capacity(charges.len());
        for (outage, quotas, charge) in charges {
            answered.push(if *outage == Outage::Fallback {
                let (decision, spent) = answers.next().ok_or_else(Error::no_answer)?;
                (explained(decision, quotas, *charge, reason), spent)
            } else {
                without_states(*outage, quotas, *charge, reason)
            });
        }
        let of_request: Vec<_> = charges.iter().map(|(.., charge)| *charge).collect();
        let is_admitted = is_admitted(&of_request, &answered);
        for ((decision, spent), (outage, _, charge)) in answered.iter_mut().zip(charges) {
            let is_reserved = charge.action == Action::Apply(Operation::Reserve) && decision.allowed;
            if charges.len() > 1 && !is_admitted {
                *spent = 0;
            } else if *outage == Outage::Fallback && is_reserved {
                self.made.add(*charge, reason, self.store.clock().now_us());
            }
        }
        Ok(answered)
    }
}

/// The decision of the fallback store as the caller receives it.
fn explained(mut decision: Decision, quotas: &[Quota], charge: Charge<'_>, reason: Degradation) -> Decision {
    // The store may admit after the outage what exceeds only this share.
    let is_within = || quotas.iter().all(|quota| charge.cost <= quota.capacity());
    if !decision.allowed && decision.wait_us == Decision::NEVER && is_within() {
        decision.wait_us = COME_BACK_US;
    }
    Decision { source: Source::Fallback, degraded: Some(reason), ..decision }
}

/// Whether the outage policy `deny` admits a request: only one that has no cost and no hold.
fn admits_when_denying(charge: Charge<'_>) -> bool {
    charge.cost == 0 && charge.hold.is_none()
}

/// The answer of an outage policy that keeps no states.
fn without_states(outage: Outage, quotas: &[Quota], charge: Charge<'_>, reason: Degradation) -> StoreAnswer {
    let (allowed, source) = match outage {
        // Without states there is no reservation to find.
        Outage::Allow => (!is_about_reservation(charge.action), Source::Allow),
        _ => (admits_when_denying(charge), Source::Deny),
    };
    let views = quotas.iter().map(|quota| QuotaUsage {
        limit: quota.limit(),
        remaining: if source == Source::Allow { quota.capacity() } else { 0 },
        reset_after_us: 0,
        over: 0,
    });
    let (total, several) = Several::of(views);
    let decision = Decision {
        total,
        several,
        wait_us: if allowed { 0 } else { COME_BACK_US },
        allowed,
        source,
        degraded: Some(reason),
        cause: None,
        crossed: false,
        elastic: false,
        shadowed: false,
        repeated: false,
    };
    (decision, if allowed { charge.cost } else { 0 })
}

/// Whether the operation needs an existing reservation.
fn is_about_reservation(action: Action) -> bool {
    matches!(action, Action::Apply(Operation::Commit | Operation::Cancel | Operation::Renew))
}

const WHOLE_PPM: u64 = WHOLE as u64;

/// The policy with each limit and burst reduced to a share and rounded down: the shares of several processes are together no
/// more than the whole, so a share of less than one unit admits nothing.
fn share_of(policy: &Policy, share: Ppm) -> Policy {
    if share.0 >= WHOLE {
        return policy.clone();
    }
    let quotas = policy.quotas().iter().map(|quota| quota_of(quota, u64::from(share.0)));
    // Different quotas stay different, except where a step is dropped or the period of a bucket becomes that of another. If quotas become
    // equal, the policy stays as it is: admitting too much is better than having no fallback.
    let share = Policy::new(policy.name(), quotas).unwrap_or_else(|_| policy.clone());
    let share = share.with_penalty(policy.penalty().copied());
    match policy.groups() {
        // A part of a minimum that is less than one unit cannot be kept for anyone.
        Some(groups) => share.clone().shared_by(groups).unwrap_or(share),
        None => share,
    }
}

fn quota_of(quota: &Quota, share_ppm: u64) -> Quota {
    // At most 10^12 * 10^6, which fits.
    let cut = |units: u64| units * share_ppm / WHOLE_PPM;
    if quota.algorithm() == Algorithm::Concurrency {
        return Quota::concurrent(cut(quota.limit())).unwrap_or_else(|_| quota.clone());
    }
    let (mut limit, mut period, mut burst) = (cut(quota.limit()), quota.period(), None);
    if let Algorithm::TokenBucket | Algorithm::LeakyBucket = quota.algorithm() {
        // A bucket keeps its share of the burst even where less than one unit flows in a period: it flows in a longer one.
        let whole = cut(quota.capacity().saturating_sub(quota.excess()));
        if whole == 0 {
            limit = 0;
        } else if limit == 0 {
            (limit, period) = slow_rate(quota, share_ppm).map_or((0, period), |period| (1, period));
        }
        burst = (limit > 0).then_some(whole);
    }
    let builder = |algorithm| {
        let builder = match quota.calendar() {
            Some(calendar) => Quota::builder(limit, Duration::ZERO).calendar(calendar.clone()),
            None => Quota::builder(limit, period),
        };
        builder.algorithm(algorithm).count_denied(quota.count_denied()).excess(cut(quota.excess()).min(limit))
    };
    let mut own = builder(quota.algorithm()).aligned(quota.aligned());
    if let Some(burst) = burst {
        own = own.burst(burst);
    }
    if let Some(buckets) = quota.buckets() {
        own = own.buckets(buckets);
    }
    // A smaller limit may need finer ticks than the algorithm has; a fixed window does not need them.
    let window = builder(Algorithm::FixedWindow);
    own.build().or_else(|_| window.build()).unwrap_or_else(|_| quota.clone())
}

/// The period in which the share of a quota's rate is one unit, if a quota can have such a period.
fn slow_rate(quota: &Quota, share_ppm: u64) -> Option<Duration> {
    let share = u128::from(quota.limit()) * u128::from(share_ppm);
    let period_us = (quota.period().as_micros() * u128::from(WHOLE_PPM)).checked_div(share)? + 1;
    let period = Duration::from_micros(u64::try_from(period_us).ok()?);
    (period <= Quota::MAX_PERIOD).then_some(period)
}

#[cfg(test)]
mod tests;
