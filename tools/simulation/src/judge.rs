//! Decides attempts by a real limiter with the memory store, on a clock of its own.

use std::collections::HashMap;
use std::time::Duration;

use polylimit::blocking::Limiter;
use polylimit::clock::ManualClock;
use polylimit::document::RequestDecision;
use polylimit::raw::ReservationTerms;
use polylimit::reservation::ReservationId;
use polylimit::{Policy, Request};

use crate::attempt::{Attempt, Verdict};
use crate::error::SimulationError;
use crate::facts::Facts;
use crate::limits::{Kind, Limits, NamedPolicy};
use crate::shares::{Shares, group_of_plan};
use crate::tally::{Tally, Timeline};
use crate::traffic::{Group, as_us};

/// What a judge has to know about the requests.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// The start, in microseconds since the Unix epoch.
    pub(crate) start_us: u64,
    pub(crate) duration_us: u64,
    /// The keys of the clients.
    pub(crate) keys: &'a [Box<[u8]>],
    /// What a log says about its requests.
    pub(crate) facts: &'a [Facts],
    /// The groups of generated clients, one after the other.
    pub(crate) groups: &'a [Group],
}

/// Limits at work.
pub(crate) struct Judge<'a> {
    clock: ManualClock,
    start_us: u64,
    limiter: Limiter,
    by: By<'a>,
}

enum By<'a> {
    /// Every client is a key of one policy; documents name theirs.
    Key { policy: Option<String>, keys: &'a [Box<[u8]>] },
    /// All clients share one key of a policy, each in a group of the policy that is called as its own.
    Groups { policy: String, groups: &'a [Group], shares: Shares, timeline: Timeline },
    /// Rules find policies and keys.
    Rules(Box<Rules<'a>>),
}

struct Rules<'a> {
    facts: &'a [Facts],
    terms: ReservationTerms,
    policies: Vec<RulePolicy>,
    denials: HashMap<&'static str, u64>,
}

/// A policy that rules apply, and its keys in the order in which they came.
pub(crate) struct RulePolicy {
    pub(crate) policy: NamedPolicy,
    numbers: HashMap<Box<[u8]>, usize>,
    pub(crate) keys: Vec<Box<[u8]>>,
    pub(crate) tally: Tally,
    pub(crate) shares: Shares,
}

/// The policies that rules have applied, and how many requests were denied for each cause.
pub(crate) type DecidedByRules = (Vec<RulePolicy>, HashMap<&'static str, u64>);

/// The periods of a policy's quotas, in microseconds.
pub(crate) fn periods_us(policy: &Policy) -> Vec<u64> {
    policy.quotas().iter().map(|quota| as_us(quota.period())).collect()
}

impl<'a> Judge<'a> {
    pub(crate) fn new(limits: &Limits, setting: Setting<'a>) -> Result<Self, SimulationError> {
        let Setting { start_us, duration_us, keys, facts, groups } = setting;
        let clock = ManualClock::new(start_us)?;
        // Shards are filled unevenly, so there is room for several times as many keys.
        let max_keys = keys.len().saturating_mul(8).max(polylimit::LimiterBuilder::DEFAULT_MAX_KEYS);
        let limiter = limits.builder().max_keys(max_keys).clock(clock.clone()).build()?.blocking();
        let by = match &limits.kind {
            Kind::Policy(_) => By::Key { policy: None, keys },
            Kind::Document { policy: Some(policy), .. } => {
                let policy = policy.clone();
                if limits.policies()?.iter().any(|named| named.has_groups) {
                    let (shares, timeline) = (Shares::default(), Timeline::new(duration_us));
                    By::Groups { policy, groups, shares, timeline }
                } else {
                    By::Key { policy: Some(policy), keys }
                }
            }
            Kind::Document { policy: None, .. } => {
                let policies =
                    limits.policies()?.into_iter().map(|policy| RulePolicy::new(policy, duration_us));
                let terms = ReservationTerms {
                    id: ReservationId::random()?,
                    ttl: Duration::from_secs(1),
                    timeout: Duration::ZERO,
                    remember: Duration::ZERO,
                };
                let policies = policies.collect::<Result<_, _>>()?;
                By::Rules(Box::new(Rules { facts, terms, policies, denials: HashMap::new() }))
            }
        };
        Ok(Self { clock, start_us, limiter, by })
    }

    #[inline]
    pub(crate) fn decide(&mut self, attempt: &Attempt) -> Result<Verdict, SimulationError> {
        self.clock.set(self.start_us + attempt.time_us)?;
        match &mut self.by {
            By::Key { policy, keys } => {
                let mut request = Request::new(&*keys[attempt.client as usize]).cost(attempt.cost);
                if let Some(policy) = policy {
                    request = request.policy(policy);
                }
                let decision = self.limiter.check(request)?;
                if decision.degraded().is_some() {
                    return Err(store_is_full());
                }
                Ok(Verdict::from(&decision))
            }
            By::Groups { policy, groups, shares, timeline } => {
                let group = group_of(groups, attempt.client);
                let plan = format!("group={group}");
                let request = Request::new("all").policy(policy).plan(&plan).cost(attempt.cost);
                let decision = self.limiter.check(request)?;
                shares.count(group, attempt, decision.allowed(), timeline);
                Ok(Verdict::from(&decision))
            }
            By::Rules(rules) => rules.decide(&self.limiter, attempt),
        }
    }

    /// What rules have decided, `None` when the clients themselves are the keys; and what the groups of the only policy got.
    pub(crate) fn into_parts(self) -> (Option<DecidedByRules>, Shares) {
        match self.by {
            By::Key { .. } => (None, Shares::default()),
            By::Groups { shares, .. } => (None, shares),
            By::Rules(rules) => (Some((rules.policies, rules.denials)), Shares::default()),
        }
    }
}

impl Rules<'_> {
    fn decide(&mut self, limiter: &Limiter, attempt: &Attempt) -> Result<Verdict, SimulationError> {
        let facts = &self.facts[attempt.line as usize];
        let decided = limiter.decide(&facts.attributes(), &self.terms)?;
        for made in &decided.decisions {
            if made.effective_policy().is_only_reserved() {
                return Err(SimulationError::usage(format!(
                    "policy {} counts concurrent requests, and a simulation does not know how long requests take: leave that \
                     quota out",
                    made.policy
                )));
            }
            if made.decision.degraded().is_some() {
                return Err(store_is_full());
            }
            if let Some(id) = made.reservation {
                // A log does not say what the response has reported: the cost is charged, as for a response that reports nothing.
                let request = Request::new(&made.key).policy(&made.policy).cost(made.cost);
                let plan = made.plan.as_deref();
                limiter.commit(plan.map_or(request, |plan| request.plan(plan)), id, None)?;
            }
            let policy = self.policies.iter_mut().find(|policy| policy.policy.policy.name() == &*made.policy);
            let Some(policy) = policy else { continue };
            let key = policy.number(&made.key);
            let of_policy = Attempt { cost: made.cost, ..*attempt };
            if policy.policy.has_groups {
                let group = group_of_plan(made.plan.as_deref());
                policy.shares.count(group, &of_policy, made.decision.allowed(), &policy.tally.timeline);
            }
            policy.tally.count(key, &of_policy, Verdict::from(&made.decision));
        }
        if !decided.allowed {
            let cause = decided.cause.map_or("none", |cause| cause.name());
            *self.denials.entry(cause).or_default() += 1;
        }
        Ok(verdict(&decided))
    }
}

impl RulePolicy {
    fn new(policy: NamedPolicy, duration_us: u64) -> Result<Self, SimulationError> {
        let tally = Tally::new(periods_us(&policy.policy), 0, duration_us)?;
        Ok(Self { policy, numbers: HashMap::new(), keys: Vec::new(), tally, shares: Shares::default() })
    }

    fn number(&mut self, key: &[u8]) -> usize {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = self.keys.len();
        self.keys.push(key.into());
        self.numbers.insert(key.into(), number);
        number
    }
}

/// The name of a client's group.
fn group_of(groups: &[Group], client: u32) -> &str {
    let mut before = 0;
    let found = groups.iter().find(|group| {
        before += group.clients;
        client < before
    });
    found.map_or("*", |group| &group.name)
}

/// The verdict on a request under several policies.
fn verdict(decided: &RequestDecision) -> Verdict {
    Verdict {
        allowed: decided.allowed,
        shadowed: decided.allowed && decided.decisions.iter().any(|made| made.decision.shadowed()),
        retry_after_us: decided.retry_after_us,
        delay_us: decided.decisions.iter().map(|made| made.decision.delay_us()).max().unwrap_or(0),
    }
}

fn store_is_full() -> SimulationError {
    SimulationError::Internal(
        "the memory store is full, so keys share a state: simulate fewer clients".to_owned(),
    )
}
