//! The answers of the outage policy, while the store cannot decide.
//!
//! With the outage policy `fallback`, a memory store decides, under a share of each limit. It follows every decision of Redis,
//! so that its states are current when it has to decide. A local store's outages are rare, and following would make each of
//! its decisions slower: there it begins empty. `allow` and `deny` keep no states.

use crate::error::Error;
use crate::rules::decision::{Decision, Degradation, QuotaUsage, Several, Source};
use crate::rules::policy::Policy;
use crate::rules::quota::{Algorithm, Quota};
use crate::rules::reservation::list::AS_RESERVED;
use crate::rules::transition::Operation;
use crate::runtime::clock::Clock;
use crate::store::made_reservations::MadeReservations;
use crate::store::memory::MemoryStore;
use crate::store::outage::Outage;
use crate::store::request::{Action, Answer, Numbers, PolicyId, StoreRequest};
use crate::store::share::{Ppm, WHOLE};

/// The retry time of a denial by the outage policy `deny`, in microseconds. The end of the outage is unknown; this is
/// short.
const COME_BACK_US: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Fallback {
    store: MemoryStore,
    share: Ppm,
    /// The reservations that were made here, not by the store: here they end.
    made: MadeReservations,
    /// The fallback's numbers among those that the store has prepared.
    numbers_of: NumbersOf,
}

type NumbersOf = fn(&Numbers) -> Option<&Numbers>;

impl Fallback {
    pub(crate) fn new(share: Ppm, clock: Clock, max_keys: usize, numbers_of: NumbersOf) -> Self {
        let store = MemoryStore::new(max_keys, clock);
        Self { store, share, made: MadeReservations::default(), numbers_of }
    }

    /// The same, for a forked child, without states.
    pub(crate) fn after_fork<'a>(&self, policies: impl Iterator<Item = (PolicyId, &'a Policy)>) -> Self {
        let made = MadeReservations::default();
        let after_fork = Self { store: self.store.after_fork(), made, ..*self };
        for (id, policy) in policies {
            after_fork.set_policy(id, policy);
        }
        after_fork
    }

    pub(crate) fn set_policy(&self, id: PolicyId, policy: &Policy) {
        self.store.set_policy(id, &share_of(policy, self.share));
    }

    pub(crate) fn forget_policy(&self, id: PolicyId) {
        self.store.forget_policy(id);
    }

    /// Prepares numbers that decide about some keys of a policy.
    pub(crate) fn prepare_numbers(&self, id: PolicyId, policy: &Policy) -> Numbers {
        MemoryStore::prepare_numbers(id, &share_of(policy, self.share))
    }

    fn ask(&self, request: StoreRequest<'_>) -> Result<Answer, Error> {
        self.store.answer(StoreRequest { numbers: request.numbers.and_then(self.numbers_of), ..request })
    }

    pub(crate) fn clear(&self) {
        self.store.clear();
    }

    /// Applies what the store has done and decided, with the number of units that it spent.
    pub(crate) fn follow(&self, request: StoreRequest<'_>, decided: &Decision, spent: u64) {
        let followed = match request.action {
            Action::Apply(Operation::Check | Operation::Take) if spent > 0 => {
                StoreRequest { action: Action::Apply(Operation::Charge), cost: spent, ..request }
            }
            Action::Apply(Operation::Check | Operation::Take | Operation::Peek) => return,
            Action::Apply(_) if !decided.allowed => return,
            Action::Apply(Operation::Commit) => return self.follow_commit(request),
            Action::Apply(_) | Action::Reset => request,
        };
        let _ = self.ask(followed);
    }

    /// A commit in the store: units that are not set aside here are charged.
    fn follow_commit(&self, request: StoreRequest<'_>) {
        let is_committed = self.ask(request).is_ok_and(|(committed, _)| committed.allowed);
        if !is_committed && request.cost != AS_RESERVED {
            let action = Action::Apply(Operation::Charge);
            let _ = self.ask(StoreRequest { action, hold: None, ..request });
        }
    }

    /// The answer to an operation on a reservation that was made here, whether the store decides by now or not.
    #[inline]
    pub(crate) fn answer_made(&self, request: StoreRequest<'_>) -> Option<Answer> {
        let reason = self.made.find(request)?;
        let (decision, spent) = self.ask(request).ok()?;
        let ends = matches!(request.action, Action::Apply(Operation::Commit | Operation::Cancel));
        if ends || !decision.allowed {
            self.made.remove(request);
        }
        Some((Decision { source: Source::Fallback, degraded: Some(reason), ..decision }, spent))
    }

    /// Answers without the store. Units are spent in the fallback store.
    pub(crate) fn answer(
        &self,
        outage: Outage,
        quotas: &[Quota],
        request: StoreRequest<'_>,
        reason: Degradation,
    ) -> Result<Answer, Error> {
        let (allowed, source) = match outage {
            Outage::Fallback => {
                let (decision, spent) = self.ask(request)?;
                if request.action == Action::Apply(Operation::Reserve) && decision.allowed {
                    self.made.add(request, reason, self.store.clock().now_us());
                }
                return Ok((
                    Decision { source: Source::Fallback, degraded: Some(reason), ..decision },
                    spent,
                ));
            }
            // Without states there is no reservation to find.
            Outage::Allow => (!is_about_reservation(request.action), Source::Allow),
            Outage::Deny => (request.cost == 0 && request.hold.is_none(), Source::Deny),
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
        Ok((decision, if allowed { request.cost } else { 0 }))
    }
}

/// Whether the operation needs a reservation that is there.
fn is_about_reservation(action: Action) -> bool {
    matches!(action, Action::Apply(Operation::Commit | Operation::Cancel | Operation::Renew))
}

const WHOLE_PPM: u64 = WHOLE as u64;

/// The policy with each limit and burst reduced to a share; values above 0 stay above 0.
fn share_of(policy: &Policy, share: Ppm) -> Policy {
    if share.0 >= WHOLE {
        return policy.clone();
    }
    let quotas = policy.quotas().iter().map(|quota| quota_of(quota, u64::from(share.0)));
    // Quotas with different numbers keep different numbers, except where a step is dropped. If quotas become equal, the
    // policy stays as it is: admitting too much is better than having no fallback.
    let share = Policy::new(policy.name(), quotas).unwrap_or_else(|_| policy.clone());
    share.with_penalty(policy.penalty().copied())
}

fn quota_of(quota: &Quota, share_ppm: u64) -> Quota {
    if quota.algorithm() == Algorithm::Concurrency {
        let limit = (quota.limit() * share_ppm / WHOLE_PPM).max(u64::from(quota.limit() > 0));
        return Quota::concurrent(limit).unwrap_or_else(|_| quota.clone());
    }
    // At most 10^12 * 10^6, which fits.
    let cut = |units: u64| (units * share_ppm / WHOLE_PPM).max(u64::from(units > 0));
    let limit = cut(quota.limit());
    let mut builder = Quota::builder(limit, quota.period())
        .algorithm(quota.algorithm())
        .aligned(quota.aligned())
        .count_denied(quota.count_denied())
        .excess(cut(quota.excess()).min(limit));
    if let Algorithm::TokenBucket | Algorithm::LeakyBucket = quota.algorithm() {
        builder = builder.burst(cut(quota.capacity() - quota.excess()).max(1));
    }
    if let Some(buckets) = quota.buckets() {
        builder = builder.buckets(buckets);
    }
    // A smaller number may need finer ticks than the algorithm has; a fixed window does without.
    let window = Quota::builder(limit, quota.period())
        .algorithm(Algorithm::FixedWindow)
        .count_denied(quota.count_denied())
        .excess(cut(quota.excess()).min(limit));
    builder.build().or_else(|_| window.build()).unwrap_or_else(|_| quota.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_bursts_are_cut() {
        let policy =
            Policy::parse("a", "10/s token_bucket burst=20 step=5; 1/m; 0/h; 7/h fixed_window").unwrap();
        let quarter = share_of(&policy, Ppm(250_000));
        assert_eq!(
            quarter.to_string(),
            "a: 2/second token_bucket burst=5; 1/minute; 0/hour; 1/hour fixed_window"
        );
        assert_eq!(share_of(&policy, Ppm::ALL), policy);
    }
}
