//! The explanation of a policy: turns the states after a transition into a decision, for every store.

use crate::algorithm::{Explanation, Outcome, QuotaRules, Rules, State};
use crate::decision::{Cause, Decision, Degradation, QuotaUsage, Several, Source};
use crate::general::{KeyOperation, KeyStates};
use crate::transition::{Applied, Operation, PolicyRules, QuotaNumbers};

impl PolicyRules {
    /// Checks a key of a policy whose only quota is a token bucket, as [`decide`](Self::decide) would, and also returns
    /// whether it wrote the state. It is short enough to be inlined into its caller, with every number in a register.
    /// `None` for every other policy or request.
    #[expect(clippy::inline_always, reason = "its answer would go through memory")]
    #[inline(always)]
    pub fn check_bucket(&self, states: &mut [State], now_us: u64, cost: u64) -> Option<(Decision, bool)> {
        let ([quota], [State::TokenBucket(state)]) = (&*self.quotas, states) else { return None };
        let QuotaRules::TokenBucket(bucket) = &quota.rules else { return None };
        if !(1..=quota.capacity).contains(&cost) || quota.denial_writes {
            return None;
        }
        if let Some(explanation) = bucket.admit(state, now_us, cost) {
            return Some((admitted(quota.usage(explanation), explanation.wait_us, cost, None), true));
        }
        let (written, explanation) = bucket.deny(state, now_us, cost);
        Some((denied(quota.usage(explanation), explanation.wait_us, None), written))
    }

    /// Applies an operation to a key and explains the result. With a `degraded` the states are those that keys share in place of
    /// their own.
    #[inline]
    pub fn decide(
        &self,
        states: &mut impl KeyStates,
        request: KeyOperation<'_>,
        degraded: Option<Degradation>,
    ) -> (Decision, Applied) {
        let KeyOperation { now_us, operation, cost, headroom, hold } = request;
        if headroom > 0 || hold.is_some() {
            return self.decide_general(states, request, degraded);
        }
        // A check of a single quota is by far the most frequent.
        if let ([quota], [state], Operation::Check) = (&*self.quotas, states.as_mut_slice(), operation)
            && (1..=quota.capacity).contains(&cost)
            && !quota.denial_writes
        {
            if let Some(explanation) = quota.rules.admit(state, now_us, cost) {
                let applied = Applied { allowed: true, spent: cost, written: true };
                let usage = quota.usage(explanation);
                return (admitted(usage, explanation.wait_us, cost, degraded), applied);
            }
            let (written, explanation) = quota.rules.deny(state, now_us, cost);
            let applied = Applied { allowed: false, spent: 0, written };
            return (denied(quota.usage(explanation), explanation.wait_us, degraded), applied);
        }
        if self.needs_general(states.as_slice()) {
            return self.decide_general(states, request, degraded);
        }
        let states = states.as_mut_slice();
        let applied = self.apply(states, now_us, operation, cost);
        (self.explain(states, now_us, cost, applied, degraded).by_fields(), applied)
    }

    /// Applies an operation to a key as [`decide`](Self::decide) does, for a caller that needs no explanation.
    pub fn apply_alone(&self, states: &mut impl KeyStates, request: KeyOperation<'_>) -> Applied {
        let KeyOperation { now_us, operation, cost, headroom, hold } = request;
        if headroom > 0 || hold.is_some() || self.needs_general(states.as_slice()) {
            return self.decide_general(states, request, None).1;
        }
        self.apply(states.as_mut_slice(), now_us, operation, cost)
    }

    /// Whether every operation on a key with these states takes the general transition.
    #[inline]
    pub fn needs_general(&self, states: &[State]) -> bool {
        self.slots.is_some()
            || self.penalty.is_some()
            || states.len() > self.quotas.len()
            || self.groups.is_some()
    }

    /// The decision that follows from the states after the transition.
    pub fn explain(
        &self,
        states: &[State],
        now_us: u64,
        cost: u64,
        applied: Applied,
        degraded: Option<Degradation>,
    ) -> Decision {
        match (&*self.quotas, states) {
            ([quota], [state]) => {
                let (usage, wait_us) = quota.explain(state, now_us, cost, applied);
                if applied.allowed {
                    admitted(usage, wait_us, applied.spent, degraded)
                } else {
                    denied(usage, wait_us, degraded)
                }
            }
            _ => self.explain_several(states, now_us, cost, applied, degraded),
        }
    }

    /// What the states of a key leave at some time.
    pub fn view(&self, states: &[State], now_us: u64) -> Decision {
        if self.needs_general(states) {
            return self.view_general(states, now_us);
        }
        let nothing = Applied { allowed: true, spent: 0, written: false };
        self.explain(states, now_us, 0, nothing, None).by_fields()
    }

    /// How long until the states of a key expire. A state under a limit of 0 does not change, so a non-empty one never
    /// expires.
    pub fn expiry(&self, states: &[State], now_us: u64) -> Expiry {
        let mut quotas = self.quotas.iter().zip(states);
        if quotas.any(|(quota, state)| quota.limit == 0 && !state.holds_nothing()) {
            return Expiry { after_us: u64::MAX, when_full_us: u64::MAX };
        }
        self.expiry_beside(states, now_us, self.view(states, now_us).reset_after_us())
    }

    /// How long until the states of a key expire that count nothing as used after `reset_after_us`.
    #[inline]
    pub fn expiry_beside(&self, states: &[State], now_us: u64, reset_after_us: u64) -> Expiry {
        let rest = states.get(self.quotas.len()..).unwrap_or_default().iter();
        let forgotten_us = rest.map(|state| match state {
            State::Block(record) => record.expires_after_us(now_us, self.penalty.as_ref()),
            State::Commits(commits) => commits.reset_after_us(now_us),
            _ => 0,
        });
        let forgotten_us = forgotten_us.max().unwrap_or(0);
        let forgotten_us = if self.groups.is_some() {
            forgotten_us.max(claims_end_after_us(states, now_us))
        } else {
            forgotten_us
        };
        Expiry { after_us: reset_after_us.max(forgotten_us), when_full_us: reset_after_us }
    }

    #[inline(never)]
    fn explain_several(
        &self,
        states: &[State],
        now_us: u64,
        cost: u64,
        applied: Applied,
        degraded: Option<Degradation>,
    ) -> Decision {
        let quotas = self.quotas.iter().zip(states);
        let each = quotas.map(|(quota, state)| quota.explain(state, now_us, cost, applied));
        if !applied.allowed {
            let (total, several, wait_us) = Several::of_denial(each);
            return Decision { several: Some(several), ..denied(total, wait_us, degraded) };
        }
        let mut delay_us = 0;
        let usages = each.map(|(usage, wait_us)| {
            delay_us = wait_us.max(delay_us);
            usage
        });
        let (total, several) = Several::of(usages);
        let crossed = several.as_ref().is_some_and(|several| several.crossed(applied.spent));
        Decision { several, crossed, ..admitted(total, delay_us, applied.spent, degraded) }
    }
}

/// How long the claims of groups last.
fn claims_end_after_us(states: &[State], now_us: u64) -> u64 {
    let claims = states.iter().filter_map(|state| match state {
        State::Grouped(state) => Some(state.claims_end_after_us(now_us)),
        _ => None,
    });
    claims.max().unwrap_or(0)
}

/// How long until a store may drop the states of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    pub after_us: u64,
    /// The same for a store that has no room: it forgets the level of a block, the denials that were counted
    /// and the commits that are remembered, but no block.
    pub when_full_us: u64,
}

/// The decision of the store on a request that one quota admits and that spends these units.
#[inline]
fn admitted(total: QuotaUsage, wait_us: u64, spent: u64, degraded: Option<Degradation>) -> Decision {
    Decision {
        total,
        several: None,
        wait_us,
        allowed: true,
        source: Source::Store,
        degraded,
        cause: None,
        crossed: total.crossed(spent),
        elastic: false,
        shadowed: false,
        repeated: false,
    }
}

/// The decision of the store on a request that a quota denies.
#[inline]
fn denied(total: QuotaUsage, wait_us: u64, degraded: Option<Degradation>) -> Decision {
    Decision {
        total,
        several: None,
        wait_us,
        allowed: false,
        source: Source::Store,
        degraded,
        cause: Some(Cause::Quota),
        crossed: false,
        elastic: false,
        shadowed: false,
        repeated: false,
    }
}

impl QuotaNumbers {
    /// This quota's usage, and how long an admitted request waits for its turn or a denied one until it fits:
    /// [`Decision::NEVER`] for a cost that this quota can never admit.
    fn explain(&self, state: &State, now_us: u64, cost: u64, applied: Applied) -> (QuotaUsage, u64) {
        let fits = cost <= self.capacity;
        let outcome = match applied {
            Applied { allowed: true, spent, .. } if cost > 0 => Outcome::Admitted { spent },
            Applied { allowed: false, .. } if fits => Outcome::Denied { cost },
            _ => Outcome::Adjusted,
        };
        let explanation = self.rules.explain(state, now_us, outcome);
        let wait_us = if applied.allowed || fits { explanation.wait_us } else { Decision::NEVER };
        (self.usage(explanation), wait_us)
    }

    #[inline]
    fn usage(&self, explanation: Explanation) -> QuotaUsage {
        let Explanation { remaining, reset_after_us, .. } = explanation;
        let over = self.excess.saturating_sub(remaining);
        QuotaUsage { limit: self.limit, remaining, reset_after_us, over }
    }
}
