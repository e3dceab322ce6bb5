//! Random quotas, policies and histories: every algorithm, from a unit a millisecond to a large prime a year; moves of the
//! clock, operations and costs.

use std::ops::RangeInclusive;
use std::time::Duration;

use polylimit::quota::{Algorithm, QuotaBuilder};
use polylimit::{Policy, Quota, Request};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const SECOND_US: u64 = 1_000_000;
const DAY_US: u64 = 86_400 * SECOND_US;
const LONGEST_US: u64 = 366 * DAY_US;

/// Mostly small, so that histories of a few steps meet the limit; sometimes so large that a tick is coarse.
fn units() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1_u64..=5, 4 => 6_u64..=200, 2 => 1_u64..=10_000_000, 1 => 1..=Quota::MAX_UNITS]
}

fn period_us() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => (1_u64..=90).prop_map(|seconds| seconds * SECOND_US),
        2 => (1_u64..=1_000).prop_map(|ms| ms * 1_000),
        2 => 1_000_u64..=3 * SECOND_US,
        2 => (1_u64..=366).prop_map(|days| days * DAY_US),
        1 => 1_000..=LONGEST_US,
    ]
}

fn builder(algorithm: Algorithm, limit: u64, period_us: u64) -> QuotaBuilder {
    Quota::builder(limit, Duration::from_micros(period_us)).algorithm(algorithm)
}

fn bucket() -> impl Strategy<Value = QuotaBuilder> {
    let algorithm = prop_oneof![Just(Algorithm::TokenBucket), Just(Algorithm::LeakyBucket)];
    (algorithm, units(), period_us(), option::of(units())).prop_map(|(algorithm, limit, period_us, burst)| {
        let bucket = builder(algorithm, limit, period_us);
        burst.map_or(bucket.clone(), |burst| bucket.burst(burst))
    })
}

/// The interval is chosen first, so that it is whole.
fn stepped_bucket() -> impl Strategy<Value = QuotaBuilder> {
    let steps = (1_u64..=50, 1_u64..=20, period_us(), option::of(units()));
    steps.prop_map(|(step, steps, interval_us, burst)| {
        let bucket = builder(Algorithm::TokenBucket, step * steps, interval_us * steps).step(step);
        burst.map_or(bucket.clone(), |burst| bucket.burst(burst))
    })
}

fn fixed_window() -> impl Strategy<Value = QuotaBuilder> {
    (units(), period_us(), any::<bool>()).prop_map(|(limit, period_us, aligned)| {
        builder(Algorithm::FixedWindow, limit, period_us).aligned(aligned)
    })
}

/// The sub-window is chosen first, so that it divides the period.
fn sliding_window() -> impl Strategy<Value = QuotaBuilder> {
    let buckets = prop_oneof![Just(1_u32), Just(10), 1..=Quota::MAX_BUCKETS];
    (units(), period_us(), buckets).prop_map(|(limit, period_us, buckets)| {
        let width_us = period_us / u64::from(buckets);
        builder(Algorithm::SlidingWindow, limit, width_us * u64::from(buckets)).buckets(buckets)
    })
}

fn sliding_log() -> impl Strategy<Value = QuotaBuilder> {
    (units(), period_us()).prop_map(|(limit, period_us)| builder(Algorithm::SlidingLog, limit, period_us))
}

/// Boxed, because a strategy is as large as all of its parts, and these fill the stack of a test's thread.
fn built(builders: impl Strategy<Value = QuotaBuilder> + 'static) -> BoxedStrategy<Quota> {
    // The builder refuses numbers that cannot be counted exactly.
    builders.prop_filter_map("refused", |builder| builder.build().ok()).boxed()
}

/// A quota that admits requests and does not count denied ones.
pub(crate) fn plain_quota() -> impl Strategy<Value = Quota> {
    built(prop_oneof![
        2 => bucket(), 1 => stepped_bucket(), 1 => fixed_window(), 2 => sliding_window(), 1 => sliding_log()
    ])
}

/// Any quota.
pub(crate) fn quota() -> impl Strategy<Value = Quota> {
    let counting = built(
        prop_oneof![bucket(), stepped_bucket(), fixed_window(), sliding_window(), sliding_log()]
            .prop_map(|builder| builder.count_denied(true)),
    );
    let soft = built(
        (
            prop_oneof![bucket(), stepped_bucket(), fixed_window(), sliding_window(), sliding_log()],
            1_u64..=100,
        )
            .prop_map(|(builder, percent)| builder.excess_percent(percent)),
    )
    .prop_filter("more remains than a request may cost", |quota| quota.capacity() <= Request::MAX_COST);
    let nothing = (period_us(), option::of(1_u64..10)).prop_map(|(period_us, burst)| {
        let bucket = builder(Algorithm::TokenBucket, 0, period_us);
        burst.map_or(bucket.clone(), |burst| bucket.burst(burst))
    });
    prop_oneof![20 => plain_quota(), 4 => counting, 4 => soft, 1 => built(nothing)]
}

fn policy_of(quotas: impl Strategy<Value = Vec<Quota>>) -> impl Strategy<Value = Policy> {
    quotas.prop_filter_map("two quotas of the same identity", |quotas| Policy::new("p", quotas).ok())
}

/// A policy of one to three quotas of any kind.
pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    policy_of(prop_oneof![3 => vec(quota(), 1), 2 => vec(quota(), 2..=3)])
}

/// A policy of at least two quotas.
pub(crate) fn policy_of_several() -> impl Strategy<Value = Policy> {
    policy_of(vec(quota(), 2..=3))
}

/// A policy of this quota only.
pub(crate) fn policy_of_one(quota: &Quota) -> Policy {
    Policy::new("p", [quota.clone()]).unwrap()
}

/// The largest cost that can ever be admitted.
pub(crate) fn capacity(policy: &Policy) -> u64 {
    policy.quotas().iter().map(Quota::capacity).min().unwrap()
}

/// Whether a denied check changes the state.
pub(crate) fn counts_denied(policy: &Policy) -> bool {
    policy.quotas().iter().any(Quota::count_denied)
}

/// Microseconds of a period.
pub(crate) fn in_us(quota: &Quota) -> u64 {
    u64::try_from(quota.period().as_micros()).unwrap()
}

/// The tick in which a bucket is counted: the finest power of ten of a microsecond that keeps its products exact.
pub(crate) fn tick_us(quota: &Quota) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let fits = |tick_us: &u64| {
        let period = in_us(quota) / tick_us;
        8 * u128::from(quota.capacity()) * u128::from(period / gcd(quota.limit(), period)) <= 1 << 53
    };
    std::iter::successors(Some(1_u64), |tick_us| Some(tick_us * 10)).find(fits).unwrap()
}

/// An operation on the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
}

/// How the clock moves before the operation, relative to what the session knows by then.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Stay,
    By(u64),
    /// By a part of the first quota's period, in thousandths.
    Part(u64),
    /// To the next multiple of the first quota's sub-window (its period where there is none), or 1 us before it.
    Boundary {
        before: bool,
    },
    /// To when the same cost would be admitted, or 1 us before that.
    Retry {
        before: bool,
    },
    /// To when nothing counts any more, or 1 us before that.
    Reset {
        before: bool,
    },
    /// Back by a part of the first quota's period, in thousandths.
    Back(u64),
}

/// The cost of a request, relative to the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    Units(u64),
    /// A part of the capacity, in thousandths.
    Part(u64),
}

impl Cost {
    pub(crate) fn of(self, policy: &Policy) -> u64 {
        match self {
            Self::Units(units) => units,
            Self::Part(part) => scaled(capacity(policy), part).min(Request::MAX_COST),
        }
    }
}

/// One step of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) to: Move,
    pub(crate) operation: Operation,
    pub(crate) cost: Cost,
}

/// A part of a number, in thousandths.
pub(crate) fn scaled(whole: u64, part: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(part) / 1_000).unwrap()
}

/// The time between two boundaries of windows or sub-windows of the first quota.
pub(crate) fn stride_us(policy: &Policy) -> u64 {
    let quota = &policy.quotas()[0];
    in_us(quota) / u64::from(quota.buckets().unwrap_or(1))
}

pub(crate) fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        3 => Just(Cost::Units(1)),
        2 => (0_u64..=6).prop_map(Cost::Units),
        4 => (1_u64..=1_000).prop_map(Cost::Part),
        1 => (1_000_u64..=1_100).prop_map(Cost::Part),
    ]
}

/// Moves of a clock that never goes back.
pub(crate) fn forward() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::Stay),
        2 => (1_u64..=3).prop_map(Move::By),
        3 => (1_u64..=1_000).prop_map(Move::Part),
        1 => (1_000_u64..=20_000).prop_map(Move::Part),
        2 => any::<bool>().prop_map(|before| Move::Boundary { before }),
        3 => any::<bool>().prop_map(|before| Move::Retry { before }),
        1 => any::<bool>().prop_map(|before| Move::Reset { before }),
    ]
}

/// Moves of a clock that sometimes goes back.
pub(crate) fn any_move() -> impl Strategy<Value = Move> {
    let back = prop_oneof![Just(Move::Back(0)), (0_u64..=1_500).prop_map(Move::Back)];
    prop_oneof![9 => forward(), 1 => back]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        10 => Just(Operation::Check),
        1 => Just(Operation::Peek),
        2 => Just(Operation::Take),
        3 => Just(Operation::Charge),
        2 => Just(Operation::Refund),
        1 => Just(Operation::Reset),
    ]
}

/// A history of this many steps with these moves.
pub(crate) fn steps(
    moves: impl Strategy<Value = Move>,
    count: RangeInclusive<usize>,
) -> impl Strategy<Value = Vec<Step>> {
    vec((moves, operation(), cost()).prop_map(|(to, operation, cost)| Step { to, operation, cost }), count)
}

/// The start of a history: mostly between 2020 and 2033, sometimes soon after the epoch.
pub(crate) fn start_us() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 1_600_000_000_000_000_u64..2_000_000_000_000_000, 1 => 0_u64..10_000_000_000]
}
