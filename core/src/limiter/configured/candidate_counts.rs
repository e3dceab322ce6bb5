//! How often a candidate's quotas and the effective ones agree.

use std::sync::atomic::{AtomicU64, Ordering};

/// How the decisions of a candidate compare with those of the effective quotas, over the checks since either's quotas
/// changed; counted by this limiter before elastic policies and shadow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CandidateCounts {
    /// Both admit.
    pub both_allow: u64,
    /// The effective quotas deny, and the candidate would admit.
    pub only_live_denies: u64,
    /// The effective quotas admit, and the candidate would deny.
    pub only_candidate_denies: u64,
    /// Both deny.
    pub both_deny: u64,
}

/// The same counts while counting, by the decision of the effective quotas, then by the candidate's.
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
