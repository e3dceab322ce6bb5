//! Random histories: how far the clock moves, what is asked, at what cost.

use std::ops::RangeInclusive;

use polylimit::{Policy, Request};
use proptest::collection::vec;
use proptest::prelude::*;

use super::quotas::{capacity, in_us};

/// What is done to the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
}

/// How the clock moves before that, in terms of what a session knows when it comes to it.
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

/// What is asked for, in terms of the policy.
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

/// The distance between two instants at which the first quota's arithmetic turns over.
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

/// Moves of a clock that goes back now and then.
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

/// A history of so many steps with these moves.
pub(crate) fn steps(
    moves: impl Strategy<Value = Move>,
    count: RangeInclusive<usize>,
) -> impl Strategy<Value = Vec<Step>> {
    vec((moves, operation(), cost()).prop_map(|(to, operation, cost)| Step { to, operation, cost }), count)
}

/// When a history starts: mostly in these years, sometimes soon after the epoch.
pub(crate) fn start_us() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 1_600_000_000_000_000_u64..2_000_000_000_000_000, 1 => 0_u64..10_000_000_000]
}
