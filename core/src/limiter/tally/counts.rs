//! The counts that one thread writes, or several together.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polylimit_rules::decision::{Cause, Degradation, Source};
use polylimit_rules::policy::Policy;
use polylimit_rules::transition::Operation;
use polylimit_store::charge::{Action, PolicyId};

/// The policies whose counts are found at once: requests name them without a lookup, too.
pub(crate) const FIRST: usize = 4;
/// The most policies with counts of their own; those beyond are counted together.
pub(crate) const MAX_COUNTED: usize = 1024;
const CHUNK: usize = 32;
const CHUNKS: usize = (MAX_COUNTED + 1 - FIRST).div_ceil(CHUNK);

/// Whether other threads write the same counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    Sole,
    Several,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds to a count that only this thread writes.
    #[inline]
    pub(crate) fn add_sole(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn add(&self, count: u64, writer: Writer) {
        match writer {
            Writer::Sole => self.add_sole(count),
            Writer::Several => _ = self.0.fetch_add(count, Ordering::Relaxed),
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The decisions with one result by one source.
#[derive(Debug, Default)]
pub(crate) struct DecisionCounts {
    pub(crate) decisions: Count,
    /// Their units beyond one for each: most costs are one, and then nothing is added. It wraps where costs are 0.
    pub(crate) more_units: Count,
}

impl DecisionCounts {
    /// Counts a decision for the only thread that writes here.
    #[expect(clippy::inline_always, reason = "it is part of `check_known`")]
    #[inline(always)]
    pub(crate) fn add_sole(&self, cost: u64) {
        self.decisions.add_sole(1);
        if cost != 1 {
            self.more_units.add_sole(cost.wrapping_sub(1));
        }
    }

    pub(crate) fn add(&self, cost: u64, writer: Writer) {
        self.decisions.add(1, writer);
        if cost != 1 {
            self.more_units.add(cost.wrapping_sub(1), writer);
        }
    }
}

/// The counts of one policy. The counts that a check of a store in this process writes are in the first cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct PolicyCounts {
    /// The decisions of the store: denials, admissions.
    by_store: [DecisionCounts; 2],
    /// Admissions that left less than a fifth of a quota.
    pub(crate) near: Count,
    rare: OnceLock<Box<RareCounts>>,
    /// The decisions of the other sources, in the order of [`Source::ALL`].
    by_others: [[DecisionCounts; 2]; Source::ALL.len() - 1],
}

impl PolicyCounts {
    /// The decisions of a source with a result.
    #[expect(clippy::inline_always, reason = "it is part of `check_known`, which knows the source")]
    #[inline(always)]
    pub(crate) fn by(&self, source: Source, allowed: bool) -> &DecisionCounts {
        let by_source = match (source as usize).checked_sub(1) {
            Some(other) => &self.by_others[other],
            None => &self.by_store,
        };
        &by_source[usize::from(allowed)]
    }

    pub(crate) fn rare(&self) -> &RareCounts {
        self.rare.get_or_init(Box::default)
    }

    pub(crate) fn known_rare(&self) -> Option<&RareCounts> {
        self.rare.get().map(|rare| &**rare)
    }
}

const _: () = assert!(Source::Store as usize == 0 && size_of::<PolicyCounts>() == 256);

/// Further counts, allocated when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct RareCounts {
    /// Denials for another cause than a quota of units, in the order of [`Cause::ALL`]; the last are those without a cause.
    pub(crate) causes: [Count; CAUSES],
    /// Denials that were counted for each quota.
    pub(crate) by_quotas: Count,
    pub(crate) quotas: [Count; Policy::MAX_QUOTAS],
    pub(crate) degraded: [Count; Degradation::ALL.len()],
    pub(crate) operations: [OperationCounts; OperationKind::ALL.len()],
    /// Operations that the configuration has answered.
    pub(crate) without_store: Count,
    pub(crate) shadowed: Count,
    pub(crate) elastic: Count,
}

/// The number of causes, and one for decisions without a cause.
pub(crate) const CAUSES: usize = Cause::ALL.len() + 1;

impl RareCounts {
    /// The place of a cause in tables of causes.
    pub(crate) fn place_of(cause: Option<Cause>) -> usize {
        cause.map_or(CAUSES - 1, |cause| cause as usize)
    }
}

#[derive(Debug, Default)]
pub(crate) struct OperationCounts {
    pub(crate) operations: Count,
    pub(crate) units: Count,
}

/// The operations that are counted by their kind. Checks are the decisions that come from none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Reserve,
    Acquire,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
    Commit,
    Cancel,
    Renew,
    Block,
}

impl OperationKind {
    /// Every kind, in the order of their places in tables, with its name.
    pub(crate) const ALL: [(Self, &str); 11] = [
        (Self::Reserve, "reserve"),
        (Self::Acquire, "acquire"),
        (Self::Peek, "peek"),
        (Self::Take, "take"),
        (Self::Charge, "charge"),
        (Self::Refund, "refund"),
        (Self::Reset, "reset"),
        (Self::Commit, "commit"),
        (Self::Cancel, "cancel"),
        (Self::Renew, "renew"),
        (Self::Block, "block"),
    ];

    /// The kind of an action; `None` for a check.
    pub(crate) fn of(action: Action) -> Option<Self> {
        Some(match action {
            Action::Apply(Operation::Check) => return None,
            Action::Apply(Operation::Reserve) => Self::Reserve,
            Action::Apply(Operation::Peek) => Self::Peek,
            Action::Apply(Operation::Take) => Self::Take,
            Action::Apply(Operation::Charge) => Self::Charge,
            Action::Apply(Operation::Refund) => Self::Refund,
            Action::Apply(Operation::Commit) => Self::Commit,
            Action::Apply(Operation::Cancel) => Self::Cancel,
            Action::Apply(Operation::Renew) => Self::Renew,
            Action::Apply(Operation::Block) => Self::Block,
            Action::Reset => Self::Reset,
        })
    }
}

/// The counts of one thread for all policies, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Stripe {
    first: [PolicyCounts; FIRST],
    /// The policies beyond the first, and in the last place all others.
    more: [OnceLock<Box<[PolicyCounts; CHUNK]>>; CHUNKS],
    /// Decisions about requests by rules: denials, admissions, each by cause.
    pub(crate) requests: [[Count; CAUSES]; 2],
}

impl Stripe {
    /// The counts of one of the first policies.
    #[expect(clippy::inline_always, reason = "it is part of `check_known`")]
    #[inline(always)]
    pub(crate) fn first(&self, id: PolicyId) -> Option<&PolicyCounts> {
        self.first.get(id.index())
    }

    pub(crate) fn of(&self, id: PolicyId) -> &PolicyCounts {
        self.first(id).unwrap_or_else(|| {
            let at = id.index().min(MAX_COUNTED) - FIRST;
            &self.more[at / CHUNK].get_or_init(Box::default)[at % CHUNK]
        })
    }

    /// All policies with counts, each with its id; that of the last stands for all policies without counts of their own.
    pub(crate) fn policies(&self) -> impl Iterator<Item = (usize, &PolicyCounts)> {
        let more = self.more.iter().enumerate().filter_map(|(at, chunk)| Some((at, chunk.get()?)));
        let more = more.flat_map(|(at, chunk)| (FIRST + at * CHUNK..).zip(chunk.iter()));
        self.first.iter().enumerate().chain(more)
    }
}
