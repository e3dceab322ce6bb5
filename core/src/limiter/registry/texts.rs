//! A registered policy, and how long quotas as text stay registered.
//!
//! Requests may name any number of texts. So texts wait in a line, each from when it was created or last found in use.
//! Each new text looks at the first ones of the line: one that was used since goes to its end, and so does one that a
//! caller holds, such as a waiting `acquire` or the handle of a reservation. The others are forgotten when there are
//! too many, or when they have waited for long. A text that is forgotten was last used so long ago that no operation
//! can be in flight, and its id is never reused.
//!
//! The first policies of a limiter have counts of their own and are found without a lookup, so they stay.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::limiter::tally::counts::MAX_COUNTED;
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_runtime::monotonic::{self, Instant};
use polylimit_store::charge::PolicyId;
use polylimit_store::policy_table::OfPolicy;

/// How many of the texts in line a new text looks at.
pub(super) const INSPECTED: usize = 8;
/// How many texts of one policy are kept: the same quotas can be written in many ways.
pub(super) const MAX_TEXTS_OF_ONE: usize = 8;

/// How long texts stay.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextBounds {
    /// With more texts the least recently used are forgotten, but not those whose keys would lose their states; with
    /// twice as many, these too.
    pub(super) most: usize,
    /// Texts that were not used for this long are forgotten even when there are few.
    pub(super) idle: Duration,
    /// An operation ends at the latest this long after two deadlines of its store.
    pub(super) in_flight: Duration,
}

impl Default for TextBounds {
    fn default() -> Self {
        Self { most: 1 << 16, idle: Duration::from_secs(3_600), in_flight: Duration::from_secs(1) }
    }
}

/// A policy of a limiter.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: PolicyId,
    pub(super) policy: Policy,
    /// The texts of a policy that is made of quotas, its name among them.
    pub(super) texts: Mutex<Vec<Arc<str>>>,
    /// Whether a request has named it since it was put in line.
    pub(super) used: AtomicBool,
    /// Whether the program refers to it, so that it stays.
    pub(super) stays: AtomicBool,
    pub(super) held: Arc<()>,
}

impl Known {
    pub(super) fn new(id: PolicyId, policy: &Policy) -> Self {
        Self {
            id,
            policy: policy.clone(),
            texts: Mutex::default(),
            used: AtomicBool::new(false),
            stays: AtomicBool::new(false),
            held: Arc::default(),
        }
    }

    /// Records a use.
    #[inline]
    pub(super) fn touch(&self) {
        // Rarely written, so that cores can share the cache line.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// The same for a forked child, without the locks and the callers of the parent.
    pub(super) fn after_fork(&self) -> Arc<Self> {
        let stays = AtomicBool::new(self.stays.load(Ordering::Relaxed));
        Arc::new(Self { stays, ..Self::new(self.id, &self.policy) })
    }
}

impl OfPolicy for Known {
    fn id(&self) -> PolicyId {
        self.id
    }

    fn name(&self) -> &str {
        self.policy.name()
    }
}

/// Keeps a policy known.
#[derive(Debug)]
pub(crate) struct HeldPolicy {
    known: Arc<Known>,
    _held: Arc<()>,
}

impl HeldPolicy {
    pub(super) fn new(known: Arc<Known>) -> Self {
        Self { _held: Arc::clone(&known.held), known }
    }
}

impl Drop for HeldPolicy {
    fn drop(&mut self) {
        // An operation that the caller has just started counts as a use.
        self.known.touch();
    }
}

/// The slots of policies, and the texts in line.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The slots from this one on were never used.
    next: usize,
    /// Slots of forgotten policies.
    pub(super) free: VecDeque<usize>,
    /// How many ids were allocated beyond the first ones.
    serial: u64,
    pub(super) texts: VecDeque<UnusedText>,
}

/// A text in line.
#[derive(Debug)]
pub(super) struct UnusedText {
    pub(super) known: Arc<Known>,
    pub(super) since: Instant,
}

impl Slots {
    /// An id that was never used.
    pub(super) fn take(&mut self) -> Result<PolicyId, Error> {
        if self.next < MAX_COUNTED {
            self.next += 1;
            return Ok(PolicyId::new(0, self.next - 1));
        }
        let slot = match self.free.pop_front() {
            Some(slot) => slot,
            None if self.next < PolicyId::SLOTS => {
                self.next += 1;
                self.next - 1
            }
            None => {
                return Err(Error::invalid_argument(format!(
                    "{} quotas as text are in use at the same time, which is the maximum: use named policies",
                    self.texts.len()
                )));
            }
        };
        self.serial += 1;
        Ok(PolicyId::new(self.serial, slot))
    }

    /// The same for a forked child that knows these policies.
    pub(super) fn after_fork(known: &[Arc<Known>]) -> Self {
        let used: HashSet<usize> = known.iter().map(|known| known.id.slot()).collect();
        let next = used.iter().max().map_or(0, |last| last + 1);
        let is_text = |known: &&Arc<Known>| known.id.index() >= MAX_COUNTED && !known.texts.lock().is_empty();
        let since = monotonic::now();
        let texts = known.iter().filter(is_text);
        Self {
            next,
            free: (MAX_COUNTED..next).filter(|slot| !used.contains(slot)).collect(),
            serial: known.iter().map(|known| known.id.serial()).max().unwrap_or(0),
            texts: texts.map(|known| UnusedText { known: Arc::clone(known), since }).collect(),
        }
    }
}
