//! With leases, several processes together admit no more than the quota admits without them.

mod on_server;
mod server;
mod table;
mod world;

use proptest::prelude::*;
use proptest::sample::select;

use crate::keys::channel::Channel;
use crate::lease::grant::{Grant, repaid_us};
use crate::lease::key_lease::{KeyLease, LeaseKey, Take};
use crate::script::reply::ScriptDecision;
use polylimit_rules::decision::{Decision, QuotaUsage, Several, Source};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::transition::Operation;
use polylimit_rules::units::micros;
use polylimit_runtime::clock::ManualClock;
use polylimit_store::charge::{Action, Charge, PolicyId};
use polylimit_store_memory::MemoryStore;

/// A reply that admits and spends these units, with these views of the quotas.
pub(super) fn admitted(spent: u64, now_us: u64, views: &[QuotaUsage]) -> ScriptDecision {
    let (total, several) = Several::of(views.iter().copied());
    let decision = Decision {
        total,
        several,
        wait_us: 0,
        allowed: true,
        source: Source::Store,
        degraded: None,
        cause: None,
        crossed: false,
        elastic: false,
        shadowed: false,
        repeated: false,
    };
    ScriptDecision { decision, spent, now_us, seen: None, others: Box::default() }
}

const KEY: &[u8] = b"key";
const HOLDERS: usize = 3;
/// The offset between the clock of a process and the store's clock.
const APART_US: u64 = 123_456_789;
const START_US: u64 = 1_700_000_000_000_000;

/// A take in flight: the store has answered it, or has not.
struct Taking {
    holder: usize,
    take: Take,
    asked_us: u64,
    replied: Option<ScriptDecision>,
}

struct World {
    clock: ManualClock,
    store: MemoryStore,
    policy: Policy,
    holders: Vec<KeyLease>,
    taking: Vec<Taking>,
    /// The admitted units, and when.
    admitted: Vec<(u64, u64)>,
    max_age_us: u64,
    leased: u64,
}

impl World {
    fn new(quotas: &str, max_age_us: u64) -> Self {
        let clock = ManualClock::new(START_US).unwrap();
        let policy = Policy::parse("p", quotas).unwrap();
        let store = MemoryStore::new(10, clock.clone().into());
        store.set_policy(PolicyId(0), &policy);
        let lease_key = || LeaseKey { id: PolicyId(0), key: KEY.into(), hash: 0 };
        let holders = (0..HOLDERS).map(|_| {
            let now_us = START_US + APART_US;
            KeyLease::new(lease_key(), Channel::FIRST, 200, max_age_us, policy.quotas(), now_us)
        });
        let holders = holders.collect();
        Self {
            clock,
            store,
            policy,
            holders,
            taking: Vec::new(),
            admitted: Vec::new(),
            max_age_us,
            leased: 0,
        }
    }

    fn here_us(&self) -> u64 {
        self.clock.now_us() + APART_US
    }

    fn ask(&self, operation: Operation, cost: u64) -> ScriptDecision {
        let action = Action::Apply(operation);
        let asked = Charge::new(PolicyId(0), KEY, action, cost);
        let (decision, spent) = self.store.answer(asked).unwrap();
        ScriptDecision { decision, spent, now_us: self.clock.now_us(), seen: None, others: Box::default() }
    }

    fn begin(&mut self, holder: usize, take: Option<Take>) {
        let asked_us = self.here_us();
        self.taking.extend(take.map(|take| Taking { holder, take, asked_us, replied: None }));
    }

    fn check(&mut self, holder: usize, cost: u64) {
        let (now_us, here_us) = (self.clock.now_us(), self.here_us());
        if let Some((_, take)) = self.holders[holder].spend(cost, here_us) {
            self.admitted.push((now_us, cost));
            self.leased += cost;
            return self.begin(holder, take);
        }
        let replied = self.ask(Operation::Check, cost);
        if replied.decision.allowed {
            self.admitted.push((now_us, cost));
            let decision = &replied.decision;
            let repaid_us = repaid_us(self.policy.quotas(), decision, here_us);
            let take = self.holders[holder].missed(cost, decision.remaining(), repaid_us, here_us);
            self.begin(holder, take);
        }
    }

    /// Advances one of the takes by a step.
    fn go_on(&mut self, which: usize) {
        if self.taking.is_empty() {
            return;
        }
        let which = which % self.taking.len();
        if self.taking[which].replied.is_none() {
            let replied = self.ask(Operation::Take, self.taking[which].take.units);
            self.taking[which].replied = Some(replied);
            return;
        }
        let Taking { holder, take, asked_us, replied } = self.taking.swap_remove(which);
        let here_us = self.here_us();
        let replied = replied.unwrap();
        assert_eq!(self.holders[holder].granted(take, &replied, &self.policy, asked_us, here_us), 0);
    }

    /// Refunds expired units, or all units; the refund arrives after a delay.
    fn give_back(&mut self, holder: usize, everything: bool, takes_us: u64) {
        let here_us = self.here_us();
        let holding = &mut self.holders[holder];
        let over: Vec<Grant> = if everything {
            holding.give_up().into_iter().collect()
        } else {
            holding.over(here_us).into_iter().collect()
        };
        let units: u64 = over.iter().map(|held| held.refundable(here_us + takes_us, self.max_age_us)).sum();
        self.pass(takes_us);
        if units > 0 {
            self.ask(Operation::Refund, units);
        }
    }

    fn pass(&self, us: u64) {
        self.clock.set(self.clock.now_us() + us).unwrap();
    }

    /// The bounds of the semantics, for every span from one admission to another.
    fn assert_is_within(&self, quota: &Quota) {
        let (limit, period_us) = (quota.limit(), quota.period_us());
        for (at, (from_us, _)) in self.admitted.iter().enumerate() {
            let mut units = 0;
            for (to_us, cost) in &self.admitted[at..] {
                units += cost;
                let span_us = to_us - from_us;
                let most = match quota.algorithm() {
                    Algorithm::TokenBucket if quota.step().is_none() => {
                        quota.capacity() + span_us * limit / period_us
                    }
                    // One step more than fits the span, since the steps do not start with the span.
                    Algorithm::TokenBucket => {
                        quota.capacity() + (span_us / quota.step_interval_us() + 1) * quota.step().unwrap()
                    }
                    Algorithm::FixedWindow if from_us / period_us == to_us / period_us => limit,
                    Algorithm::SlidingWindow
                        if span_us < period_us - period_us / u64::from(quota.buckets().unwrap()) =>
                    {
                        limit
                    }
                    _ => break,
                };
                assert!(units <= most, "{units} in {span_us} us from {from_us}: at most {most}");
            }
        }
    }
}

fn quotas() -> impl Strategy<Value = &'static str> {
    select(vec![
        "1000/s token_bucket",
        "100/s token_bucket burst=1000",
        "1000/s token_bucket burst=60",
        "500/s token_bucket step=50",
        "1000/s fixed_window aligned",
        "1000/s",
        "1000/2s buckets=4",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leases_admit_no_more_than_the_quota(
        quotas in quotas(),
        max_age_us in select(vec![20_000_u64, 1_000_000, 60_000_000]),
        // The pause before the next event, which is sometimes long.
        pause_us in select(vec![0_u64, 50, 1_000, 20_000]),
        steps in prop::collection::vec((0..100_u32, 0..HOLDERS, 1..=3_u64, any::<u16>()), 1_000),
    ) {
        let mut world = World::new(quotas, max_age_us);
        for (what, holder, cost, any) in steps {
            world.pass(pause_us * u64::from(any) / u64::from(u16::MAX / 2));
            match what {
                0 => world.pass(u64::from(any) * 40),
                1 => world.give_back(holder, true, u64::from(any)),
                2..10 => world.give_back(holder, false, 500),
                10..40 => world.go_on(any.into()),
                _ => (0..4).for_each(|_| world.check(holder, cost)),
            }
        }
        world.assert_is_within(&world.policy.quotas()[0]);
    }
}

/// The purpose of leases: fewer requests to the store. A key with a steady rate is mostly paid for by leased units,
/// even if it uses a small part of its quota.
#[test]
fn most_of_a_steady_use_is_leased() {
    for (quotas, of_quota) in [
        ("1000/s token_bucket", 1),
        ("10000/s token_bucket", 10),
        ("1000/s", 2),
        ("10000/s", 10),
        ("1000/s fixed_window aligned", 2),
        ("10000/m", 2),
    ] {
        let mut world = World::new(quotas, micros(std::time::Duration::from_secs(1)));
        let asked = 4_000;
        for _ in 0..asked {
            let quota = &world.policy.quotas()[0];
            let pause_us = of_quota * quota.period_us() / quota.limit();
            world.pass(pause_us);
            world.check(0, 1);
            world.go_on(0);
            world.give_back(0, false, 0);
        }
        world.assert_is_within(&world.policy.quotas()[0]);
        let admitted: u64 = world.admitted.iter().map(|(_, cost)| cost).sum();
        println!("{quotas}: {admitted} of {asked} admitted, {} of them leased", world.leased);
        assert!(admitted * 10 >= asked * 9, "{quotas}: {admitted} of {asked} admitted");
        assert!(world.leased * 10 >= admitted * 8, "{quotas}: {} of {admitted} leased", world.leased);
    }
}
