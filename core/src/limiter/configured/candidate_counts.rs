//! How often a candidate's numbers and those in force agree.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a candidate would have decided beside the numbers in force, in checks since either's quotas changed, counted by
/// this limiter before elastic policies and shadow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CandidateCounts {
    /// Both admit.
    pub both_allow: u64,
    /// The numbers in force deny, and the candidate would admit.
    pub only_live_denies: u64,
    /// The numbers in force admit, and the candidate would deny.
    pub only_candidate_denies: u64,
    /// Both deny.
    pub both_deny: u64,
}

/// The same counts, while they are counted; by what the numbers in force decide, and the candidate's.
#[derive(Debug, Default)]
pub(crate) struct CandidateCounters([[AtomicU64; 2]; 2]);

impl CandidateCounters {
    pub(crate) fn count(&self, live_allows: bool, candidate_allows: bool) {
        self.0[usize::from(live_allows)][usize::from(candidate_allows)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> CandidateCounts {
        let of = |live: bool, candidate: bool| {
            self.0[usize::from(live)][usize::from(candidate)].load(Ordering::Relaxed)
        };
        CandidateCounts {
            both_allow: of(true, true),
            only_live_denies: of(false, true),
            only_candidate_denies: of(true, false),
            both_deny: of(false, false),
        }
    }
}
